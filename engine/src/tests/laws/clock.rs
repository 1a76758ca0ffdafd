//! The clock steps back and forth by a second, an hour or ten years, around the years in which
//! clocks break: 1970, 2038, 2106, 2262.
//!
//! ```text
//! lock-out   no wait is longer than the rule's wait plus one window for the clock to catch up
//! bans       a ban lasts no longer than its length
//! flood      while time does not advance, at most the capacity passes; a step back by up to a
//!            window does not advance time
//! expiry     a key does not live for years after a check has consumed from it
//! upstream   a hold and a pause last no longer than twice their length: a step back prolongs them by
//!            that step, but a step of more than their length ends them
//! ```

use super::rules::any_rule;
use super::{cases, check, hopeless, unblocked};
use crate::check::Bounds;
use crate::key::{Check, CheckOptions, Expiry, HoldRequest, Limiter, Settlement, Verdict};
use crate::rule::{DAY_US, HOUR_US, Kind, Ladder, MAX_TIME_US, MS_US, Rule, SECOND_US};
use proptest::prelude::*;

/// Ten years, with their leap days.
const TEN_YEARS_US: i64 = 3_652 * DAY_US.cast_signed();

#[derive(Clone, Copy, Debug)]
enum Deed {
    Check(u32),
    Hold { id: u8, cost: u32, length_us: u64, refund: bool },
    Settle { id: u8, refund: bool },
}

#[derive(Clone, Copy, Debug)]
struct Step {
    jump_us: i64,
    deed: Deed,
}

/// A time near the first second in which some clock breaks.
fn start() -> impl Strategy<Value = u64> {
    let broken = prop::sample::select(vec![
        0,
        1_795_000_000 * SECOND_US,
        // 2^31 and 2^32 seconds, 2^63 nanoseconds.
        2_147_483_648 * SECOND_US,
        4_294_967_296 * SECOND_US,
        9_223_372_036_854_775,
    ]);
    (broken, -2_000_000..2_000_000i64).prop_map(|(us, by)| us.saturating_add_signed(by))
}

fn jump() -> impl Strategy<Value = i64> {
    let (second, hour) = (SECOND_US.cast_signed(), HOUR_US.cast_signed());
    let steps = vec![second, hour, TEN_YEARS_US, 1, MS_US.cast_signed()];
    let step = (prop::sample::select(steps), any::<bool>(), -2..=2i64);
    let step = step.prop_map(|(step, back, by)| if back { by - step } else { step + by });
    prop_oneof![3 => Just(0), 2 => step]
}

fn deed(with_holds: bool) -> impl Strategy<Value = Deed> {
    let cost = || prop_oneof![4 => Just(1), 2 => 1..=6u32, 1 => 0..=1_000u32];
    let held = u32::from(with_holds);
    let length_us = prop_oneof![Just(SECOND_US), Just(HOUR_US), MS_US..DAY_US];
    prop_oneof![
        4 => cost().prop_map(Deed::Check),
        2 * held => (0..4u8, cost(), length_us, any::<bool>())
            .prop_map(|(id, cost, length_us, refund)| Deed::Hold { id, cost, length_us, refund }),
        held => (0..4u8, any::<bool>()).prop_map(|(id, refund)| Deed::Settle { id, refund }),
    ]
}

fn steps(with_holds: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = (jump(), deed(with_holds)).prop_map(|(jump_us, deed)| Step { jump_us, deed });
    prop::collection::vec(step, 1..60)
}

/// A rule that can decide.
fn rule() -> impl Strategy<Value = Rule> {
    any_rule().prop_filter("decides", |rule| !rule.is_shadow() && rule.limit() > 0)
}

/// The longest wait under a rule while the clock only moves forward.
fn longest_wait_us(rule: &Rule) -> u64 {
    let window_us = rule.period_us();
    match rule.kind() {
        Kind::Bucket | Kind::Leaky => {
            let drains = u128::from(rule.capacity()) * u128::from(window_us);
            let drains = drains.div_ceil(u128::from(rule.limit()));
            window_us.max(u64::try_from(drains).unwrap_or(u64::MAX))
        }
        // The oldest sub-interval counts until its end is a window old.
        Kind::Window => 2 * window_us,
        Kind::Log | Kind::Fixed | Kind::Slots => window_us,
    }
}

fn longest_ban_us(rule: &Rule) -> u64 {
    rule.ban().map_or(0, Ladder::longest_us)
}

/// A key on a clock that steps.
struct Run<'a> {
    rules: &'a [Rule],
    limiter: Limiter,
    now_us: u64,
}

impl Run<'_> {
    /// Does a step. For a check, returns its verdict, its wait and its cost.
    fn step(&mut self, step: Step) -> Option<(Verdict, i64, u32)> {
        self.now_us = self.now_us.saturating_add_signed(step.jump_us).min(MAX_TIME_US);
        let name = |id: u8| [b'a' + id];
        match step.deed {
            Deed::Check(cost) => {
                let summary = check(&mut self.limiter, self.rules, cost, self.now_us).0.summary;
                Some((summary.verdict, summary.wait_ms, cost))
            }
            Deed::Hold { id, cost, length_us, refund } => {
                let (id, end_us) = (name(id), self.now_us + length_us);
                let hold = Some(HoldRequest { id: &id, end_us, refund });
                let options = CheckOptions { hold, ..CheckOptions::default() };
                let check = Check::new(self.rules, cost, self.now_us).with(&options);
                self.limiter.lapse_if_due(self.now_us);
                // A repeat with another cost is refused.
                let _ = self.limiter.check_within(Bounds::ANY, &check, &mut Vec::new());
                None
            }
            Deed::Settle { id, refund } => {
                let settlement = if refund { Settlement::Refund } else { Settlement::AsCharged };
                self.limiter.settle(&name(id), settlement, self.now_us);
                None
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_step_of_the_clock_locks_a_client_out(rule in rule(), start_us in start(), steps in steps(true)) {
        let rules = [rule];
        let mut run = Run { rules: &rules, limiter: Limiter::default(), now_us: start_us };
        // Waits are rounded up to the millisecond.
        let catching_up_us = rules[0].period_us() + MS_US;
        let longest_us = longest_wait_us(&rules[0]).saturating_add(catching_up_us);
        for step in steps {
            // Continues as if there had been no ban.
            run.limiter = unblocked(&run.limiter);
            let Some((Verdict::Limited, wait_ms, cost)) = run.step(step) else { continue };
            let longest_us = longest_us.max(longest_ban_us(&rules[0]));
            prop_assert_eq!(wait_ms < 0, hopeless(&rules, cost));
            let wait_us = u64::try_from(wait_ms).unwrap_or(0).saturating_mul(MS_US);
            prop_assert!(wait_us <= longest_us, "waits {} us, not {} us", wait_us, longest_us);
        }
    }

    #[test]
    fn no_step_of_the_clock_makes_a_ban_longer(
        rule in rule(),
        start_us in start(),
        steps in steps(true),
    ) {
        let rules = [rule];
        let mut run = Run { rules: &rules, limiter: Limiter::default(), now_us: start_us };
        for step in steps {
            let Some((Verdict::Blocked, wait_ms, _)) = run.step(step) else { continue };
            let wait_us = u64::try_from(wait_ms).unwrap() * MS_US;
            prop_assert!(wait_us <= longest_ban_us(&rules[0]), "banned for {} us", wait_us);
        }
    }

    #[test]
    fn no_step_of_the_clock_lets_more_than_the_capacity_through(
        rule in rule(),
        start_us in start(),
        steps in steps(false),
    ) {
        let rules = [rule];
        let mut run = Run { rules: &rules, limiter: Limiter::default(), now_us: start_us };
        // The time of the state, if any, and the units that have passed since the state reached it.
        let (mut stands_us, mut passed) = (None, 0);
        for step in steps {
            run.limiter = unblocked(&run.limiter);
            let Some((verdict, _, cost)) = run.step(step) else { continue };
            let own = u64::from(Check::new(&[], cost, 0).cost_of(&rules[0]));
            let charged = match verdict {
                Verdict::Allowed => own > 0,
                Verdict::Limited => own > 0 && rules[0].counts_all() && !hopeless(&rules, cost),
                Verdict::Blocked => false,
            };
            if !charged {
                continue;
            }
            let stays = |at_us: &u64| {
                run.now_us <= *at_us && at_us - run.now_us <= rules[0].period_us()
            };
            if !stands_us.as_ref().is_some_and(stays) {
                (stands_us, passed) = (Some(run.now_us), 0);
            }
            if verdict == Verdict::Allowed {
                passed += own;
                prop_assert!(passed <= rules[0].capacity(), "{} at one time", passed);
            }
        }
    }

    #[test]
    fn no_step_of_the_clock_makes_a_key_stay_for_years(
        rule in rule(),
        start_us in start(),
        steps in steps(false),
    ) {
        let rules = [rule];
        let mut run = Run { rules: &rules, limiter: Limiter::default(), now_us: start_us };
        let window_us = rules[0].period_us();
        // Past windows stay for graphs. A count of bans stays for the longest rung after the
        // ban.
        let kept_us = 7 * window_us + 2 * longest_ban_us(&rules[0]) + window_us / 8 + SECOND_US;
        let longest_us = longest_wait_us(&rules[0]).saturating_add(kept_us);
        for step in steps {
            let decided = run.step(step);
            let consumed = matches!(decided, Some((Verdict::Allowed, _, cost))
                if Check::new(&[], cost, 0).cost_of(&rules[0]) > 0);
            if !consumed {
                continue;
            }
            match run.limiter.deadline().expiry(run.now_us, run.now_us, None) {
                Expiry::At(at_ms) => {
                    let left_us = at_ms.saturating_mul(MS_US).saturating_sub(run.now_us);
                    prop_assert!(left_us <= longest_us, "{} us, not {} us", left_us, longest_us);
                }
                Expiry::Keep => {}
                Expiry::Never => prop_assert!(false, "the key never expires"),
            }
        }
    }
}
