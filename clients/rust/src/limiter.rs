//! The commands of an application, and what answers them while the server is away.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout};

use crate::breaker::{Breaker, Change, Try};
use crate::builder::Listener;
use crate::check::{Check, Cost, Rules, ms};
use crate::denials::Denials;
use crate::local::Local;
use crate::outage::{Outage, OutageEvent, is_outage};
use crate::reply::{Answer, Reply, Report, Source, Verdict};
use crate::server::{Connection, Opener};

/// A wait's reply comes at most so much later than its deadline.
const LATE: Duration = Duration::from_secs(1);
/// While a caller waits its server is asked so often whether it still answers ...
const ASK: Duration = Duration::from_secs(5);
/// ... and this number of times, a second apart, if it does not.
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_secs(1);
/// For how long [`Outage::Deny`] asks to wait.
const DENIED: Duration = Duration::from_secs(1);

/// How a hold ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Its charges stand; its slots are free.
    AsCharged,
    /// All that it has consumed comes back.
    Refund,
    /// Its charges are corrected to what the work did cost.
    Cost(Cost),
}

/// Rate limits that the module redis-ratelimit decides, for all processes together. A clone is cheap
/// and is the same limiter.
#[derive(Clone)]
pub struct RateLimiter(Arc<Inner>);

pub(crate) struct Inner {
    pub connection: Connection,
    pub opener: Opener,
    pub outage: Outage,
    pub timeout: Duration,
    pub listener: Option<Arc<Listener>>,
    pub separately: bool,
    pub breaker: Breaker,
    pub local: Local,
    pub outages: AtomicU64,
    /// What `outages` was when the breaker opened.
    pub outages_before: AtomicU64,
    pub replies: Option<Denials<Reply>>,
    pub reports: Option<Denials<Report>>,
}

impl RateLimiter {
    pub(crate) fn of(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Whether the limiter has stopped asking the server.
    #[must_use]
    pub fn away(&self) -> bool {
        self.0.breaker.is_open()
    }

    /// How many requests got no decision from the server.
    #[must_use]
    pub fn outages(&self) -> u64 {
        self.0.outages.load(Ordering::Relaxed)
    }

    /// Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`.
    ///
    /// # Errors
    /// Those of a wrong request, and under [`Outage::Raise`] an outage.
    pub async fn check(&self, check: impl Into<Check>) -> RedisResult<Reply> {
        let check = check.into();
        let [limit] = &check.limits[..] else { return Ok(self.check_all(check).await?.reply()) };
        let Some(denials) = &self.0.replies else { return self.decide(&check).await };
        let now = Instant::now();
        if let Some(denial) = denials.find(now, &check) {
            return Ok(denial);
        }
        let reply = self.decide(&check).await?;
        let rules = limit.rules.texts().iter().map(String::as_str);
        denials.keep(now, &check, &limit.key, rules, &reply);
        Ok(reply)
    }

    /// Decides over one or several keys, consumes from all or from none, and reports on each rule:
    /// `FULL`, `RL.MCHECK`.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn check_all(&self, check: impl Into<Check>) -> RedisResult<Report> {
        let check = check.into();
        let Some(first) = check.limits.first() else { return Ok(Report::passed(Source::Local)) };
        let now = Instant::now();
        if let Some(denial) = self.0.reports.as_ref().and_then(|all| all.find(now, &check)) {
            return Ok(denial);
        }
        let report = if self.0.separately && check.limits.len() > 1 {
            self.decide_each(&check).await?
        } else {
            self.decide(&check).await?
        };
        if let Some(denials) = &self.0.reports {
            let key = report.key.as_ref().unwrap_or(&first.key);
            let rules = report.rules.iter().map(|rule| &rule.rule[..]);
            denials.keep(now, &check, key, rules, &report);
        }
        Ok(report)
    }

    /// Decides for a key without consuming: `RL.PEEK`.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn peek(&self, check: impl Into<Check>) -> RedisResult<Reply> {
        self.peek_as(&check.into(), false).await
    }

    /// Reports on each rule of a key without consuming.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn peek_all(&self, check: impl Into<Check>) -> RedisResult<Report> {
        self.peek_as(&check.into(), true).await
    }

    /// Waits in line until the request passes, but at most so long: `RL.WAIT`, on a connection for
    /// this call. Dropping the future leaves the line. While the server is away nobody waits: the
    /// reply is that of [`Self::check`].
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn wait(&self, check: impl Into<Check>, longest: Duration) -> RedisResult<Reply> {
        let check = check.into();
        if check.limits.is_empty() {
            return Ok(Reply::passed(Source::Local));
        }
        let command = check.wait_command(longest)?;
        let key = &check.one_limit("RL.WAIT")?.key;
        let asking = async {
            if self.away() {
                // A try that cannot take long.
                self.ask(
                    &Check { hold: None, meta: None, ..check.clone() }.peek_command(false)?,
                    key,
                )
                .await?;
            }
            let asking = self.0.breaker.enter(Instant::now())?;
            self.told(asking, self.wait_alone(&command, key, longest).await)
        };
        self.or_without(asking.await, &check.command(false))
    }

    /// Ends a hold: `RL.SETTLE`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn settle(
        &self,
        key: impl AsRef<[u8]>,
        id: &str,
        settlement: Settlement,
    ) -> RedisResult<bool> {
        let key = key.as_ref();
        read(self.ask(&settle_command(key, id, &settlement), key).await?)
    }

    /// Moves a hold's end to so long from now: `RL.RENEW`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn renew(&self, key: impl AsRef<[u8]>, id: &str, ttl: Duration) -> RedisResult<bool> {
        let key = key.as_ref();
        read(self.ask(&renew_command(key, id, ttl), key).await?)
    }

    /// Gives units back to the states of these rules, or of all without rules: `RL.REFUND`. Replies
    /// with the most that one of them got.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn refund(
        &self,
        key: impl AsRef<[u8]>,
        units: u64,
        rules: impl Into<Rules>,
    ) -> RedisResult<u64> {
        let key = key.as_ref();
        self.forget(key);
        read(self.ask(&refund_command(key, units, rules.into().texts()), key).await?)
    }

    /// Gives back what a check has consumed, where it was decided. A server that is away gets no
    /// units back.
    ///
    /// # Errors
    /// Those of the server but outages.
    pub async fn give_back(&self, check: &Check, report: &Report) -> RedisResult<()> {
        for limit in &check.limits {
            let key = &limit.key;
            let charged = report
                .rules
                .iter()
                .filter(|rule| rule.cost > 0 && rule.key.as_ref().is_none_or(|of| of == key));
            let mut charged = charged.collect::<Vec<_>>();
            charged.sort_by_key(|rule| rule.cost);
            for rules in charged.chunk_by(|a, b| a.cost == b.cost) {
                let Some(units) = rules.first().map(|rule| rule.cost) else { continue };
                let texts = rules.iter().map(|rule| &rule.rule).collect::<Vec<_>>();
                self.forget(key);
                let command = refund_command(key, units, &texts);
                ignore_outage(self.at(report.source, &command, key).await)?;
            }
        }
        Ok(())
    }

    /// Forgets what was consumed: `RL.RESET`. Blocks, exemptions and the history stay.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> RedisResult<()> {
        let key = key.as_ref();
        self.forget(key);
        let mut command = redis::cmd("RL.RESET");
        command.arg(key);
        self.ask(&command, key).await.map(drop)
    }

    /// Sends any other command, such as `RL.INFO`, to the node of this key.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn call<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: impl AsRef<[u8]>,
    ) -> RedisResult<T> {
        read(self.ask(command, key.as_ref()).await?)
    }

    /// Sends a command to where an answer came from.
    pub(crate) async fn at(&self, source: Source, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        match source {
            Source::Server => self.ask(command, key).await,
            Source::Local => self.0.local.answer(command),
            Source::Outage | Source::Denial => Ok(Value::Int(1)),
        }
    }

    /// Asks for a lease; while the server is away, its limiter's answer to the other check.
    pub(crate) async fn lease(
        &self,
        check: &Check,
        key: &[u8],
        other: &Check,
    ) -> RedisResult<Reply> {
        let asked = self.ask(&check.command(false), key).await;
        self.or_without(asked, &other.command(false))
    }

    async fn decide<A: Decides>(&self, check: &Check) -> RedisResult<A> {
        let Some(first) = check.limits.first() else { return Ok(A::passed(Source::Local)) };
        let command = check.command(A::FULL);
        self.or_without(self.ask(&command, &first.key).await, &command)
    }

    async fn decide_each(&self, check: &Check) -> RedisResult<Report> {
        let mut all = Report::passed(Source::Server);
        for (place, one) in check.each()?.into_iter().enumerate() {
            let Some(limit) = one.limits.first() else { continue };
            let asked = self.ask(&one.command(true), &limit.key).await.and_then(read::<Report>);
            let mut report = match asked {
                Ok(report) => report,
                Err(error) => {
                    self.undo_first(place, check, &all).await?;
                    return self.without(error, &check.command(true));
                }
            };
            for rule in &mut report.rules {
                rule.key = Some(limit.key.clone());
            }
            all.rules.append(&mut report.rules);
            if !report.is_allowed() {
                self.undo_first(place, check, &all).await?;
                let key = Some(limit.key.clone());
                return Ok(Report { key, rules: all.rules, ..report });
            }
            all.wait = all.wait.max(report.wait);
            all.granted = report.granted;
        }
        Ok(all)
    }

    /// Gives back what the first keys of a check have consumed.
    async fn undo_first(&self, keys: usize, check: &Check, report: &Report) -> RedisResult<()> {
        let limits = check.limits.iter().take(keys).cloned().collect();
        let Some(id) = check.id.as_ref().filter(|_| check.hold.is_some()) else {
            return self.give_back(&Check { limits, ..check.clone() }, report).await;
        };
        for limit in check.limits.iter().take(keys) {
            let command = settle_command(&limit.key, id, &Settlement::Refund);
            ignore_outage(self.ask(&command, &limit.key).await)?;
        }
        Ok(())
    }

    async fn peek_as<A: Decides>(&self, check: &Check, full: bool) -> RedisResult<A> {
        if check.limits.is_empty() {
            return Ok(A::passed(Source::Local));
        }
        let command = check.peek_command(full)?;
        let key = &check.one_limit("RL.PEEK")?.key;
        self.or_without(self.ask(&command, key).await, &command)
    }

    /// Asks the server, unless it is away.
    pub(crate) async fn ask(&self, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let asking = self.0.breaker.enter(Instant::now())?;
        let answer = within(self.0.timeout, self.0.connection.send(command, key)).await;
        self.told(asking, answer)
    }

    async fn wait_alone(&self, command: &Cmd, key: &[u8], longest: Duration) -> RedisResult<Value> {
        let alone = within(self.0.timeout, self.0.opener.open()).await?;
        tokio::select! {
            answer = within(longest.saturating_add(LATE), alone.send(command, key)) => answer,
            error = self.silence(key) => Err(error),
        }
    }

    /// Ends once the server answers nothing.
    async fn silence(&self, key: &[u8]) -> RedisError {
        let mut peek = redis::cmd("RL.PEEK");
        peek.arg(key).arg("1/s");
        let mut failures = 0_usize;
        loop {
            tokio::time::sleep(if failures == 0 { ASK } else { AGAIN }).await;
            match within(self.0.timeout, self.0.connection.send(&peek, key)).await {
                Err(error) if is_outage(&error) => {
                    failures = failures.saturating_add(1);
                    if failures == TRIES {
                        return error;
                    }
                }
                _ => failures = 0,
            }
        }
    }

    /// Only outages count against the server.
    fn told(&self, asking: Try<'_>, answer: RedisResult<Value>) -> RedisResult<Value> {
        let change = match &answer {
            Err(error) if is_outage(error) => {
                if error.is_timeout() {
                    self.0.connection.late();
                }
                asking.failed(Instant::now(), error)
            }
            _ => asking.succeeded(),
        };
        let (away, error) = match change {
            None => return answer,
            Some(Change::Opened(error)) => (true, error),
            Some(Change::Closed(error)) => (false, error),
        };
        if away {
            self.0.outages_before.store(self.outages(), Ordering::Relaxed);
        }
        let before = self.0.outages_before.load(Ordering::Relaxed);
        let event = OutageEvent { away, error, answered: self.outages().saturating_sub(before) };
        if let Some(listener) = &self.0.listener {
            // No fault of a listener ends a request.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&event)));
        }
        answer
    }

    fn or_without<A: Answer>(&self, asked: RedisResult<Value>, command: &Cmd) -> RedisResult<A> {
        match asked {
            Ok(value) => read(value),
            Err(error) => self.without(error, command),
        }
    }

    /// The answer to a check that the server did not decide.
    fn without<A: Answer>(&self, error: RedisError, command: &Cmd) -> RedisResult<A> {
        if !is_outage(&error) {
            return Err(error);
        }
        self.0.outages.fetch_add(1, Ordering::Relaxed);
        match self.0.outage {
            Outage::Raise => Err(error),
            Outage::Allow => Ok(A::passed(Source::Outage)),
            Outage::Deny => Ok(A::bare(Verdict::Limited, DENIED, Source::Outage)),
            Outage::Local => Ok(read::<A>(self.0.local.answer(command)?)?.by(Source::Local)),
        }
    }

    pub(crate) fn local(&self) -> &Local {
        &self.0.local
    }

    pub(crate) fn outage(&self) -> Outage {
        self.0.outage
    }

    pub(crate) fn forget(&self, key: &[u8]) {
        if let Some(denials) = &self.0.replies {
            denials.forget(key);
        }
        if let Some(denials) = &self.0.reports {
            denials.forget(key);
        }
    }
}

/// Which reply to ask for.
trait Decides: Answer {
    const FULL: bool;
}

impl Decides for Reply {
    const FULL: bool = false;
}

impl Decides for Report {
    const FULL: bool = true;
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { outage, timeout, .. } = &*self.0;
        f.debug_struct("RateLimiter")
            .field("outage", outage)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

async fn within<T>(time: Duration, asking: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {time:?}"));
    timeout(time, asking).await.unwrap_or_else(|_| Err(late().into()))
}

pub(crate) fn read<T: FromRedisValue>(value: Value) -> RedisResult<T> {
    Ok(T::from_redis_value(value)?)
}

fn ignore_outage<T>(result: RedisResult<T>) -> RedisResult<()> {
    match result {
        Err(error) if !is_outage(&error) => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn settle_command(key: &[u8], id: &str, settlement: &Settlement) -> Cmd {
    let mut command = redis::cmd("RL.SETTLE");
    command.arg(key).arg(id);
    match settlement {
        Settlement::AsCharged => {}
        Settlement::Refund => {
            command.arg("REFUND");
        }
        Settlement::Cost(cost) => cost.write(&mut command),
    }
    command
}

pub(crate) fn renew_command(key: &[u8], id: &str, ttl: Duration) -> Cmd {
    let mut command = redis::cmd("RL.RENEW");
    command.arg(key).arg(id).arg("PX").arg(ms(ttl));
    command
}

fn refund_command<S: AsRef<str>>(key: &[u8], units: u64, rules: &[S]) -> Cmd {
    let mut command = redis::cmd("RL.REFUND");
    command.arg(key).arg(units).arg(rules.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    command
}
