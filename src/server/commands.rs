//! The description of a command, which `registration` passes to the server.

use std::ffi::{CStr, CString};

use redis_module::raw;

/// One command.
pub struct Command {
    /// In lower case; `parent|name` for a subcommand.
    pub name: &'static CStr,
    /// A command with subcommands needs a handler only on servers before 7.0, which have no
    /// subcommands: there it handles all of them.
    pub handler: raw::RedisModuleCmdFunc,
    /// The server's command flags.
    pub flags: &'static CStr,
    pub audience: Audience,
    pub keys: Keys,
    /// Hints for clients and proxies about requests and replies, in the vocabulary of `COMMAND
    /// INFO`.
    pub tips: &'static CStr,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    pub args: &'static [Param],
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

    pub(super) fn has_flag(&self, wanted: &str) -> bool {
        self.flags.to_bytes().split(|&byte| byte == b' ').any(|flag| flag == wanted.as_bytes())
    }
}

/// Who uses a command. Its ACL categories follow from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Applications: `@ratelimit`, which only has these commands.
    Client,
    /// People who inspect many of the server's keys: `@admin`. (The command flag `admin` is
    /// different: it would hide the command from `MONITOR`.)
    Operator,
    /// People who block or exempt keys or set policies: `@admin @dangerous`.
    Administrator,
    /// A primary's link and the loader. All others get an error.
    Internal,
}

/// The positions of a command's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    /// The first argument.
    First(KeyUse),
    /// The first argument is the number of keys, and the keys follow.
    Counted(KeyUse),
}

/// What a command does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    Read,
    /// Reads and changes the value; may create the key.
    Update,
    /// Reads and changes the value; may delete the key.
    Delete,
    /// Sets a value without reading the old one.
    Overwrite,
}

/// An argument, for `COMMAND DOCS` and the hints of redis-cli.
#[derive(Clone, Copy)]
pub struct Param {
    pub(super) name: &'static CStr,
    pub(super) kind: raw::RedisModuleCommandArgType,
    /// The word before the value.
    pub(super) token: Option<&'static CStr>,
    pub(super) flags: u32,
    /// The alternatives of a choice, or the members of a group.
    pub(super) parts: &'static [Self],
}

impl Param {
    const fn of(name: &'static CStr, kind: raw::RedisModuleCommandArgType) -> Self {
        Self { name, kind, token: None, flags: raw::REDISMODULE_CMD_ARG_NONE, parts: &[] }
    }

    pub const fn key() -> Self {
        Self::of(c"key", raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY)
    }

    pub const fn integer(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
    }

    pub const fn string(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING)
    }

    pub const fn pattern(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN)
    }

    pub const fn unix_time(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME)
    }

    /// One of several arguments.
    pub const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
        Self { parts, ..Self::of(name, kind) }
    }

    /// A word without a value.
    pub const fn word(name: &'static CStr, word: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN).after(word)
    }

    /// Several arguments that belong together.
    pub const fn group(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
        Self { parts, ..Self::of(name, kind) }
    }

    /// Puts a word in front of the argument.
    pub const fn after(self, word: &'static CStr) -> Self {
        Self { token: Some(word), ..self }
    }

    /// Makes the argument optional.
    pub const fn optional(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_OPTIONAL, ..self }
    }

    /// Allows the argument several times.
    pub const fn repeated(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_MULTIPLE, ..self }
    }

    /// Allows the argument several times, each after its word.
    pub const fn repeated_with_word(self) -> Self {
        let flags = raw::REDISMODULE_CMD_ARG_MULTIPLE | raw::REDISMODULE_CMD_ARG_MULTIPLE_TOKEN;
        Self { flags: self.flags | flags, ..self }
    }

    pub(super) const fn is_key(&self) -> bool {
        self.kind == raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
    }
}
