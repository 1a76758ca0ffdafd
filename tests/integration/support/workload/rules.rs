//! Random rules: every algorithm, every option.

use fastrand::Rng;
use ratelimit_engine::rule::Kind;

/// The periods of rules, and of their bans.
const SHORT: [&[&str]; 2] = [&["1ms", "5ms", "20ms", "100ms", "1s"], &["5ms", "50ms"]];
const LONG: [&[&str]; 2] = [&["h", "90m", "1d", "1w"], &["2h"]];
pub const NAMES: [&str; 3] = ["free", "trial", "x-1_.Z"];

/// How many sets of rules a pool has.
const SETS: usize = 24;

/// Sets of rules, each for one check.
pub struct Pool(Vec<Vec<Rule>>);

impl Pool {
    pub fn short(rng: &mut Rng) -> Self {
        Self::with(rng, SHORT)
    }

    pub fn long(rng: &mut Rng) -> Self {
        Self::with(rng, LONG)
    }

    pub fn mixed(rng: &mut Rng) -> Self {
        let [periods, bans] = [0, 1].map(|of| [SHORT[of], LONG[of]].concat());
        Self::with(rng, [&periods, &bans])
    }

    fn with(rng: &mut Rng, periods: [&[&'static str]; 2]) -> Self {
        let set = |rng: &mut Rng| {
            let mut rules: Vec<Rule> = Vec::new();
            for _ in 0..rng.usize(1..=4) {
                let rule = Rule::any(rng, periods);
                if !rules.iter().any(|other| other.may_equal(&rule)) {
                    rules.push(rule);
                }
            }
            rules
        };
        Self((0..SETS).map(|_| set(rng)).collect())
    }

    /// The rules of the `n`th key; several keys share a set.
    pub fn of(&self, n: usize) -> &[Rule] {
        &self.0[n / 3 % SETS]
    }

    pub fn any(&self, rng: &mut Rng) -> &[Rule] {
        &self.0[rng.usize(0..SETS)]
    }
}

/// A rule. Its limits are separate, because they may change from call to call.
pub struct Rule {
    algorithm: Kind,
    limit: u32,
    /// The burst of a token bucket or the queue of a leaky bucket.
    room: Option<u32>,
    period: &'static str,
    name: Option<&'static str>,
    /// The other options, each after a comma.
    options: String,
}

impl Rule {
    fn any(rng: &mut Rng, [periods, bans]: [&[&'static str]; 2]) -> Self {
        let algorithm = rng.choice(Kind::ALL).expect("some");
        let mut period = rng.choice(periods).copied().expect("some");
        let is_slots = algorithm == Kind::Slots;
        let mut options = String::new();
        let mut option = |text: &str| options.push_str(text);
        match algorithm {
            Kind::Window => {
                option(rng.choice(["", "", ",res=2", ",res=7", ",res=60"]).expect("some"));
            }
            Kind::Fixed => {
                if period == "1w" && rng.bool() {
                    period = "month";
                } else {
                    option(rng.choice(["", "", ",align=first", ",align=epoch"]).expect("some"));
                }
                option(rng.choice(["", "", ",tz=+05:45", ",tz=-14:00"]).expect("some"));
                option(rng.choice(["", "", "", ",keep=1", ",keep=5"]).expect("some"));
            }
            Kind::Bucket => option(rng.choice(["", ",refill=interval"]).expect("some")),
            Kind::Log | Kind::Leaky | Kind::Slots => {}
        }
        if !is_slots {
            option(rng.choice(["", "", "", ",count=all", ",count=allowed"]).expect("some"));
        }
        // All log rules of a key must have one cost.
        if algorithm != Kind::Log && rng.u32(0..6) == 0 {
            option(rng.choice([",cost=0", ",cost=1", ",cost=3"]).expect("some"));
        }
        if rng.u32(0..8) == 0 {
            option(",ban=");
            option(rng.choice(bans).expect("some"));
            for _ in 0..rng.usize(0..3) {
                option(":");
                option(rng.choice(bans).expect("some"));
            }
        }
        if rng.u32(0..6) == 0 {
            option(",shadow");
        }
        let name = if rng.u32(0..4) == 0 { rng.choice(NAMES) } else { None };
        let limit = limit(rng, algorithm);
        Self { algorithm, limit, room: room(rng, algorithm), period, name, options }
    }

    /// Whether two rules may have the same identity, which a check refuses. Ignores options
    /// that would tell them apart.
    fn may_equal(&self, other: &Self) -> bool {
        match (self.name, other.name) {
            (None, None) if self.algorithm == Kind::Slots => other.algorithm == Kind::Slots,
            (None, None) => self.algorithm == other.algorithm && self.period == other.period,
            (name, other_name) => name == other_name,
        }
    }

    /// The text of the rule. If `redraw` is given, draws new limits from it.
    pub fn text(&self, redraw: Option<&mut Rng>) -> String {
        let Self { algorithm, period, ref options, .. } = *self;
        let (limit, room) = match redraw {
            Some(rng) => (limit(rng, algorithm), room(rng, algorithm)),
            None => (self.limit, self.room),
        };
        let room = match (algorithm, room) {
            (Kind::Bucket, Some(burst)) => format!(",burst={}", burst.max(1)),
            (Kind::Leaky, Some(queue)) => format!(",queue={queue}"),
            (Kind::Log | Kind::Window | Kind::Fixed | Kind::Slots, _) | (_, None) => String::new(),
        };
        let name = self.name.map(|name| format!(",name={name}")).unwrap_or_default();
        let per = if algorithm == Kind::Slots { String::new() } else { format!("/{period}") };
        format!("{}:{limit}{per}{room}{options}{name}", algorithm.name())
    }
}

fn limit(rng: &mut Rng, algorithm: Kind) -> u32 {
    match rng.u32(0..20) {
        0 => 0,
        1 if algorithm != Kind::Log => 1_000_000_000,
        1..5 => rng.u32(20..=400),
        _ => rng.u32(1..=20),
    }
}

/// A burst or a queue; `None` for the default.
fn room(rng: &mut Rng, algorithm: Kind) -> Option<u32> {
    rng.bool().then(|| limit(rng, algorithm))
}
