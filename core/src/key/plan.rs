//! The plan of a key: a policy, whose rules apply to each check that asks for the key's plan.
//!
//! The seller binds the plan, and the service that checks does not have to know it. The key stores only
//! the policy's name: the policy may be set later, and may change.

use super::Pause;
use crate::algorithm::Moment;
use crate::rule::Name;
use alloc::boxed::Box;

/// A policy bound to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name of the policy.
    pub name: Name,
    /// Unix microseconds; `None` if it has no end.
    pub until_us: Option<u64>,
}

impl Plan {
    pub(crate) fn ends(&self) -> Moment {
        self.until_us.map_or(Moment::Never, Moment::At)
    }

    /// Milliseconds until it ends, rounded up; -1 if it has no end.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        self.ends().ms_after(now_us)
    }
}

/// What an upstream and a seller have said about a key. Few keys have either, so a key stores one
/// pointer for both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub pause: Option<Box<Pause>>,
    pub plan: Option<Box<Plan>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Check, Limiter, Standing, StandingEntry, decode, encode};
    use crate::rule::SECOND_US;
    use crate::tests::rules_of_line;
    use alloc::vec::Vec;

    const NOW_US: u64 = 1_700_000_000_000_000;

    fn plan(name: &str, until_us: Option<u64>) -> Plan {
        Plan { name: Name::new(name.as_bytes()).unwrap(), until_us }
    }

    fn planned(until_us: Option<u64>) -> Limiter {
        let mut limiter = Limiter::default();
        limiter.set_plan(Some(plan("pro", until_us)));
        limiter
    }

    #[test]
    fn a_plan_lasts_until_its_end_or_until_another_replaces_it() {
        let mut limiter = planned(Some(NOW_US + SECOND_US));
        let name = |limiter: &Limiter, now_us| limiter.plan_at(now_us).map(|plan| plan.name);
        assert_eq!(name(&limiter, NOW_US + SECOND_US - 1), Name::new(b"pro"));
        assert_eq!(name(&limiter, NOW_US + SECOND_US), None);
        assert_eq!(limiter.plan().map(|plan| plan.left_ms(NOW_US)), Some(1_000));
        limiter.set_plan(Some(plan("free", None)));
        assert_eq!(limiter.plan().map(|plan| plan.left_ms(NOW_US)), Some(-1));
        assert_eq!(limiter.deadline().expiry(NOW_US, NOW_US, Some(9)), crate::key::Expiry::Never);
        limiter.set_plan(None);
        assert!(limiter.is_empty());
    }

    #[test]
    fn checks_ignore_plans_and_drop_ended_ones() {
        let rules = rules_of_line("bucket:3/m");
        let (mut limiter, mut plain) = (planned(Some(NOW_US + SECOND_US)), Limiter::default());
        for at_us in [NOW_US, NOW_US + 1, NOW_US + 2 * SECOND_US] {
            let check = Check::new(&rules, 1, at_us);
            let seen = limiter.check(&check, &mut Vec::new());
            assert_eq!(seen, plain.check(&check, &mut Vec::new()), "{at_us}");
        }
        assert_eq!(limiter, plain);
    }

    #[test]
    fn a_plan_outlives_a_reset_a_pause_and_a_block() {
        let (mut limiter, rules) = (planned(None), rules_of_line("1/s 2/m"));
        limiter.check(&Check::new(&rules, 1, NOW_US), &mut Vec::new());
        limiter.pause_until(NOW_US + 1, NOW_US, b"429");
        let block = StandingEntry::new(Standing::Block, Some(NOW_US + 1), b"");
        limiter.set_standing(Some(block));
        for paused in [true, false] {
            assert_eq!(decode(&encode(&limiter)), Ok(limiter.clone()));
            assert_eq!(limiter.pause().is_some(), paused);
            limiter.reset(NOW_US + SECOND_US);
            limiter.resume();
            limiter.unblock();
        }
        assert_eq!(limiter, planned(None));
    }
}
