//! How a limiter is made.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};

use crate::denials::Denials;
use crate::limiter::{Inner, RateLimiter};
use crate::local::Local;
use crate::outage::{Outage, OutageEvent};
use crate::server::{self, Connection, Opener};
use crate::{Rules, breaker::Breaker};

/// How long a command, or connecting, may take by default.
const TIMEOUT: Duration = Duration::from_millis(250);

pub(crate) type Listener = dyn Fn(&OutageEvent) + Send + Sync;

/// The options of a [`RateLimiter`].
#[must_use]
pub struct Builder {
    connection: Connection,
    opener: Opener,
    outage: Outage,
    timeout: Duration,
    among: u32,
    policies: HashMap<String, Rules>,
    listener: Option<Arc<Listener>>,
    separately: bool,
    remembered: usize,
}

impl RateLimiter {
    /// A limiter that connects to this server when it is first asked, and again after each failure.
    ///
    /// # Errors
    /// None but those of the client's settings.
    pub fn server(client: Client) -> RedisResult<Builder> {
        let config = ConnectionManagerConfig::new().set_number_of_retries(0);
        let config =
            config.set_response_timeout(Some(TIMEOUT)).set_connection_timeout(Some(TIMEOUT));
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
        Ok(Self::on(connection).waits_on(client))
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

    /// A limiter on any asynchronous connection that tasks can share, best one that connects again
    /// after a failure. A `ClusterConnection` needs the feature `cluster`.
    pub fn on(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Builder {
        Builder::of(server::shared(connection))
    }
}

impl Builder {
    fn of(connection: Connection) -> Self {
        let none = || async {
            let why = "waiting needs connections: see Builder::waits_on";
            Err::<ConnectionManager, _>(RedisError::from((ErrorKind::InvalidClientConfig, why)))
        };
        Self {
            connection,
            opener: Opener::new(none),
            outage: Outage::default(),
            timeout: TIMEOUT,
            among: 1,
            policies: HashMap::new(),
            listener: None,
            separately: false,
            remembered: 0,
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

    /// How long a command may take, whatever the connection does meanwhile: 250 ms by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// One of this number of processes: under [`Outage::Local`] each keeps to its part of every
    /// limit, but at least one unit.
    pub fn one_of(self, processes: u32) -> Self {
        Self { among: processes, ..self }
    }

    /// The rules of a policy under [`Outage::Local`]. A policy that is not given limits nothing then.
    pub fn policy(mut self, name: impl Into<String>, rules: impl Into<Rules>) -> Self {
        self.policies.insert(name.into(), rules.into());
        self
    }

    /// Hears when the limiter stops asking the server for a second after three outages in a row,
    /// and when that is over.
    pub fn on_outage(mut self, listener: impl Fn(&OutageEvent) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Checks several keys one after the other, and gives back at a denial: for clusters, where keys
    /// in different slots cannot be decided at once. That is not atomic: others may be denied
    /// meanwhile, and a client that dies gives nothing back.
    pub fn separately(self, separately: bool) -> Self {
        Self { separately, ..self }
    }

    /// Remembers up to this number of denials, and answers them until their wait is over. Until then
    /// the limiter sees no operator's pardon, no refund and no raised limit of others, and the server
    /// does not count those denials.
    pub fn remember_denials(self, most: usize) -> Self {
        Self { remembered: most, ..self }
    }

    /// The limiter.
    ///
    /// # Errors
    /// A policy whose rules cannot be read.
    pub fn build(self) -> RedisResult<RateLimiter> {
        let among = NonZeroU32::new(self.among).unwrap_or(NonZeroU32::MIN);
        let remembers = self.remembered > 0;
        Ok(RateLimiter::of(Inner {
            local: Local::new(among, &self.policies)?,
            connection: self.connection,
            opener: self.opener,
            outage: self.outage,
            timeout: self.timeout,
            listener: self.listener,
            separately: self.separately,
            breaker: Breaker::default(),
            outages: 0.into(),
            outages_before: 0.into(),
            replies: remembers.then(|| Denials::new(self.remembered)),
            reports: remembers.then(|| Denials::new(self.remembered)),
        }))
    }
}
