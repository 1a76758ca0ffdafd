//! The calls of clients, and their commands.

use super::timed::{self, SPAN_MS};
use crate::support::client::START_US;

/// How many keys a history has.
pub const KEYS: usize = 2;

/// How long a hold lasts, in days.
pub const HOLD_DAYS: i64 = 50;
/// How long a pause lasts, in days.
pub const PAUSE_DAYS: i64 = 60;
/// How long a caller waits in line, in milliseconds.
const WAIT_MS: u64 = 30;

/// When a rule whose units are used up admits units again.
#[derive(Clone, Copy, Debug)]
pub enum Frees {
    /// It admits all its units again after this number of days.
    AtOnce(i64),
    /// It admits one more unit each time this number of days has passed.
    Evenly(i64),
}

/// A rule that frees nothing while a test runs.
#[derive(Debug)]
pub struct Rule {
    pub text: &'static str,
    pub most: i64,
    pub frees: Frees,
}

/// The rules of a history. The entry `POLICY` stands for the policy, the entry `SLOTS` for slots. No two
/// rules have equal waits.
pub const RULES: [Rule; 6] = [
    Rule { text: "log:5/90d", most: 5, frees: Frees::AtOnce(90) },
    Rule { text: "fixed:6/200d,align=first", most: 6, frees: Frees::AtOnce(200) },
    Rule { text: "bucket:4/40d", most: 4, frees: Frees::Evenly(10) },
    Rule { text: LEAKY, most: 5, frees: Frees::Evenly(7) },
    Rule { text: "", most: 0, frees: Frees::AtOnce(150) },
    Rule { text: "slots:5", most: 5, frees: Frees::AtOnce(HOLD_DAYS) },
];
const LEAKY: &str = "leaky:4/28d,queue=4";
/// The rule that queues, so it admits with a wait.
pub const QUEUE: usize = 3;
pub const POLICY: usize = 4;
pub const SLOTS: usize = 5;

/// The only rule of each key in the theme `One`.
const ONE: [usize; KEYS] = [0, 2];

/// The limits that a policy may set.
pub const POLICIES: [i64; 2] = [3, 7];

/// The limit of the policy that plans name.
pub const PLANNED: i64 = 10;

/// The rules of a check that takes a hold.
pub const HELD: [usize; 4] = [0, 1, 2, SLOTS];

/// The cost of a hold. It depends on the id alone, so that a second call with the id repeats the hold.
pub const fn cost_of_hold(id: u8) -> i64 {
    1 + id as i64 % 3
}

/// Which calls a history has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Checks of all keys or any key, refunds, resets, blocks, pauses, plans, and policy changes.
    Rates,
    /// Holds, settlements, and callers that wait in line.
    Holds,
    /// Checks of one rule, which the fast path decides.
    One,
    /// Checks with `AT`. Their times move on, and now and then step back.
    Timed,
}

/// A call of a client. `key` is an index, `rules` are indices of `RULES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Check {
        key: usize,
        cost: i64,
        rules: Vec<usize>,
    },
    Peek {
        key: usize,
        cost: i64,
        rules: Vec<usize>,
    },
    CheckAll {
        cost: i64,
        rules: Vec<usize>,
    },
    /// `RL.MCHECK` with `ANY`.
    CheckAny {
        cost: i64,
        rules: Vec<usize>,
        most: bool,
    },
    Hold {
        key: usize,
        id: u8,
    },
    /// An `RL.WAIT` with a hold.
    Wait {
        key: usize,
        id: u8,
    },
    Settle {
        key: usize,
        id: u8,
        cost: Option<i64>,
    },
    Refund {
        key: usize,
        units: i64,
    },
    Reset {
        key: usize,
    },
    Block {
        key: usize,
    },
    Unblock {
        key: usize,
    },
    Pause {
        key: usize,
    },
    Resume {
        key: usize,
    },
    Plan {
        key: usize,
    },
    Unplan {
        key: usize,
    },
    SetPolicy {
        limit: i64,
    },
    /// A check of some keys at a time. `rules` are indices of `timed::RULES`.
    At {
        ms: i64,
        keys: Vec<usize>,
        cost: i64,
        rules: Vec<usize>,
        peek: bool,
    },
}

impl Call {
    /// A random call. `position` is from 0 for a client's first call to 1 for its last.
    pub fn random(theme: Theme, position: f64, random: &mut fastrand::Rng) -> Self {
        let (key, cost) = (random.usize(..KEYS), random.i64(1..=3));
        let id = random.u8(..8);
        match (theme, random.u32(..20)) {
            (Theme::Rates, n) => {
                let mut rules: Vec<usize> = (0..=POLICY).filter(|_| random.bool()).collect();
                if rules.is_empty() {
                    rules.push(random.usize(..=POLICY));
                }
                match n {
                    0..7 => Self::Check { key, cost, rules },
                    7..9 => Self::Peek { key, cost, rules },
                    9..11 => Self::CheckAll { cost, rules },
                    11..13 => Self::CheckAny { cost, rules, most: random.bool() },
                    13..15 => Self::Refund { key, units: random.i64(1..=4) },
                    15 => Self::Reset { key },
                    16 if random.bool() => Self::Plan { key },
                    16 => Self::SetPolicy { limit: POLICIES[random.usize(..POLICIES.len())] },
                    17 if random.bool() => Self::Block { key },
                    17 => Self::Pause { key },
                    18 if random.bool() => Self::Unplan { key },
                    18 => Self::Unblock { key },
                    _ => Self::Resume { key },
                }
            }
            (Theme::One, 0..12) => Self::Check { key, cost, rules: vec![ONE[key]] },
            (Theme::One, 12..14) => Self::Peek { key, cost, rules: vec![ONE[key]] },
            (Theme::One, 14..17) => Self::Refund { key, units: random.i64(1..=4) },
            (Theme::One, 17) => Self::Reset { key },
            (Theme::One, 18) => Self::Block { key },
            (Theme::One, _) => Self::Unblock { key },
            (Theme::Holds, 0..2) => Self::Check { key, cost, rules: vec![0, 1, 2] },
            (Theme::Holds, 2..4) => Self::Peek { key, cost, rules: vec![0, 2] },
            (Theme::Holds, 4..9) => Self::Hold { key, id },
            (Theme::Holds, 9..12) => Self::Wait { key, id },
            (Theme::Holds, 12..18) => {
                let cost = random.bool().then(|| random.i64(0..=4));
                Self::Settle { key, id, cost }
            }
            (Theme::Timed, 19) => Self::Reset { key },
            (Theme::Timed, n) => {
                let last = (position * SPAN_MS as f64) as i64;
                let back = if random.u32(..4) == 0 { random.i64(0..SPAN_MS) } else { 0 };
                let ms = (last + random.i64(0..2_000) - back).clamp(0, SPAN_MS - 1);
                let count = if random.bool() { 1 } else { timed::COUNT };
                let mut rules = random.choose_multiple(0..timed::COUNT, count);
                rules.retain(|_| count == 1 || random.bool());
                if rules.is_empty() {
                    rules.push(random.usize(..timed::COUNT));
                }
                let keys = if n < 3 { (0..KEYS).collect() } else { vec![key] };
                Self::At { ms, keys, cost, rules, peek: (3..6).contains(&n) }
            }
            (Theme::Holds, 18) => Self::Reset { key },
            (Theme::Holds, _) => Self::CheckAll { cost: 1, rules: vec![0, 1] },
        }
    }

    /// The command, on the keys of a group.
    pub fn words(&self, group: &str) -> Vec<String> {
        let name = |key: usize| format!("{{{group}}}{key}");
        let days = |days: i64| (days * 86_400).to_string();
        let texts = |rules: &[usize]| {
            let text = |&rule: &usize| match rule {
                POLICY => format!("@plan:{group}"),
                _ => RULES[rule].text.to_owned(),
            };
            rules.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        let line = match self {
            Self::Check { key, cost, rules } => {
                format!("RL.CHECK {} COST {cost} {}", name(*key), texts(rules))
            }
            Self::Peek { key, cost, rules } => {
                format!("RL.PEEK {} COST {cost} {}", name(*key), texts(rules))
            }
            Self::CheckAll { cost, rules } => {
                let keys = (0..KEYS).map(name).collect::<Vec<_>>().join(" ");
                format!("RL.MCHECK {KEYS} {keys} COST {cost} {}", texts(rules))
            }
            Self::CheckAny { cost, rules, most } => {
                let keys = (0..KEYS).map(name).collect::<Vec<_>>().join(" ");
                let any = if *most { "ANY MOST" } else { "ANY" };
                format!("RL.MCHECK {KEYS} {keys} COST {cost} {any} {}", texts(rules))
            }
            Self::Hold { key, id } => {
                let (cost, end) = (cost_of_hold(*id), days(HOLD_DAYS));
                format!("RL.CHECK {} COST {cost} HOLD {id} EX {end} {}", name(*key), texts(&HELD))
            }
            Self::Wait { key, id } => {
                let (cost, end) = (cost_of_hold(*id), days(HOLD_DAYS));
                let key = name(*key);
                format!("RL.WAIT {key} {WAIT_MS} COST {cost} HOLD {id} EX {end} {}", texts(&HELD))
            }
            Self::Settle { key, id, cost: None } => format!("RL.SETTLE {} {id}", name(*key)),
            Self::Settle { key, id, cost: Some(cost) } => {
                format!("RL.SETTLE {} {id} COST {cost}", name(*key))
            }
            Self::Refund { key, units } => format!("RL.REFUND {} {units}", name(*key)),
            Self::Reset { key } => format!("RL.RESET {}", name(*key)),
            Self::Block { key } => format!("RL.BLOCK {}", name(*key)),
            Self::Unblock { key } => format!("RL.UNBLOCK {}", name(*key)),
            Self::Pause { key } => format!("RL.PAUSE {} EX {}", name(*key), days(PAUSE_DAYS)),
            Self::Resume { key } => format!("RL.RESUME {}", name(*key)),
            Self::Plan { key } => format!("RL.PLAN {} {group}-plan", name(*key)),
            Self::Unplan { key } => format!("RL.UNPLAN {}", name(*key)),
            Self::At { ms, keys, cost, rules, peek } => {
                let command = match (peek, &keys[..]) {
                    (true, _) => "RL.PEEK".to_owned(),
                    (false, [_]) => "RL.CHECK".to_owned(),
                    (false, keys) => format!("RL.MCHECK {}", keys.len()),
                };
                let names = keys.iter().map(|&key| name(key)).collect::<Vec<_>>().join(" ");
                let rules: Vec<_> = rules.iter().map(|&rule| timed::RULES[rule].text).collect();
                let at = START_US as i64 + ms * 1_000;
                format!("{command} {names} AT {at} COST {cost} {}", rules.join(" "))
            }
            Self::SetPolicy { limit } => policy(group, *limit),
        };
        words(&line)
    }
}

/// The commands that set the policies of a group, before its calls.
pub fn policies(group: &str) -> [Vec<String>; 2] {
    [policy(group, POLICIES[0]), policy(&format!("{group}-plan"), PLANNED)].map(|line| words(&line))
}

fn policy(name: &str, limit: i64) -> String {
    format!("RL.POLICY SET {name} fixed:{limit}/150d,align=first,name=p")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(ToOwned::to_owned).collect()
}
