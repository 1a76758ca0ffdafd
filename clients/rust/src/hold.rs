//! Holds that renew themselves while their work lasts.

use std::future::pending;
use std::mem::replace;
use std::time::Duration;
use std::{error, fmt};

use redis::{RedisError, RedisResult};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::check::{Check, Cost};
use crate::limiter::RateLimiter;
use crate::receipt::{Place, Receipt};
use crate::reply::{Reply, Source};
use crate::settlement::Settlement;

/// Why there is no hold.
#[derive(Clone, Debug)]
pub enum HoldError {
    /// The hold was denied.
    Denied(Reply),
    /// The error of a check.
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

/// A hold that renews itself every third of its time until it is settled. If it is dropped, a task
/// of the runtime settles it; [`Self::settle`] waits for that.
#[derive(Debug)]
#[must_use = "a hold ends when it is dropped"]
pub struct Hold {
    receipt: Receipt,
    reply: Reply,
    renewing: Renewing,
}

impl RateLimiter {
    /// Takes a hold that renews itself; if this process dies, it ends after `ttl`. With
    /// [`Check::wait`] the caller waits in line, as by [`Self::wait`]. Under a `leaky` rule this
    /// returns at the caller's turn. Dropping the future gives all back.
    ///
    /// # Errors
    /// [`HoldError::Denied`], or those of [`Self::check`].
    pub async fn hold(&self, check: impl Into<Check>, ttl: Duration) -> Result<Hold, HoldError> {
        let (mut check, asker) = (check.into(), self.asker());
        asker.need_module("hold")?;
        let keys = vec![check.one_limit("a hold")?.key.clone()];
        // A dropped future loses no hold.
        let mut receipt = Receipt::new(asker, keys, check.id.take(), ttl);
        let check = check.with_hold(&receipt.place.id, ttl);
        let check = if receipt.may_come_late { check.giving_back() } else { check };
        let asked = Instant::now();
        let (answer, since) = match check.wait {
            None => (self.check(check).await, asked),
            Some(timeout) => (self.wait(check, timeout).await, Instant::now()),
        };
        receipt.settlement = None;
        let reply = answer?;
        if !reply.is_allowed() {
            return Err(HoldError::Denied(reply));
        }
        receipt.may_come_late = false;
        receipt.settlement = Some(Settlement::Refund);
        // A key that is exempt may have no hold.
        receipt.place.source = if reply.limit.is_none() { Source::Outage } else { reply.source };
        let ends = watch::Sender::new(receipt.place.end(since));
        let task = tokio::spawn(keep(receipt.place.clone(), since, ends.clone())).abort_handle();
        let renewing = Renewing { ends, task };
        if let Some(turn) = reply.wait.filter(|turn| !turn.is_zero()) {
            sleep(turn).await;
        }
        receipt.settlement = Some(Settlement::AsCharged);
        Ok(Hold { receipt, reply, renewing })
    }
}

impl Hold {
    /// The id, by which the server knows the hold.
    pub fn id(&self) -> &str {
        &self.receipt.place.id
    }

    /// The answer of the check that took the hold.
    pub const fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Whether the hold has ended before it was settled: others may have its units now.
    pub fn is_lost(&self) -> bool {
        self.renewing.ends.borrow().is_some_and(|end| end <= Instant::now())
    }

    /// Ends when the hold is lost: the server says that the hold has ended, or could not be asked in
    /// time.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ends = self.renewing.ends.subscribe();
        async move {
            loop {
                let Some(end) = *ends.borrow_and_update() else { return pending().await };
                if timeout_at(end, ends.changed()).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Ends the hold; its charges stand. `false`: it had ended before.
    ///
    /// # Errors
    /// Those of the server, and any outage. After an outage the limiter goes on trying, until the hold's time
    /// is over.
    pub async fn settle(self) -> RedisResult<bool> {
        self.end(Settlement::AsCharged).await
    }

    /// Ends the hold and corrects its charges to the real cost of the work.
    ///
    /// # Errors
    /// Those of [`Self::settle`].
    pub async fn settle_cost(self, cost: impl Into<Cost>) -> RedisResult<bool> {
        self.end(Settlement::Cost(cost.into())).await
    }

    /// Ends the hold and gives back all that it has consumed.
    ///
    /// # Errors
    /// Those of [`Self::settle`].
    pub async fn refund(self) -> RedisResult<bool> {
        self.end(Settlement::Refund).await
    }

    async fn end(self, settlement: Settlement) -> RedisResult<bool> {
        let Self { receipt, renewing, .. } = self;
        drop(renewing);
        receipt.settle(settlement).await
    }
}

/// Renews itself until it is dropped.
#[derive(Debug)]
struct Renewing {
    /// When the hold ends, as far as is known. `None`: never, or it is settled.
    ends: watch::Sender<Option<Instant>>,
    task: AbortHandle,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.task.abort();
        self.ends.send_replace(None);
    }
}

/// Renews a hold until it is lost. `since` is when the hold was last known to have its whole time left.
async fn keep(place: Place, mut since: Instant, ends: watch::Sender<Option<Instant>>) {
    let tell = |end| ends.send_if_modified(|last| last.is_some() && replace(last, end) != end);
    let ttl = place.ttl;
    let third = ttl.checked_div(3).unwrap_or_default();
    loop {
        sleep(third.min(ttl.saturating_sub(since.elapsed()))).await;
        let asked = Instant::now();
        let left = ttl.saturating_sub(since.elapsed());
        match timeout(left, place.renew()).await {
            Ok(Ok(true)) if !left.is_zero() => {
                since = asked;
                tell(place.end(since));
            }
            // The next try may reach the server.
            Ok(Err(_)) if since.elapsed() < ttl => {}
            _ => break,
        }
    }
    tell(Some(Instant::now()));
}
