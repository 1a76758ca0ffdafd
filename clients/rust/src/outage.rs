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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_docs_errors_are_told_apart() {
        let is_outage_of = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            is_outage(&reply.extract_error().unwrap_err())
        };
        for text in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down",
            "UNBLOCKED client unblocked via CLIENT UNBLOCK",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 3999 127.0.0.1:6381",
            "ERR max number of clients reached",
            "ERR this replica skipped effects of version 2",
            "ERR internal error, see the server's log",
        ] {
            assert!(is_outage_of(text), "{text}");
        }
        for text in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair",
            "NOPERM this user has no permissions",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "EXECABORT Transaction discarded because of previous errors.",
            "ERR unknown command 'RL.CHECK'",
            "ERR rule '5/x': the period 'x' has no known unit",
        ] {
            assert!(!is_outage_of(text), "{text}");
        }
    }
}
