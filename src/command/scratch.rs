//! Buffers that calls reuse, so that a check allocates nothing of its own.
//!
//! A call within a call (a module that reacts to a keyspace event) simply gets
//! fresh ones.

use super::spelled::Spelled;
use crate::limit::{Rule, Ruling};
use crate::parse::{Buckets, Fault, Known, Memo, ParseError};
use crate::policy::Named;
use crate::server::{Call, PerServer};

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub rulings: Vec<Ruling>,
    pub lexicon: Lexicon,
    pub buckets: Buckets,
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

    #[inline(always)]
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
        self.memo.rule(text, rules)
    }
}

static SCRATCH: PerServer<Scratch> = PerServer::empty();

/// Runs a call with the buffers, whatever the last call left in them.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(call, |scratch| {
        let result = body(scratch);
        scratch.lexicon.named.clear();
        result
    })
}
