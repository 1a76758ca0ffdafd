//! The usage of a command in one line: the arguments that `COMMAND DOCS` shows, in redis-cli's
//! notation.
//!
//! ```text
//! RL.BLOCK key [EX seconds|PX milliseconds] [REASON reason]
//! RL.EXPLAIN rule [rule ...]
//! ```

use std::sync::OnceLock;

use redis_module::raw;

use super::args::Args;
use super::commands::{Command, Param};

static COMMANDS: OnceLock<Vec<&'static Command>> = OnceLock::new();

/// Stores the registered commands, for calls with a wrong number of arguments.
pub(super) fn keep(commands: impl Iterator<Item = &'static Command>) {
    // If the module is loaded again after a failed load, the commands are already stored.
    let _ = COMMANDS.set(commands.collect());
}

/// The usage of the command or subcommand that was called.
pub(super) fn of(call: Args<'_>) -> Option<String> {
    let mut words = call.bytes();
    usage(COMMANDS.get()?, words.next()?, words.next())
}

fn usage(commands: &[&Command], name: &[u8], sub: Option<&[u8]>) -> Option<String> {
    let called = commands.iter().filter(|command| command.words().0.eq_ignore_ascii_case(name));
    let (subs, commands): (Vec<&Command>, Vec<_>) =
        called.partition(|command| command.words().1.is_some());
    if subs.is_empty() {
        return commands.first().map(|command| line(command));
    }
    let is_called = |own: &[u8]| sub.is_some_and(|sub| own.eq_ignore_ascii_case(sub));
    let usage = match subs.iter().find(|command| command.words().1.is_some_and(is_called)) {
        Some(command) => line(command),
        None => subs.into_iter().map(line).collect::<Vec<_>>().join(" | "),
    };
    Some(format!("{} {usage}", upper(name)))
}

/// The name, without its parent's, and the arguments.
fn line(command: &Command) -> String {
    let (name, sub) = command.words();
    let args = command.args.iter().map(notation);
    std::iter::once(upper(sub.unwrap_or(name))).chain(args).collect::<Vec<_>>().join(" ")
}

fn upper(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_uppercase()
}

fn notation(param: &Param) -> String {
    let parts = |between| param.parts.iter().map(notation).collect::<Vec<_>>().join(between);
    let value = match param.kind {
        raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN => String::new(),
        raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF => parts("|"),
        raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK => parts(" "),
        _ => param.name.to_string_lossy().into_owned(),
    };
    let one = match param.token {
        None => value,
        Some(token) if value.is_empty() => token.to_string_lossy().into_owned(),
        Some(token) => format!("{} {value}", token.to_string_lossy()),
    };
    let has = |flag| param.flags & flag != 0;
    let all =
        if has(raw::REDISMODULE_CMD_ARG_MULTIPLE) { format!("{one} [{one} ...]") } else { one };
    if has(raw::REDISMODULE_CMD_ARG_OPTIONAL) { format!("[{all}]") } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::commands::{Audience, Keys};
    use std::ffi::CStr;

    const RULES: Param = Param::string(c"rule").repeated();

    const fn command(name: &'static CStr, args: &'static [Param]) -> Command {
        Command {
            name,
            handler: None,
            flags: c"",
            audience: Audience::Client,
            keys: Keys::None,
            tips: c"",
            summary: c"",
            complexity: c"",
            args,
        }
    }

    static CHECK: Command = command(
        c"rl.check",
        &[
            Param::key(),
            Param::integer(c"cost").after(c"COST").optional(),
            Param::word(c"full", c"FULL").optional(),
            RULES,
            Param::group(c"next", &[Param::word(c"next", c"NEXT"), RULES]).repeated().optional(),
        ],
    );
    static END: Param = Param::one_of(
        c"end",
        &[Param::integer(c"seconds").after(c"EX"), Param::integer(c"ms").after(c"PX")],
    );
    static BLOCK: Command = command(c"rl.block", &[Param::key(), END.optional()]);
    static POLICY: Command = command(c"rl.policy", &[]);
    static SET: Command = command(c"rl.policy|set", &[Param::string(c"name"), RULES]);
    static LIST: Command = command(c"rl.policy|list", &[]);

    #[test]
    fn usage_has_the_notation_of_redis_cli() {
        let commands = [&CHECK, &BLOCK, &POLICY, &SET, &LIST];
        let check = "RL.CHECK key [COST cost] [FULL] rule [rule ...] \
                     [NEXT rule [rule ...] [NEXT rule [rule ...] ...]]";
        for (call, expected) in [
            ("rl.check", Some(check)),
            ("RL.Check x", Some(check)),
            ("rl.block", Some("RL.BLOCK key [EX seconds|PX ms]")),
            ("rl.policy SET", Some("RL.POLICY SET name rule [rule ...]")),
            ("rl.policy list", Some("RL.POLICY LIST")),
            ("rl.policy", Some("RL.POLICY SET name rule [rule ...] | LIST")),
            ("rl.policy other", Some("RL.POLICY SET name rule [rule ...] | LIST")),
            ("rl.other", None),
        ] {
            let mut words = call.split(' ').map(str::as_bytes);
            let given = usage(&commands, words.next().unwrap(), words.next());
            assert_eq!(given.as_deref(), expected, "{call}");
        }
    }
}
