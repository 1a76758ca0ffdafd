//! What requests go to: a server, or in a cluster the primary of a key's slot. A node is answering or
//! away, and what one node does says nothing of another.
//!
//! ```text
//! answering   a request timed out, and no reply came in time since it was sent   -> away
//!             no connection can be made, or one ends before its first reply      -> away
//! away        every request is answered at once, also those under way
//!             a probe, a PING on a connection of its own, is answered in time    -> answering
//! ```

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{Connection, Connections, Failure, Why, turn};
use crate::events::Events;
use crate::outage::late;
use crate::within::within;

/// The pauses before probes, in milliseconds, each with up to a quarter of jitter.
const PAUSES_MS: [u64; 6] = [0, 50, 100, 200, 400, 800];
/// If a node goes away again within this time, the pauses go on where they were.
const AGAIN: Duration = Duration::from_secs(10);
/// How long after a node goes away a request waits for the first probe.
const FIRST: Duration = Duration::from_millis(50);
/// The next probe is overdue if it has not begun this long, and two time-outs, after the last one.
const OVERDUE: Duration = Duration::from_secs(1);
/// The shortest time between two connections that are closed because the server is no primary.
const RENEWS: Duration = Duration::from_secs(1);

/// Commands that change nothing more if they are sent again.
const REPEAT: [&[u8]; 4] = [b"RL.PEEK", b"RL.EXPLAIN", b"RL.SETTLE", b"RL.RENEW"];

/// A command, and how to send it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub command: &'a Cmd,
    pub key: &'a [u8],
    /// Whether it may be sent again after it was written.
    pub repeats: bool,
}

impl<'a> Request<'a> {
    pub fn of(command: &'a Cmd, key: &'a [u8]) -> Self {
        let repeats = match command.args_iter().next() {
            Some(Arg::Simple(name)) => REPEAT.iter().any(|one| name.eq_ignore_ascii_case(one)),
            _ => false,
        };
        Self { command, key, repeats }
    }
}

/// Says, before each probe, whether the node is still one to ask.
pub type Survey = Arc<dyn Fn(&Arc<Node>) -> redis::RedisFuture<'static, bool> + Send + Sync>;

pub struct Node {
    pub name: String,
    pub connections: Connections,
    timeout: Duration,
    events: Arc<Events>,
    survey: Option<Survey>,
    health: Mutex<Health>,
    /// How many replies came in time.
    replies: AtomicU64,
    goes_away: Notify,
    probed: Notify,
}

#[derive(Default)]
struct Health {
    away: Option<Away>,
    /// When it was last back.
    back: Option<Instant>,
    /// How many probes had no answer.
    failures: usize,
    /// When connections were last renewed.
    renewed: Option<Instant>,
}

struct Away {
    error: RedisError,
    /// Until when requests wait for a probe: the first one, if the node was silent, or one that was overdue.
    first: Option<Instant>,
    /// How many requests had been answered without the server before.
    answered: u64,
    /// When the last probe began.
    probed: Instant,
    probing: AbortHandle,
}

impl Node {
    pub fn new(
        name: String,
        connections: Connections,
        timeout: Duration,
        events: Arc<Events>,
        survey: Option<Survey>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            connections,
            timeout,
            events,
            survey,
            health: Mutex::default(),
            replies: AtomicU64::new(0),
            goes_away: Notify::new(),
            probed: Notify::new(),
        })
    }

    pub fn is_away(&self) -> bool {
        self.health().away.is_some()
    }

    /// Its error, if the node is away.
    pub fn rest(self: &Arc<Self>) -> RedisResult<()> {
        let mut health = self.health();
        let Some(away) = &mut health.away else { return Ok(()) };
        let (now, pause) = (Instant::now(), self.timeout.saturating_mul(2).saturating_add(OVERDUE));
        let is_overdue = now.saturating_duration_since(away.probed) > pause;
        if is_overdue || away.probing.is_finished() {
            // The runtime that probed does not run now, or has ended.
            away.probing.abort();
            away.probing = self.begin_to_probe(away.probed);
        }
        if is_overdue {
            (away.probed, away.first) = (now, now.checked_add(FIRST));
        }
        Err(away.error.clone())
    }

    fn begin_to_probe(self: &Arc<Self>, last: Instant) -> AbortHandle {
        tokio::spawn(probe(Arc::downgrade(self), last)).abort_handle()
    }

    /// The output of this work, unless the node is away, or goes away meanwhile. Right after it went
    /// away, this waits for the first probe.
    pub async fn unless_away<T>(
        self: &Arc<Self>,
        work: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let (goes_away, probed) = (self.goes_away.notified(), self.probed.notified());
        if let Err(error) = self.rest() {
            let first = self.health().away.as_ref().and_then(|away| away.first);
            if let Some(first) = first {
                let _ = timeout_at(first, probed).await;
            }
            // A runtime that runs only during checks must get to the probe, too.
            turn().await;
            if self.is_away() {
                return Err(error);
            }
        }
        tokio::select! {
            biased;
            output = work => output,
            () = goes_away => Err(self.rest().err().unwrap_or_else(|| late(self.timeout))),
        }
    }

    /// Sends a command, which has this much time.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<'_>,
        asking: bool,
        time: Duration,
    ) -> RedisResult<Value> {
        // Pinned here, so that no call moves the whole future.
        let work = pin!(async {
            let (replies, mut used) = (self.replies.load(Ordering::Relaxed), None);
            let answer = within(time, pin!(self.exchange(request, asking, &mut used))).await;
            let Failure { error, why } = match answer {
                Some(Ok(reply)) => {
                    self.replies.fetch_add(1, Ordering::Relaxed);
                    return reply.inspect_err(|error| self.renew_if_no_primary(error));
                }
                Some(Err(failure)) => failure,
                None => Failure { error: late(self.timeout), why: Why::Unanswered },
            };
            if let Some(used) = &used {
                self.connections.discard(used);
            }
            let is_silent = error.is_timeout() && self.replies.load(Ordering::Relaxed) == replies;
            if is_silent || why == Why::Unreachable {
                self.leave(&error);
            }
            Err(error)
        });
        self.unless_away(work).await
    }

    /// Sends a command whose answer says nothing of the node's health.
    #[cfg(feature = "cluster")]
    pub async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let connection = self.connections.current().await;
        let sent = connection.send(&self.connections.opener, command, false).await;
        sent.unwrap_or_else(|failure| {
            self.connections.discard(&connection);
            Err(failure.error)
        })
    }

    /// A request of which nothing was written, or which may be repeated, is sent once more, on a
    /// connection that is opened afterwards.
    async fn exchange(
        &self,
        Request { command, repeats, .. }: Request<'_>,
        asking: bool,
        used: &mut Option<Arc<Connection>>,
    ) -> Result<RedisResult<Value>, Failure> {
        let mut once = async || {
            let connection = self.connections.current().await;
            *used = Some(Arc::clone(&connection));
            let sent = connection.send(&self.connections.opener, command, asking).await;
            if sent.is_err() {
                self.connections.discard(&connection);
            }
            sent
        };
        match once().await {
            Err(Failure { why: Why::Unwritten, .. }) => once().await,
            Err(Failure { why: Why::Unanswered, .. }) if repeats => once().await,
            answer => answer,
        }
    }

    /// A server that is no primary any more may stand where the primary was: a name or a proxy finds
    /// the new one.
    fn renew_if_no_primary(&self, error: &RedisError) {
        let ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) =
            error.kind()
        else {
            return;
        };
        let mut health = self.health();
        if health.renewed.is_none_or(|at| at.elapsed() >= RENEWS) {
            health.renewed = Some(Instant::now());
            self.connections.renew();
        }
    }

    /// The node goes away.
    pub fn leave(self: &Arc<Self>, error: &RedisError) {
        let (mut health, now) = (self.health(), Instant::now());
        if health.away.is_some() {
            return;
        }
        // A connection that failed was the first probe.
        let first = now.checked_add(FIRST).filter(|_| error.is_timeout());
        if health.back.is_none_or(|back| now.saturating_duration_since(back) > AGAIN) {
            health.failures = usize::from(first.is_none());
        }
        let (error, answered) = (error.clone(), self.events.answered());
        let (probed, probing) = (now, self.begin_to_probe(now));
        health.away = Some(Away { error: error.clone(), first, answered, probed, probing });
        drop(health);
        self.connections.renew();
        self.goes_away.notify_waiters();
        self.events.changed(true, &self.name, error, 0);
    }

    /// The node is back, or not in the cluster any more.
    pub fn come_back(&self) {
        let mut health = self.health();
        let Some(away) = health.away.take() else { return };
        health.back = Some(Instant::now());
        drop(health);
        away.probing.abort();
        self.probed.notify_waiters();
        let answered = self.events.answered().saturating_sub(away.answered);
        self.events.changed(false, &self.name, away.error, answered);
    }

    /// Ends its probes and connections.
    pub fn close(&self) {
        if let Some(away) = &self.health().away {
            away.probing.abort();
        }
        self.connections.renew();
    }

    /// The pause before the next probe.
    fn pause(&self) -> Duration {
        let mut health = self.health();
        let last = PAUSES_MS.len().saturating_sub(1);
        let pause_ms = PAUSES_MS.get(health.failures.min(last)).copied().unwrap_or_default();
        health.failures = health.failures.saturating_add(1);
        let random = RandomState::new().hash_one(Instant::now());
        let jitter = random.checked_rem(pause_ms / 4).unwrap_or_default();
        Duration::from_millis(pause_ms.saturating_add(jitter))
    }

    /// One probe. Returns whether the node has an answer.
    async fn answers(self: &Arc<Self>) -> bool {
        if let Some(away) = &mut self.health().away {
            away.probed = Instant::now();
        }
        if let Some(survey) = &self.survey
            && let Some(Ok(false)) = within(self.timeout, survey(self)).await
        {
            return true;
        }
        let (connection, ping) = (self.connections.fresh(), cmd("PING"));
        let answer = connection.send(&self.connections.opener, &ping, false);
        let error = match within(self.timeout, answer).await {
            Some(Ok(_)) => {
                self.connections.adopt(connection);
                return true;
            }
            Some(Err(failure)) => failure.error,
            None => late(self.timeout),
        };
        self.events.replied(Instant::now(), &error);
        if let Some(away) = &mut self.health().away {
            away.error = error;
        }
        false
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Probes a node until it answers. Pauses count from the start of a probe: at first of the `last` one.
async fn probe(node: Weak<Node>, mut last: Instant) {
    loop {
        let Some(pause) = node.upgrade().map(|node| node.pause()) else { return };
        sleep(pause.saturating_sub(last.elapsed())).await;
        last = Instant::now();
        let Some(node) = node.upgrade() else { return };
        if node.answers().await {
            return node.come_back();
        }
        node.probed.notify_waiters();
    }
}
