//! Connections of the crate `redis`, as a node needs them.

use std::future::{Future, poll_fn};
use std::mem;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use lru::LruCache;
use redis::aio::ConnectionLike;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    Value,
};
use tokio::runtime::{Handle, Id};
use tokio::sync::OnceCell;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;

/// A connection that nobody used for this long may have ended without our noticing ...
const LOOK: Duration = Duration::from_millis(10);
/// ... and after this long something between may have dropped it silently.
const OLD: Duration = Duration::from_secs(60);
/// The most runtimes that have a connection. Beyond that, the one that used its own least recently loses it:
/// most likely it has ended.
const RUNTIMES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

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

/// The connection that all requests of a runtime to a node share. A connection works only while the
/// runtime runs in which it was opened.
pub struct Connections {
    pub opener: Opener,
    /// Opens a connection for a caller that waits.
    pub alone: Opener,
    /// The connection that the application made.
    given: Option<Arc<Connection>>,
    /// Each runtime's connection, and when it was last used.
    current: Mutex<Current>,
}

type Current = LruCache<Id, (Arc<Connection>, Instant)>;

impl Connections {
    /// Connections that the limiter makes.
    pub fn of(opener: Opener) -> Self {
        let alone = opener.clone();
        Self { opener, alone, given: None, current: Mutex::new(LruCache::new(RUNTIMES)) }
    }

    /// A connection that the application made, which connects again by itself.
    pub fn given(connection: Connection, alone: Opener) -> Self {
        let given = Some(Arc::new(connection));
        Self { opener: Opener::none(), alone, given, current: Mutex::new(LruCache::new(RUNTIMES)) }
    }

    /// The connection for a request.
    pub async fn current(&self) -> Arc<Connection> {
        let (runtime, now) = (Handle::current().id(), Instant::now());
        let idle = |used| now.saturating_duration_since(used);
        if self.lock().peek(&runtime).is_some_and(|&(_, used)| idle(used) >= LOOK) {
            // The runtime sees that the connection has ended.
            turn().await;
        }
        let mut current = self.lock();
        let (connection, used) = current.get_or_insert_mut(runtime, || (self.fresh(), now));
        if idle(mem::replace(used, now)) >= OLD {
            *connection = self.fresh();
        }
        Arc::clone(connection)
    }

    /// Lets no further request use this connection.
    pub fn discard(&self, connection: &Arc<Connection>) {
        let (mut current, runtime) = (self.lock(), Handle::current().id());
        if current.peek(&runtime).is_some_and(|(own, _)| Arc::ptr_eq(own, connection)) {
            current.pop(&runtime);
        }
    }

    /// Lets no further request use the current connections.
    pub fn renew(&self) {
        self.lock().clear();
    }

    /// A connection that is not open yet, or the one that the application made.
    pub fn fresh(&self) -> Arc<Connection> {
        self.given.clone().unwrap_or_default()
    }

    /// The connection of a probe that was answered is the one to use.
    pub fn adopt(&self, connection: Arc<Connection>) {
        self.lock().put(Handle::current().id(), (connection, Instant::now()));
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a runtime that runs only during calls do what is due: the first yield wakes the tasks whose
/// sockets have news, the second runs them.
pub async fn turn() {
    for _ in 0..2 {
        yield_now().await;
    }
}
