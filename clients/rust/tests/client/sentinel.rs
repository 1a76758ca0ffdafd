//! A limiter on a connection that asks a sentinel for the primary.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisFuture, RedisResult, Value};
use tokio::sync::Mutex;
use tower_redis_ratelimit::{Outage, RateLimiter, Source};

use crate::support::sentinel::Watched;
use crate::support::until;

/// A connection as an application would write it: after a failure it asks the sentinel again.
#[derive(Clone)]
struct Following {
    sentinel: Arc<Mutex<SentinelClient>>,
    current: Arc<Mutex<Option<MultiplexedConnection>>>,
}

impl Following {
    fn new(sentinel: SentinelClient) -> Self {
        Self { sentinel: Arc::new(Mutex::new(sentinel)), current: Arc::default() }
    }

    async fn open(&self, timeout: Option<Duration>) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
        self.sentinel.lock().await.get_async_connection_with_config(&config).await
    }

    async fn current(&self) -> RedisResult<MultiplexedConnection> {
        let mut current = self.current.lock().await;
        if current.is_none() {
            *current = Some(self.open(Some(Duration::from_secs(1))).await?);
        }
        Ok(current.clone().expect("it is open"))
    }

    /// Keeps the connection, unless the answer is an error.
    async fn keep_after<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        if answer.is_err() {
            *self.current.lock().await = None;
        }
        answer
    }
}

impl ConnectionLike for Following {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answer = self.current().await?.req_packed_command(command).await;
            self.keep_after(answer).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut current = self.current().await?;
            let answers = current.req_packed_commands(pipeline, offset, count).await;
            self.keep_after(answers).await
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

async fn the_new_primary_goes_on(lose: impl FnOnce(&mut Watched)) {
    let mut watched = Watched::start("valkey-9.1");
    let connection = Following::new(watched.client());
    let alone = connection.clone();
    let limiter = RateLimiter::on(connection)
        .waits_with(move || {
            let alone = alone.clone();
            async move { alone.open(None).await }
        })
        .timeout(Duration::from_secs(2))
        .outage(Outage::Allow);
    let limiter = limiter.build().expect("options");
    let check = async |key| limiter.check((key, "1000/h")).await.expect("an outage is answered");
    let is_served = async || check("other").await.source == Source::Server;

    until("it is served", is_served).await;
    assert_eq!(check("a").await.remaining, Some(999));
    let copy = watched.replica.limiter();
    let left = async || copy.peek(("a", "1000/h")).await.expect("it runs").remaining;
    until("the replica has the count", async || left().await == Some(999)).await;
    lose(&mut watched);
    assert_eq!(check("b").await.source, Source::Outage);
    watched.fail_over();
    until("the new primary serves it", is_served).await;
    assert_eq!(limiter.peek(("a", "1000/h")).await.expect("it runs").remaining, Some(999));
    let waited = limiter.wait(("a", "1000/h"), Duration::from_secs(1)).await;
    assert_eq!(waited.expect("it runs").remaining, Some(998));
}

#[tokio::test]
async fn the_new_primary_goes_on_with_the_counts_of_a_hung_one() {
    the_new_primary_goes_on(|watched| watched.primary.freeze(true)).await;
}
