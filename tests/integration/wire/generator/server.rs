//! The server's own commands next to ours: on keys of every type, scripts, settings, saving.

use super::{Generator, Words, junk, words};
use crate::support::settings::{SETTINGS, Values};
use crate::wire::payloads;

/// Scripts that call the commands in their arguments.
const SCRIPTS: [&str; 4] = [
    "return redis.pcall(unpack(ARGV))",
    "local r for _ = 1, 3 do r = redis.pcall(unpack(ARGV)) end return r",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "redis.call(unpack(ARGV)) redis.call('DEL', KEYS[1]) return {1, {2.5}, false}",
];

impl Generator {
    pub(super) fn of_the_server(&mut self) -> Words {
        match self.rng.u32(0..1_000) {
            0..130 => self.of_another_type(),
            130..330 => self.on_a_key(),
            330..480 => self.on_two_keys(),
            480..600 => self.expire(),
            600..720 => self.restore(),
            720..860 => self.script(),
            860..900 => self.about(),
            900..930 => self.set(),
            930..960 => self.watch(),
            960..980 => self.track(),
            980..990 => words([["SELECT", "0"], ["SELECT", "1"]][self.rng.usize(0..2)]),
            990..992 => words(["SWAPDB", "0", "1"]),
            992..994 => words(["FLUSHDB"]),
            994..999 => words(["INFO", "ratelimit"]),
            _ => self.save(),
        }
    }

    /// Makes a key of another type.
    fn of_another_type(&mut self) -> Words {
        let (name, more) = match self.rng.u32(0..6) {
            0 => ("SET", words(["1"])),
            1 => ("LPUSH", words(["1"])),
            2 => ("HSET", words(["f", "1"])),
            3 => ("ZADD", words(["1", "m"])),
            4 => ("XADD", words(["*", "f", "1"])),
            _ => ("APPEND", words(["1"])),
        };
        let key = format!("other{}", self.rng.usize(0..6)).into_bytes();
        [vec![name.into(), key], more].concat()
    }

    fn on_a_key(&mut self) -> Words {
        let key = self.key();
        let one = |name: &str| vec![name.into(), key.clone()];
        let of = |name: &str, what: &str| vec![name.into(), what.into(), key.clone()];
        match self.rng.u32(0..16) {
            0..3 => one("DEL"),
            3 => one("UNLINK"),
            4 => one("DUMP"),
            5 => one("TYPE"),
            6 => one("GET"),
            7 => one("TOUCH"),
            8 => one("PTTL"),
            9 => of("OBJECT", "ENCODING"),
            10 => of("OBJECT", "IDLETIME"),
            11 => of("OBJECT", "FREQ"),
            12 => of("MEMORY", "USAGE"),
            13 => of("DEBUG", "DIGEST-VALUE"),
            14 => of("DEBUG", "OBJECT"),
            _ => one("PERSIST"),
        }
    }

    fn on_two_keys(&mut self) -> Words {
        let (from, to) = (self.key(), self.key());
        match self.rng.u32(0..5) {
            0 => vec![b"RENAME".to_vec(), from, to],
            1 => vec![b"RENAMENX".to_vec(), from, to],
            2 => vec![b"COPY".to_vec(), from, to, b"REPLACE".to_vec()],
            3 => vec![b"COPY".to_vec(), from, to, b"DB".to_vec(), b"1".to_vec()],
            _ => vec![b"MOVE".to_vec(), from, b"1".to_vec()],
        }
    }

    fn expire(&mut self) -> Words {
        let (name, time) = match self.rng.u32(0..5) {
            0 => ("EXPIRE", self.rng.u32(1..100).to_string()),
            1 => ("PEXPIRE", self.rng.u32(1..50).to_string()),
            2 => ("PEXPIREAT", "1".into()),
            3 => ("EXPIREAT", "4102444800".into()),
            _ => ("PEXPIRE", "9000000000000".into()),
        };
        vec![name.into(), self.key(), time.into_bytes()]
    }

    /// A payload of any version, usually damaged and usually with a correct checksum.
    fn restore(&mut self) -> Words {
        let bytes = payloads::hostile_dump(&mut self.rng, &self.dump);
        let mut command = vec![b"RESTORE".to_vec(), self.key(), b"0".to_vec(), bytes];
        if !self.one_in(4) {
            command.push(b"REPLACE".to_vec());
        }
        command
    }

    fn script(&mut self) -> Words {
        let (inner, _) = if self.rng.bool() { self.valid() } else { self.mutated() };
        let key = self.key();
        let head = if self.one_in(3) {
            vec![b"FCALL".to_vec(), b"rl".to_vec()]
        } else {
            vec![b"EVAL".to_vec(), self.pick(&SCRIPTS)]
        };
        [head, vec![b"1".to_vec(), key], inner].concat()
    }

    /// Commands that describe commands and keys.
    fn about(&mut self) -> Words {
        let (inner, _) = self.mutated();
        match self.rng.u32(0..6) {
            0..2 => [words(["COMMAND", "GETKEYS"]), inner].concat(),
            2 => [words(["COMMAND", "GETKEYSANDFLAGS"]), inner].concat(),
            3 => words(["COMMAND", "DOCS", "rl.check"]),
            4 => words(["SCAN", "0", "TYPE", "ratelimit", "COUNT", "100"]),
            _ => words(["COMMAND", "INFO", "rl.mcheck", "rl.policy"]),
        }
    }

    /// A setting of ours, right or wrong. `allow-at` stays `yes`.
    fn set(&mut self) -> Words {
        let setting = &SETTINGS[self.rng.usize(0..SETTINGS.len())];
        let value = match &setting.values {
            _ if self.one_in(4) => junk::number(&mut self.rng),
            Values::Integer(range) if self.rng.bool() => {
                let most = (*range.end()).min(2_000);
                self.rng.i64(*range.start()..=most).to_string().into_bytes()
            }
            Values::YesNo => b"yes".to_vec(),
            Values::Integer(_) | Values::Word(_) => {
                let good = setting.good();
                self.pick(&[&good[0], &good[1], setting.default])
            }
        };
        [words(["CONFIG", "SET"]), vec![setting.full_name().into_bytes(), value]].concat()
    }

    fn watch(&mut self) -> Words {
        if self.one_in(3) { words(["UNWATCH"]) } else { vec![b"WATCH".to_vec(), self.key()] }
    }

    fn track(&mut self) -> Words {
        match self.rng.u32(0..4) {
            0 => words(["CLIENT", "TRACKING", "ON"]),
            1 => words(["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "k"]),
            2 => words(["CLIENT", "TRACKING", "ON", "NOLOOP"]),
            _ => words(["CLIENT", "TRACKING", "OFF"]),
        }
    }

    /// Commands that write all keys or purge memory. They are rare, because they take long, and a
    /// transaction contains none.
    fn save(&mut self) -> Words {
        match self.rng.u32(0..6) {
            _ if self.in_multi => words(["PING"]),
            0 => words(["DEBUG", "RELOAD"]),
            1 => words(["BGREWRITEAOF"]),
            2..4 => words(["BGSAVE"]),
            _ => words(["MEMORY", "PURGE"]),
        }
    }
}
