//! Work that goes on when the future that began it is dropped, and settlements that are tried again.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::RedisResult;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::outage::saturated;

/// The most clean-ups under way. Beyond that, holds are left to lapse.
const MOST: u32 = 10_000;
/// The most settlements that are tried again.
const MOST_KEPT: usize = 1000;
/// How long a limiter that is closed waits for clean-ups.
const LAST: Duration = Duration::from_millis(900);

#[derive(Debug)]
pub struct CleanUps {
    places: Arc<Semaphore>,
    /// What ends each settlement that met an outage, the oldest first.
    kept: Mutex<VecDeque<Weak<Notify>>>,
    given_up: AtomicU64,
    is_closed: AtomicBool,
    /// The runtime in which the limiter was made or last used.
    runtime: Mutex<Option<Handle>>,
}

impl CleanUps {
    pub fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST as usize)),
            kept: Mutex::default(),
            given_up: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            runtime: Mutex::new(Handle::try_current().ok()),
        }
    }

    /// Notes the runtime of the caller, for clean-ups that begin outside of any. Returns the last one.
    pub fn learn_runtime(&self) -> Option<Handle> {
        let mut last = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(runtime) = Handle::try_current() {
            *last = Some(runtime);
        }
        last.clone()
    }

    /// Begins this work. The future that is returned may be dropped. Calls `lost` if the work cannot
    /// begin, or ends with its runtime.
    pub fn run<T, W, L>(
        &self,
        work: W,
        lost: L,
    ) -> impl Future<Output = RedisResult<T>> + Send + use<T, W, L>
    where
        T: Send + 'static,
        L: FnOnce() + Send + 'static,
        W: Future<Output = RedisResult<T>> + Send + 'static,
    {
        let mut lost = Lost(Some(lost));
        let begun = self.learn_runtime().zip(Arc::clone(&self.places).try_acquire_owned().ok());
        let begun = begun.map(|(runtime, place)| {
            runtime.spawn(async move {
                let _place = place;
                let output = work.await;
                lost.0.take();
                output
            })
        });
        async move { joined(begun.ok_or_else(saturated)?).await }
    }

    /// Keeps a settlement that is tried again, if need be in place of the oldest. Returns what is
    /// notified when it ends.
    pub fn keep(&self) -> Arc<Notify> {
        let ends = Arc::new(Notify::new());
        if self.is_closed.load(Ordering::Relaxed) {
            ends.notify_one();
        }
        let mut kept = self.kept();
        if kept.len() >= MOST_KEPT {
            kept.retain(|other| other.strong_count() > 0);
        }
        if kept.len() >= MOST_KEPT {
            end(kept.pop_front());
        }
        kept.push_back(Arc::downgrade(&ends));
        ends
    }

    pub fn give_up(&self, id: &str) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(id, "a hold is not settled: it ends after its time");
    }

    /// How many settlements were given up.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Waits a while for clean-ups, and then ends the tries. From then on each is the last.
    pub async fn close(&self) {
        let _ = timeout(LAST, self.places.acquire_many(MOST)).await;
        self.is_closed.store(true, Ordering::Relaxed);
        end(self.kept().drain(..));
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Weak<Notify>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls this when dropped.
struct Lost<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Lost<F> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

fn end(kept: impl IntoIterator<Item = Weak<Notify>>) {
    kept.into_iter().filter_map(|ends| ends.upgrade()).for_each(|ends| ends.notify_one());
}

pub async fn joined<T>(task: JoinHandle<RedisResult<T>>) -> RedisResult<T> {
    task.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}
