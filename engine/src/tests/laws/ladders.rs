//! Ban ladders: the count of a key's bans chooses the rung, and is forgotten after its time.

use super::{cases, check};
use crate::check::{Ban, Outcome};
use crate::key::{Access, AccessEntry, BanCount, Check, Limiter, Verdict, decode, encode};
use crate::rule::{Ladder, MS_US, Name, Rule, RuleSpec, SECOND_US};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Midnight of a day.
const START_US: u64 = 1_605_916_800_000_000;

/// The most rules of a check.
const MOST_RULES: usize = 3;

/// A rule of a check.
#[derive(Clone, Debug)]
struct Banning {
    rungs_ms: Vec<u64>,
    shadow: bool,
}

/// What happens to the key.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A check that is denied by the rules whose bits are set.
    Check(u8),
    Pardon,
    /// A block by hand, in milliseconds.
    Block(u64),
    Reset,
}

/// The time since the previous deed, in microseconds: a multiple of a rung of some rule, give
/// or take a little.
#[derive(Clone, Copy, Debug)]
struct Gap {
    rule: usize,
    rung: usize,
    times: u64,
    by_us: i64,
}

impl Gap {
    fn us(self, rules: &[Banning]) -> u64 {
        let rungs_ms = &rules[self.rule % rules.len()].rungs_ms;
        let rung_us = rungs_ms[self.rung % rungs_ms.len()] * MS_US;
        (rung_us * self.times).saturating_add_signed(self.by_us)
    }
}

fn rules() -> impl Strategy<Value = Vec<Banning>> {
    let rung = prop_oneof![1..=5u64, 1..=10_000u64];
    let rungs = prop_oneof![
        1 => prop::collection::vec(rung.clone(), 1),
        4 => prop::collection::vec(rung, 2..=8),
    ];
    let shadow = prop::bool::weighted(0.1);
    let rule = (rungs, shadow).prop_map(|(rungs_ms, shadow)| Banning { rungs_ms, shadow });
    prop::collection::vec(rule, 1..=MOST_RULES)
}

fn deeds() -> impl Strategy<Value = Vec<(Gap, Deed)>> {
    let deed = prop_oneof![
        16 => (0..1u8 << MOST_RULES).prop_map(Deed::Check),
        1 => Just(Deed::Pardon),
        1 => (1..10_000u64).prop_map(Deed::Block),
        1 => Just(Deed::Reset),
    ];
    let by_us = prop_oneof![Just(0), Just(-1), Just(1), Just(-1_000), 0..2_000_000i64];
    let gap = (0..MOST_RULES, 0..8usize, 0..=2u64, by_us);
    let gap = gap.prop_map(|(rule, rung, times, by_us)| Gap { rule, rung, times, by_us });
    prop::collection::vec((gap, deed), 1..40)
}

/// The rules of a check, some of which deny.
fn denying(rules: &[Banning], denies: u8) -> Vec<Rule> {
    let rule = |(index, Banning { rungs_ms, shadow }): (usize, &Banning)| {
        let limit = if denies >> index & 1 == 1 { 0 } else { 1_000_000 };
        let spec = RuleSpec {
            name: Name::new(format!("r{index}").as_bytes()),
            ban: Some(Ladder::of_ms(rungs_ms)),
            shadow: *shadow,
            ..super::spec(crate::rule::Kind::Fixed, limit, 1, crate::rule::Unit::Second)
        };
        spec.validate().unwrap()
    };
    rules.iter().enumerate().map(rule).collect()
}

/// A ban that counted.
#[derive(Clone, Copy, Debug)]
struct Past {
    set_us: u64,
    end_us: u64,
    /// How long it is remembered after its end.
    quiet_us: u64,
}

/// Every counted ban since the last pardon, and the current block.
#[derive(Clone, Debug, Default)]
struct Naive {
    past: Vec<Past>,
    blocked_until_us: u64,
}

impl Naive {
    /// The count of bans, and until when it is remembered. It counts the bans since the last gap
    /// that was long enough to forget the earlier bans.
    fn count(&self, now_us: u64) -> Option<(u32, u64)> {
        let mut count = 0;
        for (index, ban) in self.past.iter().enumerate() {
            let before = index.checked_sub(1).map(|index| self.past[index]);
            let quiet = before.is_none_or(|past| ban.set_us >= past.end_us + past.quiet_us);
            count = if quiet { 1 } else { count + 1 };
        }
        let forgotten_us = self.past.last().map(|past| past.end_us + past.quiet_us)?;
        (now_us < forgotten_us).then_some((count, forgotten_us))
    }

    /// The rule that bans, and the end of the ban.
    fn offend(&mut self, rules: &[Banning], denies: u8, now_us: u64) -> Option<Ban> {
        let count = self.count(now_us).map_or(0, |(count, _)| count as usize);
        let denies = |(index, rule): &(usize, &Banning)| denies >> index & 1 == 1 && !rule.shadow;
        let length_ms = |rule: &Banning| rule.rungs_ms[count.min(rule.rungs_ms.len() - 1)];
        let denying: Vec<_> = rules.iter().enumerate().filter(denies).collect();
        // The first of equals: `max_by_key` takes the last, so `rev` reverses the order.
        let longest = denying.iter().rev().max_by_key(|(_, rule)| length_ms(rule))?;
        let until_us = now_us + length_ms(longest.1) * MS_US;
        self.blocked_until_us = until_us;
        let ladders = denying.iter().rev().filter(|(_, rule)| rule.rungs_ms.len() > 1);
        if let Some((_, ladder)) = ladders.max_by_key(|(_, rule)| length_ms(rule)) {
            let quiet_us = ladder.rungs_ms.iter().max().unwrap() * MS_US;
            self.past.push(Past { set_us: now_us, end_us: until_us, quiet_us });
        }
        Some(Ban { rule: longest.0, until_us })
    }
}

/// A key and its replica.
#[derive(Default)]
struct Key {
    primary: Limiter,
    replica: Limiter,
}

impl Key {
    fn check(&mut self, rules: &[Rule], now_us: u64) -> Outcome {
        let outcome = check(&mut self.primary, rules, 1, now_us).0;
        self.replica.record(&Check::new(rules, 1, now_us), outcome.change);
        if outcome.ban.is_some() || outcome.ban_shortened {
            let ban = self.primary.access().expect("a ban").clone();
            self.replica.set_ban(ban, self.primary.bans().copied());
        }
        outcome
    }

    fn both(&mut self, change: impl Fn(&mut Limiter)) {
        change(&mut self.primary);
        change(&mut self.replica);
    }

    /// Tests that the replica is equal, and that the key survives a restart.
    fn is_kept(&self) -> TestCaseResult {
        prop_assert_eq!(&self.primary, &self.replica);
        prop_assert_eq!(self.primary.deadline(), self.replica.deadline());
        if !self.primary.is_empty() {
            let reloaded = decode(&encode(&self.primary));
            prop_assert_eq!(reloaded.as_ref(), Ok(&self.primary));
        }
        Ok(())
    }
}

fn block(until_us: u64) -> AccessEntry {
    AccessEntry::new(Access::Block, Some(until_us), b"")
}

proptest! {
    #![proptest_config(cases(8_000))]

    #[test]
    fn a_ban_takes_the_rung_after_those_that_are_remembered(rules in rules(), deeds in deeds()) {
        let (mut key, mut naive, mut now_us) = (Key::default(), Naive::default(), START_US);
        for (gap, deed) in deeds {
            now_us += gap.us(&rules);
            match deed {
                Deed::Check(denies) => {
                    let blocked_ms = naive.blocked_until_us.saturating_sub(now_us).div_ceil(1_000);
                    let outcome = key.check(&denying(&rules, denies), now_us);
                    let verdict = outcome.summary.verdict;
                    if blocked_ms > 0 {
                        let wait_ms = blocked_ms.cast_signed();
                        prop_assert_eq!((verdict, outcome.ban), (Verdict::Blocked, None));
                        prop_assert_eq!(outcome.summary.wait_ms, wait_ms);
                    } else {
                        let expected = naive.offend(&rules, denies, now_us);
                        prop_assert_eq!(outcome.ban, expected, "{:?} at {}", deed, now_us);
                        prop_assert_eq!(verdict == Verdict::Allowed, expected.is_none());
                    }
                }
                Deed::Pardon => {
                    let any = naive.blocked_until_us > now_us || naive.count(now_us).is_some();
                    prop_assert_eq!(key.primary.can_unblock(now_us), any);
                    key.both(Limiter::unblock);
                    naive = Naive::default();
                }
                Deed::Block(ms) => {
                    naive.blocked_until_us = now_us + ms * MS_US;
                    let until_us = naive.blocked_until_us;
                    key.both(|limiter| limiter.set_access(Some(block(until_us))));
                }
                Deed::Reset => key.both(|limiter| {
                    limiter.reset(now_us);
                }),
            }
            let count = key.primary.bans_at(now_us).map(|count| (count.bans, count.forgotten_us));
            prop_assert_eq!(count, naive.count(now_us), "{:?} at {}", deed, now_us);
            key.is_kept()?;
        }
    }

    #[test]
    fn the_next_change_drops_a_count_whose_time_has_passed(rules in rules(), deeds in deeds()) {
        let (mut key, mut now_us) = (Key::default(), START_US);
        for (gap, deed) in deeds {
            now_us += gap.us(&rules);
            if let Deed::Check(denies) = deed {
                key.check(&denying(&rules, denies), now_us);
            }
        }
        // Longer than any ban and the quiet time after it.
        now_us += 30 * SECOND_US;
        key.check(&rules_of_line("fixed:9/m"), now_us);
        prop_assert_eq!(key.primary.bans(), None);
        prop_assert_eq!(key.primary.access(), None);
        key.is_kept()?;
    }

    /// The clock may step back by years at any time.
    #[test]
    fn no_step_of_the_clock_prolongs_a_ban_or_a_count(
        rules in rules(),
        deeds in deeds(),
        steps in prop::collection::vec(prop::option::weighted(0.2, 0..400_000_000_000_000u64), 40),
    ) {
        let longest_ms = rules.iter().flat_map(|rule| &rule.rungs_ms).max().copied().unwrap_or(0);
        let longest_us = longest_ms * MS_US;
        let (mut key, mut now_us) = (Key::default(), START_US);
        for ((gap, deed), step_us) in deeds.into_iter().zip(steps) {
            now_us = (now_us + gap.us(&rules)).saturating_sub(step_us.unwrap_or(0));
            let Deed::Check(denies) = deed else { continue };
            let outcome = key.check(&denying(&rules, denies), now_us);
            if outcome.summary.verdict == Verdict::Blocked {
                prop_assert!(outcome.summary.wait_ms <= longest_ms.cast_signed());
                let until_us = key.primary.access().and_then(|access| access.until_us);
                prop_assert!(until_us.is_some_and(|us| us <= now_us + longest_us));
            }
            // After a block, a ban or an admission the count must have been shortened if
            // necessary.
            let forgotten_us = key.primary.bans().map_or(0, |count| count.forgotten_us);
            prop_assert!(forgotten_us <= now_us + 2 * longest_us, "{deed:?} at {now_us}");
            key.is_kept()?;
        }
    }
}

/// A check at a time in milliseconds after the start: its verdict and wait.
fn at_ms(limiter: &mut Limiter, rules: &[Rule], ms: u64) -> (i64, i64) {
    let summary = check(limiter, rules, 1, START_US + ms * MS_US).0.summary;
    (summary.verdict.code(), summary.wait_ms)
}

/// Three requests that pass, and one that causes a ban; returns the length of the ban.
fn offend(limiter: &mut Limiter, rules: &[Rule], ms: u64) -> i64 {
    for _ in 0..3 {
        assert_eq!(at_ms(limiter, rules, ms).0, 0, "at {ms} ms");
    }
    let (verdict, wait_ms) = at_ms(limiter, rules, ms + 1_000);
    assert_eq!(verdict, 1, "at {ms} ms");
    wait_ms
}

#[test]
fn bans_climb_the_ladder_stay_on_its_last_rung_and_are_forgotten() {
    let rules = rules_of_line("3/m,ban=1m:10m:1h");
    let mut limiter = Limiter::default();
    assert_eq!(offend(&mut limiter, &rules, 0), 60_000);
    assert_eq!(at_ms(&mut limiter, &rules, 60_999), (2, 1));
    assert_eq!(offend(&mut limiter, &rules, 61_000), 600_000);
    assert_eq!(at_ms(&mut limiter, &rules, 661_999), (2, 1));
    assert_eq!(offend(&mut limiter, &rules, 662_000), 3_600_000);
    assert_eq!(at_ms(&mut limiter, &rules, 4_262_999), (2, 1));
    assert_eq!(offend(&mut limiter, &rules, 4_263_000), 3_600_000);
    assert_eq!(at_ms(&mut limiter, &rules, 7_863_999), (2, 1));
    for (offence_ms, ban_ms) in [(11_463_999, 3_600_000), (11_464_000, 60_000)] {
        let mut limiter = limiter.clone();
        assert_eq!(offend(&mut limiter, &rules, offence_ms - 1_000), ban_ms);
    }
}

#[test]
fn a_ban_of_one_rung_counts_nothing() {
    let rules = rules_of_line("3/m,ban=1m");
    let mut limiter = Limiter::default();
    assert_eq!(offend(&mut limiter, &rules, 0), 60_000);
    assert_eq!(limiter.bans(), None);
    assert_eq!(offend(&mut limiter, &rules, 61_000), 60_000);
    assert_eq!(limiter.bans(), None);
}

#[test]
fn of_two_ladders_the_longest_ban_stands_and_counts_once() {
    let rules = rules_of_line("0/m,name=a,ban=1m:10m 0/h,name=b,ban=2m:3m");
    let mut limiter = Limiter::default();
    let mut ban = |ms: u64| {
        let now_us = START_US + ms * MS_US;
        let ban = check(&mut limiter, &rules, 1, now_us).0.ban.unwrap();
        (ban.rule, (ban.until_us - now_us) / MS_US, limiter.bans().copied())
    };
    let count = |bans, forgotten_ms, span_ms| {
        let (forgotten_us, span_us) = (START_US + forgotten_ms * MS_US, span_ms * MS_US);
        Some(BanCount { bans, forgotten_us, span_us })
    };
    // The rule that bans sets the span: its 2 minutes plus its longest rung, 3.
    assert_eq!(ban(0), (1, 120_000, count(1, 300_000, 300_000)));
    assert_eq!(ban(299_999), (0, 600_000, count(2, 1_499_999, 1_200_000)));
    assert_eq!(ban(1_499_999), (1, 120_000, count(1, 1_799_999, 300_000)));
}

#[test]
fn a_longer_ban_of_one_rung_stands_and_the_ladder_counts() {
    let rules = rules_of_line("0/m,name=a,ban=10m 0/h,name=b,ban=1m:2m:3m:1h");
    let mut limiter = Limiter::default();
    for (ms, rule, ban_ms, bans) in [
        (0, 0, 600_000, 1),
        (600_000, 0, 600_000, 2),
        (1_200_000, 0, 600_000, 3),
        (1_800_000, 1, 3_600_000, 4),
    ] {
        let now_us = START_US + ms * MS_US;
        let ban = check(&mut limiter, &rules, 1, now_us).0.ban.unwrap();
        assert_eq!((ban.rule, ban.until_us), (rule, now_us + ban_ms * MS_US), "at {ms} ms");
        let count = limiter.bans().unwrap();
        assert_eq!((count.bans, count.left_ms(now_us)), (bans, ban_ms as i64 + 3_600_000));
    }
}

#[test]
fn a_peek_sets_no_ban() {
    let rules = rules_of_line("0/m,ban=1m:10m");
    let mut limiter = Limiter::default();
    check(&mut limiter, &rules, 1, START_US);
    let before = limiter.clone();
    super::peek(&limiter, &rules, 1, START_US + 61 * SECOND_US);
    assert_eq!(limiter, before);
}
