//! Connections of the crate `redis`, as a node needs them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    Value,
};
use tokio::sync::OnceCell;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;

/// A connection that nobody used for this long may have ended without our noticing ...
const LOOK: Duration = Duration::from_secs(1);
/// ... and after this long something between may have dropped it silently.
const OLD: Duration = Duration::from_secs(60);

/// A connection that its clones share.
pub trait Shared: Send + Sync {
    /// Sends a command, also if the node of a cluster is only `asking` for its slot.
    fn send<'a>(&'a self, command: &'a Cmd, asking: bool) -> RedisFuture<'a, Value>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Shared for C {
    fn send<'a>(&'a self, command: &'a Cmd, asking: bool) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move {
            if !asking {
                return connection.req_packed_command(command).await;
            }
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(command.clone());
            let answers = connection.req_packed_commands(&both, 1, 1).await?;
            Ok(answers.into_iter().next().unwrap_or(Value::Nil))
        })
    }
}

type Opening = Pin<Box<dyn Future<Output = RedisResult<Box<dyn Shared>>> + Send>>;

/// Opens connections.
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
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn Shared>) })
        }))
    }

    /// Connections of this client without its time-outs: the limiter has its own.
    pub fn of(client: Client, concurrency: usize) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(concurrency);
        Self::new(move || {
            let (client, config) = (client.clone(), config.clone());
            async move { client.get_multiplexed_async_connection_with_config(&config).await }
        })
    }

    pub fn none() -> Self {
        Self(Arc::new(|| {
            let why = "waiting needs connections: see Builder::waits_on";
            Box::pin(async move { Err((ErrorKind::InvalidClientConfig, why).into()) })
        }))
    }

    pub fn open(&self) -> Opening {
        (self.0)()
    }
}

/// A connection, which may not be open yet.
#[derive(Default)]
pub struct Connection {
    open: OnceCell<Box<dyn Shared>>,
    has_replied: AtomicBool,
}

/// An error instead of a reply.
pub struct Failure {
    pub error: RedisError,
    pub why: Why,
}

/// Why there is no reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No connection could be made, or it ended before its first reply.
    Unreachable,
    /// The connection had ended: nothing of the command was written.
    Unwritten,
    /// The connection ended, and nobody knows whether the command arrived.
    Unanswered,
}

impl Connection {
    /// A connection that the application made.
    pub fn given(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        let open = OnceCell::new_with(Some(Box::new(connection) as Box<dyn Shared>));
        Self { open, has_replied: true.into() }
    }

    /// Sends a command once. Error replies are replies.
    pub async fn send(
        &self,
        opener: &Opener,
        command: &Cmd,
        asking: bool,
    ) -> Result<RedisResult<Value>, Failure> {
        let opening = self.open.get_or_try_init(|| opener.open()).await;
        let open = opening.map_err(|error| Failure { error, why: Why::Unreachable })?;
        // The queue of a connection takes a command at once, or refuses it because the connection has
        // ended: then the first poll fails, and nothing was written.
        let mut sending = unconstrained(open.send(command, asking));
        let first = poll_fn(|context| Poll::Ready(Pin::new(&mut sending).poll(context))).await;
        let (answer, unread) = match first {
            Poll::Ready(answer) => (answer, Why::Unwritten),
            Poll::Pending => (sending.await, Why::Unanswered),
        };
        let has_replied = self.has_replied.load(Ordering::Relaxed);
        match answer.and_then(Value::extract_error) {
            Err(error) if is_refusal(&error) => Err(Failure { error, why: Why::Unreachable }),
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
                Err(Failure { error, why: if has_replied { unread } else { Why::Unreachable } })
            }
            answer => {
                self.has_replied.store(true, Ordering::Relaxed);
                Ok(answer)
            }
        }
    }
}

/// Whether an error says that no client can connect now.
fn is_refusal(error: &RedisError) -> bool {
    error.is_connection_refusal()
        || error.detail().is_some_and(|text| text.starts_with("max number of clients"))
}

/// The connection that all requests to a node share.
pub struct Connections {
    pub opener: Opener,
    /// Opens a connection for a caller that waits.
    pub alone: Opener,
    is_given: bool,
    current: Mutex<(Arc<Connection>, Instant)>,
}

impl Connections {
    /// Connections that the limiter makes.
    pub fn of(opener: Opener) -> Self {
        let alone = opener.clone();
        let current = Mutex::new((Arc::default(), Instant::now()));
        Self { opener, alone, is_given: false, current }
    }

    /// A connection that the application made, which connects again by itself.
    pub fn given(connection: Connection, alone: Opener) -> Self {
        let current = Mutex::new((Arc::new(connection), Instant::now()));
        Self { opener: Opener::none(), alone, is_given: true, current }
    }

    /// The connection for a request.
    pub async fn current(&self) -> Arc<Connection> {
        let now = Instant::now();
        let (connection, idle) = {
            let mut current = self.lock();
            let idle = now.saturating_duration_since(current.1);
            // Nobody else uses it.
            let is_idle = Arc::strong_count(&current.0) == 1;
            if is_idle && idle >= OLD && !self.is_given {
                current.0 = Arc::default();
            }
            current.1 = now;
            (Arc::clone(&current.0), if is_idle { idle } else { Duration::ZERO })
        };
        if idle >= LOOK {
            // The runtime sees that the connection has ended.
            yield_now().await;
        }
        connection
    }

    /// Lets no further request use this connection.
    pub fn discard(&self, connection: &Arc<Connection>) {
        let mut current = self.lock();
        if Arc::ptr_eq(&current.0, connection) && !self.is_given {
            current.0 = Arc::default();
        }
    }

    /// Lets no further request use the current connection.
    pub fn renew(&self) {
        if !self.is_given {
            self.lock().0 = Arc::default();
        }
    }

    /// A connection of its own for a probe.
    pub fn probe(&self) -> Arc<Connection> {
        if self.is_given { Arc::clone(&self.lock().0) } else { Arc::default() }
    }

    /// The connection of a probe that was answered is the one to use.
    pub fn adopt(&self, connection: Arc<Connection>) {
        *self.lock() = (connection, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Connection>, Instant)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
