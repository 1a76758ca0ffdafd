//! Reads arguments into typed requests.
//!
//! ```text
//! [&[u8]] --cursor--> arguments, integers --check, refund, ...--> CheckRequest, ...
//!                     rule text --resolver, rules--> Rule         tested against Limits
//! ```
//!
//! A request borrows its bytes. Reading one for a single key allocates only for the options that
//! few requests have: `COST a..b`, `COST name=n`, `META` and `HOLD`. Rules go to a `Vec` that the
//! caller reuses. A parser clears it first, and the rules in it are valid only if the parser
//! returns `Ok`.
//!
//! Parsing is total: any bytes give a request or a [`ParseError`], whose text is one line, fit
//! for a RESP error. The error is about the first wrong argument, from left to right, and says
//! what was given and what was expected. Parsing opens no key and knows no server:
//! [`ratelimit_engine::rule`] defines valid rules, and [`Limits`] what the settings allow.

mod access;
mod check;
mod costs;
pub(crate) mod cursor;
mod error;
mod explain;
mod hold;
mod limits;
mod mcheck;
pub(crate) mod policy;
mod refund;
mod resolver;
pub(crate) mod rules;
pub(crate) mod settle;
mod shown;
mod sync;
mod throttle;
mod wait;

pub use access::{AccessRequest, Ends, PlanRequest, access, pause, plan};
pub use check::{CheckRequest, check, peek};
pub use cursor::no_arguments;
pub use error::{ParseError, Parsed, RuleArgError};
pub use explain::explain;
pub use hold::{RenewRequest, renew};
pub use limits::{Limits, MAX_FLOW};
pub use mcheck::{Any, Group, MCheckRequest, mcheck};
pub use policy::{MOST_RULES, PolicyRequest, policy, written_policy};
pub use refund::{RefundRequest, refund};
pub use resolver::{DirectMapped, NoPolicies, PlanOf, RuleCache, RuleResolver};
pub use settle::{SettleRequest, settle, without_at};
pub use shown::{BlocksRequest, TopRequest, blocks, log, top};
pub use sync::{SyncRequest, sync};
pub use throttle::{Bucket, ThrottleRequest, throttle};
pub use wait::{WaitRequest, wait};

/// Arguments for the tests of this module, and the texts of the rules that were read.
#[cfg(test)]
mod test_lines {
    use super::Limits;
    use ratelimit_engine::rule::Rule;

    pub const LIMITS: Limits = Limits {
        max_rules: 3,
        max_log_entries: 1000,
        same_identity: false,
        allow_at: true,
        max_meta: 8,
        log_entries: 128,
        observe: false,
    };
    pub const UNTIMED: Limits = Limits { allow_at: false, ..LIMITS };

    /// The words of a line as arguments; `''` is an empty one.
    pub fn args(line: &str) -> impl Iterator<Item = &[u8]> + Clone {
        line.split_whitespace().map(|word| if word == "''" { b"" } else { word.as_bytes() })
    }

    pub fn texts_of(rules: &[Rule]) -> String {
        rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests;
