//! Makes a limiter.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use tokio::sync::Semaphore;

use crate::asker::Asker;
use crate::breaker::Breaker;
use crate::clean_up::CleanUps;
use crate::denials::Denials;
use crate::events::{Events, MisconfiguredEvent, OutageEvent};
use crate::limiter::RateLimiter;
use crate::local::Local;
use crate::outage::Outage;
use crate::rules::Rules;
use crate::script::{Engine, Script};
use crate::server::{self, Connection, Opener};

/// How long a command, with connecting, may take by default.
const TIMEOUT: Duration = Duration::from_millis(250);
/// How long a command may wait for its place by default.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
const CONCURRENCY: usize = 1000;

/// The options of a [`RateLimiter`].
#[must_use]
pub struct Builder {
    connection: Connection,
    opener: Opener,
    outage: Outage,
    timeout: Duration,
    queue_timeout: Duration,
    concurrency: usize,
    processes: u32,
    policies: HashMap<String, Rules>,
    events: Events,
    separately: bool,
    remembered: usize,
    engine: Engine,
}

impl RateLimiter {
    /// A limiter that connects to this server when it is first asked, and again after each failure.
    pub fn server(client: Client) -> Builder {
        Builder::of(Box::new(server::Single::new(client.clone()))).waits_on(client)
    }

    /// A limiter that connects to this cluster when it is first asked. Needs the feature `cluster`.
    #[cfg(feature = "cluster")]
    pub fn cluster(client: redis::cluster::ClusterClient) -> Builder {
        use redis::cluster::ClusterConfig;

        let config = ClusterConfig::new().set_connection_timeout(TIMEOUT);
        let asking = config.clone().set_response_timeout(TIMEOUT);
        let waiting = config.set_response_timeout(Duration::MAX);
        let asks = client.clone();
        let make = move || asks.get_pending_async_connection_with_config(asking.clone());
        Builder::of(Box::new(server::Replaced::new(make))).waits_with(move || {
            let connection = client.get_pending_async_connection_with_config(waiting.clone());
            std::future::ready(Ok(connection))
        })
    }

    /// A limiter on any asynchronous connection that tasks can share, preferably one that connects
    /// again after a failure. It must take as many commands at once as [`Builder::concurrency`] says. A
    /// `ClusterConnection` needs the feature `cluster`.
    pub fn on(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Builder {
        Builder::of(server::shared(connection))
    }
}

impl Builder {
    fn of(connection: Connection) -> Self {
        let none = || async {
            let why = "waiting needs connections: see Builder::waits_on";
            Err::<MultiplexedConnection, _>(RedisError::from((ErrorKind::InvalidClientConfig, why)))
        };
        Self {
            connection,
            opener: Opener::new(none),
            outage: Outage::default(),
            timeout: TIMEOUT,
            queue_timeout: QUEUE_TIMEOUT,
            concurrency: CONCURRENCY,
            processes: 1,
            policies: HashMap::new(),
            events: Events::default(),
            separately: false,
            remembered: 0,
            engine: Engine::default(),
        }
    }

    /// Opens a connection of this client for each caller that waits.
    pub fn waits_on(self, client: Client) -> Self {
        let client = Arc::new(client);
        self.waits_with(move || {
            let client = Arc::clone(&client);
            async move {
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                client.get_multiplexed_async_connection_with_config(&config).await
            }
        })
    }

    /// Opens a connection by this function for each caller that waits. It must have no time-out for
    /// replies. Dropping its last clone must close it.
    pub fn waits_with<F, C>(mut self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.opener = Opener::new(open);
        self
    }

    /// What checks answer if the server gives no decision: by default the error.
    pub fn outage(self, outage: Outage) -> Self {
        Self { outage, ..self }
    }

    /// How long a command may take once it has its place, with connecting: 250 ms by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How many commands may be under way at once: 1,000 by default. Others wait for their place, as long
    /// as [`Self::queue_timeout`] lets them. [`RateLimiter::wait`] takes no place while it waits.
    pub fn concurrency(self, most: usize) -> Self {
        Self { concurrency: most, ..self }
    }

    /// How long a command may wait for its place: 5 s by default; with zero it does not wait. After
    /// that its error says that this process [is saturated](crate::is_saturated), which is no outage.
    pub fn queue_timeout(self, longest: Duration) -> Self {
        Self { queue_timeout: longest, ..self }
    }

    /// The number of processes that share each limit: 1 by default. Under [`Outage::Local`] this
    /// process keeps to its part of every limit, at least one unit.
    pub fn processes(self, processes: u32) -> Self {
        Self { processes, ..self }
    }

    /// The names and rules of policies under [`Outage::Local`]. A policy that is missing here
    /// limits nothing.
    pub fn policies<N: Into<String>, R: Into<Rules>>(
        mut self,
        policies: impl IntoIterator<Item = (N, R)>,
    ) -> Self {
        self.policies = policies.into_iter().map(|(name, of)| (name.into(), of.into())).collect();
        self
    }

    /// Called when the limiter stops asking the server, after three outages in a row, and when it asks
    /// again. Without a listener the log has both.
    pub fn on_outage(mut self, listener: impl Fn(&OutageEvent) + Send + Sync + 'static) -> Self {
        self.events.on_outage = Some(Arc::new(listener));
        self
    }

    /// Called when the server answers but does not limit, because it lacks the module, or this
    /// client lacks the password or the rights: at once, and then once a minute while that lasts.
    /// Without a listener the log has an error. Meanwhile checks are answered as in an outage.
    pub fn on_misconfigured(
        mut self,
        listener: impl Fn(&MisconfiguredEvent) + Send + Sync + 'static,
    ) -> Self {
        self.events.on_misconfigured = Some(Arc::new(listener));
        self
    }

    /// Checks several keys one after the other, and gives back what they were charged if one denies:
    /// for clusters, where keys in different slots cannot be decided at once. The check is not
    /// atomic: others may be denied meanwhile, and a client that dies gives nothing back.
    pub fn separately(self, separately: bool) -> Self {
        Self { separately, ..self }
    }

    /// Remembers up to this number of denials, and answers them until their wait is over. Until
    /// then the limiter does not see that an operator pardons a key, or that another process
    /// refunds units or raises a limit. The server does not count those denials.
    pub fn remember_denials(self, most: usize) -> Self {
        Self { remembered: most, ..self }
    }

    /// Who decides: by default the module. The script is for servers that load no module. With it
    /// [`RateLimiter::check_all`] asks key by key, as with [`Self::separately`]; after a denial,
    /// refunds give back the newest units. A call that needs the module, such as
    /// [`RateLimiter::hold`], is an error.
    pub fn engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The limiter.
    ///
    /// # Errors
    /// An option that must be above zero is zero, the concurrency is too high, or the rules of a policy
    /// cannot be read.
    pub fn build(self) -> RedisResult<RateLimiter> {
        let wrong = |expected| RedisError::from((ErrorKind::InvalidClientConfig, expected));
        let processes = NonZeroU32::new(self.processes);
        let processes = processes.ok_or_else(|| wrong("processes is 0, expected 1 or more"))?;
        if self.timeout.is_zero() {
            return Err(wrong("timeout is 0, expected more"));
        }
        if !(1..=Semaphore::MAX_PERMITS).contains(&self.concurrency) {
            return Err(wrong("concurrency is 0 or too high, expected 1 or more"));
        }
        let remembers = self.remembered > 0;
        Ok(RateLimiter::of(Asker {
            local: Local::new(processes, &self.policies)?,
            connection: self.connection,
            opener: self.opener,
            outage: self.outage,
            timeout: self.timeout,
            queue_timeout: self.queue_timeout,
            places: Semaphore::new(self.concurrency),
            separately: self.separately,
            script: (self.engine == Engine::Script).then(Script::new),
            breaker: Breaker::default(),
            events: self.events,
            cleans_up: CleanUps::new(),
            replies: remembers.then(|| Denials::new(self.remembered)),
            reports: remembers.then(|| Denials::new(self.remembered)),
        }))
    }
}
