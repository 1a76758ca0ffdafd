//! Leases of hot keys: units taken ahead and handed out in this process.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use redis::RedisResult;
use tower_redis_ratelimit::{Lease, LeaseOptions, RateLimiter, Taken};

use crate::config::Limit;
use crate::request::Asked;

/// The most keys that have a lease. One more key ends the least recently used lease.
const MOST: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

pub struct Leases {
    limiter: RateLimiter,
    held: Mutex<LruCache<Vec<u8>, Held>>,
}

type Held = (Arc<Limit>, Arc<Lease>);

impl Leases {
    pub fn new(limiter: RateLimiter) -> Self {
        Self { limiter, held: Mutex::new(LruCache::new(MOST)) }
    }

    /// Takes the hits out of the key's lease.
    pub async fn take(&self, asked: &Asked, most: u64) -> RedisResult<(Taken, Units)> {
        let lease = self.lease(asked, most)?;
        let taken = lease.take(asked.hits).await?;
        let units = if taken.is_allowed() { asked.hits } else { 0 };
        Ok((taken, Units { lease, units }))
    }

    fn lease(&self, asked: &Asked, most: u64) -> RedisResult<Arc<Lease>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((limit, lease)) = held.get(&asked.key)
            // A new configuration may have other rules.
            && limit.rules == asked.limit.rules
            && limit.lease == asked.limit.lease
        {
            return Ok(Arc::clone(lease));
        }
        let options = LeaseOptions { most, ..LeaseOptions::default() };
        let rules = &asked.limit.rules;
        let lease = Lease::with(self.limiter.clone(), asked.key.clone(), rules, options)?;
        let lease = Arc::new(lease);
        held.push(asked.key.clone(), (Arc::clone(&asked.limit), Arc::clone(&lease)));
        Ok(lease)
    }
}

/// Units of a lease. Units that are dropped before they are spent go back to the lease.
pub struct Units {
    lease: Arc<Lease>,
    units: u64,
}

impl Units {
    pub fn spend(mut self) {
        self.units = 0;
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.lease.give_back(self.units);
    }
}
