//! Denials that the limiter remembers and answers until their wait is over.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use crate::check::{Check, Cost, Limit};
use crate::reply::{Answer, Source, Verdict};

/// How long to remember a denial that may end at any time: a block, a pause, an endless wait,
/// or one under a plan, which the customer may change.
const SHORT: Duration = Duration::from_secs(1);

/// Denials, by the hash of what was asked.
#[derive(Debug)]
pub struct Denials<A> {
    hasher: RandomState,
    found: Mutex<Found<A>>,
}

#[derive(Debug)]
struct Found<A> {
    denials: LruCache<u64, Denial<A>>,
    /// The keys that deny. Their denials are valid until the key is dropped here.
    keys: LruCache<Vec<u8>, Arc<()>>,
}

#[derive(Debug)]
struct Denial<A> {
    key: Weak<()>,
    limits: Vec<Limit>,
    cost: Cost,
    since: Instant,
    until: Instant,
    answer: A,
}

impl<A: Answer> Denials<A> {
    pub fn new(most: NonZeroUsize) -> Self {
        let found = Found { denials: LruCache::new(most), keys: LruCache::new(most) };
        Self { hasher: RandomState::new(), found: Mutex::new(found) }
    }

    /// The server's answer, if it has denied this check before.
    pub fn find(&self, now: Instant, check: &Check) -> Option<A> {
        let what = self.what(check)?;
        let mut found = self.found();
        let denial = found.denials.get(&what).filter(|denial| denial.is_of(check))?;
        if now >= denial.until {
            found.denials.pop(&what);
            return None;
        }
        let by = now.saturating_duration_since(denial.since);
        Some(denial.answer.later(by).by(Source::Denial))
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
        let Some(what) = self.what(check).filter(|_| denied) else { return };
        if !rules.into_iter().all(lasts) {
            return;
        }
        let Some(until) = since.checked_add(lasting(answer, follow_a_plan(check))) else { return };
        let (limits, cost, answer) = (check.limits.clone(), check.cost.clone(), answer.clone());
        let mut found = self.found();
        let valid = Arc::downgrade(found.keys.get_or_insert(key.to_vec(), Arc::default));
        found.denials.put(what, Denial { key: valid, limits, cost, since, until, answer });
    }

    pub fn forget(&self, key: &[u8]) {
        self.found().keys.pop(key);
    }

    /// The hash of what a check asks, unless it may repeat a hold.
    fn what(&self, check: &Check) -> Option<u64> {
        check.hold.is_none().then(|| self.hasher.hash_one((&check.limits, &check.cost)))
    }

    fn found(&self) -> MutexGuard<'_, Found<A>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A> Denial<A> {
    fn is_of(&self, check: &Check) -> bool {
        self.key.strong_count() > 0 && self.cost == check.cost && self.limits == check.limits
    }
}

/// For how long a denial is remembered.
pub fn lasting(answer: &impl Answer, follows_a_plan: bool) -> Duration {
    match answer.head() {
        (Verdict::Limited, Some(wait), _) if answer.is_by_rule() && !follows_a_plan => wait,
        (_, wait, _) => wait.unwrap_or(SHORT).min(SHORT),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    #[test]
    fn a_denial_by_a_rate_lasts_until_its_wait_is_over() {
        let (denials, start) = (Denials::new(NonZeroUsize::new(10).unwrap()), Instant::now());
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
        let named = check.clone().cost([("in", 1)]);
        let others = [check.clone().cost(2), check.clone().cost(1..=2), named];
        for other in others.iter().chain([&Check::new("a", "1/m")]) {
            assert!(denials.find(start, other).is_none(), "{other:?}");
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
    }

    #[test]
    fn one_key_has_a_denial_for_each_cost_and_each_list_of_rules() {
        let (denials, start) = (Denials::new(NonZeroUsize::new(8).unwrap()), Instant::now());
        let denied = Reply::bare(Verdict::Limited, SHORT, Source::Server);
        let (one, other) = (Check::new("a", "1/m"), Check::new("b", "1/m"));
        let by_name = one.clone().cost([("in", 2), ("out", 3)]);
        let checks =
            [one.clone(), one.clone().cost(2..=9), by_name, Check::new("a", ["1/m", "9/h"])];
        let known = || checks.iter().filter(|check| denials.find(start, check).is_some()).count();
        for check in checks.iter().chain([&other]).flat_map(|check| [check, check]) {
            denials.keep(start, check, &check.limits[0].key, ["1/m"], &denied);
        }
        assert_eq!(known(), 4);
        denials.forget(b"a");
        assert_eq!(known(), 0);
        assert!(denials.find(start, &other).is_some());
        denials.keep(start, &one, b"a", ["1/m"], &denied);
        assert_eq!(known(), 1, "the others stay forgotten");
        for units in 0..100 {
            denials.keep(start, &other.clone().cost(units), b"b", ["1/m"], &denied);
        }
        let left =
            (0..100).filter(|&units| denials.find(start, &other.clone().cost(units)).is_some());
        assert_eq!(left.count(), 8);
    }
}
