//! Asks the server, and answers checks that the server does not decide.

use std::io;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::breaker::{Breaker, Try};
use crate::check::{Check, Cost};
use crate::clean_up::CleanUps;
use crate::denials::Denials;
use crate::events::Events;
use crate::local::Local;
use crate::outage::{Outage, is_outage, is_refusal, saturated};
use crate::reply::{Answer, Reply, Report, Source, Verdict};
use crate::script::{Script, has_forgotten, needs_module};
use crate::server::{Connection, Opener};
use crate::within::within;

/// The wait that [`Outage::Deny`] answers.
const DENIED: Duration = Duration::from_secs(1);

pub struct Asker {
    pub connection: Connection,
    pub opener: Opener,
    pub outage: Outage,
    pub timeout: Duration,
    pub queue_timeout: Duration,
    /// A place for each command that may be under way.
    pub places: Semaphore,
    pub separately: bool,
    /// The script, if it decides instead of the module.
    pub script: Option<Script>,
    pub breaker: Breaker,
    pub events: Events,
    pub local: Local,
    pub cleans_up: CleanUps,
    pub replies: Option<Denials<Reply>>,
    pub reports: Option<Denials<Report>>,
}

impl Asker {
    pub async fn decide<A: Decides>(&self, check: &Check) -> RedisResult<A> {
        let Some(first) = check.limits.first() else { return Ok(A::passed(Source::Local)) };
        let command = check.command(A::FULL);
        self.or_without(self.ask(&command, &first.key).await, check, &command)
    }

    /// Asks the server, unless it is away.
    pub async fn ask(&self, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let (asking, answer) = self.answer(command, key).await?;
        self.told(asking, answer)
    }

    /// Sends a command that is no check. The breaker does not count a refused or unknown command,
    /// since checks may still work.
    pub async fn call(&self, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let (asking, answer) = self.answer(command, key).await?;
        match answer {
            Err(error) if is_refusal(&error) => Err(error),
            answer => self.told(asking, answer),
        }
    }

    /// An error if the engine is the script, which cannot do this.
    pub fn need_module(&self, what: &str) -> RedisResult<()> {
        if self.script.is_some() { Err(needs_module(what)) } else { Ok(()) }
    }

    async fn answer(
        &self,
        command: &Cmd,
        key: &[u8],
    ) -> RedisResult<(Try<'_>, RedisResult<Value>)> {
        let script = self.script.as_ref();
        let by_script = script.map(|script| Ok::<_, RedisError>((script, Script::asked(command)?)));
        let by_script = by_script.transpose()?;
        self.cleans_up.learn_runtime();
        let _place = self.place().await?;
        let opens = self.breaker.opens();
        let asking = self.breaker.enter(Instant::now())?;
        let send = async |command: &Cmd, key: &[u8]| {
            if asking.is_only() {
                self.in_time(self.connection.send_anew(command, key)).await
            } else {
                self.in_time(self.connection.send(command, key)).await
            }
        };
        let answer = async {
            let Some((script, asked)) = &by_script else { return send(command, key).await };
            match send(&script.evalsha(asked), &asked.key).await {
                Err(error) if has_forgotten(&error) => send(&asked.eval(), &asked.key).await,
                answer => answer,
            }
        };
        tokio::select! {
            biased;
            answer = answer => Ok((asking, answer)),
            () = opens => Err(self.last_outage()),
        }
    }

    /// Asks the server, whatever the breaker says.
    pub async fn ask_anyway(&self, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let permit = within(self.queue_timeout, self.places.acquire()).await;
        let _place = permit.and_then(Result::ok).ok_or_else(saturated)?;
        self.in_time(self.connection.send(command, key)).await
    }

    /// A place for one command. All waits for a place end when the breaker opens.
    async fn place(&self) -> RedisResult<SemaphorePermit<'_>> {
        let opens = self.breaker.opens();
        self.breaker.rest(Instant::now())?;
        tokio::select! {
            biased;
            permit = within(self.queue_timeout, self.places.acquire()) => {
                permit.and_then(Result::ok).ok_or_else(saturated)
            }
            () = opens => Err(self.last_outage()),
        }
    }

    fn last_outage(&self) -> RedisError {
        self.breaker.last().unwrap_or_else(|| self.late())
    }

    pub fn late(&self) -> RedisError {
        let why = format!("no reply within {:?}", self.timeout);
        io::Error::new(io::ErrorKind::TimedOut, why).into()
    }

    /// Bounds the server's answer by the limiter's time-out.
    pub async fn in_time<T>(&self, asking: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        within(self.timeout, asking).await.unwrap_or_else(|| Err(self.late()))
    }

    /// Only outages count against the server.
    pub fn told(&self, asking: Try<'_>, answer: RedisResult<Value>) -> RedisResult<Value> {
        let now = Instant::now();
        let change = match &answer {
            Err(error) if is_outage(error) => {
                if error.is_timeout() {
                    self.connection.late();
                }
                self.events.replied(now, error);
                asking.failed(now, error)
            }
            _ => asking.succeeded(),
        };
        if let Some(change) = change {
            self.events.changed(change);
        }
        answer
    }

    /// Sends a command to the source of an earlier answer.
    pub async fn at(&self, source: Source, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        match source {
            Source::Server => self.call(command, key).await,
            Source::Local => self.local.answer(command),
            Source::Outage | Source::Denial => Ok(Value::Int(1)),
        }
    }

    pub fn or_without<A: Answer>(
        &self,
        asked: RedisResult<Value>,
        check: &Check,
        command: &Cmd,
    ) -> RedisResult<A> {
        match asked {
            Ok(value) => read(value),
            Err(error) => self.without(error, check, command),
        }
    }

    /// The answer to a check that the server did not decide. `command` asks the limiter in the process.
    pub fn without<A: Answer>(
        &self,
        error: RedisError,
        check: &Check,
        command: &Cmd,
    ) -> RedisResult<A> {
        if !is_outage(&error) {
            return Err(error);
        }
        self.events.count(&error);
        match self.outage {
            Outage::Raise => Err(error),
            Outage::Allow => Ok(A::of(undecided(check, Verdict::Allowed, Duration::ZERO))),
            Outage::Deny => Ok(A::of(undecided(check, Verdict::Limited, DENIED))),
            Outage::Local => Ok(read::<A>(self.local.answer(command)?)?.by(Source::Local)),
        }
    }

    /// For a command that frees a key. Forgets remembered denials now and when dropped: replies to older
    /// checks may arrive in between.
    pub fn freeing<'a>(&'a self, key: &'a [u8]) -> Freeing<'a> {
        self.forget(key);
        Freeing { asker: self, key }
    }

    /// Forgets the denials of a key.
    fn forget(&self, key: &[u8]) {
        if let Some(denials) = &self.replies {
            denials.forget(key);
        }
        if let Some(denials) = &self.reports {
            denials.forget(key);
        }
    }
}

#[must_use = "it forgets when dropped"]
pub struct Freeing<'a> {
    asker: &'a Asker,
    key: &'a [u8],
}

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.asker.forget(self.key);
    }
}

/// The kind of reply to ask for.
pub trait Decides: Answer {
    const FULL: bool;
}

impl Decides for Reply {
    const FULL: bool = false;
}

impl Decides for Report {
    const FULL: bool = true;
}

/// The report on a check that nobody decided. A range is granted whole or not at all.
fn undecided(check: &Check, verdict: Verdict, wait: Duration) -> Report {
    let key = check.limits.first().map(|limit| limit.key.clone());
    let granted = match check.cost {
        Cost::Range(_, most) => Some(if verdict == Verdict::Allowed { most } else { 0 }),
        _ => None,
    };
    Report { key, granted, ..Report::bare(verdict, wait, Source::Outage) }
}

pub fn read<T: FromRedisValue>(value: Value) -> RedisResult<T> {
    Ok(T::from_redis_value(value)?)
}
