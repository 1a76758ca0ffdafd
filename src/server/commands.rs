//! The description of a command, which `registration` passes to the server.

use super::args::Args;
use redis_module::raw;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// One command.
pub struct Command {
    /// In lower case; `parent|name` for a subcommand.
    pub name: &'static CStr,
    /// Its arguments, in the form that `syntax` describes. A first argument `key` is its key;
    /// `numkeys` is the number of keys that follow.
    pub syntax: &'static str,
    /// The function that runs the command. The handler of a parent runs only on servers before 7.0,
    /// which have no subcommands: it handles all of them.
    pub handler: raw::RedisModuleCmdFunc,
    /// The server's command flags.
    pub flags: &'static CStr,
    pub audience: Audience,
    pub key: KeyUse,
    /// Hints for clients and proxies about requests and replies, in the vocabulary of `COMMAND
    /// INFO`.
    pub tips: &'static CStr,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
}

impl Command {
    /// The command's name, and the subcommand's if there is one.
    pub(super) fn words(&self) -> (&[u8], Option<&[u8]>) {
        let mut words = self.name.to_bytes().splitn(2, |&byte| byte == b'|');
        (words.next().unwrap_or_default(), words.next())
    }

    /// The parent of a subcommand.
    pub(super) fn parent(&self) -> Option<CString> {
        let (parent, sub) = self.words();
        sub.and_then(|_| CString::new(parent).ok())
    }

    /// True if its first argument is its key.
    pub(super) fn has_key_first(&self) -> bool {
        self.syntax.split(' ').next() == Some("key")
    }

    /// True if its first argument is the number of its keys.
    pub(super) fn counts_keys(&self) -> bool {
        self.syntax.starts_with("numkeys ")
    }

    pub(super) fn has_flag(&self, wanted: &str) -> bool {
        self.flags.to_bytes().split(|&byte| byte == b' ').any(|flag| flag == wanted.as_bytes())
    }
}

/// Who uses a command. Its ACL categories follow from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Applications: `@ratelimit`, which contains only these commands.
    Client,
    /// People who inspect many of the server's keys: `@admin`. (The command flag `admin` is
    /// different: it would hide the command from `MONITOR`.)
    Operator,
    /// People who block or exempt keys or set policies: `@admin @dangerous`.
    Administrator,
    /// A primary's link and the loader. All other callers get an error.
    Internal,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It has none.
    None,
    Read,
    /// Reads and changes the value; may create the key.
    Update,
    /// Reads and changes the value; may delete the key.
    Delete,
    /// Sets a value without reading the old one.
    Overwrite,
}

static COMMANDS: OnceLock<Vec<&'static Command>> = OnceLock::new();

/// Stores the registered commands, for calls with a wrong number of arguments.
pub(super) fn keep(commands: impl Iterator<Item = &'static Command>) {
    // If the module is loaded again after a failed load, the commands are already stored.
    let _ = COMMANDS.set(commands.collect());
}

/// The usage of the command or subcommand that was called.
pub(super) fn usage_of(call: Args<'_>) -> Option<String> {
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

/// The name, without the parent's name, and the arguments.
fn line(command: &Command) -> String {
    let (name, sub) = command.words();
    let name = upper(sub.unwrap_or(name));
    if command.syntax.is_empty() { name } else { format!("{name} {}", command.syntax) }
}

fn upper(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::commands::{Audience, KeyUse};
    use std::ffi::CStr;

    const fn command(name: &'static CStr, syntax: &'static str) -> Command {
        Command {
            name,
            syntax,
            handler: None,
            flags: c"",
            audience: Audience::Client,
            key: KeyUse::None,
            tips: c"",
            summary: c"",
            complexity: c"",
        }
    }

    static CHECK: Command = command(c"rl.check", "key [FULL] rule [rule ...]");
    static BLOCK: Command = command(c"rl.block", "key [EX seconds|PX ms]");
    static POLICY: Command = command(c"rl.policy", "");
    static SET: Command = command(c"rl.policy|set", "name rule [rule ...]");
    static LIST: Command = command(c"rl.policy|list", "");

    #[test]
    fn a_command_is_found_by_its_name_in_any_case() {
        let commands = [&CHECK, &BLOCK, &POLICY, &SET, &LIST];
        let check = "RL.CHECK key [FULL] rule [rule ...]";
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
