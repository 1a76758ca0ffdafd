//! A key that expires at its deadline decides like one that never expires, and it does
//! not outlive its deadline by much. A state that has ended is empty for every rule, whatever else
//! keeps its key alive.

use super::rules::{any_namesakes, rule_set};
use super::traffic::{Action, Call, Clock, Traffic, changing_on, one_at_a_time_on, steady};
use super::{act, cases, check, peek, unblocked};
use crate::algorithm::Moment;
use crate::algorithm::fixed::FixedParams;
use crate::algorithm::meter::Params;
use crate::key::{Change, Check, CheckOptions, Expiry, HoldRequest, Limiter, Verdict};
use crate::rule::{MAX_TIME_US, Rule, SECOND_US};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// A key as a server keeps it.
#[derive(Default)]
pub(super) struct Key {
    pub limiter: Limiter,
    expires_ms: Option<u64>,
}

impl Key {
    pub fn expire(&mut self, now_us: u64) {
        if self.expires_ms.is_some_and(|at_ms| now_us / 1_000 >= at_ms) {
            *self = Self::default();
        }
    }

    /// Deletes the key or moves its expiry, as the last step of a command does.
    pub fn settle(&mut self, decided_us: u64, server_us: u64) {
        if self.limiter.is_empty() {
            *self = Self::default();
            return;
        }
        match self.limiter.deadline().expiry(decided_us, server_us, self.expires_ms) {
            Expiry::Keep => {}
            Expiry::At(at_ms) => self.expires_ms = Some(at_ms),
            Expiry::Never => self.expires_ms = None,
        }
    }
}

/// While the rules do not change, the key expires soon after all of them have reset. It may be late by
/// an eighth of the longest window, or by a second if that is more. Exceptions: `keep=N`, a block,
/// counted bans, a limit of 0 (which never resets), and `count=all` on some log rules only. A log lives
/// for the longest window after its newest entry, even if the rule of that window does not count the
/// entry.
fn is_not_late(key: &Key, rules: &[Rule], now_us: u64) -> TestCaseResult {
    let lives_longer = |rule: &Rule| match rule.params() {
        Params::Fixed(FixedParams { keep: 1.., .. }) => true,
        Params::Log(_) if rule.counts_all() => true,
        _ => rule.limit() == 0,
    };
    let is_banned = key.limiter.access().is_some() || key.limiter.bans().is_some();
    if is_banned || rules.iter().any(lives_longer) {
        return Ok(());
    }
    let (_, decisions) = peek(&key.limiter, rules, 0, now_us);
    let reset_ms = decisions.iter().map(|decision| decision.reset_ms).max().unwrap();
    let reset_ms = u64::try_from(reset_ms).unwrap();
    let window_us = rules.iter().map(Rule::period_us).max().unwrap();
    let tolerance_ms = (window_us / 8).max(SECOND_US) / 1_000;
    let latest_ms = now_us / 1_000 + reset_ms + 1 + tolerance_ms;
    prop_assert!(
        key.limiter.is_empty() || key.expires_ms.is_some_and(|at_ms| at_ms <= latest_ms),
        "{:?} is later than {latest_ms}",
        key.expires_ms
    );
    Ok(())
}

/// After the traffic, checks every rule at the end of each state and later. The answers must equal
/// those of a key without that state.
fn ended_states_are_empty(traffic: &Traffic) -> TestCaseResult {
    let (mut limiter, mut last_us) = (Limiter::default(), 0);
    for Call { rules, now_us, action } in traffic.calls() {
        limiter = unblocked(&limiter);
        act(&mut limiter, rules, now_us, action);
        last_us = now_us;
    }
    for state in limiter.states() {
        let Moment::At(end_us) = state.meter().ends() else { continue };
        // Time stands still for a state that is ahead of the clock.
        let earliest_us = end_us.max(last_us).max(state.meter().last_us());
        let times = [0, 1, state.meter().period_us()].map(|us| earliest_us.saturating_add(us));
        for at_us in times.into_iter().filter(|&at_us| at_us <= MAX_TIME_US) {
            for rules in &traffic.rule_sets {
                let (mut ended, mut untouched) = (Limiter::default(), Limiter::default());
                ended.add(state.clone());
                prop_assert_eq!(ended.refund(9, at_us, rules), 0);
                for cost in [1, 3] {
                    let theirs = check(&mut untouched, rules, cost, at_us);
                    prop_assert_eq!(check(&mut ended, rules, cost, at_us), theirs);
                }
            }
        }
    }
    Ok(())
}

/// A key that expires answers as one that never does. The server's clock is ahead of the traffic by
/// `ahead_us`.
fn expiring_changes_nothing(traffic: &Traffic, ahead_us: u64) -> TestCaseResult {
    let mut key = Key::default();
    let mut eternal = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        key.expire(now_us + ahead_us);
        match action {
            Action::Check(cost) => {
                let ours = check(&mut key.limiter, rules, cost, now_us);
                let theirs = check(&mut eternal, rules, cost, now_us);
                prop_assert_eq!(ours, theirs);
            }
            Action::Peek(cost) => {
                let ours = peek(&key.limiter, rules, cost, now_us);
                prop_assert_eq!(ours, peek(&eternal, rules, cost, now_us));
            }
            Action::Refund(units, _) => {
                let back = key.limiter.refund(units, now_us, rules);
                prop_assert_eq!(back, eternal.refund(units, now_us, rules));
            }
            Action::Reset => {
                key.limiter.reset(now_us);
                eternal.reset(now_us);
            }
        }
        key.settle(now_us, now_us + ahead_us);
        if ahead_us == 0 && traffic.rule_sets.len() == 1 {
            is_not_late(&key, rules, now_us)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn expiry_is_never_early_for_one_rule(traffic in steady(rule_set(1), 50, Clock::Forward)) {
        expiring_changes_nothing(&traffic, 0)?;
    }

    #[test]
    fn expiry_is_never_early_for_several_rules(traffic in steady(rule_set(4), 50, Clock::Forward)) {
        expiring_changes_nothing(&traffic, 0)?;
    }

    #[test]
    fn expiry_is_never_early_for_replayed_traffic(
        traffic in steady(rule_set(3), 50, Clock::Forward),
        ahead_us in 0..1_000_000_000_000_000u64,
    ) {
        expiring_changes_nothing(&traffic, ahead_us)?;
    }

    #[test]
    fn expiry_is_never_early_for_changing_rules(traffic in changing_on(3, 50, Clock::Forward)) {
        expiring_changes_nothing(&traffic, 0)?;
    }

    #[test]
    fn expiry_is_never_early_for_rules_of_one_name(
        traffic in one_at_a_time_on(any_namesakes(4), 50, Clock::Forward)
    ) {
        expiring_changes_nothing(&traffic, 0)?;
    }

    #[test]
    fn a_state_that_has_ended_is_empty_for_every_rule(traffic in changing_on(4, 50, Clock::StepsBack)) {
        ended_states_are_empty(&traffic)?;
    }

    #[test]
    fn a_state_that_has_ended_is_empty_for_rules_of_its_name(
        traffic in one_at_a_time_on(any_namesakes(4), 50, Clock::StepsBack)
    ) {
        ended_states_are_empty(&traffic)?;
    }
}

/// A rule with a limit of 0 never drains a debt, so its period cannot say when the debt ends. Such
/// a rule is recorded if it is a shadow, or if its cost is 0 and the check takes a hold.
#[test]
fn a_limit_of_0_does_not_end_the_debt_of_its_name() {
    let id = HoldRequest { id: b"a", end_us: 2_000 * SECOND_US, refund: false };
    for full in
        ["bucket:5/h,name=n", "bucket:5/h,refill=interval,name=n", "leaky:1/h,queue=4,name=n"]
    {
        let kind = full.split(':').next().unwrap();
        for (options, hold) in [("shadow", None), ("cost=0", Some(id))] {
            let (rules, mut limiter) = (rules_of_line(full), Limiter::default());
            check(&mut limiter, &rules, 5, SECOND_US);
            let zero = rules_of_line(&format!("{kind}:0/1ms,name=n,{options}"));
            let options = CheckOptions { hold, ..CheckOptions::default() };
            let asked = Check::new(&zero, 1, 2 * SECOND_US).with(&options);
            assert_ne!(limiter.check(&asked, &mut Vec::new()).change, Change::Nothing, "{zero:?}");
            assert!(!limiter.deadline().has_passed(1_800 * SECOND_US), "{zero:?} on {full}");
            let (denied, _) = peek(&limiter, &rules, 5, 1_800 * SECOND_US);
            assert_eq!(denied.summary.verdict, Verdict::Limited, "{full} after {zero:?}");
        }
    }
}
