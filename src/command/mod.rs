//! The commands: what the server is told about each, and its handler.
//!
//! A handler is one function, read from top to bottom: parse, open, decide,
//! store, replicate, signal, reply. It does no arithmetic: what a reply says
//! was computed by `limit/`.
//!
//! ```text
//! check     RL.CHECK, RL.PEEK
//! giveback  RL.REFUND, RL.RESET
//! explain   RL.EXPLAIN
//! effect    RL.APPLY, RL.LOAD     internal: what a primary or the AOF says was done
//! ```

#![forbid(unsafe_code)]

mod check;
mod effect;
mod expiry;
mod explain;
mod giveback;
mod scratch;

use crate::parse::ParseError;
use crate::server::Failure;
use crate::server::callback::on_command;
use crate::server::commands::{Command, KeyUse, Param};

const RULES: Param = Param::string(c"rule").repeated();
const COST: Param = Param::integer(c"cost").after(c"COST").optional();
const AT: Param = Param::integer(c"unix-time-microseconds").after(c"AT").optional();
const FULL: Param = Param::word(c"full", c"FULL").optional();

pub static TABLE: [Command; 7] = [
    Command {
        name: c"rl.check",
        handler: on_command(check::check),
        flags: c"write fast deny-oom",
        arity: -3,
        key: KeyUse::Consume,
        summary: c"Asks whether a request passes all rules and, if so, counts it.",
        complexity: c"O(R) with R rules; a log rule adds O(log N) with N requests in its window.",
        args: &[Param::key(), COST, AT, FULL, RULES],
    },
    Command {
        name: c"rl.peek",
        handler: on_command(check::peek),
        flags: c"readonly fast",
        arity: -3,
        key: KeyUse::Read,
        summary: c"Asks whether a request would pass all rules, and counts nothing.",
        complexity: c"O(R) with R rules; a log rule adds O(log N) with N requests in its window.",
        args: &[Param::key(), COST, AT, FULL, RULES],
    },
    Command {
        name: c"rl.refund",
        handler: on_command(giveback::refund),
        flags: c"write fast",
        arity: -3,
        key: KeyUse::GiveBack,
        summary: c"Gives units back, to all states of a key or to those of the rules.",
        complexity: c"O(S) with S states; a log adds O(N) with N requests given back.",
        args: &[Param::key(), Param::integer(c"units"), AT, RULES.optional()],
    },
    Command {
        name: c"rl.reset",
        handler: on_command(giveback::reset),
        flags: c"write fast",
        arity: 2,
        key: KeyUse::GiveBack,
        summary: c"Forgets what a key consumed, keeps its block or exemption.",
        complexity: c"O(S) with S states.",
        args: &[Param::key()],
    },
    Command {
        name: c"rl.explain",
        handler: on_command(explain::explain),
        flags: c"fast allow-loading allow-stale",
        arity: -2,
        key: KeyUse::None,
        summary: c"Says in words what rules mean.",
        complexity: c"O(R) with R rules.",
        args: &[RULES],
    },
    Command {
        name: c"rl.apply",
        handler: on_command(effect::apply),
        flags: c"write admin",
        arity: -6,
        key: KeyUse::Consume,
        summary: c"Internal: records what a primary's check or refund did.",
        complexity: c"As the command that did it.",
        args: &[
            Param::key(),
            Param::integer(c"unix-time-microseconds"),
            Param::string(c"effect"),
            Param::integer(c"units"),
            Param::integer(c"expiry-unix-time-milliseconds"),
            RULES.optional(),
        ],
    },
    Command {
        name: c"rl.load",
        handler: on_command(effect::load),
        flags: c"write admin",
        arity: 3,
        key: KeyUse::Replace,
        summary: c"Internal: sets a key to a saved value.",
        complexity: c"O(N) with N bytes of payload.",
        args: &[Param::key(), Param::string(c"payload")],
    },
];

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Arity => Self::WrongArity,
            error => Self::Because(error.to_string().into()),
        }
    }
}
