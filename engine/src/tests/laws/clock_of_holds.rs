//! A slot and a pause while the clock steps back and forth, compared with their definition. Each is in
//! effect from one length before it was set until its end. So after any step, no wait is longer than
//! twice the longest length.

use super::cases;
use super::holds::history::in_effect;
use super::honest_wait::is_honest;
use crate::key::{Check, CheckOptions, HoldRequest, Limiter, Settlement, Verdict, decode, encode};
use crate::rule::{DAY_US, HOUR_US, MS_US, SECOND_US};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

const START_US: u64 = 1_700_000_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A check that takes the slot for this long, with `REFUND` or without.
    Take(u64, bool),
    Settle,
    Renew(u64),
    Pause(u64),
    Resume,
    Reload,
}

fn steps() -> impl Strategy<Value = Vec<(i64, Deed)>> {
    let unit = || prop::sample::select(vec![MS_US, SECOND_US, HOUR_US, DAY_US]);
    let length = || (unit(), 1..40u64).prop_map(|(unit, count)| unit * count);
    let jump = prop_oneof![
        2 => Just(0),
        2 => length().prop_map(u64::cast_signed),
        2 => length().prop_map(|us| -us.cast_signed()),
    ];
    let deed = prop_oneof![
        4 => (length(), any::<bool>()).prop_map(|(us, refund)| Deed::Take(us, refund)),
        1 => Just(Deed::Settle),
        1 => length().prop_map(Deed::Renew),
        2 => length().prop_map(Deed::Pause),
        1 => Just(Deed::Resume),
        1 => Just(Deed::Reload),
    ];
    prop::collection::vec((jump, deed), 1..40)
}

/// A key with one slot, and the end and the length of its hold and of its pause by the definition.
#[derive(Default)]
struct Key {
    limiter: Limiter,
    replica: Limiter,
    now_us: u64,
    hold: Option<(u64, u64)>,
    refunds: bool,
    pause: Option<(u64, u64)>,
    longest_us: u64,
    taken: u32,
}

impl Key {
    fn lasts(&self, what: Option<(u64, u64)>) -> bool {
        what.is_some_and(|(end_us, length_us)| in_effect(end_us, length_us, self.now_us))
    }

    /// Drops what is not in effect, as a write does.
    fn written(&mut self) {
        self.pause = self.pause.filter(|_| self.lasts(self.pause));
        self.hold = self.hold.filter(|_| self.lasts(self.hold));
    }

    fn until(&mut self, length_us: u64) -> u64 {
        self.longest_us = self.longest_us.max(length_us);
        self.now_us + length_us
    }

    fn both(&mut self, act: impl Fn(&mut Limiter)) {
        act(&mut self.limiter);
        act(&mut self.replica);
    }

    fn take(&mut self, length_us: u64, refund: bool) -> TestCaseResult {
        let (rules, end_us) = (rules_of_line("slots:1"), self.until(length_us));
        let id = self.taken.to_string();
        let hold = Some(HoldRequest { id: id.as_bytes(), end_us, refund });
        let options = CheckOptions { hold, ..CheckOptions::default() };
        let check = Check::new(&rules, 1, self.now_us).with(&options);
        let lapsed = self.limiter.lapse_if_due(self.now_us);
        if lapsed {
            self.replica.lapse(self.now_us);
        }
        let outcome = self.limiter.check(&check, &mut Vec::new());
        self.replica.record(&check, outcome.change);
        let denied = self.lasts(self.hold) || self.lasts(self.pause);
        prop_assert_eq!(outcome.summary.verdict == Verdict::Limited, denied);
        // The check drops a hold that refunds, or that would come back with the clock.
        let ended = self.hold.is_some_and(|(end_us, _)| end_us <= self.now_us);
        if !self.lasts(self.hold) && (!ended || self.refunds) {
            self.hold = None;
        }
        if denied {
            is_honest(&self.limiter, &rules, 1, self.now_us, outcome.summary.wait_ms)?;
        } else {
            self.taken += 1;
            self.written();
            (self.hold, self.refunds) = (Some((end_us, length_us)), refund);
        }
        Ok(())
    }

    fn step(&mut self, deed: Deed) -> TestCaseResult {
        let (now_us, last) = (self.now_us, (self.taken.saturating_sub(1)).to_string());
        let (id, lives) = (last.as_bytes(), self.lasts(self.hold));
        match deed {
            Deed::Take(length_us, refund) => self.take(length_us, refund)?,
            Deed::Settle => {
                for limiter in [&mut self.limiter, &mut self.replica] {
                    prop_assert_eq!(limiter.settle(id, Settlement::AsCharged, now_us), lives);
                }
                if lives {
                    self.written();
                    self.hold = None;
                }
            }
            Deed::Renew(length_us) => {
                let end_us = self.until(length_us);
                for limiter in [&mut self.limiter, &mut self.replica] {
                    prop_assert_eq!(limiter.renew(id, end_us, now_us), lives);
                }
                if lives {
                    self.written();
                    self.hold = Some((end_us, length_us));
                }
            }
            Deed::Pause(length_us) => {
                let until_us = self.until(length_us);
                let paused = self.pause.filter(|_| self.lasts(self.pause));
                if paused.is_none_or(|(end_us, _)| end_us < until_us) {
                    self.pause = Some((until_us, length_us));
                }
                self.both(|limiter| {
                    limiter.pause_until(until_us, now_us, b"");
                });
            }
            Deed::Resume => {
                self.pause = None;
                self.both(Limiter::resume);
            }
            Deed::Reload if self.limiter.is_empty() => {}
            Deed::Reload => self.limiter = decode(&encode(&self.limiter)).expect("what was saved"),
        }
        Ok(())
    }

    fn test(&self) -> TestCaseResult {
        let now_us = self.now_us;
        prop_assert_eq!(&self.limiter, &self.replica);
        let left_ms = |end_us: u64| i64::try_from((end_us - now_us) / MS_US).unwrap();
        let paused = self.pause.filter(|_| self.lasts(self.pause));
        let pause = self.limiter.pause_at(now_us);
        let paused_ms = pause.map(|pause| pause.left_ms(now_us));
        prop_assert_eq!(paused_ms, paused.map(|(end_us, _)| left_ms(end_us)));
        let held = self.hold.filter(|_| self.lasts(self.hold));
        let holds = self.limiter.next_holds(now_us, 9);
        prop_assert_eq!(holds.len(), self.limiter.live_holds(now_us));
        let held_ms = holds.first().map(|hold| hold.ttl_ms);
        prop_assert_eq!(held_ms, held.map(|(end_us, _)| left_ms(end_us)));
        let most_ms = i64::try_from(2 * self.longest_us / MS_US).unwrap();
        prop_assert!(paused_ms.max(held_ms).is_none_or(|ms| ms <= most_ms), "for {most_ms} ms");
        // A peek, which stores no lapse. So its wait covers a hold and a pause that come back.
        let rules = rules_of_line("slots:1");
        let seen = self.limiter.peek(&Check::new(&rules, 1, now_us), &mut Vec::new()).summary;
        prop_assert_eq!(seen.verdict == Verdict::Limited, held.is_some() || paused.is_some());
        if seen.verdict == Verdict::Limited {
            is_honest(&self.limiter, &rules, 1, now_us, seen.wait_ms)?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn no_step_of_the_clock_prolongs_a_hold_or_a_pause_by_more_than_its_length(steps in steps()) {
        let mut key = Key { now_us: START_US, ..Key::default() };
        for (jump_us, deed) in steps {
            key.now_us = key.now_us.saturating_add_signed(jump_us);
            key.step(deed)?;
            key.test()?;
        }
    }
}

/// While its clock was a day ahead, this key was paused for 30 s and its slot was taken for 30 s.
fn a_day_ahead() -> Key {
    let mut key = Key { now_us: START_US + DAY_US, ..Key::default() };
    key.take(30 * SECOND_US, false).unwrap();
    key.step(Deed::Pause(30 * SECOND_US)).unwrap();
    key
}

#[test]
fn a_clock_set_right_ends_a_pause_and_frees_a_slot() {
    let mut key = a_day_ahead();
    key.now_us = START_US;
    key.test().unwrap();
    assert_eq!(key.limiter.pause_at(START_US), None);
    key.step(Deed::Pause(5 * SECOND_US)).unwrap();
    let left_ms = key.limiter.pause_at(START_US).map(|pause| pause.left_ms(START_US));
    assert_eq!(left_ms, Some(5_000), "a shorter pause stands");
    key.now_us += 5 * SECOND_US;
    key.take(9 * SECOND_US, false).unwrap();
    assert_eq!(key.limiter.live_holds(key.now_us), 1);
    assert_eq!(key.taken, 2);
}

#[test]
fn a_pause_and_a_slot_stand_still_for_their_length() {
    for (back_s, wait_ms) in [(0, 30_000), (1, 31_000), (30, 60_000)] {
        let mut key = a_day_ahead();
        key.now_us -= back_s * SECOND_US;
        let rules = rules_of_line("slots:1");
        let seen = key.limiter.peek(&Check::new(&rules, 1, key.now_us), &mut Vec::new()).summary;
        assert_eq!(seen.wait_ms, wait_ms, "{back_s}");
        key.step(Deed::Resume).unwrap();
        let seen = key.limiter.peek(&Check::new(&rules, 1, key.now_us), &mut Vec::new()).summary;
        assert_eq!(seen.wait_ms, wait_ms, "{back_s}");
    }
}

/// The pause is over, but its key has not changed since. So the pause counts again once the clock
/// comes near it.
#[test]
fn the_wait_covers_a_pause_that_comes_back() {
    let mut limiter = Limiter::default();
    let rules = rules_of_line("fixed:1/h,align=first");
    limiter.check(&Check::new(&rules, 1, START_US), &mut Vec::new());
    let paused_us = START_US + 3_600 * SECOND_US;
    assert!(limiter.pause_until(paused_us + 30 * SECOND_US, paused_us, b""));
    let wait_ms = |limiter: &Limiter, now_us: u64| {
        let outcome = limiter.peek(&Check::new(&rules, 1, now_us), &mut Vec::new());
        (outcome.summary.verdict, outcome.summary.wait_ms)
    };
    assert_eq!(wait_ms(&limiter, START_US), (Verdict::Limited, 3_630_000));
    assert_eq!(wait_ms(&limiter, START_US + 3_571 * SECOND_US), (Verdict::Limited, 59_000));
    // This pause would come back only after the rule admits.
    let paused_us = START_US + 3_631 * SECOND_US;
    assert!(limiter.pause_until(paused_us + 30 * SECOND_US, paused_us, b""));
    assert_eq!(wait_ms(&limiter, START_US), (Verdict::Limited, 3_600_000));
}

#[test]
fn a_hold_with_refund_that_lapses_by_a_step_gives_back_once() {
    let (mut limiter, rules) = (Limiter::default(), rules_of_line("fixed:10/d"));
    let ahead_us = START_US + HOUR_US;
    for (id, length_us) in [(b"a", 30 * SECOND_US), (b"b", DAY_US)] {
        let hold = HoldRequest { id, end_us: ahead_us + length_us, refund: true };
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        limiter.check(&Check::new(&rules, 3, ahead_us).with(&options), &mut Vec::new());
    }
    let remaining = |limiter: &Limiter| {
        limiter.peek(&Check::new(&rules, 0, START_US), &mut Vec::new()).summary.remaining
    };
    // Only the short hold has lapsed, and its units have come back.
    assert_eq!((remaining(&limiter), limiter.live_holds(START_US)), (7, 1));
    assert!(!limiter.settle(b"a", Settlement::Refund, START_US), "the hold has lapsed");
    assert!(limiter.lapse_if_due(START_US));
    assert!(!limiter.lapse_if_due(START_US), "no hold lapses twice");
    assert_eq!(remaining(&limiter), 7);
    assert!(limiter.settle(b"b", Settlement::Refund, START_US));
    assert_eq!(remaining(&limiter), 10);
}
