//! Buffers that calls reuse, so that a check allocates nothing of its own.
//!
//! Taken out for a call and put back after it: the lock is held for a moment
//! only, and a call within a call (a module that reacts to a keyspace event)
//! simply gets fresh ones.

use lazy_static::lazy_static;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    fn rule(&mut self, text: &[u8]) -> Option<Result<Rule, ParseError>> {
        self.memo.rule(text)
    }
}

lazy_static! {
    /// None while a call has them.
    static ref SCRATCH: Mutex<Option<Box<Scratch>>> = Mutex::default();
}

fn place() -> MutexGuard<'static, Option<Box<Scratch>>> {
    // Buffers are good whatever happened to the call that had them last.
    SCRATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call with the buffers, whatever the last call left in them.
#[inline]
pub fn with<T>(call: impl FnOnce(&mut Scratch) -> T) -> T {
    let taken = place().take();
    let mut scratch = taken.unwrap_or_default();
    let result = call(&mut scratch);
    scratch.lexicon.named.clear();
    *place() = Some(scratch);
    result
}
