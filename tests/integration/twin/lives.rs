//! Random lives of keys: calls at explicit times, under rules that change, on a clock that may step
//! back. They are drawn like the traffic in the tests of the core's laws.

use std::fmt;

use fastrand::Rng;
use ratelimit_engine::rule::{Kind, MAX_UNITS};

const MS_US: u64 = 1_000;
const DAY_US: u64 = 86_400_000_000;
/// The latest time that the script accepts.
const LATEST_US: u64 = 1 << 52;
/// Every unit, the shortest period, the longest one, and one that a log rounds.
const PERIODS: [(&str, u64); 14] = [
    ("ms", MS_US),
    ("7ms", 7 * MS_US),
    ("s", 1_000 * MS_US),
    ("2sec", 2_000 * MS_US),
    ("13s", 13_000 * MS_US),
    ("m", 60_000 * MS_US),
    ("1hour", 3_600_000 * MS_US),
    ("d", DAY_US),
    ("7days", 7 * DAY_US),
    ("w", 7 * DAY_US),
    ("2w", 14 * DAY_US),
    ("366d", 366 * DAY_US),
    ("2500000123ms", 2_500_000_123 * MS_US),
    ("month", 31 * DAY_US),
];

/// A life of a key.
pub struct Life {
    pub calls: Vec<Call>,
    /// The longest window of its rules.
    pub longest_us: u64,
}

/// One call: the command's name without `RL.`, and the words that follow the key.
#[derive(Clone)]
pub struct Call {
    pub name: &'static str,
    pub at_us: u64,
    /// The words before `AT`.
    pub options: Vec<String>,
    pub rules: Vec<String>,
}

impl Call {
    /// The words after the key, with `AT` and a time, which `RESET` does not take.
    pub fn words_at(&self, at_us: u64) -> Vec<String> {
        let at = ["AT".into(), at_us.to_string()];
        let at = if self.name == "RESET" { &[][..] } else { &at };
        [&self.options, at, &self.rules].concat()
    }

    pub fn words(&self) -> Vec<String> {
        self.words_at(self.at_us)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.words().join(" "))
    }
}

#[derive(Clone)]
struct Rule {
    kind: Kind,
    limit: u64,
    room: Option<u64>,
    period: String,
    period_us: u64,
    name: Option<&'static str>,
    /// The options that stay when limits are drawn again, each after a comma.
    options: String,
    cost: Option<u64>,
}

impl Life {
    pub fn any(rng: &mut Rng) -> Self {
        // Rules that share a name take over the state from each other.
        let shared = rng.u32(0..5) == 0;
        // Products of large limits, costs and long windows do not fit into Lua's numbers.
        let huge = !shared && rng.u32(0..5) == 0;
        let sets = if shared { rng.usize(2..=6) } else { rng.usize(1..=3) };
        let sets: Vec<_> = (0..sets).map(|_| Rule::set(rng, shared, huge)).collect();
        let start_us = match rng.u32(0..8) {
            0 => rng.u64(0..10_000_000),
            // The last days of February of a leap year.
            1 => 1_709_164_800_000_000 + rng.u64(0..3 * DAY_US),
            2 => rng.u64(0..LATEST_US - 1_000 * DAY_US),
            _ => rng.u64(1_600_000_000_000_000..1_900_000_000_000_000),
        };
        // How many of sixteen steps of the clock go back.
        let steps_back = *rng.choice(&[0, 1, 3, 8]).expect("some");
        let mut at_us = start_us;
        let calls = (0..rng.usize(1..=40)).map(|_| {
            let first = rng.u32(0..5) < 3;
            let set = if first { &sets[0] } else { rng.choice(&sets).expect("a set") };
            let window_us = rng.choice(set).expect("a rule").period_us;
            at_us = match rng.u32(0..if huge { 2 } else { 6 }) {
                0 if steps_back == 0 => boundary(rng, at_us, window_us).max(at_us),
                0 => boundary(rng, at_us, window_us),
                _ => at_us.saturating_add_signed(gap(rng, window_us, steps_back)),
            };
            at_us = at_us.min(LATEST_US);
            Call::any(rng, at_us, set, huge)
        });
        let calls = calls.collect();
        let longest_us = sets.iter().flatten().map(|rule| rule.period_us).max().unwrap_or(0);
        Self { calls, longest_us }
    }
}

/// The end of a part of a window since the epoch, or a microsecond before or after it. Wrong rounding
/// shows there.
fn boundary(rng: &mut Rng, at_us: u64, window_us: u64) -> u64 {
    let parts = if rng.bool() { rng.u64(1..=4) } else { rng.u64(1..=60) };
    let ended = (at_us / window_us).saturating_add(rng.u64(0..=1)) * parts + rng.u64(0..=parts);
    let ends_us = u128::from(ended) * u128::from(window_us) / u128::from(parts);
    (ends_us as u64).saturating_add_signed(rng.i64(-1..=1))
}

/// How much time passes between two calls.
fn gap(rng: &mut Rng, window_us: u64, steps_back: u32) -> i64 {
    let back = rng.u32(0..16) < steps_back;
    let mille = match (back, rng.u32(0..6)) {
        (false, 0..2) => 0,
        (false, 2) => rng.i64(0..=100),
        (false, 3) => rng.i64(0..=1_000),
        (false, 4) => 1_000,
        (false, _) => rng.i64(0..=5_000),
        (true, 0..4) => -rng.i64(0..=500),
        (true, 4) => -1_000,
        (true, _) => -rng.i64(0..=4_000),
    };
    let jitter = match (back, rng.u32(0..5)) {
        (_, 0..3) => 0,
        (_, 3) => rng.i64(0..=1),
        (false, _) => rng.i64(0..=5_000),
        (true, _) => -rng.i64(0..=3_000),
    };
    let window_us = window_us.cast_signed();
    window_us / 1_000 * mille + window_us % 1_000 * mille / 1_000 + jitter
}

impl Call {
    fn any(rng: &mut Rng, at_us: u64, set: &[Rule], huge: bool) -> Self {
        let redraw = rng.u32(0..8) == 0;
        let mut rules: Vec<_> = set.iter().map(|rule| rule.text(redraw.then_some(rng))).collect();
        let mut options = Vec::new();
        let name = match rng.u32(0..60) {
            0..5 => "PEEK",
            5..11 => "REFUND",
            11 => "RESET",
            _ => "CHECK",
        };
        match name {
            "REFUND" => {
                options.push(cost(rng).to_string());
                rules.truncate(if rng.bool() { rules.len() } else { 0 });
            }
            "RESET" => rules.clear(),
            _ => {
                if huge {
                    let part = set[0].limit / rng.u64(1..=60);
                    options.extend(["COST".into(), part.to_string()]);
                } else if rng.bool() {
                    options.extend(["COST".into(), cost(rng).to_string()]);
                }
                let named = set.iter().find(|rule| rule.kind != Kind::Log && rule.name.is_some());
                if let Some(name) = named.and_then(|rule| rule.name).filter(|_| rng.u32(0..8) == 0)
                {
                    options.extend(["cost".into(), format!("{name}={}", cost(rng))]);
                }
            }
        }
        Self { name, at_us, options, rules }
    }
}

impl Rule {
    /// Rules for one check: no two have the same identity, and all log rules have one cost.
    fn set(rng: &mut Rng, shared: bool, huge: bool) -> Vec<Self> {
        let mut rules: Vec<Self> = Vec::new();
        for _ in 0..if shared || huge { 1 } else { rng.usize(1..=4) } {
            let mut rule = Self::any(rng, shared);
            if huge && rule.kind != Kind::Log {
                (rule.limit, rule.room) = (rng.u64(1_000_000..=u64::from(MAX_UNITS)), None);
            }
            let same = |other: &Self| match (other.name, rule.name) {
                (None, None) => other.kind == rule.kind && other.period_us == rule.period_us,
                (name, own) => name == own,
            };
            if rules.iter().any(same) {
                continue;
            }
            let log = rules.iter().find(|other| (other.kind, rule.kind) == (Kind::Log, Kind::Log));
            rule.cost = log.map_or(rule.cost, |log| log.cost);
            rules.push(rule);
        }
        rules
    }

    fn any(rng: &mut Rng, shared: bool) -> Self {
        let kind = *rng.choice(&Kind::ALL[..5]).expect("some");
        let (mut period, mut period_us) = {
            let &(period, us) = rng.choice(&PERIODS).expect("some");
            (period.to_string(), us)
        };
        if rng.u32(0..4) == 0 || period == "month" && kind != Kind::Fixed {
            let ms = rng.u64(1..=100_000);
            (period, period_us) = (format!("{ms}ms"), ms * MS_US);
        }
        let mut options = String::new();
        match kind {
            Kind::Window if rng.bool() => {
                let res = if rng.bool() { rng.u32(1..=4) } else { rng.u32(1..=60) };
                options = format!(",res={res}");
            }
            Kind::Fixed => {
                if period != "month" && rng.bool() {
                    options.push_str(rng.choice([",align=first", ",align=epoch"]).expect("some"));
                }
                if rng.u32(0..3) == 0 {
                    let (sign, minutes) = (if rng.bool() { '-' } else { '+' }, rng.u32(0..=840));
                    options += &format!(",tz={sign}{:02}:{:02}", minutes / 60, minutes % 60);
                }
            }
            Kind::Bucket if rng.u32(0..3) == 0 => options.push_str(",refill=interval"),
            _ => {}
        }
        for (option, of) in [(",count=all", 4), (",shadow", 6)] {
            if rng.u32(0..of) == 0 {
                options.push_str(option);
            }
        }
        let name = match rng.u32(0..5) {
            _ if shared => Some("x"),
            0 => rng.choice(["free", "x", "throttle"]),
            _ => None,
        };
        let cost = (rng.u32(0..7) == 0).then(|| cost(rng));
        let mut rule = Self { kind, limit: 0, room: None, period, period_us, name, options, cost };
        (rule.limit, rule.room) = rule.limits(rng);
        rule
    }

    /// A limit, and the burst or the queue. A bucket drains within the script's bound.
    fn limits(&self, rng: &mut Rng) -> (u64, Option<u64>) {
        loop {
            let limit = limit(rng).min(if self.kind == Kind::Log { 100_000 } else { u64::MAX });
            let room = match self.kind {
                Kind::Bucket | Kind::Leaky if rng.bool() => Some(self::limit(rng).max(1)),
                _ => None,
            };
            let capacity = u128::from(room.unwrap_or(limit) + 1);
            let drains = capacity * u128::from(self.period_us) / u128::from(limit.max(1));
            if limit == 0 || drains < u128::from(LATEST_US) {
                return (limit, room);
            }
        }
    }

    /// The text. If `redraw` is given, draws new limits from it.
    fn text(&self, redraw: Option<&mut Rng>) -> String {
        let (limit, room) = redraw.map_or((self.limit, self.room), |rng| self.limits(rng));
        let mut text = format!("{}:{limit}/{}{}", self.kind.name(), self.period, self.options);
        let room_name = if self.kind == Kind::Leaky { "queue" } else { "burst" };
        for (option, value) in [(room_name, room), ("cost", self.cost)] {
            if let Some(value) = value {
                text += &format!(",{option}={value}");
            }
        }
        if let Some(name) = self.name {
            text += &format!(",name={name}");
        }
        text
    }
}

fn limit(rng: &mut Rng) -> u64 {
    let most = u64::from(MAX_UNITS);
    match rng.u32(0..19) {
        0 => 0,
        1..9 => rng.u64(1..=6),
        9..14 => rng.u64(7..=20),
        14..17 => rng.u64(21..=1_000),
        17 => rng.u64(0..=most),
        _ => most,
    }
}

fn cost(rng: &mut Rng) -> u64 {
    let most = u64::from(MAX_UNITS);
    match rng.u32(0..18) {
        0..8 => 1,
        8 => 0,
        9..13 => rng.u64(2..=6),
        13..15 => rng.u64(0..=30),
        15 => rng.u64(0..=1_000),
        16 => rng.u64(0..=most),
        _ => most,
    }
}
