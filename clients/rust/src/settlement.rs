//! The commands that correct what was charged.

use std::time::Duration;

use redis::Cmd;

use crate::check::{Cost, ms};

/// How a hold ends: `AsCharged`, `Refund`, or `Cost` with the real cost of the work. Its slots are free
/// in any case.
pub type Settlement = ratelimit_core::Settlement<Cost>;

/// A command with its key.
pub fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

/// `RL.SETTLE`.
pub fn settle_command(key: &[u8], id: &str, settlement: &Settlement) -> Cmd {
    let mut command = command("RL.SETTLE", key);
    command.arg(id);
    match settlement {
        Settlement::AsCharged => {}
        Settlement::Refund => {
            command.arg("REFUND");
        }
        Settlement::Cost(cost) => cost.write(&mut command),
    }
    command
}

/// `RL.RENEW`.
pub fn renew_command(key: &[u8], id: &str, ttl: Duration) -> Cmd {
    let mut command = command("RL.RENEW", key);
    command.arg(id).arg("PX").arg(ms(ttl));
    command
}

/// `RL.REFUND`.
pub fn refund_command(key: &[u8], units: u64, rules: &[String]) -> Cmd {
    let mut command = command("RL.REFUND", key);
    command.arg(units).arg(rules);
    command
}
