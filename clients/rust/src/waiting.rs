//! Waits in line, each on a connection that only its caller uses.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value, cmd};
use tokio::time::{Instant, sleep, timeout};

use crate::asker::Asker;
use crate::check::Check;
use crate::limiter::RateLimiter;
use crate::node::{Node, Request};
use crate::outage::{is_unblocked, late};
use crate::reply::{Answer, Reply};
use crate::servers::Servers;
use crate::value::unreadable;
use crate::within::within;

/// A wait's reply comes at most this much later than its deadline.
const LATE: Duration = Duration::from_secs(1);
/// How often the limiter asks, while a caller waits, whether the server still answers.
const ASK: Duration = Duration::from_secs(5);

impl RateLimiter {
    /// Waits in line until the request passes, for at most `timeout`: `RL.WAIT`, on a connection
    /// for this call. Dropping the future leaves the line. While the server is away nobody waits:
    /// the reply is that of [`Self::check`].
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn wait(&self, check: impl Into<Check>, timeout: Duration) -> RedisResult<Reply> {
        let (check, asker) = (check.into(), self.asker());
        asker.need_module("wait")?;
        check.one_limit("RL.WAIT")?;
        check.validate()?;
        let command = check.command(false);
        let deciding = async {
            if let Servers::None = asker.servers {
                return here(asker, &check, timeout).await;
            }
            let waiting = Box::pin(in_line(asker, &check, timeout));
            asker.or_without(&check, &check, &command, waiting).await
        };
        asker.told(deciding, |reply| reply.told(&check)).await
    }
}

/// Waits without a server, and in no line.
async fn here(asker: &Arc<Asker>, check: &Check, timeout: Duration) -> RedisResult<Reply> {
    let start = Instant::now();
    loop {
        let reply: Reply = asker.locally(&check.command(false))?;
        let left = timeout.saturating_sub(start.elapsed());
        match reply.wait {
            Some(wait) if !reply.is_allowed() && wait <= left => sleep(wait).await,
            _ => return Ok(reply),
        }
    }
}

/// A client whose wait the server ends, or whose key has moved, goes back into the line, for the time
/// that is left.
async fn in_line(asker: &Asker, check: &Check, timeout: Duration) -> RedisResult<Reply> {
    let (start, key) = (Instant::now(), &check.one_limit("RL.WAIT")?.key);
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let node = asker.servers.node(key).await?;
        let command = check.wait_command(left)?;
        let waiting = node.unless_away(alone(asker, &node, &command, left));
        let answer = tokio::select! {
            biased;
            answer = waiting => answer,
            error = silence(asker, key) => Err(error),
        };
        match answer {
            Err(error) if goes_on(&error) && start.elapsed() < timeout => {
                if error.redirect_node().is_some() {
                    // The limiter learns where the key is.
                    ask(asker, key).await?;
                }
            }
            Err(error) => {
                asker.events.replied(Instant::now(), &error);
                return Err(error);
            }
            Ok(value) => return Reply::of_reply(&value, check).ok_or_else(|| unreadable(&value)),
        }
    }
}

fn goes_on(error: &RedisError) -> bool {
    is_unblocked(error) || error.redirect_node().is_some()
}

/// Waits on a connection of its own.
async fn alone(asker: &Asker, node: &Node, command: &Cmd, time: Duration) -> RedisResult<Value> {
    let opening = within(asker.timeout, node.connections.alone.open()).await;
    let open = opening.unwrap_or_else(|| Err(late(asker.timeout)))?;
    let answer = timeout(time.saturating_add(LATE), open.send(command, false)).await;
    answer.unwrap_or_else(|_| Err(late(time)))?.extract_error()
}

/// Ends once the server says no more.
async fn silence(asker: &Asker, key: &[u8]) -> RedisError {
    loop {
        sleep(ASK).await;
        if let Err(error) = ask(asker, key).await
            && error.is_io_error()
        {
            return error;
        }
    }
}

/// Asks whether the server still answers.
async fn ask(asker: &Asker, key: &[u8]) -> RedisResult<Value> {
    let mut peek = cmd("RL.PEEK");
    peek.arg(key).arg("1/s");
    asker.servers.send(Request::of(&peek, key), asker.timeout).await
}
