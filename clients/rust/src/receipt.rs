//! Receipts: what checks have charged, by the ids of their holds, until the holds are settled.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::asker::Asker;
use crate::outage::{is_outage, is_saturated, saturated};
use crate::reply::Source;
use crate::settlement::{Settlement, renew_command, settle_command};

/// A request that was given up may reach the server within this time after the server answers others.
const LATE: Duration = Duration::from_secs(1);
/// The time between two tries to settle.
const AGAIN: Duration = Duration::from_millis(250);

/// The place of a hold: the server, or this process.
#[derive(Clone)]
pub struct Place {
    pub asker: Arc<Asker>,
    pub keys: Vec<Vec<u8>>,
    pub id: String,
    pub ttl: Duration,
    pub source: Source,
}

impl Place {
    /// When a hold that had its whole time left at `since` ends. `None`: never.
    pub fn end(&self, since: Instant) -> Option<Instant> {
        since.checked_add(self.ttl).filter(|_| self.source != Source::Outage)
    }

    /// `false`: not every key had the hold.
    pub async fn renew(&self) -> RedisResult<bool> {
        let mut all = true;
        for key in &self.keys {
            let command = renew_command(key, &self.id, self.ttl);
            all &= self.asker.at(self.source, &command, key).await?;
        }
        Ok(all)
    }

    /// `false`: not every key had the hold. An error of one key does not stop the others.
    async fn settle_once(&self, settlement: &Settlement) -> RedisResult<bool> {
        let mut all = Ok(true);
        for key in &self.keys {
            let _freeing = self.asker.freeing(key);
            let command = settle_command(key, &self.id, settlement);
            let settled = self.asker.at(self.source, &command, key).await;
            all = all.and_then(|all| Ok(settled? && all));
        }
        all
    }

    /// Settles in the background, again after an outage, until that succeeds or the hold's time is over.
    /// A hold whose command `may_come_late` is settled again if the server did not have it. The output is
    /// that of the first try.
    pub fn settle(
        self,
        settlement: Settlement,
        may_come_late: bool,
    ) -> impl Future<Output = RedisResult<bool>> + Send + use<> {
        let (place, (tell, told)) = (Arc::new(self), oneshot::channel());
        let (own, lost) = (Arc::clone(&place), Arc::clone(&place));
        let settling = async move {
            own.settle_until(&settlement, may_come_late, tell).await;
            Ok(())
        };
        let lost = move || lost.asker.cleans_up.give_up(&lost.id);
        let settling = place.asker.cleans_up.run(settling, lost);
        async move {
            let (told, run) = (told.await, settling);
            match told {
                Ok(settled) => settled,
                Err(_) => run.await.and_then(|()| Err(saturated())),
            }
        }
    }

    async fn settle_until(
        &self,
        settlement: &Settlement,
        mut may_come_late: bool,
        tell: oneshot::Sender<RedisResult<bool>>,
    ) {
        let (began, mut tell, mut kept) = (Instant::now(), Some(tell), None);
        let cleans_up = &self.asker.cleans_up;
        loop {
            let settled = self.settle_once(settlement).await;
            let (pause, is_outage) = match &settled {
                Ok(false) if may_come_late => (LATE, false),
                Err(error) if is_outage(error) || is_saturated(error) => (AGAIN, true),
                Err(error) => {
                    tracing::error!(id = self.id, code = error.code(), "a hold is not settled");
                    (Duration::ZERO, false)
                }
                Ok(_) => (Duration::ZERO, false),
            };
            may_come_late &= is_outage;
            if let Some(tell) = tell.take() {
                // Nobody may listen.
                let _ = tell.send(settled);
            }
            if pause.is_zero() {
                return;
            }
            let kept = kept.get_or_insert_with(|| cleans_up.keep());
            let is_given_up = tokio::select! {
                () = kept.notified() => true,
                () = sleep(pause) => is_outage && began.elapsed() >= self.ttl,
            };
            if is_given_up {
                return cleans_up.give_up(&self.id);
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("id", &self.id)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Settles a hold when it is dropped.
#[derive(Debug)]
pub struct Receipt {
    pub place: Place,
    /// How to settle. `None`: not at all.
    pub settlement: Option<Settlement>,
    /// Whether the command that takes the hold may still be on its way, so that a settlement may reach
    /// the server before it. `false` for an id that another request may have.
    pub may_come_late: bool,
}

impl Receipt {
    /// The receipt of a hold that nobody has asked for yet. `id` is the caller's own id, if it gave
    /// one.
    pub fn new(asker: &Arc<Asker>, keys: Vec<Vec<u8>>, id: Option<String>, ttl: Duration) -> Self {
        let may_come_late = id.is_none();
        let id = id.unwrap_or_else(new_id);
        let place = Place { asker: Arc::clone(asker), keys, id, ttl, source: Source::Server };
        Self { place, settlement: Some(Settlement::Refund), may_come_late }
    }

    /// Settles the hold. Dropping the future does not stop that.
    pub async fn settle(mut self, settlement: Settlement) -> RedisResult<bool> {
        self.settlement = None;
        self.place.clone().settle(settlement, false).await
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take()
            && !self.place.keys.is_empty()
        {
            drop(self.place.clone().settle(settlement, self.may_come_late));
        }
    }
}

/// Whether a check failed because its key has too many holds. The check can be sent again without a
/// hold.
pub fn has_too_many_holds(asker: &Asker, error: &RedisError) -> bool {
    let is_so = error.detail().is_some_and(|text| text.contains(" in the key already ("));
    if is_so {
        asker.events.lacked_a_hold(Instant::now());
    }
    is_so
}

/// An id that no other request has.
pub fn new_id() -> String {
    let random = || RandomState::new().hash_one(Instant::now());
    format!("{:016x}{:016x}", random(), random())
}
