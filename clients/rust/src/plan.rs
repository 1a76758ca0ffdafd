//! Plans: policies that are bound to keys.

use std::time::Duration;

use redis::RedisResult;

use crate::check::ms;
use crate::limiter::RateLimiter;
use crate::node::Request;
use crate::settlement::command;
use crate::value;

impl RateLimiter {
    /// Binds a policy to the key, for this time or until [`Self::unplan`]: rules such as
    /// `"@plan:free"` then stand for that policy. `RL.PLAN`.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn plan(
        &self,
        key: impl AsRef<[u8]>,
        policy: &str,
        time: Option<Duration>,
    ) -> RedisResult<()> {
        let key = value::key(&key)?;
        let _freeing = self.asker().freeing(key);
        let mut command = command("RL.PLAN", key);
        command.arg(policy);
        if let Some(time) = time {
            value::time("the time of a plan", time)?;
            command.arg("PX").arg(ms(time));
        }
        self.asker().ask(Request::of(&command, key), |_| Some(())).await
    }

    /// Forgets the plan of the key: `RL.UNPLAN`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn unplan(&self, key: impl AsRef<[u8]>) -> RedisResult<bool> {
        let key = value::key(&key)?;
        let _freeing = self.asker().freeing(key);
        let command = command("RL.UNPLAN", key);
        self.asker().flag(&command, key).await
    }
}
