//! Which errors mean that the server gave no decision, and what a check answers then.

use redis::{ErrorKind, RedisError, ServerErrorKind, make_extension_error};

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

/// Replies of a server that cannot serve now, beside those that `redis` has a kind for.
const CODES: [&str; 5] = ["BUSY", "OOM", "MISCONF", "NOREPLICAS", "UNBLOCKED"];
/// Such replies without a code.
const TEXTS: [&str; 3] = ["max number of clients", "internal error", "this replica skipped"];

/// A server that answers, but does not limit until somebody changes its configuration or the client's,
/// by what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misconfiguration {
    Module,
    Password,
    Rights,
}

impl Misconfiguration {
    pub fn of(error: &RedisError) -> Option<Self> {
        // Servers put the name in quotes of different kinds.
        let is_unknown = || {
            let name = error.detail()?.strip_prefix("unknown command ")?.get(1..4)?;
            name.eq_ignore_ascii_case("RL.").then_some(())
        };
        match error.kind() {
            ErrorKind::AuthenticationFailed => Some(Self::Password),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Some(Self::Rights),
            ErrorKind::Server(ServerErrorKind::ResponseError) if is_unknown().is_some() => {
                Some(Self::Module)
            }
            ErrorKind::Extension => match error.code()? {
                "NOAUTH" | "WRONGPASS" => Some(Self::Password),
                "NOPERM" => Some(Self::Rights),
                _ => None,
            },
            _ => None,
        }
    }

    /// What to do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Module => "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md",
            Self::Password => "give the client the password",
            Self::Rights => "give the user the rights +@ratelimit ~keys, see SECURITY.md",
        }
    }
}

/// Whether an error means that the server gave no decision: no reply came, the server cannot serve now,
/// or it does not limit: it lacks the module, or the client lacks the password or the rights. An error of
/// a wrong request (`CROSSSLOT`, `WRONGTYPE`, a wrong rule, ...) does not, nor does a limiter that
/// [is saturated](is_saturated).
#[must_use]
pub fn is_outage(error: &RedisError) -> bool {
    Misconfiguration::of(error).is_some() || gives_no_decision(error)
}

fn gives_no_decision(error: &RedisError) -> bool {
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

/// No server replies this.
const SATURATED: &str = "SATURATED";

/// Whether this process asks more than [`Builder::concurrency`](crate::Builder::concurrency) lets it, so
/// that a command found no place within [`Builder::queue_timeout`](crate::Builder::queue_timeout). That
/// is never an outage.
#[must_use]
pub fn is_saturated(error: &RedisError) -> bool {
    error.code() == Some(SATURATED)
}

pub(crate) fn saturated() -> RedisError {
    let why = "as many commands as `concurrency` allows were under way for all of `queue_timeout`";
    make_extension_error(SATURATED.to_string(), Some(why.to_string()))
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
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair",
            "NOPERM this user has no permissions",
            "ERR unknown command 'RL.CHECK', with args beginning with: 'a' '5/m'",
            "ERR unknown command `rl.check`, with args beginning with: `a`, `5/m`, ",
        ] {
            assert!(is_outage_of(text), "{text}");
        }
        for text in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "EXECABORT Transaction discarded because of previous errors.",
            "ERR unknown command 'JSON.GET', with args beginning with: 'a'",
            "ERR rule '5/x': the period 'x' has no known unit",
        ] {
            assert!(!is_outage_of(text), "{text}");
        }
        assert!(is_saturated(&saturated()) && !is_outage(&saturated()));
    }
}
