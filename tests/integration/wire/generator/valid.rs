//! Each `RL.*` command in its valid forms. Only the grammar is valid: a setting may refuse the
//! command, and its key may have another type.

use super::{Form, Generator, Words, junk, words};

const KEYS: usize = 40;
const IDS: [&str; 5] = [
    "a",
    "b",
    "job-9",
    "\r\n\0id",
    "x234567890123456789012345678901234567890123456789012345678901234",
];
const NAMES: [&str; 3] = ["free", "trial", "x-1_.Z"];
const PATTERNS: [&str; 5] = ["*", "k?", "*1*", "[a-k]*", ""];
/// 2033-05-18, so that keys outlive the run unless a command makes them expire.
const NOW_US: u64 = 2_000_000_000_000_000;
const DAY_US: u64 = 86_400_000_000;

impl Generator {
    pub(super) fn valid(&mut self) -> (Words, Form) {
        match self.rng.u32(0..100) {
            0..28 => (self.check("RL.CHECK"), Form::Decision),
            28..29 => (self.wait(), Form::Decision),
            29..36 => (self.check("RL.PEEK"), Form::Decision),
            36..48 => (self.mcheck(), Form::Decision),
            48..56 => (self.settle(), Form::Integer),
            56..61 => (self.renew(), Form::Integer),
            61..67 => (self.refund(), Form::Integer),
            67..70 => (self.on("RL.RESET"), Form::Integer),
            70..74 => (self.block(), Form::Ok),
            74..75 => (self.plan(), Form::Any),
            75..76 => (self.pause(), Form::Integer),
            76..77 => (self.sync(), Form::Integer),
            77..79 => (self.on_either("RL.UNBLOCK", "RL.UNEXEMPT"), Form::Integer),
            79..80 => (self.on("RL.RESUME"), Form::Integer),
            80..83 => (self.blocks(), Form::List),
            83..86 => (self.log(), Form::List),
            86..89 => (self.on("RL.INFO"), Form::Report),
            89..90 => (self.top(), Form::Any),
            90..92 => (self.explain(), Form::List),
            92..96 => (self.policy(), Form::Any),
            96..99 => (self.throttle(), Form::Decision),
            _ => (self.apply(), Form::Any),
        }
    }

    /// The name of a key. One in ten is a name (`other…`) whose key may have another type.
    pub(super) fn key(&mut self) -> Vec<u8> {
        match self.rng.u32(0..200) {
            0 => junk::bytes(&mut self.rng, 300),
            1..20 => format!("other{}", self.rng.usize(0..6)).into_bytes(),
            _ => format!("k{}", self.rng.usize(0..KEYS)).into_bytes(),
        }
    }

    /// A time for `AT`: usually within a day, sometimes anywhere in the range or at its start.
    pub(super) fn time(&mut self) -> Vec<u8> {
        let time = match self.rng.u32(0..40) {
            0 => self.rng.u64(..=253_402_300_799_999_999),
            1 => self.rng.u64(..1_000_000),
            _ => NOW_US + self.rng.u64(..DAY_US),
        };
        time.to_string().into_bytes()
    }

    /// The rules of a check.
    pub(super) fn rules(&mut self) -> Words {
        let rules = self.pool.any(&mut self.rng);
        rules.iter().map(|rule| rule.text(None).into_bytes()).collect()
    }

    pub(super) fn rule(&mut self) -> Vec<u8> {
        let mut rules = self.rules();
        rules.swap_remove(self.rng.usize(0..rules.len()))
    }

    fn on(&mut self, name: &str) -> Words {
        vec![name.into(), self.key()]
    }

    fn on_either(&mut self, one: &str, other: &str) -> Words {
        let name = if self.rng.bool() { one } else { other };
        self.on(name)
    }

    fn units(&mut self) -> String {
        match self.rng.u32(0..10) {
            0 => 0,
            1 => self.rng.u32(..=1_000_000_000),
            _ => self.rng.u32(1..12),
        }
        .to_string()
    }

    fn id(&mut self) -> Vec<u8> {
        match self.rng.u32(0..10) {
            0 => self.rng.u16(..).to_string().into_bytes(),
            _ => self.pick(&IDS),
        }
    }

    fn lasting(&mut self) -> Words {
        let (unit, most) = if self.rng.bool() { ("EX", 9_000) } else { ("PX", 4_000) };
        vec![unit.into(), self.rng.u32(1..most).to_string().into_bytes()]
    }

    fn costs(&mut self, command: &mut Words, may_range: bool) {
        match self.rng.u32(0..6) {
            0 => command.extend([b"COST".to_vec(), self.units().into_bytes()]),
            1 if may_range => {
                let least = self.rng.u32(1..9);
                let most = least + self.rng.u32(0..200);
                command.extend([b"COST".to_vec(), format!("{least}..{most}").into_bytes()]);
            }
            2 => {
                let named =
                    format!("{}={}", *self.rng.choice(NAMES.iter()).expect("one"), self.units());
                command.extend([b"COST".to_vec(), named.into_bytes()]);
            }
            _ => {}
        }
    }

    fn options(&mut self, command: &mut Words, is_peek: bool, may_at: bool) {
        self.costs(command, true);
        if !is_peek && self.one_in(6) {
            command.extend([b"META".to_vec(), junk::bytes(&mut self.rng, 30)]);
        }
        if !is_peek && self.one_in(3) {
            command.extend([b"HOLD".to_vec(), self.id()]);
            command.extend(self.lasting());
            if self.rng.bool() {
                command.push(b"REFUND".to_vec());
            }
        }
        if may_at && self.rng.bool() {
            command.extend([b"AT".to_vec(), self.time()]);
        }
        if self.one_in(8) {
            command.push(b"FULL".to_vec());
        }
    }

    fn rules_or_policy(&mut self, command: &mut Words) {
        if self.one_in(8) {
            let before = if self.one_in(3) { "@plan:p" } else { "@p" };
            command.push(self.policy_name(before));
        }
        command.extend(self.rules());
    }

    fn policy_name(&mut self, prefix: &str) -> Vec<u8> {
        format!("{prefix}{}", self.rng.u32(0..5)).into_bytes()
    }

    fn check(&mut self, name: &str) -> Words {
        let mut command = self.on(name);
        self.options(&mut command, name == "RL.PEEK", true);
        self.rules_or_policy(&mut command);
        command
    }

    fn wait(&mut self) -> Words {
        let mut command = self.on("RL.WAIT");
        command.push(self.rng.u32(0..20).to_string().into_bytes());
        if self.one_in(2) {
            command.extend([b"FLOW".to_vec(), self.policy_name("f")]);
            if self.one_in(2) {
                command
                    .extend([b"WEIGHT".to_vec(), self.rng.u32(1..=1_000).to_string().into_bytes()]);
            }
        }
        if self.one_in(4) {
            command.extend([b"PRIORITY".to_vec(), self.rng.u32(0..=9).to_string().into_bytes()]);
        }
        self.options(&mut command, false, false);
        self.rules_or_policy(&mut command);
        command
    }

    fn mcheck(&mut self) -> Words {
        let most = if self.one_in(100) { 200 } else { 4 };
        let keys = self.rng.usize(1..=most);
        let mut command = vec![b"RL.MCHECK".to_vec(), keys.to_string().into_bytes()];
        for _ in 0..keys {
            command.push(self.key());
        }
        self.options(&mut command, false, true);
        self.rules_or_policy(&mut command);
        if self.one_in(3) {
            for _ in 1..keys {
                command.push(b"NEXT".to_vec());
                command.extend(self.rules());
            }
        }
        command
    }

    fn settle(&mut self) -> Words {
        let mut command = self.on("RL.SETTLE");
        command.push(self.id());
        if self.one_in(3) {
            command.push(b"REFUND".to_vec());
        } else {
            self.costs(&mut command, false);
        }
        self.at(&mut command);
        command
    }

    fn at(&mut self, command: &mut Words) {
        if self.one_in(3) {
            command.extend([b"AT".to_vec(), self.time()]);
        }
    }

    fn renew(&mut self) -> Words {
        let mut command = self.on("RL.RENEW");
        command.push(self.id());
        command.extend(self.lasting());
        self.at(&mut command);
        command
    }

    fn refund(&mut self) -> Words {
        let mut command = self.on("RL.REFUND");
        command.push(self.units().into_bytes());
        self.at(&mut command);
        if self.rng.bool() {
            command.extend(self.rules());
        }
        command
    }

    fn sync(&mut self) -> Words {
        let mut command = self.on("RL.SYNC");
        command.extend([b"REMAINING".to_vec(), self.units().into_bytes()]);
        self.at(&mut command);
        command.push(self.rule());
        command
    }

    fn pause(&mut self) -> Words {
        let mut command = self.on("RL.PAUSE");
        command.extend(self.lasting());
        self.reason(&mut command);
        command
    }

    fn plan(&mut self) -> Words {
        if self.one_in(3) {
            return self.on("RL.UNPLAN");
        }
        let mut command = self.on("RL.PLAN");
        command.push(self.policy_name("p"));
        if self.rng.bool() {
            command.extend(self.lasting());
        }
        command
    }

    fn reason(&mut self, command: &mut Words) {
        if self.one_in(3) {
            command.extend([b"REASON".to_vec(), junk::bytes(&mut self.rng, 40)]);
        }
    }

    fn block(&mut self) -> Words {
        let mut command = self.on_either("RL.BLOCK", "RL.EXEMPT");
        let time = match self.rng.u32(0..6) {
            0 => words(["EX", "100"]),
            1 => words(["PX", "5"]),
            2 => words(["EXAT", "4102444800"]),
            3 => words(["PXAT", "1000"]),
            4 => words(["FOR", "1h"]),
            _ => Words::new(),
        };
        command.extend(time);
        self.reason(&mut command);
        command
    }

    fn blocks(&mut self) -> Words {
        let cursor = if self.one_in(3) { self.rng.u64(..).to_string() } else { "0".into() };
        let mut command = vec![b"RL.BLOCKS".to_vec(), cursor.into_bytes()];
        if self.rng.bool() {
            command.extend([b"MATCH".to_vec(), self.pick(&PATTERNS)]);
        }
        self.count(&mut command);
        command
    }

    fn count(&mut self, command: &mut Words) {
        if self.rng.bool() {
            command.extend([b"COUNT".to_vec(), self.rng.u32(1..3_000).to_string().into_bytes()]);
        }
    }

    fn log(&mut self) -> Words {
        let mut command = self.on("RL.LOG");
        self.count(&mut command);
        command
    }

    fn top(&mut self) -> Words {
        let mut command = words(["RL.TOP"]);
        self.count(&mut command);
        if self.one_in(9) {
            command.push(b"RESET".to_vec());
        }
        command
    }

    fn explain(&mut self) -> Words {
        let mut command = words(["RL.EXPLAIN"]);
        self.rules_or_policy(&mut command);
        command
    }

    fn policy(&mut self) -> Words {
        let name = self.policy_name("p");
        match self.rng.u32(0..8) {
            0..4 => {
                let mut command = words(["RL.POLICY", "SET"]);
                command.push(name);
                command.extend(self.rules());
                command
            }
            4 => vec![b"RL.POLICY".to_vec(), b"GET".to_vec(), name],
            5 => vec![b"RL.POLICY".to_vec(), b"DEL".to_vec(), name],
            6 => words(["RL.POLICY", "LIST"]),
            _ => words(["RL.POLICY", "HELP"]),
        }
    }

    fn throttle(&mut self) -> Words {
        let mut command = self.on_either("RL.THROTTLE", "CL.THROTTLE");
        for most in [20, 40, 100] {
            command.push(self.rng.u32(0..most).to_string().into_bytes());
        }
        if self.rng.bool() {
            command.push(self.units().into_bytes());
        }
        command
    }

    /// An effect or a value, which clients may not send.
    fn apply(&mut self) -> Words {
        let mut command = self.on_either("RL.APPLY", "RL.LOAD");
        command.push(b"v1:2000000000000000:-1:admit:1".to_vec());
        command.extend(self.rules());
        command
    }
}
