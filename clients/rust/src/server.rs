//! Connections of the `redis` crate, as the limiter needs them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::OnceCell;

/// Sends commands.
pub trait Server: Send + Sync {
    /// Sends a command to the node of its first key.
    fn send<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value>;

    /// Sends a command after all earlier ones have failed: on a new connection, if possible.
    fn send_anew<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value>;

    /// Called when no reply came in time.
    fn late(&self) {}
}

/// A server's answer. Without a client of a cluster, a redirection is a fault of the configuration.
fn of_one_server(answer: RedisResult<Value>) -> RedisResult<Value> {
    answer.and_then(Value::extract_error).map_err(|error| match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            let why = "a node of a cluster needs `RateLimiter::cluster`";
            (ErrorKind::InvalidClientConfig, why, error.to_string()).into()
        }
        _ => error,
    })
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
            of_one_server(connection.req_packed_command(command).await)
        })
    }

    /// A connection that connects again by itself may first return an old refusal that it remembers.
    fn send_anew<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            match self.send(command, key).await {
                Err(error) if error.is_connection_refusal() => self.send(command, key).await,
                answer => answer,
            }
        })
    }
}

type Connecting = Arc<OnceCell<MultiplexedConnection>>;

/// A server to which the limiter connects when it first asks, and again after a connection has failed.
/// A failure to connect is not remembered.
pub struct Single {
    client: Client,
    current: Mutex<Connecting>,
}

impl Single {
    pub fn new(client: Client) -> Self {
        Self { client, current: Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, Connecting> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server for Single {
    fn send<'a>(&'a self, command: &'a Cmd, _key: &'a [u8]) -> RedisFuture<'a, Value> {
        let connecting = Arc::clone(&self.current());
        // The limiter has its own time-outs.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Box::pin(async move {
            let open = || self.client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.get_or_try_init(open).await?.clone();
            let answer = connection.req_packed_command(command).await;
            if answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
                let mut current = self.current();
                if Arc::ptr_eq(&current, &connecting) {
                    *current = Connecting::default();
                }
            }
            of_one_server(answer)
        })
    }

    fn send_anew<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value> {
        *self.current() = Connecting::default();
        self.send(command, key)
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

/// A client of a cluster finds the node by the first argument. That of `RL.MCHECK` is a number, not a
/// key.
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

    /// The shortest time between two replacements of a connection.
    const PAUSE: Duration = Duration::from_secs(1);

    /// A connection that is replaced when a node does not answer: by itself it would not ask other
    /// nodes for that node's successor.
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

        fn send_anew<'a>(&'a self, command: &'a Cmd, key: &'a [u8]) -> RedisFuture<'a, Value> {
            *self.current() = ((self.make)(), Instant::now());
            self.send(command, key)
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
