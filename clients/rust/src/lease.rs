//! Leases: for a key that is asked more often than one server can decide.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use ratelimit_core::MAX_PERIOD;
use redis::RedisResult;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::check::{Check, Limit};
use crate::denials::lasting;
use crate::limiter::RateLimiter;
use crate::receipt::{Place, new_id};
use crate::reply::{Reply, Report, Source, Verdict};
use crate::rules::Rules;
use crate::settlement::Settlement;
use crate::value::{self, misuse};

/// After a lease that lasts less than this, the next one asks for twice as many units ...
const SHORT: Duration = Duration::from_millis(50);
/// ... and for half as many after one that lasts more than this, or of which less than half was used.
const LONG: Duration = Duration::from_millis(200);

/// The options of a [`Lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// How long the server keeps a lease that is not settled: 2 s by default.
    pub ttl: Duration,
    /// The most units to lease at once: 1000 by default.
    pub most: u64,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(2), most: 1000 }
    }
}

/// What [`Lease::take`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether the units were taken.
    pub verdict: Verdict,
    /// When to ask again. `None`: never.
    pub wait: Option<Duration>,
    /// Who decided; `Lease` for units that were taken ahead.
    pub source: Source,
}

impl Taken {
    const NOW: Self =
        Self { verdict: Verdict::Allowed, wait: Some(Duration::ZERO), source: Source::Lease };

    /// Whether the units were taken.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }
}

/// Takes units of one hot key ahead, and hands them out in this process.
/// Units count when they are leased, and may be used for half of the hold's time after that. If the
/// process dies, the units that it used of its last lease come back when the hold ends. While the server
/// is away, the limiter's [`Outage`](crate::Outage) answers.
pub struct Lease(Arc<Shared>);

struct Shared {
    limiter: RateLimiter,
    /// The check of one unit.
    one: Check,
    key: Vec<u8>,
    rules: Rules,
    ttl: Duration,
    most: u64,
    state: Mutex<State>,
    /// One caller asks for a lease, and the others wait for that.
    asking: Arc<AsyncMutex<()>>,
}

#[derive(Default)]
struct State {
    /// How many units to ask for.
    ask: u64,
    open: Option<Open>,
    /// When a denial ends, the least cost that it denies, and its verdict.
    denied: Option<(Instant, u64, Verdict)>,
}

struct Open {
    id: String,
    granted: u64,
    left: u64,
    since: Instant,
    settling: AbortHandle,
}

impl Open {
    const fn used(&self) -> u64 {
        self.granted.saturating_sub(self.left)
    }
}

impl Lease {
    /// Leases units of this key under these rules.
    ///
    /// # Errors
    /// A rule that cannot be read.
    pub fn new(
        limiter: RateLimiter,
        key: impl Into<Vec<u8>>,
        rules: impl Into<Rules>,
    ) -> RedisResult<Self> {
        Self::with(limiter, key, rules, LeaseOptions::default())
    }

    /// Leases units with other options.
    ///
    /// # Errors
    /// A limiter by [`Engine::Script`](crate::Engine::Script), a rule that cannot be read, a `ttl`
    /// of 0 or of more than 366 days, or a `most` that is not 1 to 1,000,000,000.
    pub fn with(
        limiter: RateLimiter,
        key: impl Into<Vec<u8>>,
        rules: impl Into<Rules>,
        options: LeaseOptions,
    ) -> RedisResult<Self> {
        limiter.asker().need_module("a lease")?;
        let (one, LeaseOptions { ttl, most }) = (Check::new(key, rules), options);
        one.validate()?;
        let Limit { key, rules } = one.one_limit("a lease")?.clone();
        rules.validate()?;
        value::time("the ttl", ttl)?;
        value::units(most)?;
        if ttl > MAX_PERIOD || most == 0 {
            let given = format!("the ttl is {ttl:?} and most is {most}");
            return Err(misuse(format!("{given}, expected at most 366 days and at least 1")));
        }
        let (state, asking) = (Mutex::default(), Arc::default());
        Ok(Self(Arc::new(Shared { limiter, one, key, rules, ttl, most, state, asking })))
    }

    /// Takes units, out of the lease if it has them.
    ///
    /// # Errors
    /// Those of a check.
    pub async fn take(&self, units: u64) -> RedisResult<Taken> {
        value::units(units)?;
        let told = |taken: &Taken| (taken.source, taken.verdict, self.0.one.only_rule());
        self.0.limiter.asker().told(self.taken(units), told).await
    }

    async fn taken(&self, units: u64) -> RedisResult<Taken> {
        if let Some(taken) = self.0.find(units) {
            return Ok(taken);
        }
        let only = Arc::clone(&self.0.asking).lock_owned().await;
        if let Some(taken) = self.0.find(units) {
            return Ok(taken);
        }
        let (answer, asked) = oneshot::channel();
        // A task, so that dropping this future loses no lease.
        tokio::spawn(Arc::clone(&self.0).ask(units, answer, only));
        asked.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }

    /// Gives back units that were taken and not used, to the lease that is open now. If none is
    /// open, they stay charged.
    pub fn give_back(&self, units: u64) {
        self.0.give_back(units);
    }

    /// Gives back what is left. Dropping the future does not stop that.
    ///
    /// # Errors
    /// Those of the server, and any outage. After an error, what is left comes back when the hold ends.
    pub async fn close(self) -> RedisResult<()> {
        self.end().await
    }

    fn end(&self) -> impl Future<Output = RedisResult<()>> + Send + use<> {
        Arc::clone(&self.0).settle(self.0.end())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // No caller gets an error: if settling fails, what is left comes back when the hold ends.
        drop(self.end());
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("rules", &self.0.rules).finish_non_exhaustive()
    }
}

impl Shared {
    /// An answer without the server.
    fn find(&self, units: u64) -> Option<Taken> {
        let (mut state, now) = (self.state(), Instant::now());
        if let Some(open) = &mut state.open
            && let Some(left) = open.left.checked_sub(units)
            && now.saturating_duration_since(open.since) < self.half()
        {
            open.left = left;
            return Some(Taken::NOW);
        }
        let (until, least, verdict) = state.denied?;
        let wait = Some(until.saturating_duration_since(now));
        let taken = Taken { verdict, wait, source: Source::Denial };
        (units >= least && now < until).then_some(taken)
    }

    /// Settles this lease and takes the next, in one round trip.
    async fn ask(
        self: Arc<Self>,
        units: u64,
        answer: oneshot::Sender<RedisResult<Taken>>,
        _only: OwnedMutexGuard<()>,
    ) {
        let ended = self.end();
        let has_lapsed = ended.as_ref().is_some_and(|ended| ended.since.elapsed() >= self.ttl);
        let most = units.max(self.state().ask).max(1);
        let (id, one) = (new_id(), self.one.clone().cost(units));
        let leased = one.clone().cost(units..=most).with_hold(&id, self.ttl).refunding();
        let asked = Instant::now();
        let settling = Arc::clone(&self).settle(ended);
        let leasing = self.lease(leased.giving_back(), &one);
        let report = if has_lapsed {
            // What was used of it counts before the next.
            let _ = settling.await;
            leasing.await
        } else {
            tokio::join!(settling, leasing).1
        };
        let taken = report.map(|report| self.note(&report, id, units, asked));
        let unheard = answer.send(taken).is_err();
        if unheard {
            self.give_back(units);
        }
    }

    /// Asks for a lease. While the server is away, the limiter answers the check of `one` instead.
    async fn lease(&self, leased: Check, one: &Check) -> RedisResult<Report> {
        let (asker, command) = (self.limiter.asker(), one.command(true));
        let of_lease = leased.command(true);
        asker.or_without(&leased, one, &command, asker.ask_check(&leased, &of_lease)).await
    }

    /// Notes the server's report. `asked` is when the server was asked.
    fn note(self: &Arc<Self>, report: &Report, id: String, units: u64, asked: Instant) -> Taken {
        let Report { verdict, wait, source, .. } = *report;
        let taken = Taken { verdict, wait, source };
        if source != Source::Server {
            return taken;
        }
        let mut state = self.state();
        if !taken.is_allowed() {
            let until = asked.checked_add(lasting(report, self.rules.follow_a_plan()));
            state.denied = until.map(|until| (until, units, verdict));
        } else if let Some(granted) = report.granted.filter(|_| !report.rules.is_empty()) {
            // The report on an exempt key, which has no holds, has no rules.
            let shared = Arc::clone(self);
            let settling = tokio::spawn(async move {
                sleep(shared.half()).await;
                // `end` aborts this task, so another one settles.
                tokio::spawn(Arc::clone(&shared).settle(shared.end()));
            });
            let (left, settling) = (granted.saturating_sub(units), settling.abort_handle());
            state.open = Some(Open { id, granted, left, since: asked, settling });
        }
        taken
    }

    fn give_back(&self, units: u64) {
        if let Some(open) = &mut self.state().open {
            open.left = open.left.saturating_add(units).min(open.granted);
        }
    }

    /// Begins to settle a lease. If it has lapsed, and the server gave back what was used of it, the future
    /// counts that again.
    fn settle(
        self: Arc<Self>,
        ended: Option<Open>,
    ) -> impl Future<Output = RedisResult<()>> + Send + use<> {
        let settling = ended.map(|open| {
            let (asker, ttl, used) = (Arc::clone(self.limiter.asker()), self.ttl, open.used());
            let (keys, id, source) = (vec![self.key.clone()], open.id, Source::Server);
            let place = Place { asker, keys, id, ttl, source };
            (place.settle(Settlement::Cost(used.into()), false), used, open.since)
        });
        async move {
            let Some((settling, used, since)) = settling else { return Ok(()) };
            if !settling.await? && used > 0 && since.elapsed() >= self.ttl {
                let (asker, again) = (self.limiter.asker(), self.one.clone().cost(1..=used));
                asker.ask_check::<Reply>(&again, &again.command(false)).await?;
            }
            Ok(())
        }
    }

    /// Ends the lease, if there is one, and adapts the size of the next.
    fn end(&self) -> Option<Open> {
        let mut state = self.state();
        let open = state.open.take()?;
        open.settling.abort();
        let lasted = open.since.elapsed();
        if lasted > LONG || open.used().saturating_mul(2) < open.granted {
            state.ask = (state.ask >> 1).max(1);
        } else if lasted < SHORT && open.granted >= state.ask {
            state.ask = state.ask.max(1).saturating_mul(2).min(self.most);
        }
        Some(open)
    }

    /// How long the units of a lease may be used.
    fn half(&self) -> Duration {
        self.ttl.checked_div(2).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
