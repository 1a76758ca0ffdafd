//! The commands: a table that describes each to the server and gives its syntax, and their handlers.
//!
//! A handler reads from top to bottom: parse, open, decide, store, propagate, signal, reply. It does
//! no arithmetic on units: [`ratelimit_engine::check`] computes them. RL.CHECK and RL.THROTTLE open
//! the key before they parse, so that the value is prefetched meanwhile. RL.CHECK is three functions:
//! `check` opens and parses; `decide` tries the fast path, then stores, propagates and replies;
//! `general` decides if the fast path does not. RL.WAIT calls `decide`, too.
//!
//! ```text
//! check, wait, peek, mcheck, throttle     decide
//! any                                     RL.MCHECK with ANY
//! refund, access                          change a key
//! sync                                    follows an upstream
//! holds                                   RL.SETTLE and RL.RENEW
//! blocks, info, top, explain              show
//! policy                                  rules under a name
//! internal                                RL.APPLY and RL.LOAD: effects and values that were
//!                                         replicated or saved
//!
//! opened                                  an open key, the consequences of a change, and its effect
//! several                                 several open keys, and the consequences of their changes
//! enforcement                             checks that are observed, or off
//! answer                                  the reply of a check
//! audit                                   the server's log of changes by administrators
//! request                                 the state of a request, memory that requests reuse, plans
//! line                                    the clients that wait
//! ```
//!
//! Any other file has the command that it is named after. `access` has RL.BLOCK, RL.EXEMPT, RL.PAUSE,
//! RL.PLAN and the commands that end these; `refund` also has RL.RESET, and `info` RL.LOG.

mod access;
mod answer;
mod any;
mod audit;
mod blocks;
mod check;
#[cfg(test)]
mod documented_commands;
#[cfg(test)]
mod documented_errors;
mod enforcement;
mod explain;
mod holds;
mod info;
mod internal;
mod line;
mod mcheck;
mod opened;
mod peek;
mod policy;
mod refund;
mod request;
mod several;
mod sync;
mod throttle;
mod top;
mod wait;

pub use wait::{refuse_unserved as refuse_unserved_waiters, serve as serve_waiters};

use std::ffi::CStr;

use crate::server::callback::{on_command, on_command_or_keys};
use crate::server::commands::{Audience, Command, KeyUse};
use crate::server::{Call, CommandError};
use enforcement::gate;
use ratelimit_protocol::parse::{ParseError, RuleArgError};

/// Tip: the reply depends on the time.
const CLOCK: &CStr = c"nondeterministic_output";
/// Tips: clients send the command to each primary of a cluster, and it succeeds if
/// all succeed.
const EVERY_SHARD: &CStr = c"request_policy:all_shards response_policy:all_succeeded";

/// All commands, with or without `CL.THROTTLE`.
pub fn table(throttle_alias: bool) -> impl Iterator<Item = &'static Command> + Clone {
    TABLE.iter().filter(move |command| throttle_alias || command.name != CL_THROTTLE)
}

/// redis-cell's name for `RL.THROTTLE`.
const CL_THROTTLE: &CStr = c"cl.throttle";

/// What most commands have. A row of the table overrides it.
const USUAL: Command = Command {
    name: c"",
    syntax: "key",
    handler: None,
    flags: c"write fast",
    audience: Audience::Client,
    key: KeyUse::Update,
    tips: c"",
    summary: c"",
    complexity: c"O(1)",
};

const CHECK: Command = Command {
    name: c"rl.check",
    syntax: "key [COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] [META text] \
             [HOLD id EX seconds|PX milliseconds [REFUND]] [AT unix-time-microseconds] [FULL] \
             rule [rule ...]",
    handler: on_command(gate(check::check, enforcement::check)),
    flags: c"write fast deny-oom",
    tips: CLOCK,
    summary: c"Asks whether a request passes all rules and, if so, counts it.",
    complexity: c"O(R) with R rules; a log rule adds O(log N) with N requests in its window.",
    ..USUAL
};

const THROTTLE: Command = Command {
    name: c"rl.throttle",
    syntax: "key max-burst count-per-period period-seconds [quantity]",
    handler: on_command(gate(throttle::throttle, enforcement::throttle)),
    flags: c"write fast deny-oom",
    tips: CLOCK,
    summary: c"Takes from a token bucket, or says when to come back, as redis-cell does.",
    ..USUAL
};

const BLOCK: Command = Command {
    name: c"rl.block",
    syntax: "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|\
             FOR period] [REASON reason]",
    handler: on_command(access::block),
    audience: Audience::Administrator,
    summary: c"Blocks a key: every check of it is refused, and its counts are kept.",
    ..USUAL
};

/// `RL.UNBLOCK` and `RL.UNEXEMPT`.
const UNBLOCK: Command = Command {
    name: c"rl.unblock",
    syntax: "key",
    handler: on_command(access::unblock),
    key: KeyUse::Delete,
    summary: c"Ends the block of a key, and forgets its bans.",
    ..BLOCK
};

/// The container of the subcommands.
const POLICY: Command = Command {
    name: c"rl.policy",
    syntax: "",
    handler: on_command(policy::policy),
    flags: c"write",
    audience: Audience::Administrator,
    key: KeyUse::None,
    // For clients that ignore the tips of subcommands, such as redis-py 8.
    tips: c"request_policy:all_shards",
    summary: c"Keeps rules under a name.",
    complexity: c"Depends on subcommand.",
};

static TABLE: [Command; 32] = [
    CHECK,
    Command {
        name: c"rl.wait",
        syntax: "key milliseconds [FLOW flow [WEIGHT weight]] [PRIORITY priority] \
                 [COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] [META text] \
                 [HOLD id EX seconds|PX milliseconds [REFUND]] [FULL] rule [rule ...]",
        handler: on_command(gate(wait::wait, enforcement::wait)),
        flags: c"write deny-oom blocking",
        summary: c"Waits in line until a request passes all rules, and counts it then.",
        complexity: c"As RL.CHECK; waiting adds O(log W) with W waiters, and a look at each flow that is passed over.",
        ..CHECK
    },
    Command {
        name: c"rl.peek",
        syntax: "key [COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] \
                 [AT unix-time-microseconds] [FULL] rule [rule ...]",
        handler: on_command(gate(peek::peek, enforcement::peek)),
        flags: c"readonly fast",
        key: KeyUse::Read,
        summary: c"Asks whether a request would pass all rules, and counts nothing.",
        ..CHECK
    },
    Command {
        name: c"rl.mcheck",
        syntax: "numkeys key [key ...] [COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] \
                 [META text] [HOLD id EX seconds|PX milliseconds [REFUND]] \
                 [AT unix-time-microseconds] [FULL] [ANY [MOST]] rule [rule ...] \
                 [NEXT rule [rule ...] [NEXT rule [rule ...] ...]]",
        handler: on_command_or_keys(gate(mcheck::mcheck, enforcement::mcheck), mcheck::keys),
        flags: c"write deny-oom",
        summary: c"Asks whether a request passes several keys, or one of them, and counts it then.",
        complexity: c"O(K*R) with K keys and R rules a key; a log rule adds O(log N) with N requests in its window.",
        ..CHECK
    },
    Command {
        name: c"rl.refund",
        syntax: "key units [AT unix-time-microseconds] [rule [rule ...]]",
        handler: on_command(refund::refund),
        key: KeyUse::Delete,
        summary: c"Gives units back, to all states of a key or to those of the rules.",
        complexity: c"O(S) with S states; a log adds O(N) with N requests given back.",
        ..USUAL
    },
    Command {
        name: c"rl.settle",
        syntax: "key id [REFUND|COST cost|name=cost [COST cost|name=cost ...]] \
                 [AT unix-time-microseconds]",
        handler: on_command(holds::settle),
        key: KeyUse::Delete,
        tips: CLOCK,
        summary: c"Ends a hold of a key, and corrects what it was charged.",
        complexity: c"O(R*log H) with R rules of the hold and H holds; a log adds O(N) with N requests given back.",
        ..USUAL
    },
    Command {
        name: c"rl.renew",
        syntax: "key id EX seconds|PX milliseconds [AT unix-time-microseconds]",
        handler: on_command(holds::renew),
        tips: CLOCK,
        summary: c"Moves the end of a key's hold, if the hold has not lapsed.",
        complexity: c"O(log H) with H holds.",
        ..USUAL
    },
    Command {
        name: c"rl.reset",
        handler: on_command(refund::reset),
        key: KeyUse::Delete,
        summary: c"Forgets what a key consumed, keeps its block or exemption.",
        complexity: c"O(S) with S states.",
        ..USUAL
    },
    Command {
        name: c"rl.sync",
        syntax: "key REMAINING remaining [AT unix-time-microseconds] rule",
        handler: on_command(sync::sync),
        flags: c"write fast deny-oom",
        tips: CLOCK,
        summary: c"Lowers what remains of a rule to what an upstream says remains.",
        complexity: c"O(S) with S states; a log adds O(log N) with N requests in its window.",
        ..USUAL
    },
    Command {
        name: c"rl.pause",
        syntax: "key EX seconds|PX milliseconds|EXAT unix-time-seconds|\
                 PXAT unix-time-milliseconds|FOR period [REASON reason]",
        handler: on_command(access::pause),
        tips: CLOCK,
        summary: c"Denies every check of a key until an upstream wants requests again.",
        ..USUAL
    },
    Command {
        name: c"rl.resume",
        handler: on_command(access::resume),
        key: KeyUse::Delete,
        tips: CLOCK,
        summary: c"Ends the pause of a key.",
        ..USUAL
    },
    BLOCK,
    UNBLOCK,
    Command {
        name: c"rl.exempt",
        handler: on_command(access::exempt),
        summary: c"Exempts a key: every check of it is allowed, and nothing is counted.",
        ..BLOCK
    },
    Command {
        name: c"rl.unexempt",
        handler: on_command(access::unexempt),
        summary: c"Ends the exemption of a key.",
        ..UNBLOCK
    },
    Command {
        name: c"rl.plan",
        syntax: "key policy [EX seconds|PX milliseconds|EXAT unix-time-seconds|\
                 PXAT unix-time-milliseconds|FOR period]",
        handler: on_command(access::plan),
        flags: c"write fast deny-oom",
        summary: c"Binds a policy to a key, for the checks that ask for its plan.",
        ..BLOCK
    },
    Command {
        name: c"rl.unplan",
        handler: on_command(access::unplan),
        summary: c"Ends the plan of a key.",
        ..UNBLOCK
    },
    Command {
        name: c"rl.blocks",
        syntax: "cursor [MATCH pattern] [COUNT count]",
        handler: on_command(blocks::blocks),
        flags: c"readonly",
        audience: Audience::Administrator,
        key: KeyUse::None,
        tips: c"request_policy:special nondeterministic_output",
        summary: c"Scans the keyspace for keys that are blocked or exempt.",
        complexity: c"O(1) a step, O(N) for a whole scan with N keys in the database.",
    },
    Command {
        name: c"rl.log",
        syntax: "key [COUNT count]",
        handler: on_command(info::log),
        flags: c"readonly",
        key: KeyUse::Read,
        summary: c"Shows the last checks of a key, newest first.",
        complexity: c"O(N) with N checks shown.",
        ..USUAL
    },
    Command {
        name: c"rl.info",
        handler: on_command(info::info),
        flags: c"readonly",
        key: KeyUse::Read,
        tips: CLOCK,
        summary: c"Shows what a key holds: states, block or exemption, sizes.",
        complexity: c"O(S) with S states.",
        ..USUAL
    },
    Command {
        name: c"rl.top",
        syntax: "[SHADOW] [COUNT count] [RESET]",
        handler: on_command(top::top),
        flags: c"readonly",
        audience: Audience::Operator,
        key: KeyUse::None,
        tips: c"request_policy:all_shards nondeterministic_output",
        summary: c"Shows the keys of this server that were most often denied lately.",
        complexity: c"O(K) with K the setting top-size.",
    },
    Command {
        name: c"rl.explain",
        syntax: "rule [rule ...]",
        handler: on_command(explain::explain),
        flags: c"fast allow-loading allow-stale",
        key: KeyUse::None,
        summary: c"Says in words what rules mean.",
        complexity: c"O(R) with R rules.",
        ..USUAL
    },
    THROTTLE,
    Command { name: CL_THROTTLE, ..THROTTLE },
    POLICY,
    Command {
        name: c"rl.policy|set",
        syntax: "name rule [rule ...]",
        flags: c"write deny-oom",
        tips: EVERY_SHARD,
        summary: c"Sets or replaces a policy.",
        complexity: c"O(R) with R rules.",
        ..POLICY
    },
    Command {
        name: c"rl.policy|get",
        syntax: "name",
        flags: c"readonly fast",
        tips: c"",
        summary: c"Shows the rules of a policy.",
        complexity: c"O(R) with R rules.",
        ..POLICY
    },
    Command {
        name: c"rl.policy|del",
        syntax: "name [FORCE]",
        flags: c"write fast",
        tips: EVERY_SHARD,
        summary: c"Deletes a policy.",
        complexity: c"O(1)",
        ..POLICY
    },
    Command {
        name: c"rl.policy|list",
        flags: c"readonly",
        tips: c"",
        summary: c"Shows the names of all policies.",
        complexity: c"O(N log N) with N policies.",
        ..POLICY
    },
    Command {
        name: c"rl.policy|help",
        flags: c"fast allow-loading allow-stale",
        tips: c"",
        summary: c"Shows helpful text about the subcommands.",
        complexity: c"O(1)",
        ..POLICY
    },
    Command {
        name: c"rl.apply",
        syntax: "key effect [detail [detail ...]]",
        handler: on_command(internal::apply),
        flags: c"write admin",
        audience: Audience::Internal,
        summary: c"Internal: does what a command did on a primary.",
        complexity: c"As the command that did it.",
        ..USUAL
    },
    Command {
        name: c"rl.load",
        syntax: "key payload",
        handler: on_command(internal::load),
        flags: c"write admin",
        audience: Audience::Internal,
        key: KeyUse::Overwrite,
        summary: c"Internal: sets a key to a saved value.",
        complexity: c"O(N) with N bytes of payload.",
        ..USUAL
    },
];

/// Follows a change of the settings.
pub fn on_settings_changed(call: &Call<'_>) {
    top::resize(call);
    enforcement::note();
}

/// Notes the settings with which the module is loaded.
pub fn on_settings_loaded() {
    enforcement::note();
}

impl From<ParseError> for CommandError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Arity => Self::WrongArity,
            ParseError::Rule { error: RuleArgError::UnknownPolicy, .. } => {
                Self::UnknownPolicy(error.to_string().into())
            }
            error => Self::Because(error.to_string().into()),
        }
    }
}
