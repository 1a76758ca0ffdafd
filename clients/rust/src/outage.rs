//! Which errors mean that the server gave no decision, and what a check answers then.

use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, make_extension_error};

use crate::value::is_unreadable;

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
/// The first words of replies without a code from a server that cannot serve now.
const TEXTS: [&str; 3] = ["max number of clients", "internal error", "this replica skipped"];

/// Whether the server ended the wait of a client in line, because an operator asked for it or it cannot
/// serve the key any more.
pub fn is_unblocked(error: &RedisError) -> bool {
    error.code() == Some("UNBLOCKED")
}

/// What is missing if a server answers but does not limit. This lasts until somebody changes the
/// configuration of the server or of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misconfiguration {
    Module,
    Password,
    Rights,
    /// The rights to run the script that stands in for the module.
    Scripts,
    /// Readable replies.
    Replies,
}

/// Commands that the clients send, without `RL.`. An application may misspell any other.
const OWN: [&str; 12] = [
    "CHECK", "MCHECK", "PEEK", "WAIT", "SETTLE", "RENEW", "REFUND", "RESET", "PAUSE", "RESUME",
    "SYNC", "INFO",
];
/// Commands that [`Outage`] answers. A missing right to any other says nothing about checks.
const CHECKS: [&str; 4] = ["CHECK", "MCHECK", "PEEK", "WAIT"];

fn is_one_of(commands: &[&str], name: &str) -> bool {
    commands.iter().any(|command| command.eq_ignore_ascii_case(name))
}

impl Misconfiguration {
    pub fn of(error: &RedisError) -> Option<Self> {
        let (found, command) = Self::refusing(error)?;
        let command = command.unwrap_or_default();
        let is_of_checks = match found {
            Self::Module => is_one_of(&OWN, command),
            Self::Password | Self::Scripts | Self::Replies => true,
            Self::Rights => command.is_empty() || is_one_of(&CHECKS, command),
        };
        is_of_checks.then_some(found)
    }

    /// Why the server refuses a command (a check or any other), and the command's name without `RL.`
    /// if the reply has the name.
    fn refusing(error: &RedisError) -> Option<(Self, Option<&str>)> {
        let text = error.detail().unwrap_or_default();
        // Servers put the name in quotes of different kinds.
        let named_after = |words: &str| {
            let (_, quoted) = text.split_once(words)?;
            let (prefix, rest) = quoted.get(1..)?.split_at_checked(3)?;
            let name = rest.split(['\'', '`']).next()?;
            prefix.eq_ignore_ascii_case("RL.").then_some(name)
        };
        let rights = || {
            let runs_scripts = text.contains(" run the 'eval");
            let of_scripts = runs_scripts.then_some((Self::Scripts, None));
            of_scripts.unwrap_or_else(|| (Self::Rights, named_after(" run the ")))
        };
        match error.kind() {
            ErrorKind::AuthenticationFailed => Some((Self::Password, None)),
            ErrorKind::Parse => Some((Self::Replies, None)),
            _ if is_unreadable(error) => Some((Self::Replies, None)),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Some(rights()),
            ErrorKind::Server(ServerErrorKind::ResponseError) => {
                named_after("unknown command ").map(|name| (Self::Module, Some(name)))
            }
            ErrorKind::Extension => match error.code()? {
                "NOAUTH" | "WRONGPASS" => Some((Self::Password, None)),
                "NOPERM" => Some(rights()),
                _ => None,
            },
            _ => None,
        }
    }

    /// What to do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Module => {
                "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
            }
            Self::Password => "give the client the password",
            Self::Rights => "give the user the rights +@ratelimit ~keys, see SECURITY.md",
            Self::Scripts => {
                "give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md"
            }
            Self::Replies => "ask a server with this version of the module, and nothing between",
        }
    }
}

/// Whether an error means that the server gave no decision: no reply came, the server cannot serve
/// now, or it does not limit (it lacks the module, or the client lacks the password or the rights
/// to checks). These are no outages: an error of a wrong request (`CROSSSLOT`, `WRONGTYPE`, a wrong
/// rule, ...), a missing right to another command, a limiter that [is saturated](is_saturated).
pub fn is_outage(error: &RedisError) -> bool {
    Misconfiguration::of(error).is_some() || is_away(error)
}

/// Whether no reply came, or the server cannot serve now.
pub(crate) fn is_away(error: &RedisError) -> bool {
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
            // A cluster client has given up following redirections.
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => true,
            _ => error.detail().is_some_and(|text| TEXTS.iter().any(|start| text.starts_with(start))),
        },
        ErrorKind::Extension => error.code().is_some_and(|code| CODES.contains(&code)),
        _ => false,
    }
}

/// A code that no server replies.
const SATURATED: &str = "SATURATED";

/// Whether this process asks more than [`Builder::concurrency`](crate::Builder::concurrency) lets it, so
/// that a command found no place within [`Builder::queue_timeout`](crate::Builder::queue_timeout). That
/// is never an outage.
pub fn is_saturated(error: &RedisError) -> bool {
    error.code() == Some(SATURATED)
}

/// The error of a time-out.
pub(crate) fn late(timeout: Duration) -> RedisError {
    let why = format!("time-out after {} ms", timeout.as_millis());
    io::Error::new(io::ErrorKind::TimedOut, why).into()
}

pub(crate) fn saturated() -> RedisError {
    let why = "as many commands as `concurrency` allows were under way for all of `queue_timeout`";
    make_extension_error(SATURATED.to_string(), Some(why.to_string()))
}
