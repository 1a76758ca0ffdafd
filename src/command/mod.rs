//! The commands: a table that describes each to the server, and their handlers.
//!
//! A handler is one function, read from top to bottom: parse, open, decide,
//! store, propagate, signal, reply. It does no arithmetic on units:
//! [`ratelimit_core::check`] computes them.
//!
//! ```text
//! check, wait, peek, mcheck, throttle     decide
//! refund, reset, standing                 change a key
//! pause, sync                             follow an upstream
//! holds                                   RL.SETTLE and RL.RENEW
//! blocks, log, info, top, explain         show
//! policy                                  rules under a name
//! internal                                RL.APPLY and RL.LOAD: effects and values that were
//!                                         replicated or saved
//!
//! opened                                  an open key, and the consequences of a change
//! effect_args                             the rules of an effect
//! answer                                  the reply of a check
//! scratch                                 buffers and caches
//! line                                    the clients that wait
//! ```
//!
//! Other files have the commands of their names; `standing` has RL.BLOCK, RL.EXEMPT, RL.UNBLOCK and
//! RL.UNEXEMPT, `pause` RL.PAUSE and RL.RESUME.

mod answer;
mod blocks;
mod check;
#[cfg(test)]
mod documented_errors;
mod effect_args;
mod explain;
mod holds;
mod info;
mod internal;
mod line;
mod log;
mod mcheck;
mod opened;
mod pause;
mod peek;
mod policy;
mod refund;
mod reset;
mod scratch;
mod standing;
mod sync;
mod throttle;
mod top;
mod wait;

pub use wait::{refuse_unserved as refuse_unserved_waiters, serve as serve_waiters};

use std::ffi::CStr;

use crate::server::CommandError;
use crate::server::callback::{on_command, on_command_or_keys};
use crate::server::commands::{Audience, Command, KeyUse, Keys, Param};
use ratelimit_protocol::parse::ParseError;

/// Tip: the reply depends on the time.
const CLOCK: &CStr = c"nondeterministic_output";
/// Tips: clients send the command to each primary of a cluster, and it succeeds if
/// all succeed.
const EVERY_SHARD: &CStr = c"request_policy:all_shards response_policy:all_succeeded";

const RULE: Param = Param::string(c"rule");
const RULES: Param = RULE.repeated();
const NEXT_RULES: Param =
    Param::group(c"next-rules", &[Param::word(c"next", c"NEXT"), RULES]).repeated().optional();
const NAME: Param = Param::string(c"name");
const META: Param = Param::string(c"text").after(c"META").optional();
const COUNT: Param = Param::integer(c"count").after(c"COUNT").optional();
const REASON: Param = Param::string(c"reason").after(c"REASON").optional();
/// The costs of a check.
const COST: Param = Param::one_of(
    c"cost",
    &[Param::integer(c"cost"), Param::string(c"a..b"), Param::string(c"name=cost")],
)
.after(c"COST")
.repeated_with_word()
.optional();
/// The real cost of a request.
const ACTUAL_COST: Param =
    Param::one_of(c"cost", &[Param::integer(c"cost"), Param::string(c"name=cost")])
        .after(c"COST")
        .repeated_with_word();
/// How long to keep a hold.
const HOLD_TIME: Param = Param::one_of(
    c"time",
    &[Param::integer(c"seconds").after(c"EX"), Param::integer(c"milliseconds").after(c"PX")],
);
const HOLD: Param = Param::group(
    c"hold",
    &[Param::string(c"id").after(c"HOLD"), HOLD_TIME, Param::word(c"refund", c"REFUND").optional()],
)
.optional();
/// Where in line to wait.
const FLOW: Param = Param::group(
    c"flow",
    &[Param::string(c"flow").after(c"FLOW"), Param::integer(c"weight").after(c"WEIGHT").optional()],
)
.optional();
const PRIORITY: Param = Param::integer(c"priority").after(c"PRIORITY").optional();
/// How a hold is settled.
const SETTLEMENT: Param =
    Param::one_of(c"settlement", &[Param::word(c"refund", c"REFUND"), ACTUAL_COST]).optional();
const END: Param = Param::one_of(
    c"end",
    &[
        Param::integer(c"seconds").after(c"EX"),
        Param::integer(c"milliseconds").after(c"PX"),
        Param::unix_time(c"unix-time-seconds").after(c"EXAT"),
        Param::unix_time(c"unix-time-milliseconds").after(c"PXAT"),
        Param::string(c"period").after(c"FOR"),
    ],
);
const AT: Param = Param::integer(c"unix-time-microseconds").after(c"AT").optional();
const FULL: Param = Param::word(c"full", c"FULL").optional();
const BUCKET: &[Param] = &[
    Param::key(),
    Param::integer(c"max-burst"),
    Param::integer(c"count-per-period"),
    Param::integer(c"period-seconds"),
    Param::integer(c"quantity").optional(),
];

/// All commands, with or without `CL.THROTTLE`.
pub fn table(throttle_alias: bool) -> impl Iterator<Item = &'static Command> + Clone {
    TABLE.iter().filter(move |command| throttle_alias || command.name != CL_THROTTLE)
}

/// redis-cell's name of `RL.THROTTLE`.
const CL_THROTTLE: &CStr = c"cl.throttle";

/// The description of `RL.THROTTLE` under either of its names.
const fn throttle(name: &'static CStr) -> Command {
    Command {
        name,
        handler: on_command(throttle::throttle),
        flags: c"write fast deny-oom",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Update),
        tips: CLOCK,
        summary: c"Takes from a token bucket, or says when to come back, as redis-cell does.",
        complexity: c"O(1)",
        args: BUCKET,
    }
}

/// The other commands of blocks and exemptions copy the fields that they do not replace.
const BLOCK: Command = Command {
    name: c"rl.block",
    handler: on_command(standing::block),
    flags: c"write fast",
    audience: Audience::Administrator,
    keys: Keys::First(KeyUse::Update),
    tips: c"",
    summary: c"Blocks a key: every check of it is refused, and its counts are kept.",
    complexity: c"O(1)",
    args: &[Param::key(), END.optional(), REASON],
};

/// `RL.RESUME` copies the fields that it does not replace.
const PAUSE: Command = Command {
    name: c"rl.pause",
    handler: on_command(pause::pause),
    flags: c"write fast",
    audience: Audience::Client,
    keys: Keys::First(KeyUse::Update),
    tips: CLOCK,
    summary: c"Denies every check of a key until an upstream wants requests again.",
    complexity: c"O(1)",
    args: &[Param::key(), END, REASON],
};

/// Subcommands copy the fields that they do not replace.
const POLICY: Command = Command {
    name: c"rl.policy",
    handler: on_command(policy::policy),
    flags: c"write",
    audience: Audience::Administrator,
    keys: Keys::None,
    // For clients that ignore the tips of subcommands, such as redis-py 8.
    tips: c"request_policy:all_shards",
    summary: c"Keeps rules under a name.",
    complexity: c"Depends on subcommand.",
    args: &[],
};

static TABLE: [Command; 30] = [
    Command {
        name: c"rl.check",
        handler: on_command(check::check),
        flags: c"write fast deny-oom",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Update),
        tips: CLOCK,
        summary: c"Asks whether a request passes all rules and, if so, counts it.",
        complexity: c"O(R) with R rules; a log rule adds O(log N) with N requests in its window.",
        args: &[Param::key(), COST, META, HOLD, AT, FULL, RULES],
    },
    Command {
        name: c"rl.wait",
        handler: on_command(wait::wait),
        flags: c"write deny-oom blocking",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Update),
        tips: CLOCK,
        summary: c"Waits in line until a request passes all rules, and counts it then.",
        complexity: c"As RL.CHECK; waiting adds O(log W) with W waiters, and a look at each flow that is passed over.",
        args: &[
            Param::key(),
            Param::integer(c"milliseconds"),
            FLOW,
            PRIORITY,
            COST,
            META,
            HOLD,
            FULL,
            RULES,
        ],
    },
    Command {
        name: c"rl.peek",
        handler: on_command(peek::peek),
        flags: c"readonly fast",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Read),
        tips: CLOCK,
        summary: c"Asks whether a request would pass all rules, and counts nothing.",
        complexity: c"O(R) with R rules; a log rule adds O(log N) with N requests in its window.",
        args: &[Param::key(), COST, AT, FULL, RULES],
    },
    Command {
        name: c"rl.mcheck",
        handler: on_command_or_keys(mcheck::mcheck, mcheck::keys),
        flags: c"write deny-oom",
        audience: Audience::Client,
        keys: Keys::Counted(KeyUse::Update),
        tips: CLOCK,
        summary: c"Asks whether a request passes all rules of several keys and, if so, counts it.",
        complexity: c"O(K*R) with K keys and R rules a key; a log rule adds O(log N) with N requests in its window.",
        args: &[
            Param::integer(c"numkeys"),
            Param::key().repeated(),
            COST,
            META,
            HOLD,
            AT,
            FULL,
            RULES,
            NEXT_RULES,
        ],
    },
    Command {
        name: c"rl.refund",
        handler: on_command(refund::refund),
        flags: c"write fast",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Delete),
        tips: c"",
        summary: c"Gives units back, to all states of a key or to those of the rules.",
        complexity: c"O(S) with S states; a log adds O(N) with N requests given back.",
        args: &[Param::key(), Param::integer(c"units"), AT, RULES.optional()],
    },
    Command {
        name: c"rl.settle",
        handler: on_command(holds::settle),
        flags: c"write fast",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Delete),
        tips: CLOCK,
        summary: c"Ends a hold of a key, and corrects what it was charged.",
        complexity: c"O(R*log H) with R rules of the hold and H holds; a log adds O(N) with N requests given back.",
        args: &[Param::key(), Param::string(c"id"), SETTLEMENT, AT],
    },
    Command {
        name: c"rl.renew",
        handler: on_command(holds::renew),
        flags: c"write fast",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Update),
        tips: CLOCK,
        summary: c"Moves the end of a hold of a key that has not lapsed.",
        complexity: c"O(log H) with H holds.",
        args: &[Param::key(), Param::string(c"id"), HOLD_TIME, AT],
    },
    Command {
        name: c"rl.reset",
        handler: on_command(reset::reset),
        flags: c"write fast",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Delete),
        tips: c"",
        summary: c"Forgets what a key consumed, keeps its block or exemption.",
        complexity: c"O(S) with S states.",
        args: &[Param::key()],
    },
    Command {
        name: c"rl.sync",
        handler: on_command(sync::sync),
        flags: c"write fast deny-oom",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Update),
        tips: CLOCK,
        summary: c"Consumes what leaves a rule no more than an upstream says remains.",
        complexity: c"O(S) with S states; a log adds O(log N) with N requests in its window.",
        args: &[Param::key(), Param::integer(c"remaining").after(c"REMAINING"), AT, RULE],
    },
    PAUSE,
    Command {
        name: c"rl.resume",
        handler: on_command(pause::resume),
        keys: Keys::First(KeyUse::Delete),
        summary: c"Ends the pause of a key.",
        args: &[Param::key()],
        ..PAUSE
    },
    BLOCK,
    Command {
        name: c"rl.unblock",
        handler: on_command(standing::unblock),
        keys: Keys::First(KeyUse::Delete),
        summary: c"Ends the block of a key, and forgets its bans.",
        args: &[Param::key()],
        ..BLOCK
    },
    Command {
        name: c"rl.exempt",
        handler: on_command(standing::exempt),
        summary: c"Exempts a key: every check of it is allowed, and nothing is counted.",
        ..BLOCK
    },
    Command {
        name: c"rl.unexempt",
        handler: on_command(standing::unexempt),
        keys: Keys::First(KeyUse::Delete),
        summary: c"Ends the exemption of a key.",
        args: &[Param::key()],
        ..BLOCK
    },
    Command {
        name: c"rl.blocks",
        handler: on_command(blocks::blocks),
        flags: c"readonly",
        audience: Audience::Administrator,
        keys: Keys::None,
        tips: c"request_policy:special nondeterministic_output",
        summary: c"Scans the keyspace for keys that are blocked or exempt.",
        complexity: c"O(1) a step, O(N) for a whole scan with N keys in the database.",
        args: &[
            Param::integer(c"cursor"),
            Param::pattern(c"pattern").after(c"MATCH").optional(),
            COUNT,
        ],
    },
    Command {
        name: c"rl.log",
        handler: on_command(log::log),
        flags: c"readonly",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Read),
        tips: c"",
        summary: c"Shows the last checks of a key, newest first.",
        complexity: c"O(N) with N checks shown.",
        args: &[Param::key(), COUNT],
    },
    Command {
        name: c"rl.info",
        handler: on_command(info::info),
        flags: c"readonly",
        audience: Audience::Client,
        keys: Keys::First(KeyUse::Read),
        tips: CLOCK,
        summary: c"Shows what a key holds: states, block or exemption, sizes.",
        complexity: c"O(S) with S states.",
        args: &[Param::key()],
    },
    Command {
        name: c"rl.top",
        handler: on_command(top::top),
        flags: c"readonly",
        audience: Audience::Operator,
        keys: Keys::None,
        tips: c"request_policy:all_shards nondeterministic_output",
        summary: c"Shows the keys of this server that were most often denied lately.",
        complexity: c"O(K) with K the setting top-size.",
        args: &[COUNT, Param::word(c"reset", c"RESET").optional()],
    },
    Command {
        name: c"rl.explain",
        handler: on_command(explain::explain),
        flags: c"fast allow-loading allow-stale",
        audience: Audience::Client,
        keys: Keys::None,
        tips: c"",
        summary: c"Says in words what rules mean.",
        complexity: c"O(R) with R rules.",
        args: &[RULES],
    },
    throttle(c"rl.throttle"),
    throttle(CL_THROTTLE),
    POLICY,
    Command {
        name: c"rl.policy|set",
        flags: c"write deny-oom",
        tips: EVERY_SHARD,
        summary: c"Sets or replaces a policy.",
        complexity: c"O(R) with R rules.",
        args: &[NAME, RULES],
        ..POLICY
    },
    Command {
        name: c"rl.policy|get",
        flags: c"readonly fast",
        tips: c"",
        summary: c"Shows the rules of a policy.",
        complexity: c"O(R) with R rules.",
        args: &[NAME],
        ..POLICY
    },
    Command {
        name: c"rl.policy|del",
        flags: c"write fast",
        tips: EVERY_SHARD,
        summary: c"Deletes a policy.",
        complexity: c"O(1)",
        args: &[NAME],
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
        handler: on_command(internal::apply),
        flags: c"write admin",
        audience: Audience::Internal,
        keys: Keys::First(KeyUse::Update),
        tips: c"",
        summary: c"Internal: does what a command did on a primary.",
        complexity: c"As the command that did it.",
        args: &[
            Param::key(),
            Param::string(c"effect"),
            Param::string(c"detail").repeated().optional(),
        ],
    },
    Command {
        name: c"rl.load",
        handler: on_command(internal::load),
        flags: c"write admin",
        audience: Audience::Internal,
        keys: Keys::First(KeyUse::Overwrite),
        tips: c"",
        summary: c"Internal: sets a key to a saved value.",
        complexity: c"O(N) with N bytes of payload.",
        args: &[Param::key(), Param::string(c"payload")],
    },
];

impl From<ParseError> for CommandError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Arity => Self::WrongArity,
            error => Self::Because(error.to_string().into()),
        }
    }
}
