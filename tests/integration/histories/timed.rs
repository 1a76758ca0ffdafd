//! A model of rules for calls that give their time: each reply is computed from a list of charges.
//!
//! Each rule is a formula of `docs/guide/rules.md` over all its charges, and a search finds its waits.
//! So there is little that can be wrong.

use std::cmp::Reverse;

/// How a rule counts.
#[derive(Clone, Copy, Debug)]
enum Counts {
    Log,
    /// Sub-intervals of this length, in milliseconds.
    Window(i64),
    Fixed,
    Bucket,
    Leaky,
}

#[derive(Debug)]
pub struct Rule {
    pub text: &'static str,
    counts: Counts,
    limit: i64,
    period_ms: i64,
    /// The most that passes at once.
    capacity: i64,
}

const fn rule(
    text: &'static str,
    counts: Counts,
    limit: i64,
    period_ms: i64,
    capacity: i64,
) -> Rule {
    Rule { text, counts, limit, period_ms, capacity }
}

pub const COUNT: usize = 5;
pub const RULES: [Rule; COUNT] = [
    rule("log:5/20s", Counts::Log, 5, 20_000, 5),
    rule("window:6/20s,res=2", Counts::Window(10_000), 6, 20_000, 6),
    rule("fixed:7/24s", Counts::Fixed, 7, 24_000, 7),
    rule("bucket:7/22s,burst=4", Counts::Bucket, 7, 22_000, 4),
    rule("leaky:6/21s,queue=4", Counts::Leaky, 6, 21_000, 5),
];

/// A check that adds a state drops the states that have not mattered for two of their windows, which
/// this model does not do. So all times lie within twice the shortest period.
pub const SPAN_MS: i64 = 40_000;

/// What one rule of a key was charged: times and units, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Charges(Vec<(i64, i64)>);

impl Rule {
    /// The time at which a call at `at` reads the charges; `None` if it sees no charge.
    fn reads_at(&self, charges: &Charges, at: i64) -> Option<i64> {
        let &(last, _) = charges.0.last()?;
        (last - at <= self.period_ms).then_some(at.max(last))
    }

    /// The units that count at the time `at`, as a numerator and a denominator.
    fn used(&self, charges: &Charges, at: i64) -> (i64, i64) {
        let Some(at) = self.reads_at(charges, at) else { return (0, 1) };
        let sum = |counts: &dyn Fn(i64) -> bool| -> i64 {
            charges.0.iter().filter(|&&(time, _)| counts(time)).map(|&(_, units)| units).sum()
        };
        match self.counts {
            Counts::Log => (sum(&|time| time > at - self.period_ms), 1),
            Counts::Fixed => (sum(&|time| time / self.period_ms == at / self.period_ms), 1),
            Counts::Window(length) => {
                let (present, passed) = (at / length, at % length);
                let oldest = present - self.period_ms / length;
                let old = sum(&|time| time / length == oldest);
                (old * (length - passed) + sum(&|time| time / length > oldest) * length, length)
            }
            Counts::Bucket | Counts::Leaky => {
                let (mut debt, mut last) = (0, 0);
                for &(time, units) in charges.0.iter().chain(&[(at, 0)]) {
                    debt = (debt - (time - last) * self.limit).max(0) + units * self.period_ms;
                    last = time;
                }
                (debt, self.period_ms)
            }
        }
    }

    fn wait_ms(&self, charges: &Charges, at: i64, cost: i64) -> i64 {
        until(|ms| {
            let (used, one) = self.used(charges, at + ms);
            used + cost * one <= self.capacity * one
        })
    }

    fn remaining(&self, charges: &Charges, at: i64) -> i64 {
        let (used, one) = self.used(charges, at);
        ((self.capacity * one - used) / one).max(0)
    }

    fn reset_ms(&self, charges: &Charges, at: i64) -> i64 {
        until(|ms| self.used(charges, at + ms).0 == 0)
    }

    /// How long a call that is charged at `at` waits for its turn.
    fn turn_ms(&self, charges: &Charges, at: i64) -> i64 {
        match self.counts {
            Counts::Leaky => self.reset_ms(charges, at),
            _ => 0,
        }
    }

    fn charge(&self, charges: &mut Charges, at: i64, cost: i64) {
        let at = self.reads_at(charges, at).unwrap_or_else(|| {
            charges.0.clear();
            at
        });
        match charges.0.last_mut() {
            Some((last, units)) if *last == at => *units += cost,
            _ => charges.0.push((at, cost)),
        }
    }
}

impl Charges {
    pub fn units(&self) -> i64 {
        self.0.iter().map(|&(_, units)| units).sum()
    }
}

/// What a check of rules replies, and the rules with their charges after it. A peek charges 0.
pub fn decide(
    rules: &[(usize, Charges)],
    at: i64,
    cost: i64,
    charge: i64,
) -> ([i64; 5], Vec<(usize, Charges)>) {
    let wait_ms = |(rule, charges): &(usize, Charges), at| RULES[*rule].wait_ms(charges, at, cost);
    // After a step back a rule may not see its charges yet: it denies later, when it sees them.
    let mut wait = 0;
    while let Some(more) =
        rules.iter().map(|one| wait_ms(one, at + wait)).max().filter(|&ms| ms > 0)
    {
        wait += more;
    }
    let verdict = i64::from(wait > 0);
    let mut next = rules.to_vec();
    // The first of equal rules decides.
    let (rule, charges) = if wait > 0 {
        rules.iter().min_by_key(|one| Reverse(wait_ms(one, at)))
    } else {
        let turns = rules.iter().map(|(rule, charges)| RULES[*rule].turn_ms(charges, at));
        wait = turns.max().unwrap_or(0);
        next.iter_mut().for_each(|(rule, charges)| RULES[*rule].charge(charges, at, charge));
        next.iter().min_by_key(|(rule, charges)| RULES[*rule].remaining(charges, at))
    }
    .expect("a rule");
    let rule = &RULES[*rule];
    let (remaining, reset) = (rule.remaining(charges, at), rule.reset_ms(charges, at));
    ([verdict, rule.capacity, remaining, wait, reset], next)
}

/// The number of milliseconds after which `holds` becomes true. It stays true from then on.
fn until(holds: impl Fn(i64) -> bool) -> i64 {
    if holds(0) {
        return 0;
    }
    let (mut before, mut after) = (0, 4 * SPAN_MS);
    while after - before > 1 {
        let middle = i64::midpoint(before, after);
        if holds(middle) { after = middle } else { before = middle }
    }
    after
}
