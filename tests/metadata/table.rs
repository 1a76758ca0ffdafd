//! The commands as every server must know them.

use redis::{Cmd, cmd};

use crate::server::Flavor;

/// A command as the server must know it.
pub struct Expected {
    /// Of a subcommand: what contains it, `|`, and its own.
    pub name: &'static str,
    /// In the words of `COMMAND INFO`, without `module`, which all have.
    pub flags: &'static str,
    /// Arguments with the name; `-n` is n or more.
    pub arity: i64,
    /// What is done to the key, which is the first argument, or the keys, of which the first
    /// argument is the number; nothing where there is none.
    pub key: &'static str,
    /// The documented arguments, each as `name:type`, behind its token if it has one.
    pub syntax: &'static str,
}

const COMMANDS: [Expected; 24] = [
    Expected {
        name: "rl.check",
        flags: "write denyoom fast",
        arity: -3,
        key: "RW access update",
        syntax: "key:key [COST cost:integer] [META text:string] \
                 [AT unix-time-microseconds:integer] [FULL] rule:string...",
    },
    Expected {
        name: "rl.peek",
        flags: "readonly fast",
        arity: -3,
        key: "RO access",
        syntax: "key:key [COST cost:integer] [AT unix-time-microseconds:integer] [FULL] \
                 rule:string...",
    },
    Expected {
        name: "rl.mcheck",
        flags: "write denyoom movablekeys",
        arity: -4,
        key: "RW access update",
        syntax: "numkeys:integer key:key... [COST cost:integer] [META text:string] \
                 [AT unix-time-microseconds:integer] [FULL] rule:string... \
                 [{NEXT rule:string...}...]",
    },
    Expected {
        name: "rl.refund",
        flags: "write fast",
        arity: -3,
        key: "RW access delete",
        syntax: "key:key units:integer [AT unix-time-microseconds:integer] [rule:string...]",
    },
    Expected {
        name: "rl.reset",
        flags: "write fast",
        arity: 2,
        key: "RW access delete",
        syntax: "key:key",
    },
    Expected {
        name: "rl.explain",
        flags: "fast loading stale",
        arity: -2,
        key: "",
        syntax: "rule:string...",
    },
    Expected {
        name: "rl.block",
        flags: "write fast",
        arity: -2,
        key: "RW access update",
        syntax: OVERRULE,
    },
    Expected {
        name: "rl.unblock",
        flags: "write fast",
        arity: 2,
        key: "RW access delete",
        syntax: "key:key",
    },
    Expected {
        name: "rl.exempt",
        flags: "write fast",
        arity: -2,
        key: "RW access update",
        syntax: OVERRULE,
    },
    Expected {
        name: "rl.unexempt",
        flags: "write fast",
        arity: 2,
        key: "RW access delete",
        syntax: "key:key",
    },
    Expected {
        name: "rl.blocks",
        flags: "readonly",
        arity: -2,
        key: "",
        syntax: "cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
    },
    Expected {
        name: "rl.log",
        flags: "readonly",
        arity: -2,
        key: "RO access",
        syntax: "key:key [COUNT count:integer]",
    },
    Expected { name: "rl.info", flags: "readonly", arity: 2, key: "RO access", syntax: "key:key" },
    Expected {
        name: "rl.top",
        flags: "readonly",
        arity: -1,
        key: "",
        syntax: "[COUNT count:integer] [RESET]",
    },
    Expected {
        name: "rl.throttle",
        flags: "write denyoom fast",
        arity: -5,
        key: "RW access update",
        syntax: THROTTLE,
    },
    Expected {
        name: "cl.throttle",
        flags: "write denyoom fast",
        arity: -5,
        key: "RW access update",
        syntax: THROTTLE,
    },
    Expected { name: "rl.policy", flags: "write", arity: -2, key: "", syntax: "" },
    Expected {
        name: "rl.policy|set",
        flags: "write denyoom",
        arity: -4,
        key: "",
        syntax: "name:string rule:string...",
    },
    Expected {
        name: "rl.policy|get",
        flags: "readonly fast",
        arity: 3,
        key: "",
        syntax: "name:string",
    },
    Expected {
        name: "rl.policy|del",
        flags: "write fast",
        arity: 3,
        key: "",
        syntax: "name:string",
    },
    Expected { name: "rl.policy|list", flags: "readonly", arity: 2, key: "", syntax: "" },
    Expected { name: "rl.policy|help", flags: "fast loading stale", arity: 2, key: "", syntax: "" },
    Expected {
        name: "rl.apply",
        flags: "write admin",
        arity: -3,
        key: "RW access update",
        syntax: "key:key effect:string [detail:string...]",
    },
    Expected {
        name: "rl.load",
        flags: "write admin",
        arity: 3,
        key: "OW update",
        syntax: "key:key payload:string",
    },
];

const THROTTLE: &str = "key:key max-burst:integer count-per-period:integer \
                        period-seconds:integer [quantity:integer]";

const OVERRULE: &str = "key:key [EX seconds:integer | PX milliseconds:integer | \
                        EXAT unix-time-seconds:unix-time | \
                        PXAT unix-time-milliseconds:unix-time | FOR period:string] [REASON reason:string]";

/// Those that a server knows: subcommands came with 7.0, until then what contains them does it all.
pub fn commands(flavor: Flavor) -> impl Iterator<Item = &'static Expected> {
    COMMANDS.iter().filter(move |command| flavor.is_7_or_later() || !command.name.contains('|'))
}

impl Expected {
    /// A call without arguments.
    pub fn call(&self) -> Cmd {
        let mut words = self.name.split('|');
        let mut call = cmd(words.next().expect("a name"));
        call.arg(words.collect::<Vec<_>>());
        call
    }

    /// How many arguments must follow the name and, of a subcommand, its own.
    pub fn least_arguments(&self) -> usize {
        self.arity.unsigned_abs() as usize - self.name.split('|').count()
    }

    /// Contains others, and from 7.0 on does nothing itself.
    pub fn is_container(&self) -> bool {
        COMMANDS.iter().any(|other| {
            other.name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('|'))
        })
    }

    /// The first argument is the number of keys.
    pub fn counts_keys(&self) -> bool {
        self.flags.contains("movablekeys")
    }

    /// Answers a primary and the loader only.
    pub fn is_internal(&self) -> bool {
        self.flags.contains("admin")
    }

    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }
}
