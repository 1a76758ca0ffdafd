//! Connections of the `redis` crate, as the limiter needs them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, RedisFuture, RedisResult, Value};

/// Sends commands.
pub trait Server: Send + Sync {
    /// Sends a command to the node of its first key.
    fn send<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value>;

    /// Hears that no reply came in time.
    fn late(&self) {}
}

/// A connection that its clones share.
struct Shared<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Server for Shared<C> {
    fn send<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value> {
        let mut connection = self.0.clone();
        Box::pin(async move {
            #[cfg(feature = "cluster")]
            if let Some(cluster) = cluster::of(&mut connection) {
                return cluster::send(cluster, command, key).await?.extract_error();
            }
            let _ = key;
            connection.req_packed_command(command).await?.extract_error()
        })
    }
}

/// A connection for one limiter, or for one caller that waits.
pub type Connection = Box<dyn Server>;

pub fn shared(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Connection {
    Box::new(Shared(connection))
}

type Opening = Pin<Box<dyn Future<Output = RedisResult<Connection>> + Send>>;

/// Opens a connection for a caller that waits.
#[derive(Clone)]
pub struct Opener(Arc<dyn Fn() -> Opening + Send + Sync>);

impl Opener {
    pub fn new<F, C>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move || {
            let opening = open();
            Box::pin(async move { Ok(shared(opening.await?)) })
        }))
    }

    pub fn open(&self) -> Opening {
        (self.0)()
    }
}

#[cfg(feature = "cluster")]
pub use cluster::Replaced;

/// A client of a cluster finds the node by the first argument, which for `RL.MCHECK` is a number.
#[cfg(feature = "cluster")]
mod cluster {
    use std::any::Any;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use redis::cluster_async::ClusterConnection;
    use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
    use redis::{Cmd, RedisFuture, RedisResult, Value};
    use tokio::time::Instant;

    use super::{Server, Shared};

    /// How often a connection is replaced at most.
    const PAUSE: Duration = Duration::from_secs(1);

    /// A connection that is replaced when a node does not answer: by itself it would not ask other nodes
    /// who has taken that node's place.
    pub struct Replaced<M> {
        make: M,
        current: Mutex<(ClusterConnection, Instant)>,
    }

    impl<M: Fn() -> ClusterConnection> Replaced<M> {
        pub fn new(make: M) -> Self {
            Self { current: Mutex::new((make(), Instant::now())), make }
        }

        fn current(&self) -> MutexGuard<'_, (ClusterConnection, Instant)> {
            self.current.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<M: Fn() -> ClusterConnection + Send + Sync> Server for Replaced<M> {
        fn send<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value> {
            let connection = Shared(self.current().0.clone());
            Box::pin(async move { connection.send(command, key).await })
        }

        fn late(&self) {
            let mut current = self.current();
            if current.1.elapsed() >= PAUSE {
                *current = ((self.make)(), Instant::now());
            }
        }
    }

    pub fn of<C: 'static>(connection: &mut C) -> Option<&mut ClusterConnection> {
        (connection as &mut dyn Any).downcast_mut()
    }

    pub async fn send(to: &mut ClusterConnection, command: &Cmd, key: &[u8]) -> RedisResult<Value> {
        let node = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        to.route_command(command.clone(), RoutingInfo::SingleNode(node)).await
    }
}
