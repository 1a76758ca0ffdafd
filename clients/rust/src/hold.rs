//! Holds that renew themselves while their work lasts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use std::{error, fmt, io};

use redis::{RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::check::{Check, Cost};
use crate::limiter::{RateLimiter, Settlement, read, renew_command, settle_command};
use crate::reply::{Reply, Source};

/// Why there is no hold.
#[derive(Clone, Debug)]
pub enum HoldError {
    /// It was denied.
    Denied(Reply),
    /// As for a check.
    Redis(RedisError),
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(Reply { verdict, wait: Some(wait), .. }) => {
                write!(f, "{verdict:?}, wait {wait:?}")
            }
            Self::Denied(Reply { verdict, .. }) => write!(f, "{verdict:?}"),
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl error::Error for HoldError {}

impl From<RedisError> for HoldError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// A hold that renews itself every third of its time until it is settled. Dropped, it is settled by
/// a task of the runtime; [`Self::settle`] waits for that.
#[derive(Debug)]
#[must_use = "a hold ends when it is dropped"]
pub struct Hold {
    receipt: Receipt,
    reply: Reply,
    lost: watch::Receiver<bool>,
    renewing: AbortHandle,
}

impl RateLimiter {
    /// Takes a hold that renews itself; if this process dies, it ends after `ttl`. Under a `leaky` rule
    /// returns when it is this caller's turn. Dropping the future gives all back.
    ///
    /// # Errors
    /// [`HoldError::Denied`], or those of [`Self::check`].
    pub async fn hold(&self, check: impl Into<Check>, ttl: Duration) -> Result<Hold, HoldError> {
        let (check, receipt) = self.receipt(check.into(), ttl)?;
        let asked = Instant::now();
        let reply = self.check(check).await;
        receipt.take(reply, asked, ttl)?.at_its_turn().await
    }

    /// Waits in line for a hold, but at most `longest`: see [`Self::hold`] and [`Self::wait`].
    ///
    /// # Errors
    /// Those of [`Self::hold`].
    pub async fn hold_in_line(
        &self,
        check: impl Into<Check>,
        ttl: Duration,
        longest: Duration,
    ) -> Result<Hold, HoldError> {
        let (check, receipt) = self.receipt(check.into(), ttl)?;
        let reply = self.wait(check, longest).await;
        receipt.take(reply, Instant::now(), ttl)?.at_its_turn().await
    }

    /// The receipt of a hold before it is asked for, so that a dropped future loses no hold.
    fn receipt(&self, mut check: Check, ttl: Duration) -> RedisResult<(Check, Receipt)> {
        let id = check.id.take().unwrap_or_else(new_id);
        let key = check.one_limit("a hold")?.key.clone();
        let place = Place { limiter: self.clone(), key, id: id.clone(), source: Source::Server };
        let settlement = Some(Settlement::Refund);
        let receipt = Receipt { place, runtime: Handle::current(), settlement };
        Ok((check.with_hold(id, ttl), receipt))
    }
}

impl Hold {
    /// The id, by which the server knows the hold.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.receipt.place.id
    }

    /// The answer of the check that took the hold.
    #[must_use]
    pub const fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Whether the hold has ended before it was settled: others may have its units now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Ends when the hold is lost: the server says that it has ended, or could not be asked in time.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            if lost.wait_for(|is_lost| *is_lost).await.is_err() {
                // It was settled.
                std::future::pending().await
            }
        }
    }

    /// Ends the hold; its charges stand. `false`: it had ended before.
    ///
    /// # Errors
    /// Those of the server, and any outage. The hold then ends after its time.
    pub async fn settle(self) -> RedisResult<bool> {
        self.end(Settlement::AsCharged).await
    }

    /// Ends the hold and corrects its charges to what the work did cost.
    ///
    /// # Errors
    /// Those of [`Self::settle`].
    pub async fn settle_at(self, cost: impl Into<Cost>) -> RedisResult<bool> {
        self.end(Settlement::Cost(cost.into())).await
    }

    /// Ends the hold and gives back all that it has consumed.
    ///
    /// # Errors
    /// Those of [`Self::settle`].
    pub async fn refund(self) -> RedisResult<bool> {
        self.end(Settlement::Refund).await
    }

    async fn end(mut self, settlement: Settlement) -> RedisResult<bool> {
        self.receipt.settlement = None;
        let place = self.receipt.place.clone();
        // A task, so that dropping this future does not leave the hold.
        let ending = self.receipt.runtime.spawn(async move { place.settle(&settlement).await });
        ending.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }

    async fn at_its_turn(self) -> Result<Self, HoldError> {
        if let Some(turn) = self.reply.wait.filter(|turn| !turn.is_zero()) {
            sleep(turn).await;
        }
        Ok(self)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Where a hold lives.
#[derive(Clone, Debug)]
struct Place {
    limiter: RateLimiter,
    key: Vec<u8>,
    id: String,
    source: Source,
}

impl Place {
    async fn renew(&self, ttl: Duration) -> RedisResult<bool> {
        let command = renew_command(&self.key, &self.id, ttl);
        read(self.limiter.at(self.source, &command, &self.key).await?)
    }

    async fn settle(&self, settlement: &Settlement) -> RedisResult<bool> {
        let command = settle_command(&self.key, &self.id, settlement);
        read(self.limiter.at(self.source, &command, &self.key).await?)
    }

    /// Renews the hold until it is lost. `since` is when it was last known to have its whole time.
    async fn keep(self, ttl: Duration, mut since: Instant, lost: watch::Sender<bool>) {
        let third = ttl.checked_div(3).unwrap_or_default();
        loop {
            sleep(third.min(ttl.saturating_sub(since.elapsed()))).await;
            let asked = Instant::now();
            let left = ttl.saturating_sub(since.elapsed());
            match timeout(left, self.renew(ttl)).await {
                Ok(Ok(true)) if !left.is_zero() => since = asked,
                // The next time may reach the server.
                Ok(Err(_)) if since.elapsed() < ttl => {}
                _ => break,
            }
        }
        lost.send_replace(true);
    }
}

/// Ends a hold when it is dropped.
#[derive(Debug)]
struct Receipt {
    place: Place,
    runtime: Handle,
    settlement: Option<Settlement>,
}

impl Receipt {
    /// The hold, if the answer grants one. `since` is when it began, or before.
    fn take(
        mut self,
        answer: RedisResult<Reply>,
        since: Instant,
        ttl: Duration,
    ) -> Result<Hold, HoldError> {
        self.settlement = None;
        let reply = answer?;
        if !reply.is_allowed() {
            return Err(HoldError::Denied(reply));
        }
        // A key that is exempt, or has no rule that counts, may have no hold.
        self.place.source = if reply.limit.is_none() { Source::Outage } else { reply.source };
        self.settlement = Some(Settlement::AsCharged);
        let (telling, lost) = watch::channel(false);
        let renewing = self.runtime.spawn(self.place.clone().keep(ttl, since, telling));
        Ok(Hold { receipt: self, reply, lost, renewing: renewing.abort_handle() })
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            let place = self.place.clone();
            // Nobody hears of an error: the hold then ends after its time.
            self.runtime.spawn(async move { place.settle(&settlement).await.ok() });
        }
    }
}

/// An id that no other request has.
pub fn new_id() -> String {
    let random = || RandomState::new().hash_one(Instant::now());
    format!("{:016x}{:016x}", random(), random())
}
