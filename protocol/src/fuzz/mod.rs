//! The fuzz targets, one per file. Each is a function of bytes that panics if the crate breaks
//! a promise.
//!
//! ```text
//! rule_text    rules are read, printed and read again; errors are printable
//! arguments    every parser, given any arguments
//! effects      effects are read, written and read again, and performed on a limiter
//! payload      any bytes decode to a limiter or to an error
//! parts        as payload, with any bytes as one list of an otherwise valid payload
//! operations   checks, refunds and steps of the clock, compared with the naive models
//! holds        holds, settled and lapsed, under the laws of holds
//! ```
//!
//! The first three take text: spaces end arguments, and line feeds end effects. `payload` takes
//! the bytes of a saved value, so a server's payload is an input without changes. In `parts` the
//! first byte chooses the list. In the last two targets, bytes choose rules and calls.
//!
//! ```text
//! sound        what must hold of every limiter
//! traffic      turns bytes into traffic for the laws
//! corpus       runs the inputs of fuzz/corpus as a unit test
//! ```
//!
//! `fuzz/` has a program for each target, and `make fuzz` runs them.

pub mod arguments;
#[cfg(test)]
mod corpus;
pub mod effects;
pub mod holds;
pub mod operations;
pub mod parts;
pub mod payload;
pub mod rule_text;
mod sound;
mod traffic;

use std::fmt::Display;

/// The arguments of a text. Two spaces in a row have an empty argument between them.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|&byte| byte == b' ').take(if text.is_empty() { 0 } else { usize::MAX })
}

/// Tests that an error is one line of plain text, as a RESP error must be.
fn assert_printable(error: &impl Display) {
    let line = error.to_string();
    assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
}
