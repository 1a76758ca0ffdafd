//! What a check has charged, by the id of its hold, until that is settled.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::time::{Instant, sleep};

use crate::asker::{Asker, read};
use crate::reply::Source;
use crate::settlement::{Settlement, renew_command, settle_command};

/// A request that was given up may reach the server within this time.
const LATE: Duration = Duration::from_secs(1);

/// Where a hold lives.
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

    /// `false`: not every key had the hold. An error of one key does not keep the others.
    pub async fn settle(&self, settlement: &Settlement) -> RedisResult<bool> {
        let mut all = Ok(true);
        for key in &self.keys {
            self.asker.forget(key);
            let command = settle_command(key, &self.id, settlement);
            let settled = self.asker.at(self.source, &command, key).await.and_then(read::<bool>);
            all = all.and_then(|all| Ok(settled? && all));
        }
        all
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
    /// How. `None`: not at all.
    pub settlement: Option<Settlement>,
    /// Whether the answer that takes the hold may still be on its way, so that a settlement may come before
    /// the hold. Not for an id that another request may have.
    pub may_come_late: bool,
}

impl Receipt {
    /// Of a hold that nobody has asked for yet. `id` is for the caller's own id.
    pub fn new(asker: &Arc<Asker>, keys: Vec<Vec<u8>>, id: Option<String>) -> Self {
        let may_come_late = id.is_none();
        let id = id.unwrap_or_else(new_id);
        let place = Place { asker: Arc::clone(asker), keys, id, source: Source::Server };
        Self { place, settlement: Some(Settlement::Refund), may_come_late }
    }

    /// Gives back the hold that a server may have taken which gave no answer in time.
    pub fn give_back_unanswered(&self) {
        if self.may_come_late {
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
        // Nobody hears of an error: the hold then ends after its time.
        drop(asker.cleans_up.run(async move {
            let settled = place.settle(&settlement).await?;
            if !settled && may_come_late {
                sleep(LATE).await;
                place.settle(&settlement).await?;
            }
            Ok(())
        }));
    }
}

/// Whether a check failed because its key has too many holds. It can be asked again without one.
pub fn has_too_many_holds(error: &RedisError) -> bool {
    let is_so = error.detail().is_some_and(|text| text.contains(" in the key already ("));
    if is_so {
        tracing::warn!("a key has too many holds, see max-holds: a request cannot be given back");
    }
    is_so
}

/// An id that no other request has.
pub fn new_id() -> String {
    let random = || RandomState::new().hash_one(Instant::now());
    format!("{:016x}{:016x}", random(), random())
}
