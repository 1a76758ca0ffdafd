//! Saved values with arbitrary bytes in place of one list. Random bytes alone rarely form a
//! payload, because the lengths of its nested lists must be right. The first byte chooses the
//! list.

use super::payload;
use ratelimit_engine::testing::parts;

pub fn run(data: &[u8]) {
    if let Some((&number, bytes)) = data.split_first() {
        payload::run(&parts::wrap(number, bytes));
    }
}
