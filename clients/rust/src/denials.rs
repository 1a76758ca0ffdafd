//! Denials that the limiter remembers and answers until their wait is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::bounded::Bounded;
use crate::check::{Check, Cost, Limit};
use crate::reply::{Answer, Source, Verdict};

/// How long to remember a denial that may end at any time: a block, a pause, an endless wait,
/// or one under a plan, which the customer may change.
const SHORT: Duration = Duration::from_secs(1);

/// The last denial of each key.
#[derive(Debug)]
pub struct Denials<A>(Mutex<Bounded<Vec<u8>, Denial<A>>>);

#[derive(Debug)]
struct Denial<A> {
    limits: Vec<Limit>,
    units: u64,
    since: Instant,
    until: Instant,
    answer: A,
}

impl<A: Answer> Denials<A> {
    pub fn new(most: usize) -> Self {
        Self(Mutex::new(Bounded::new(most)))
    }

    /// The server's answer, if it has denied this check before.
    pub fn find(&self, now: Instant, check: &Check) -> Option<A> {
        let units = units(check)?;
        let mut found = self.map();
        for Limit { key, .. } in &check.limits {
            let Some(denial) = found.get(key) else { continue };
            if now >= denial.until {
                found.take(key);
            } else if denial.units == units && are(&denial.limits, &check.limits) {
                let by = now.saturating_duration_since(denial.since);
                return Some(denial.answer.later(by).by(Source::Denial));
            }
        }
        None
    }

    /// Remembers a denial of a key by these rules. `since` is when the server was asked. The
    /// server decided after that, so no denial is remembered too long.
    pub fn keep<'a>(
        &self,
        since: Instant,
        check: &Check,
        key: &[u8],
        rules: impl IntoIterator<Item = &'a str>,
        answer: &A,
    ) {
        let (verdict, _, source) = answer.head();
        let denied = verdict != Verdict::Allowed && source == Source::Server;
        let Some(units) = units(check).filter(|_| denied) else { return };
        if !rules.into_iter().all(lasts) {
            return;
        }
        let Some(until) = since.checked_add(lasting(answer, follow_a_plan(check))) else { return };
        let limits = check.limits.clone();
        let denial = Denial { limits, units, since, until, answer: answer.clone() };
        let mut map = self.map();
        map.take(key);
        map.put(key.to_vec(), denial);
    }

    pub fn forget(&self, key: &[u8]) {
        self.map().take(key);
    }

    fn map(&self) -> MutexGuard<'_, Bounded<Vec<u8>, Denial<A>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long a denial is remembered.
pub fn lasting(answer: &impl Answer, follows_a_plan: bool) -> Duration {
    match answer.head() {
        (Verdict::Limited, Some(wait), _) if answer.is_by_rule() && !follows_a_plan => wait,
        (_, wait, _) => wait.unwrap_or(SHORT).min(SHORT),
    }
}

/// The cost of a check whose denial may be remembered.
fn units(check: &Check) -> Option<u64> {
    match check.cost {
        Cost::Units(units) if check.hold.is_none() => Some(units),
        _ => None,
    }
}

fn follow_a_plan(check: &Check) -> bool {
    check.limits.iter().any(|limit| limit.rules.follow_a_plan())
}

/// Whether a denial by this rule stays true until its wait is over and changes nothing that the
/// server counts.
fn lasts(rule: &str) -> bool {
    let never = rule.starts_with("slots:") || rule.starts_with('@');
    !never && !rule.contains(",count=all") && !rule.contains(",ban=")
}

fn are(some: &[Limit], others: &[Limit]) -> bool {
    some.len() == others.len()
        && some.iter().zip(others).all(|(a, b)| a.key == b.key && a.rules.are(&b.rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    #[test]
    fn a_denial_by_a_rate_lasts_until_its_wait_is_over() {
        let (denials, start) = (Denials::new(10), Instant::now());
        let check = Check::new("a", ["1/m", "9/h"]);
        let paused = Reply::bare(Verdict::Limited, Duration::from_secs(60), Source::Server);
        let denied = Reply { limit: Some(1), ..paused.clone() };
        let keep = |check: &Check, answer: &Reply| {
            let rules = check.limits[0].rules.texts().iter().map(String::as_str);
            denials.keep(start, check, b"a", rules, answer);
            denials.find(start, check).is_some()
        };
        assert!(keep(&check, &denied));
        let later = denials.find(start + Duration::from_secs(20), &check).unwrap();
        assert_eq!((later.wait, later.source), (Some(Duration::from_secs(40)), Source::Denial));
        for other in [check.clone().cost(2), check.clone().cost(1..=2), Check::new("a", "1/m")] {
            assert!(denials.find(start, &other).is_none(), "{other:?}");
        }
        assert!(denials.find(start + Duration::from_secs(60), &check).is_none());
        assert!(denials.find(start, &check).is_none(), "the denial was dropped");

        for rule in ["slots:1", "@free", "1/m,count=all", "1/m,ban=1h"] {
            assert!(!keep(&Check::new("a", rule), &denied), "{rule}");
        }
        assert!(!keep(&check, &Reply::passed(Source::Server)));
        assert!(!keep(&check, &denied.clone().by(Source::Outage)));

        let forever = Reply { wait: None, ..denied.clone() };
        let blocked = Reply { verdict: Verdict::Blocked, ..denied.clone() };
        for answer in [forever, blocked, paused] {
            assert!(keep(&check, &answer));
            assert!(denials.find(start + SHORT, &check).is_none());
        }
        assert!(keep(&check, &Reply::bare(Verdict::Limited, SHORT, Source::Server)));
        // A report shows the rules of the plan.
        let planned = Check::new("a", "@plan:free");
        denials.keep(start, &planned, b"a", ["1/m"], &denied);
        assert!(denials.find(start, &planned).is_some());
        assert!(denials.find(start + SHORT, &planned).is_none());
        denials.forget(b"a");
        assert!(denials.find(start, &check).is_none());
    }
}
