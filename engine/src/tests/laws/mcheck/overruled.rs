//! A check of several keys of which one is paused or blocked.
//!
//! ```text
//!                                    a pause of one key    a block of one key
//! charges (count=all)                nothing               nothing
//! history (META), of every key       nothing               the denial
//! bans of another key's own rule     none                  as without the block
//! counts as denied (RL.TOP)          no key                the blocked key, and keys whose rules deny
//! ```

use crate::check::{Bounds, KeyCheck, Outcome, check_keys};
use crate::key::{
    Access, AccessEntry, Change, Check, CheckOptions, HoldRequest, Limiter, Meta, Verdict,
};
use crate::rule::SECOND_US;
use crate::tests::rules_of_line;

const NOW_US: u64 = 1_700_000_000_000_000;
const UNTIL_US: u64 = NOW_US + 30 * SECOND_US;

/// Checks two keys, each by its own rules, with a `META`.
fn check(keys: &mut [Limiter; 2], rules: [&str; 2], hold: Option<&[u8]>) -> [Outcome; 2] {
    let rules = rules.map(rules_of_line);
    let hold = hold.map(|id| HoldRequest { id, end_us: UNTIL_US, refund: false });
    let meta = Some(Meta { text: b"who", keep: 9 });
    let options = CheckOptions { meta, hold, ..CheckOptions::default() };
    let of = |rules| Check::new(rules, 1, NOW_US).with(&options);
    let [a, b] = keys;
    let mut parts = [KeyCheck::new(a, of(&rules[0])), KeyCheck::new(b, of(&rules[1]))];
    check_keys(&mut parts, Bounds::ANY, &mut Vec::new()).expect("room");
    parts.map(|part| *part.outcome())
}

fn paused() -> Limiter {
    let mut limiter = Limiter::default();
    assert!(limiter.pause_until(UNTIL_US, NOW_US, b"429"));
    limiter
}

fn blocked() -> Limiter {
    let (kind, until_us, ban_us) = (Access::Block, Some(UNTIL_US), None);
    let mut limiter = Limiter::default();
    limiter.set_access(Some(AccessEntry {
        kind,
        until_us,
        ban_us,
        reason: Box::default(),
        author: None,
    }));
    limiter
}

/// A key on which a rule of one unit is used up.
fn used_up(rule: &str) -> Limiter {
    let mut limiter = Limiter::default();
    limiter.check(&Check::new(&rules_of_line(rule), 1, NOW_US), &mut Vec::new());
    limiter
}

const BANNING: &str = "fixed:1/h,count=all,ban=2h,align=first";

#[test]
fn a_pause_of_one_key_leaves_no_trace_on_any() {
    for order in [[0, 1], [1, 0]] {
        for other in [Limiter::default(), used_up(BANNING)] {
            let all = [paused(), other];
            let mut keys = order.map(|key| all[key].clone());
            let before = keys.clone();
            let done = check(&mut keys, [BANNING; 2], None);
            assert_eq!(keys, before);
            for outcome in done {
                let Outcome { change, ban, denied, .. } = outcome;
                assert_eq!((change, ban, denied), (Change::Nothing, None, false));
                assert_eq!(outcome.summary.verdict, Verdict::Limited);
            }
        }
    }
    // The rule's wait is longer, and is the answer.
    let mut keys = [paused(), used_up(BANNING)];
    let wait_ms = |outcome: &Outcome| outcome.summary.wait_ms;
    assert_eq!(check(&mut keys, [BANNING; 2], None).each_ref().map(wait_ms), [3_600_000; 2]);
    let mut keys = [paused(), Limiter::default()];
    assert_eq!(check(&mut keys, [BANNING; 2], None).each_ref().map(wait_ms), [30_000; 2]);
}

#[test]
fn a_block_of_one_key_is_recorded_on_all_and_lets_rules_ban() {
    let mut keys = [blocked(), Limiter::default()];
    let done = check(&mut keys, [BANNING; 2], None);
    for (outcome, key) in done.iter().zip(&keys) {
        assert_eq!(outcome.change, Change::HistoryOnly(Verdict::Blocked));
        assert_eq!(key.last_checks().count(), 1);
    }
    assert_eq!(done.map(|outcome| outcome.denied), [true, false]);
    let mut keys = [blocked(), used_up(BANNING)];
    let done = check(&mut keys, [BANNING; 2], None);
    assert!(done[1].ban.is_some());
    assert_eq!(done.map(|outcome| outcome.denied), [true, true]);
    // With both, the pause decides what is recorded, but the blocked key still counts as denied.
    let mut keys = [blocked(), paused()];
    let before = keys.clone();
    let done = check(&mut keys, [BANNING; 2], None);
    assert_eq!(keys, before);
    assert_eq!(done.map(|outcome| outcome.denied), [true, false]);
}

#[test]
fn a_key_that_repeats_its_hold_passes_its_own_pause() {
    let rules = ["slots:1", "9/m"];
    let mut keys = [Limiter::default(), Limiter::default()];
    let [first, _] = check(&mut keys, rules, Some(b"a"));
    assert_eq!(first.summary.verdict, Verdict::Allowed);
    assert!(keys[0].pause_until(UNTIL_US, NOW_US, b""));
    let [again, _] = check(&mut keys, rules, Some(b"a"));
    assert_eq!(again.summary.verdict, Verdict::Allowed);
    let [other, _] = check(&mut keys, rules, Some(b"b"));
    assert_eq!(other.summary.verdict, Verdict::Limited);
}
