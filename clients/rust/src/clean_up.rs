//! Work that goes on when the future that began it is dropped.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};

use redis::RedisResult;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::outage::saturated;

/// The most clean-ups under way. Beyond that, holds are left to lapse.
const MOST: usize = 10_000;

#[derive(Debug)]
pub struct CleanUps {
    places: Arc<Semaphore>,
    /// The runtime in which the limiter was made or first used.
    runtime: OnceLock<Handle>,
}

impl CleanUps {
    pub fn new() -> Self {
        let cleans_up = Self { places: Arc::new(Semaphore::new(MOST)), runtime: OnceLock::new() };
        cleans_up.learn_runtime();
        cleans_up
    }

    /// Notes the runtime of the caller, for clean-ups that begin outside of any runtime.
    pub fn learn_runtime(&self) {
        if self.runtime.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            // Another caller may have been faster.
            let _ = self.runtime.set(runtime);
        }
    }

    /// Begins this work. The future that is returned may be dropped.
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = RedisResult<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = RedisResult<T>> + Send + 'static,
    {
        let runtime = Handle::try_current().ok().or_else(|| self.runtime.get().cloned());
        let begun = runtime.zip(Arc::clone(&self.places).try_acquire_owned().ok());
        let begun = begun.map(|(runtime, place)| {
            runtime.spawn(async move {
                let _place = place;
                work.await
            })
        });
        if begun.is_none() {
            tracing::warn!("a hold is not settled: it ends after its time");
        }
        async move { joined(begun.ok_or_else(saturated)?).await }
    }
}

pub async fn joined<T>(task: JoinHandle<RedisResult<T>>) -> RedisResult<T> {
    task.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}
