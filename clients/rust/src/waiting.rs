//! Waits in line, each on a connection that only its caller uses.

use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep};

use crate::asker::Asker;
use crate::check::Check;
use crate::limiter::RateLimiter;
use crate::outage::{is_away, is_unblocked};
use crate::reply::{Answer, Reply, Source};

/// A wait's reply comes at most this much later than its deadline.
const LATE: Duration = Duration::from_secs(1);
/// While a caller waits, the limiter asks at this interval whether the server still answers ...
const ASK: Duration = Duration::from_secs(5);
/// ... and after a failure each second. This number of failures in a row ends the wait.
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_secs(1);

impl RateLimiter {
    /// Waits in line until the request passes, for at most `timeout`: `RL.WAIT`, on a connection
    /// for this call. Dropping the future leaves the line. While the server is away nobody waits:
    /// the reply is that of [`Self::check`].
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn wait(&self, check: impl Into<Check>, timeout: Duration) -> RedisResult<Reply> {
        self.asker().need_module("wait")?;
        let check = check.into();
        if check.limits.is_empty() {
            return Ok(Reply::passed(Source::Local));
        }
        let key = &check.one_limit("RL.WAIT")?.key;
        let asker = self.asker();
        let asking = async {
            if self.away() {
                // A try that cannot take long.
                asker
                    .ask(
                        &Check { hold: None, meta: None, ..check.clone() }.peek_command(false)?,
                        key,
                    )
                    .await?;
            }
            let asking = asker.breaker.enter(Instant::now())?;
            asker.told(asking, in_line(asker, &check, key, timeout).await)
        };
        asker.or_without(asking.await, &check, &check.command(false))
    }
}

/// A client whose wait the server ends goes back into the line, for the time that is left.
async fn in_line(
    asker: &Asker,
    check: &Check,
    key: &[u8],
    timeout: Duration,
) -> RedisResult<Value> {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let answer = alone(asker, &check.wait_command(left)?, key, left).await;
        if !answer.as_ref().is_err_and(is_unblocked) || start.elapsed() >= timeout {
            return answer;
        }
    }
}

async fn alone(asker: &Asker, command: &Cmd, key: &[u8], timeout: Duration) -> RedisResult<Value> {
    let connection = asker.in_time(asker.opener.open()).await?;
    tokio::select! {
        biased;
        answer = connection.send(command, key) => answer,
        () = sleep(timeout.saturating_add(LATE)) => Err(asker.late()),
        error = silence(asker, key) => Err(error),
    }
}

/// Ends once the server has stopped answering.
async fn silence(asker: &Asker, key: &[u8]) -> RedisError {
    let mut peek = redis::cmd("RL.PEEK");
    peek.arg(key).arg("1/s");
    let mut failures = 0_usize;
    loop {
        sleep(if failures == 0 { ASK } else { AGAIN }).await;
        match asker.ask_anyway(&peek, key).await {
            // A server that refuses to answer this client is not silent.
            Err(error) if is_away(&error) => {
                failures = failures.saturating_add(1);
                if failures == TRIES {
                    return error;
                }
            }
            _ => failures = 0,
        }
    }
}
