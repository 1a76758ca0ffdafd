//! Receipts: what checks have charged, by the ids of their holds, until the holds are settled.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::time::{Instant, sleep};

use crate::asker::{Asker, read};
use crate::outage::{is_away, is_outage};
use crate::reply::Source;
use crate::settlement::{Settlement, renew_command, settle_command};

/// A request that was given up may reach the server within this time after the server answers others.
const LATE: Duration = Duration::from_secs(1);
/// How long to try to give back a hold while the server, which may have it, is away.
const LONGEST: Duration = Duration::from_secs(60);

/// The place of a hold: the server, or this process.
#[derive(Clone)]
pub struct Place {
    pub asker: Arc<Asker>,
    pub keys: Vec<Vec<u8>>,
    pub id: String,
    pub source: Source,
}

impl Place {
    /// `false`: not every key had the hold.
    pub async fn renew(&self, ttl: Duration) -> RedisResult<bool> {
        let mut all = true;
        for key in &self.keys {
            let command = renew_command(key, &self.id, ttl);
            all &= read::<bool>(self.asker.at(self.source, &command, key).await?)?;
        }
        Ok(all)
    }

    /// `false`: not every key had the hold. An error of one key does not stop the others.
    pub async fn settle(&self, settlement: &Settlement) -> RedisResult<bool> {
        let mut all = Ok(true);
        for key in &self.keys {
            let _freeing = self.asker.freeing(key);
            let command = settle_command(key, &self.id, settlement);
            let settled = self.asker.at(self.source, &command, key).await.and_then(read::<bool>);
            all = all.and_then(|all| Ok(settled? && all));
        }
        all
    }

    /// Gives back a hold whose command the server may read late: settles the hold, and settles it again
    /// a second later if the server did not have it. A settlement that does not reach the server is
    /// repeated.
    async fn settle_late(&self, settlement: &Settlement) -> RedisResult<bool> {
        let (began, mut was_missing) = (Instant::now(), false);
        loop {
            match self.settle(settlement).await {
                Ok(false) if !was_missing => was_missing = true,
                Err(error) if is_away(&error) && began.elapsed() < LONGEST => {}
                settled => return settled,
            }
            sleep(LATE).await;
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
    pub fn new(asker: &Arc<Asker>, keys: Vec<Vec<u8>>, id: Option<String>) -> Self {
        // While the limiter does not ask the server, no hold is on its way.
        let may_come_late = id.is_none() && asker.breaker.rest(Instant::now()).is_ok();
        let id = id.unwrap_or_else(new_id);
        let place = Place { asker: Arc::clone(asker), keys, id, source: Source::Server };
        Self { place, settlement: Some(Settlement::Refund), may_come_late }
    }

    /// Gives back the hold if the server may have taken it without answering in time. `answer` has the
    /// error, or the source of the answer that was given instead.
    pub fn give_back_unanswered(&self, answer: Result<Source, &RedisError>) {
        let is_unanswered = match answer {
            Ok(source) => matches!(source, Source::Local | Source::Outage),
            Err(error) => is_away(error),
        };
        if is_unanswered && self.may_come_late {
            let (place, settlement) = (self.place.clone(), Some(Settlement::Refund));
            drop(Self { place, settlement, may_come_late: true });
        }
    }

    /// Settles the hold. Dropping the future does not stop that.
    pub async fn settle(mut self, settlement: Settlement) -> RedisResult<bool> {
        self.settlement = None;
        if self.place.keys.is_empty() {
            return Ok(true);
        }
        let place = self.place.clone();
        let asker = Arc::clone(&place.asker);
        asker.cleans_up.run(async move { place.settle(&settlement).await }).await
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let settlement = self.settlement.take().filter(|_| !self.place.keys.is_empty());
        let Some(settlement) = settlement else { return };
        let (place, may_come_late) = (self.place.clone(), self.may_come_late);
        let asker = Arc::clone(&place.asker);
        // No caller gets an outage: the hold then lapses.
        drop(asker.cleans_up.run(async move {
            let settled = if may_come_late {
                place.settle_late(&settlement).await
            } else {
                place.settle(&settlement).await
            };
            if let Err(error) = &settled
                && !is_outage(error)
            {
                tracing::error!(
                    code = error.code(),
                    "a hold is not settled: it ends after its time"
                );
            }
            settled
        }));
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
