//! Saved values, one of whose lists is any bytes: random bytes rarely make a payload of lists
//! within lists whose lengths are right. The first byte chooses the list.

use super::payload;
use crate::limit::parts;

pub fn run(data: &[u8]) {
    if let Some((&number, bytes)) = data.split_first() {
        payload::run(&parts::wrap(number, bytes));
    }
}
