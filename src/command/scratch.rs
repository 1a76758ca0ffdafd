//! Buffers that calls reuse, so that a check allocates nothing of its own.
//!
//! Taken out for a call and put back after it: the lock is held for a moment
//! only, and a call within a call (a module that reacts to a keyspace event)
//! simply gets fresh ones.

use lazy_static::lazy_static;
use std::sync::{Mutex, PoisonError};

use crate::limit::{Rule, Ruling};
use crate::parse::{Fault, Known, Memo, ParseError};
use crate::policy::Named;

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub rulings: Vec<Ruling>,
    pub lexicon: Lexicon,
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
    fn rule(&mut self, text: &[u8]) -> Result<Rule, ParseError> {
        self.memo.rule(text)
    }
}

lazy_static! {
    static ref SCRATCH: Mutex<Scratch> = Mutex::default();
}

fn exchange(scratch: Scratch) -> Scratch {
    // Buffers are good whatever happened to the call that had them last.
    let mut place = SCRATCH.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut place, scratch)
}

/// Runs a call with the buffers, whatever the last call left in them.
pub fn with<T>(call: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = exchange(Scratch::default());
    let result = call(&mut scratch);
    scratch.lexicon.named.clear();
    exchange(scratch);
    result
}
