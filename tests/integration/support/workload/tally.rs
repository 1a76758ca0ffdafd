//! The replies to the commands of a workload.

use std::ops::AddAssign;

use redis::{Arg, Cmd, Value};

/// How many checks had each outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub allowed: u32,
    pub limited: u32,
    pub blocked: u32,
    /// The allowed checks of several keys.
    pub allowed_mchecks: u32,
}

impl Tally {
    /// Counts a reply. Panics on a reply that no command should get.
    pub(super) fn count(&mut self, command: &Cmd, reply: &Value) {
        match reply {
            // RENAME of a key that does not exist.
            Value::ServerError(error) if error.details() == Some("no such key") => {}
            Value::ServerError(error) if repeats_with_other_costs(error.details()) => {}
            Value::ServerError(error) => panic!("{}: {error:?}", words(command)),
            Value::Array(items) => match items[..] {
                [Value::Int(0), _, _, _, Value::Int(_)]
                | [Value::Int(0), _, _, _, Value::Int(_), Value::Int(_)] => {
                    self.allowed += 1;
                    self.allowed_mchecks += u32::from(is_mcheck_of_several(command));
                }
                [Value::Int(1), _, _, _, Value::Int(_)]
                | [Value::Int(1), _, _, _, Value::Int(_), Value::Int(_)] => self.limited += 1,
                [Value::Int(2), _, _, _, Value::Int(_)]
                | [Value::Int(2), _, _, _, Value::Int(_), Value::Int(_)] => self.blocked += 1,
                _ => items.iter().for_each(|item| self.count(command, item)),
            },
            _ => {}
        }
    }
}

/// Whether an error says that a check repeated the id of a hold with other costs. A script adds
/// its position to the error.
fn repeats_with_other_costs(error: Option<&str>) -> bool {
    error.is_some_and(|error| error.contains("was taken with other costs"))
}

/// `RL.MCHECK` with more than one key.
fn is_mcheck_of_several(command: &Cmd) -> bool {
    let mut words = command.args_iter();
    let is = |arg, words: &[u8]| matches!(arg, Some(Arg::Simple(word)) if word == words);
    is(words.next(), b"RL.MCHECK") && !is(words.next(), b"1")
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.limited += other.limited;
        self.blocked += other.blocked;
        self.allowed_mchecks += other.allowed_mchecks;
    }
}

/// The words of a command, for the message of a failure.
fn words(command: &Cmd) -> String {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => bytes.escape_ascii().to_string(),
        _ => "?".into(),
    };
    command.args_iter().map(word).collect::<Vec<_>>().join(" ")
}
