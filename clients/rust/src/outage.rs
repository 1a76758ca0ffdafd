//! What an outage is, and what a check answers then.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What a check answers if the server gives no decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// The error.
    #[default]
    Raise,
    /// It passes.
    Allow,
    /// It is denied, with a wait of one second.
    Deny,
    /// A limiter in the process decides by the same rules.
    Local,
}

/// The limiter has stopped asking the server, or asks it again.
#[derive(Clone, Debug)]
pub struct OutageEvent {
    /// Whether it has stopped.
    pub away: bool,
    /// The last outage.
    pub error: RedisError,
    /// How many requests got no decision from the server since it went away.
    pub answered: u64,
}

/// Replies of a server that cannot serve now, beside those that `redis` has a kind for.
const CODES: [&str; 5] = ["BUSY", "OOM", "MISCONF", "NOREPLICAS", "UNBLOCKED"];
/// Such replies without a code.
const TEXTS: [&str; 3] = ["max number of clients", "internal error", "this replica skipped"];

/// Whether an error means that the server gave no decision: no reply came, or the server cannot
/// serve now. An error of a wrong request (`CROSSSLOT`, `NOPERM`, `WRONGTYPE`, ...) does not.
#[must_use]
pub fn is_outage(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel => true,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            // A client of a cluster that has given up following.
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => true,
            _ => error.detail().is_some_and(|text| TEXTS.iter().any(|start| text.starts_with(start))),
        },
        ErrorKind::Extension => error.code().is_some_and(|code| CODES.contains(&code)),
        _ => false,
    }
}
