//! Asks the server, and answers checks that the server does not decide.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::check::{Check, Cost};
use crate::clean_up::CleanUps;
use crate::denials::Denials;
use crate::events::{DecisionEvent, Events};
use crate::local::Local;
use crate::node::Request;
use crate::outage::{Outage, is_outage, saturated};
use crate::reply::{Answer, Reply, Report, Source, Verdict};
use crate::script::{Script, has_forgotten, needs_module};
use crate::servers::Servers;
use crate::value::{flag, unreadable, whole};
use crate::within::within;

/// The wait that [`Outage::Deny`] answers.
const DENIED: Duration = Duration::from_secs(1);

pub struct Asker {
    pub servers: Servers,
    pub outage: Outage,
    pub timeout: Duration,
    pub queue_timeout: Duration,
    /// A place for each command that may be under way.
    pub places: Semaphore,
    pub separately: bool,
    /// The script, if it decides instead of the module.
    pub script: Option<Script>,
    pub events: Arc<Events>,
    pub local: Local,
    pub cleans_up: CleanUps,
    pub replies: Option<Denials<Reply>>,
    pub reports: Option<Denials<Report>>,
}

impl Asker {
    /// Asks the server to decide a check by this command.
    pub async fn ask_check<A: Answer>(&self, check: &Check, command: &Cmd) -> RedisResult<A> {
        let key = check.limits.first().map(|limit| &limit.key[..]).unwrap_or_default();
        let request = Request::of(command, key);
        let request = Request { repeats: request.repeats || check.hold.is_some(), ..request };
        self.ask(request, |value| A::of_reply(value, check)).await
    }

    /// Sends a command that is no check, and reads a number.
    pub async fn number(&self, command: &Cmd, key: &[u8]) -> RedisResult<u64> {
        self.ask(Request::of(command, key), whole).await
    }

    /// Sends a command that is no check, and reads a yes or no.
    pub async fn flag(&self, command: &Cmd, key: &[u8]) -> RedisResult<bool> {
        self.ask(Request::of(command, key), flag).await
    }

    /// Sends such a command to the limiter in the process, too.
    pub async fn flag_of_both(&self, command: &Cmd, key: &[u8]) -> RedisResult<bool> {
        if !matches!(self.servers, Servers::None) {
            self.local.answer(command)?;
        }
        self.flag(command, key).await
    }

    /// Sends a command to the server, unless that is away, and reads the reply.
    pub async fn ask<T>(
        &self,
        request: Request<'_>,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> RedisResult<T> {
        let answer = Box::pin(self.send(request)).await;
        let answer = answer.and_then(|value| read(&value).ok_or_else(|| unreadable(&value)));
        answer.inspect_err(|error| self.events.replied(Instant::now(), error))
    }

    /// An error if the engine is the script, which cannot do this.
    pub fn need_module(&self, what: &str) -> RedisResult<()> {
        if self.script.is_some() { Err(needs_module(what)) } else { Ok(()) }
    }

    /// Sends a command to the server, unless that is away.
    pub async fn send(&self, request: Request<'_>) -> RedisResult<Value> {
        let Request { command, key, .. } = request;
        if let Servers::None = self.servers {
            return self.local.answer(command).map(Value::Int);
        }
        let asked = self.script.as_ref().map(|_| Script::asked(command)).transpose()?;
        self.cleans_up.learn_runtime();
        let _place = self.place(key).await?;
        let Some((script, asked)) = self.script.as_ref().zip(asked) else {
            return self.servers.send(request, self.timeout).await;
        };
        let of = |command, key| Request { command, key, ..request };
        let evalsha = script.evalsha(&asked);
        match self.servers.send(of(&evalsha, &asked.key), self.timeout).await {
            Err(error) if has_forgotten(&error) => {
                self.servers.send(of(&asked.eval(), &asked.key), self.timeout).await
            }
            answer => answer,
        }
    }

    /// A place for one command. All waits for a place end when the node goes away.
    async fn place(&self, key: &[u8]) -> RedisResult<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let node = self.servers.node(key).await?;
        node.unless_away(async {
            let place = within(self.queue_timeout, self.places.acquire()).await;
            place.and_then(Result::ok).ok_or_else(saturated)
        })
        .await
    }

    /// Sends a command that settles or renews a hold to the source of that hold.
    pub async fn at(&self, source: Source, command: &Cmd, key: &[u8]) -> RedisResult<bool> {
        match source {
            Source::Server | Source::Lease => self.flag(command, key).await,
            Source::Local => self.local.answer(command).map(|done| done == 1),
            Source::Outage | Source::Denial => Ok(true),
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
            Outage::Local => self.locally(command),
        }
    }

    /// The answer of the limiter in the process.
    pub fn locally<A: Answer>(&self, command: &Cmd) -> RedisResult<A> {
        self.local.decide(command).map(A::of)
    }

    /// Waits for a decision, and tells the application of it.
    pub async fn told<T>(
        &self,
        deciding: impl Future<Output = RedisResult<T>>,
        told: impl FnOnce(&T) -> (Source, Verdict, Option<String>),
    ) -> RedisResult<T> {
        if self.events.on_decision.is_none() {
            return deciding.await;
        }
        let began = Instant::now();
        let decided = deciding.await?;
        let (source, verdict, rule) = told(&decided);
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        self.events.decided(&DecisionEvent { source, verdict, rule, ms });
        Ok(decided)
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

/// The report on a check that nobody decided. A range is granted whole or not at all.
fn undecided(check: &Check, verdict: Verdict, wait: Duration) -> Report {
    let key = check.limits.first().map(|limit| limit.key.clone());
    let granted = match check.cost {
        Cost::Range(_, most) => Some(if verdict == Verdict::Allowed { most } else { 0 }),
        _ => None,
    };
    Report { key, granted, ..Report::bare(verdict, wait, Source::Outage) }
}
