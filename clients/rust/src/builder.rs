//! Makes a limiter.

use std::collections::HashMap;
use std::future::Future;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, RedisError, RedisResult};
use tokio::sync::Semaphore;

use crate::asker::Asker;
use crate::clean_up::CleanUps;
#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::connection::{Connection, Connections, Opener};
use crate::denials::Denials;
use crate::events::{DecisionEvent, Events, MisconfiguredEvent, OutageEvent};
use crate::limiter::RateLimiter;
use crate::local::Local;
use crate::node::Node;
use crate::outage::Outage;
use crate::rules::Rules;
use crate::script::{Engine, Script};
use crate::servers::Servers;
use crate::value::misuse;

/// How long a command, with connecting, may take by default.
const TIMEOUT: Duration = Duration::from_millis(250);
/// How long a command may wait for its place by default.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
const CONCURRENCY: usize = 1000;

/// The options of a [`RateLimiter`].
#[must_use]
pub struct Builder {
    whom: Whom,
    /// Opens a connection for a caller that waits, if that is not the limiter's own affair.
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

/// Whom to ask.
enum Whom {
    Server(Client),
    #[cfg(feature = "cluster")]
    Cluster(Vec<Client>),
    Given(Connection),
    Nobody,
}

impl RateLimiter {
    /// A limiter that connects to this server when it is first asked, and again after each failure.
    pub fn server(client: Client) -> Builder {
        Builder::of(Whom::Server(client))
    }

    /// A limiter that connects to the cluster of these nodes when it is first asked, and then to each
    /// node whose keys it checks. It needs no client of a cluster, which would send checks again. Needs the
    /// feature `cluster`.
    #[cfg(feature = "cluster")]
    pub fn cluster(nodes: impl IntoIterator<Item = Client>) -> Builder {
        Builder::of(Whom::Cluster(nodes.into_iter().collect()))
    }

    /// A limiter on any asynchronous connection to one server that tasks can share, preferably one that
    /// connects again after a failure. It must take as many commands at once as [`Builder::concurrency`]
    /// says, and send none again. It works only while the runtime runs in which it was made; connections that
    /// the limiter makes belong to the runtime of each call.
    pub fn on(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Builder {
        Builder::of(Whom::Given(Connection::given(connection)))
    }

    /// A limiter that asks no server at all, with these policies: for tests, and for a program of one
    /// process. It decides as under [`Outage::Local`].
    ///
    /// # Errors
    /// The rules of a policy cannot be read.
    pub fn in_process<N: Into<String>, R: Into<Rules>>(
        policies: impl IntoIterator<Item = (N, R)>,
    ) -> RedisResult<Self> {
        Builder::of(Whom::Nobody).policies(policies).build()
    }
}

impl Builder {
    fn of(whom: Whom) -> Self {
        Self {
            whom,
            opener: Opener::none(),
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

    /// Opens a connection of this client for each caller that waits, for a limiter [on](RateLimiter::on) a
    /// connection.
    pub fn waits_on(self, client: Client) -> Self {
        Self { opener: Opener::of(client, CONCURRENCY), ..self }
    }

    /// Opens a connection by this function for each caller that waits, for a limiter
    /// [on](RateLimiter::on) a connection. It must have no time-out for replies. Dropping its last clone
    /// must close it.
    pub fn waits_with<F, C>(self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self { opener: Opener::new(open), ..self }
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

    /// Called when a server goes away, or in a cluster a node, and when it is back. Without a listener
    /// the log has both.
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

    /// Called after each check that was decided, with who decided and how long it took.
    pub fn on_decision(
        mut self,
        listener: impl Fn(&DecisionEvent) + Send + Sync + 'static,
    ) -> Self {
        self.events.on_decision = Some(Arc::new(listener));
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
        let processes = NonZeroU32::new(self.processes);
        let processes = processes.ok_or_else(|| misuse("processes is 0, expected 1 or more"))?;
        if self.timeout.is_zero() {
            return Err(misuse("timeout is 0, expected more"));
        }
        if !(1..=Semaphore::MAX_PERMITS).contains(&self.concurrency) {
            return Err(misuse("concurrency is 0 or too high, expected 1 or more"));
        }
        let (events, timeout) = (Arc::new(self.events), self.timeout);
        let node = |name, connections| {
            Servers::One(Node::new(name, connections, timeout, Arc::clone(&events), None))
        };
        let servers = match self.whom {
            Whom::Server(client) => {
                let name = client.get_connection_info().addr().to_string();
                node(name, Connections::of(Opener::of(client, self.concurrency)))
            }
            #[cfg(feature = "cluster")]
            Whom::Cluster(seeds) => {
                let events = Arc::clone(&events);
                Servers::Cluster(Cluster::new(seeds, timeout, self.concurrency, events)?)
            }
            Whom::Given(connection) => node(
                "the given connection".to_string(),
                Connections::given(connection, self.opener),
            ),
            Whom::Nobody => Servers::None,
        };
        let remembered = NonZeroUsize::new(self.remembered);
        Ok(RateLimiter::of(Asker {
            servers,
            local: Local::new(processes, &self.policies)?,
            outage: self.outage,
            timeout,
            queue_timeout: self.queue_timeout,
            places: Semaphore::new(self.concurrency),
            separately: self.separately,
            script: (self.engine == Engine::Script).then(Script::new),
            events,
            cleans_up: CleanUps::new(),
            replies: remembered.map(Denials::new),
            reports: remembered.map(Denials::new),
        }))
    }
}
