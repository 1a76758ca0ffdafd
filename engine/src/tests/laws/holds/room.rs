//! A key limits the number of its live holds, and the number of rules under which these were taken.

use crate::check::{Bounds, CheckError, Refusal};
use crate::key::{Check, CheckOptions, HoldRequest, Holds, Limiter};
use crate::key::{Settlement, Verdict};
use crate::rule::SECOND_US;
use crate::tests::rules_of_line;

const NOW_US: u64 = 1_700_000_000_000_000;

/// A key that may have this number of holds.
struct Key {
    limiter: Limiter,
    max_holds: usize,
}

fn key(max_holds: usize) -> Key {
    Key { limiter: Limiter::default(), max_holds }
}

impl Key {
    fn check(
        &mut self,
        second: u64,
        hold: Option<(&str, u64)>,
        line: &str,
    ) -> Result<Verdict, Refusal> {
        let (rules, now_us) = (rules_of_line(line), NOW_US + second * SECOND_US);
        let hold = hold.map(|(id, end)| HoldRequest {
            id: id.as_bytes(),
            end_us: NOW_US + end * SECOND_US,
            refund: false,
        });
        let options = CheckOptions { hold, ..CheckOptions::default() };
        let check = Check::new(&rules, 1, now_us).with(&options);
        let bounds = Bounds { max_holds: self.max_holds, ..Bounds::ANY };
        let outcome = self.limiter.check_within(bounds, &check, &mut Vec::new());
        outcome.map(|outcome| outcome.summary.verdict).map_err(|CheckError { why, .. }| why)
    }
}

#[test]
fn a_key_takes_no_more_live_holds_than_it_may() {
    let (mut key, rules, full) = (key(2), "window:9/m", Err(Refusal::TooManyHolds { max: 2 }));
    assert_eq!(key.check(0, Some(("a", 10)), rules), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("b", 20)), rules), Ok(Verdict::Allowed));
    let before = key.limiter.clone();
    assert_eq!(key.check(0, Some(("c", 30)), rules), full);
    assert_eq!(key.limiter, before);
    // Only an allowed check takes a hold, and a repeat takes none.
    assert_eq!(key.check(0, Some(("c", 30)), "window:0/m"), Ok(Verdict::Limited));
    assert_eq!(key.check(0, None, rules), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("a", 11)), rules), Ok(Verdict::Allowed));
    // A lapsed hold takes no room.
    assert_eq!(key.check(10, Some(("c", 30)), rules), full);
    assert_eq!(key.check(11, Some(("c", 30)), rules), Ok(Verdict::Allowed));
}

/// This number of rules, each with its own state.
fn rules(number: usize) -> String {
    let rules: Vec<String> = (0..number).map(|n| format!("window:9/m,name=n{n}")).collect();
    rules.join(" ")
}

#[test]
fn a_key_has_room_for_four_rules_per_hold() {
    let full = Err(Refusal::TooManyRulesOfHolds { max: 32 });
    let mut key = key(8);
    assert_eq!(key.check(0, Some(("a", 90)), &rules(1)), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("b", 10)), &rules(30)), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("c", 90)), &rules(1)), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("d", 90)), &rules(1)), full);
    assert_eq!(key.check(0, None, &rules(1)), Ok(Verdict::Allowed));
    // The rules of a hold that has ended take no room.
    let mut lapsed = Key { limiter: key.limiter.clone(), ..key };
    assert_eq!(lapsed.check(9, Some(("d", 90)), &rules(1)), full);
    assert_eq!(lapsed.check(10, Some(("d", 90)), &rules(30)), Ok(Verdict::Allowed));
    assert_eq!(lapsed.check(10, Some(("e", 90)), &rules(1)), full);
    assert!(key.limiter.settle(b"b", Settlement::AsCharged, NOW_US));
    assert_eq!(key.check(0, Some(("d", 90)), &rules(30)), Ok(Verdict::Allowed));
    assert_eq!(key.check(0, Some(("e", 90)), &rules(1)), full);
}

#[test]
fn each_named_log_rule_of_a_hold_takes_room() {
    let log = "9/s,name=a 9/m,name=b 9/h,name=c";
    let mut key = key(1);
    assert_eq!(key.check(0, Some(("a", 90)), log), Ok(Verdict::Allowed));
    key.max_holds = 2;
    assert_eq!(key.check(0, Some(("b", 90)), &format!("{log} {}", rules(2))), Ok(Verdict::Allowed));
    key.max_holds = 3;
    assert_eq!(key.limiter.holds().map(Holds::rules), Some(8));
    assert_eq!(key.check(0, Some(("c", 90)), log), Ok(Verdict::Allowed));
}
