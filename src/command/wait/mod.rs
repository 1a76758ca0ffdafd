//! `RL.WAIT`: answer when this request may pass, first come, first served.

mod look;
mod waiters;

use super::check;
use crate::server::{Call, CommandError};
use waiters::Joined;
pub use waiters::serve;

/// `RL.WAIT key ms [COST n|a..b|name=n ...] [META text] [HOLD id EX s|PX ms [REFUND]] [FULL]
/// rule [rule ...]`
pub fn wait(call: &Call<'_>) -> Result<(), CommandError> {
    if !call.may_wait() {
        return check::of_wait(call);
    }
    match waiters::join(call, look::look(call)?)? {
        Joined::Waits => Ok(()),
        Joined::IsDecided => check::of_wait(call),
        Joined::IsDenied { wait_ms } => look::deny(call, wait_ms),
    }
}
