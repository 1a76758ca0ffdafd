//! The settings of the module and their effects, in one table for all tests about settings.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redis::{Connection, RedisResult, cmd};

use crate::support::client::attempt;

/// A setting.
pub struct Setting {
    pub name: &'static str,
    pub default: &'static str,
    pub values: Values,
    pub effects: &'static [Effect],
}

/// A value, commands in turn, and a text that the reply to the last command contains under this
/// value.
pub type Effect = (&'static str, &'static [&'static str], &'static str);

pub enum Values {
    Integer(RangeInclusive<i64>),
    YesNo,
    /// One of these words.
    Word(&'static [&'static str]),
}

use Values::{Integer, Word, YesNo};

pub const SETTINGS: [Setting; 13] = [
    Setting {
        name: "enforce",
        default: "yes",
        values: Word(&["yes", "observe", "off"]),
        effects: &[
            ("yes", &["RL.CHECK k 0/s"], "int(1), int(0)"),
            ("observe", &["RL.CHECK k 0/s"], "int(0), int(-1)"),
            ("off", &["RL.CHECK k 0/s"], "int(0), int(-1)"),
        ],
    },
    Setting {
        name: "max-rules",
        default: "32",
        values: Integer(1..=1_000),
        effects: &[
            ("1", &["RL.PEEK k 5/s 9/m"], "ratelimit.max-rules"),
            ("2", &["RL.PEEK k 5/s 9/m"], "int(0), int(5), int(5)"),
        ],
    },
    Setting {
        name: "max-log-entries",
        default: "100000",
        values: Integer(1..=1_000_000_000),
        effects: &[
            ("4", &["RL.PEEK k 5/s"], "ratelimit.max-log-entries"),
            ("5", &["RL.PEEK k 5/s"], "int(0), int(5), int(5)"),
        ],
    },
    Setting {
        name: "max-states",
        default: "256",
        values: Integer(1..=10_000),
        effects: &[
            ("1", &["RL.CHECK k bucket:5/s fixed:9/d"], "ratelimit.max-states"),
            ("2", &["RL.CHECK k bucket:5/s fixed:9/d"], "int(0), int(5), int(4)"),
        ],
    },
    Setting {
        name: "max-holds",
        default: "10000",
        values: Integer(1..=50_000),
        effects: &[
            (
                "1",
                &["RL.CHECK k HOLD a EX 99 9/h", "RL.CHECK k HOLD b EX 99 9/h"],
                "ratelimit.max-holds",
            ),
            (
                "2",
                &["RL.CHECK k HOLD a EX 99 9/h", "RL.CHECK k HOLD b EX 99 9/h"],
                "int(0), int(9), int(7)",
            ),
        ],
    },
    // Tested in `command/wait.rs`.
    Setting { name: "max-waiters", default: "10000", values: Integer(0..=1_000_000), effects: &[] },
    Setting { name: "max-flows", default: "1024", values: Integer(1..=1_024), effects: &[] },
    Setting {
        name: "max-waiter-bytes",
        default: "16777216",
        values: Integer(0..=1_073_741_824),
        effects: &[],
    },
    Setting {
        name: "log-entries",
        default: "128",
        values: Integer(0..=1_000_000),
        effects: &[
            ("0", &["RL.CHECK k META who 0/h", "EXISTS k"], "int(0)"),
            ("1", &[ADD_ENTRY, ADD_ENTRY, "RL.INFO k"], r#"bulk-string('"history"'), int(1)"#),
            (
                "2",
                &[ADD_ENTRY, ADD_ENTRY, ADD_ENTRY, "RL.INFO k"],
                r#"bulk-string('"history"'), int(2)"#,
            ),
        ],
    },
    Setting {
        name: "max-meta",
        default: "256",
        values: Integer(0..=65_536),
        effects: &[
            ("0", &["RL.CHECK k META xy 5/h", "RL.LOG k"], r#"bulk-string('""')"#),
            ("1", &["RL.CHECK k META xy 5/h", "RL.LOG k"], r#"bulk-string('"x"')"#),
            ("0", &["RL.BLOCK k REASON x"], "ratelimit.max-meta"),
            ("1", &["RL.CHECK k META x 5/h"], "int(0), int(5), int(4)"),
            ("1", &["RL.EXEMPT k REASON xy"], "ratelimit.max-meta"),
            ("2", &["RL.EXEMPT k REASON xy", "RL.BLOCKS 0"], r#"'"xy"'"#),
        ],
    },
    Setting {
        name: "top-size",
        default: "128",
        values: Integer(0..=100_000),
        effects: &[
            ("0", &["RL.CHECK k 0/h", "RL.TOP"], "array([])"),
            // With room for only one key, the key that is denied more often stays.
            (
                "1",
                &["RL.TOP RESET", "RL.CHECK a 0/h", "RL.CHECK b 0/h", "RL.CHECK b 0/h", "RL.TOP"],
                r#"bulk-string('"b"'), int(2)"#,
            ),
            (
                "2",
                &["RL.TOP RESET", "RL.CHECK a 0/h", "RL.CHECK b 0/h", "RL.TOP"],
                r#"bulk-string('"a"'), int(1)"#,
            ),
        ],
    },
    Setting {
        name: "allow-at",
        default: "no",
        values: YesNo,
        effects: &[
            ("no", &["RL.PEEK k AT 5 5/s"], "ratelimit.allow-at"),
            ("yes", &["RL.PEEK k AT 5 5/s"], "int(0), int(5), int(5)"),
        ],
    },
    // This setting takes effect only at a restart: `policy/config.rs`.
    Setting {
        name: "policies",
        default: "saved",
        values: Word(&["saved", "config"]),
        effects: &[],
    },
];

/// Adds an entry to the history of a key.
const ADD_ENTRY: &str = "RL.CHECK k META who bucket:5/h";

impl Setting {
    /// Its name in `CONFIG` and the server's file.
    pub fn full_name(&self) -> String {
        format!("ratelimit.{}", self.name)
    }

    /// The least and the largest value, or the first and the last word, as in `CONFIG GET`.
    pub fn good(&self) -> [String; 2] {
        match &self.values {
            Integer(range) => [range.start().to_string(), range.end().to_string()],
            YesNo => ["yes".to_string(), "no".to_string()],
            Word(words) => [words[0], words[words.len() - 1]].map(str::to_string),
        }
    }

    /// A value that is not the default.
    pub fn another(&self) -> String {
        let [first, last] = self.good();
        if last == self.default { first } else { last }
    }

    /// Wrong values, and the text of the error from `CONFIG SET`.
    pub fn bad(&self) -> Vec<(String, String)> {
        let words = |words: &[&str], why: &str| {
            words.iter().map(|word| (word.to_string(), why.to_string())).collect()
        };
        match &self.values {
            Integer(range) => {
                let (min, max) = (*range.start(), *range.end());
                let bounds = format!("between {min} and {max}");
                let words: Vec<_> = words(&["many", "1.5", "1k", "", "9e1"], "integer");
                let out = [min - 1, max + 1, i64::MIN, i64::MAX];
                out.map(|value| (value.to_string(), bounds.clone()))
                    .into_iter()
                    .chain(words)
                    .collect()
            }
            YesNo => words(&["perhaps", "1", "true", ""], "'yes' or 'no'"),
            Word(known) => {
                let why = known.join(", ");
                words(&["both", "1", "maybe", "savedconfig", ""], &why)
            }
        }
    }

    /// The allowed values, as the log states them when a `loadmodule` argument is wrong.
    pub fn expected(&self) -> String {
        match &self.values {
            Integer(range) => format!("expected {}..{}", range.start(), range.end()),
            YesNo => "expected yes or no".to_string(),
            Word(words) => format!("expected {}", words.join(" or ")),
        }
    }

    /// Checks that a server with this value of the setting shows the effect.
    pub fn assert_effect(&self, c: &mut Connection, (value, commands, says): &Effect) {
        let () = cmd("FLUSHALL").query(c).unwrap();
        let replies = commands.iter().map(|command| match attempt(c, command) {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.to_string(),
        });
        let reply = replies.last().expect("an effect is seen by a command");
        assert!(reply.contains(says), "{} {value}: {commands:?} -> {reply}", self.name);
    }
}

pub fn config_set(c: &mut Connection, setting: &Setting, value: &str) -> RedisResult<()> {
    cmd("CONFIG").arg("SET").arg(setting.full_name()).arg(value).query(c)
}

/// The values of all settings in the table, from `CONFIG GET`; empty on 6.2, which has no
/// settings of modules. `throttle.rs` and `persistence.rs` test the settings that only a load can change.
pub fn config_get(c: &mut Connection) -> BTreeMap<String, String> {
    let mut values: BTreeMap<_, _> = cmd("CONFIG").arg("GET").arg("ratelimit.*").query(c).unwrap();
    for at_load in ["throttle-alias", "forkless-save"] {
        values.remove(&format!("ratelimit.{at_load}"));
    }
    values
}

/// All settings with these values.
pub fn with_values<V: ToString>(value: impl Fn(&Setting) -> V) -> BTreeMap<String, String> {
    SETTINGS.iter().map(|setting| (setting.full_name(), value(setting).to_string())).collect()
}

pub fn defaults() -> BTreeMap<String, String> {
    with_values(|setting| setting.default)
}
