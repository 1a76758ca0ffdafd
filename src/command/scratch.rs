//! Buffers that calls reuse, so that a check allocates nothing of its own.
//!
//! Taken out for a call and put back after it, so a call within a call (a module
//! that reacts to a keyspace event) simply gets fresh ones.

use super::spelled::Spelled;
use crate::limit::{Rule, Ruling};
use crate::parse::{Fault, Known, Memo, ParseError};
use crate::policy::Named;
use crate::server::{Call, PerServer};

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub rulings: Vec<Ruling>,
    pub lexicon: Lexicon,
    pub spelled: Spelled,
}

/// What the words of a call stand for.
#[derive(Debug, Default)]
pub struct Lexicon {
    /// The policies that the call names.
    pub named: Named,
    memo: Memo,
}

impl Known for Lexicon {
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], Fault> {
        self.named.find(name)
    }

    #[inline]
    fn rule(&mut self, text: &[u8]) -> Option<Result<Rule, ParseError>> {
        self.memo.rule(text)
    }
}

/// None while a call has them.
static SCRATCH: PerServer<Option<Box<Scratch>>> = PerServer::new(None);

/// Runs a call with the buffers, whatever the last call left in them. A call
/// that panics loses them.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.replace(call, None).unwrap_or_default();
    let result = body(&mut scratch);
    scratch.lexicon.named.clear();
    drop(SCRATCH.replace(call, Some(scratch)));
    result
}
