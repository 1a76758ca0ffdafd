//! `RL.TOP`: the keys of this server most often denied lately.

use lazy_static::lazy_static;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config;
use crate::parse;
use crate::server::{Call, Failure, clock};
use crate::top::Top;

lazy_static! {
    static ref TOP: Mutex<Top> = Mutex::new(Top::new(0));
}

/// The sketch, as large as the configuration says.
fn top(size: usize) -> MutexGuard<'static, Top> {
    let mut top = TOP.lock().unwrap_or_else(PoisonError::into_inner);
    top.resize(size);
    top
}

/// A check of this key was denied.
#[inline]
pub fn denied(key: &[u8], now_us: u64) {
    let size = config::top_size();
    if size > 0 {
        top(size).count(key, now_us);
    }
}

/// `RL.TOP [COUNT n] [RESET]`
pub fn show(call: &Call<'_>) -> Result<(), Failure> {
    let request = parse::top(call.args().from(1).bytes())?;
    let mut top = top(config::top_size());
    let rows = top.largest(clock::now_us(), request.count);
    call.reply(|to| {
        to.array(rows.len());
        for row in rows {
            to.array(3);
            to.text(row.key);
            to.count(row.count);
            to.count(row.since_us / 1_000);
        }
    });
    if request.reset {
        top.clear();
    }
    Ok(())
}
