//! The description of a command, which `registration` passes to the server.

use std::ffi::{CStr, CString};

use redis_module::raw;

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
