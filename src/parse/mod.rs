//! Arguments to typed requests.
//!
//! ```text
//! [&[u8]] --cursor--> words, integers --request--> CheckRequest ...
//!                      rule text -------rule-----> RuleSpec -> Rule
//! ```
//!
//! Bytes are borrowed, never copied, and nothing is allocated while all is
//! well: rules go to a `Vec` the caller reuses. Parsing is total: any bytes
//! give a request or a [`ParseError`] that says what was given and what was
//! expected, in one line fit for a RESP error. It opens no key and knows no
//! server; what a rule may be in itself is [`crate::rule`]'s business,
//! what the server's configuration lets it be is [`Limits`]' here.

pub mod access;
pub mod cursor;
pub mod direct_mapped;
pub mod error;
pub mod look;
pub mod mcheck;
pub mod policy;
pub mod request;
pub mod resolver;
pub mod throttle;

pub use access::{AccessRequest, Ends, access};
pub use error::{ParseError, RuleArgError};
pub use look::{ScanRequest, TopRequest, log, nothing, scan, top};
pub use mcheck::{Group, MCheckRequest, many};
pub use policy::{MOST_RULES, PolicyRequest, policy, written_policy};
pub use request::{CheckRequest, Limits, RefundRequest, check, explain, peek, refund};
pub use resolver::{Memo, NoPolicies, RuleResolver};
pub use throttle::{Buckets, Quantity, ThrottleRequest, throttle};

/// The rules of a line, for the tests of other layers.
#[cfg(test)]
pub fn rules_of_line(line: &str) -> Vec<crate::rule::Rule> {
    let mut rules = Vec::new();
    explain(line.split(' ').map(str::as_bytes), &Limits::ANY, &mut NoPolicies, &mut rules).unwrap();
    rules
}
