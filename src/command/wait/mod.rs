//! `RL.WAIT`: replies when this request may pass, first come, first served.

mod look;
mod waiters;

use super::check;
use crate::server::{Call, CommandError};
use waiters::Joined;
pub use waiters::serve;

/// `RL.WAIT key ms [COST n|a..b|name=n ...] [META text] [HOLD id EX s|PX ms [REFUND]] [FULL]
/// rule [rule ...]`
pub fn wait(call: &Call<'_>) -> Result<(), CommandError> {
    look::with_request(call, |request, scratch| {
        if call.may_wait() {
            match waiters::join(call, look::look(call, &request, scratch)?)? {
                Joined::Waits => return Ok(()),
                Joined::IsDecided => {}
                Joined::IsDenied { wait_ms } => {
                    return look::deny(call, &request, scratch, wait_ms);
                }
            }
        }
        check::decide(call, scratch, |_, _| Ok(request.check))
    })
}
