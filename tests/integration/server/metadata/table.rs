//! The commands as every server must describe them.

use redis::{Cmd, cmd};

use crate::support::server::Flavor;

/// A command and how the server must describe it.
pub struct Expected {
    /// The name. The name of a subcommand starts with its container and `|`.
    pub name: &'static str,
    /// The flags in `COMMAND INFO`, except `module`, which all have.
    pub flags: &'static str,
    /// How the command uses its key or keys; empty without a key. The key is the first
    /// argument, unless the first argument is the number of keys.
    pub key: &'static str,
    /// The tips for proxies and clients.
    pub tips: &'static str,
    /// The documented arguments: each is `name:type`, after its token if it has one.
    pub syntax: &'static str,
}

const CLOCK: &str = "nondeterministic_output";
const EVERY_SHARD: &str = "request_policy:all_shards response_policy:all_succeeded";

const COMMANDS: [Expected; 32] = [
    Expected {
        name: "rl.check",
        flags: "write denyoom fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: "key:key [COST cost:integer | a..b:string | name=cost:string...] [META text:string] \
                 [{HOLD id:string EX seconds:integer | PX milliseconds:integer [REFUND]}] \
                 [AT unix-time-microseconds:integer] [FULL] rule:string...",
    },
    Expected {
        name: "rl.wait",
        flags: "write denyoom blocking",
        key: "RW access update",
        tips: CLOCK,
        syntax: "key:key milliseconds:integer [{FLOW flow:string [WEIGHT weight:integer]}] \
                 [PRIORITY priority:integer] \
                 [COST cost:integer | a..b:string | name=cost:string...] [META text:string] \
                 [{HOLD id:string EX seconds:integer | PX milliseconds:integer [REFUND]}] \
                 [FULL] rule:string...",
    },
    Expected {
        name: "rl.peek",
        flags: "readonly fast",
        key: "RO access",
        tips: CLOCK,
        syntax: "key:key [COST cost:integer | a..b:string | name=cost:string...] [AT unix-time-microseconds:integer] [FULL] \
                 rule:string...",
    },
    Expected {
        name: "rl.mcheck",
        flags: "write denyoom movablekeys",
        key: "RW access update",
        tips: CLOCK,
        syntax: "numkeys:integer key:key... [COST cost:integer | a..b:string | name=cost:string...] [META text:string] \
                 [{HOLD id:string EX seconds:integer | PX milliseconds:integer [REFUND]}] \
                 [AT unix-time-microseconds:integer] [FULL] [{ANY [MOST]}] rule:string... \
                 [{NEXT rule:string...}...]",
    },
    Expected {
        name: "rl.refund",
        flags: "write fast",
        key: "RW access delete",
        tips: "",
        syntax: "key:key units:integer [AT unix-time-microseconds:integer] [rule:string...]",
    },
    Expected {
        name: "rl.settle",
        flags: "write fast",
        key: "RW access delete",
        tips: CLOCK,
        syntax: "key:key id:string [REFUND | COST cost:integer | name=cost:string...] \
                 [AT unix-time-microseconds:integer]",
    },
    Expected {
        name: "rl.renew",
        flags: "write fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: "key:key id:string EX seconds:integer | PX milliseconds:integer \
                 [AT unix-time-microseconds:integer]",
    },
    Expected {
        name: "rl.reset",
        flags: "write fast",
        key: "RW access delete",
        tips: "",
        syntax: "key:key",
    },
    Expected {
        name: "rl.sync",
        flags: "write denyoom fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: "key:key REMAINING remaining:integer [AT unix-time-microseconds:integer] rule:string",
    },
    Expected {
        name: "rl.pause",
        flags: "write fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: PAUSE,
    },
    Expected {
        name: "rl.resume",
        flags: "write fast",
        key: "RW access delete",
        tips: CLOCK,
        syntax: "key:key",
    },
    Expected {
        name: "rl.explain",
        flags: "fast loading stale",
        key: "",
        tips: "",
        syntax: "rule:string...",
    },
    Expected {
        name: "rl.block",
        flags: "write fast",
        key: "RW access update",
        tips: "",
        syntax: ACCESS,
    },
    Expected {
        name: "rl.unblock",
        flags: "write fast",
        key: "RW access delete",
        tips: "",
        syntax: "key:key",
    },
    Expected {
        name: "rl.exempt",
        flags: "write fast",
        key: "RW access update",
        tips: "",
        syntax: ACCESS,
    },
    Expected {
        name: "rl.unexempt",
        flags: "write fast",
        key: "RW access delete",
        tips: "",
        syntax: "key:key",
    },
    Expected {
        name: "rl.plan",
        flags: "write denyoom fast",
        key: "RW access update",
        tips: "",
        syntax: PLAN,
    },
    Expected {
        name: "rl.unplan",
        flags: "write fast",
        key: "RW access delete",
        tips: "",
        syntax: "key:key",
    },
    Expected {
        name: "rl.blocks",
        flags: "readonly",
        key: "",
        tips: "request_policy:special nondeterministic_output",
        syntax: "cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
    },
    Expected {
        name: "rl.log",
        flags: "readonly",
        key: "RO access",
        tips: "",
        syntax: "key:key [COUNT count:integer]",
    },
    Expected {
        name: "rl.info",
        flags: "readonly",
        key: "RO access",
        tips: CLOCK,
        syntax: "key:key",
    },
    Expected {
        name: "rl.top",
        flags: "readonly",
        key: "",
        tips: "request_policy:all_shards nondeterministic_output",
        syntax: "[SHADOW] [COUNT count:integer] [RESET]",
    },
    Expected {
        name: "rl.throttle",
        flags: "write denyoom fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: THROTTLE,
    },
    Expected {
        name: "cl.throttle",
        flags: "write denyoom fast",
        key: "RW access update",
        tips: CLOCK,
        syntax: THROTTLE,
    },
    Expected {
        name: "rl.policy",
        flags: "write",
        key: "",
        tips: "request_policy:all_shards",
        syntax: "",
    },
    Expected {
        name: "rl.policy|set",
        flags: "write denyoom",
        key: "",
        tips: EVERY_SHARD,
        syntax: "name:string rule:string...",
    },
    Expected {
        name: "rl.policy|get",
        flags: "readonly fast",
        key: "",
        tips: "",
        syntax: "name:string",
    },
    Expected {
        name: "rl.policy|del",
        flags: "write fast",
        key: "",
        tips: EVERY_SHARD,
        syntax: "name:string [FORCE]",
    },
    Expected { name: "rl.policy|list", flags: "readonly", key: "", tips: "", syntax: "" },
    Expected { name: "rl.policy|help", flags: "fast loading stale", key: "", tips: "", syntax: "" },
    Expected {
        name: "rl.apply",
        flags: "write admin",
        key: "RW access update",
        tips: "",
        syntax: "key:key effect:string [detail:string...]",
    },
    Expected {
        name: "rl.load",
        flags: "write admin",
        key: "OW update",
        tips: "",
        syntax: "key:key payload:string",
    },
];

const THROTTLE: &str = "key:key max-burst:integer count-per-period:integer \
                        period-seconds:integer [quantity:integer]";

const PAUSE: &str = "key:key EX seconds:integer | PX milliseconds:integer | \
                     EXAT unix-time-seconds:unix-time | \
                     PXAT unix-time-milliseconds:unix-time | FOR period:string [REASON reason:string]";
const PLAN: &str = "key:key policy:string [EX seconds:integer | PX milliseconds:integer | \
                    EXAT unix-time-seconds:unix-time | \
                    PXAT unix-time-milliseconds:unix-time | FOR period:string]";
const ACCESS: &str = "key:key [EX seconds:integer | PX milliseconds:integer | \
                        EXAT unix-time-seconds:unix-time | \
                        PXAT unix-time-milliseconds:unix-time | FOR period:string] [REASON reason:string]";

/// The commands of a server. 6.2 has no subcommands, only their container.
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

    /// The arity that the server checks. It is low, so that the command itself can check the
    /// number of arguments and reply its usage.
    pub fn arity(&self) -> i64 {
        let needs_a_second = self.counts_keys() || self.name.starts_with("rl.policy");
        if needs_a_second { -2 } else { -1 }
    }

    /// The least number of arguments of a call.
    pub fn least_arguments(&self) -> usize {
        if self.is_container() {
            return 1;
        }
        let outside = self.syntax.replace(['{', '}'], "");
        let (mut depth, mut is_alternative) = (0, false);
        let required = outside.split_whitespace().filter(|word| {
            let is_outside = depth == 0 && !word.starts_with('[');
            depth += word.matches('[').count() as i64 - word.matches(']').count() as i64;
            // Only the first of several alternatives counts.
            is_alternative |= is_outside && *word == "|";
            let counts = is_outside && !is_alternative;
            is_alternative &= !word.contains(':');
            counts
        });
        required.count()
    }

    /// Whether a call takes no more arguments than it needs.
    pub fn is_exact(&self) -> bool {
        !self.is_container() && !self.syntax.contains(['[', '.'])
    }

    /// The usage in the error about a wrong number of arguments.
    pub fn usage(&self) -> String {
        let repeated = |text: &str, whole: &str| {
            let one = whole.trim_matches(['{', '}']);
            text.replace(&format!("{whole}..."), &format!("{one} [{one} ...]"))
        };
        let types = [":integer", ":string", ":key", ":pattern", ":unix-time"];
        let text = types.iter().fold(self.syntax.to_string(), |text, kind| text.replace(kind, ""));
        let text = text.replace(" | ", "|");
        let text = repeated(&repeated(&text, "key"), "rule");
        let text = repeated(&text, "COST cost|name=cost");
        let text = repeated(&text, "COST cost|a..b|name=cost");
        let text = repeated(&repeated(&text, "detail"), "{NEXT rule [rule ...]}");
        let text = text.replace("[{", "[").replace("}]", "]");
        let name = self.name.replace('|', " ").to_uppercase();
        format!("{name} {text}").trim_end().to_string()
    }

    /// Whether the command has subcommands.
    pub fn is_container(&self) -> bool {
        COMMANDS.iter().any(|other| {
            other.name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('|'))
        })
    }

    /// Whether the first argument is the number of keys.
    pub fn counts_keys(&self) -> bool {
        self.flags.contains("movablekeys")
    }

    /// Whether only a primary and the loader may call it.
    pub fn is_internal(&self) -> bool {
        self.flags.contains("admin")
    }

    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }
}
