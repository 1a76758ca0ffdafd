//! Plans: policies that are bound to keys.

use std::time::Duration;

use redis::RedisResult;

use crate::asker::read;
use crate::check::ms;
use crate::limiter::RateLimiter;

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
        let key = key.as_ref();
        let _freeing = self.asker().freeing(key);
        let mut command = redis::cmd("RL.PLAN");
        command.arg(key).arg(policy);
        if let Some(time) = time {
            command.arg("PX").arg(ms(time));
        }
        self.asker().call(&command, key).await.map(drop)
    }

    /// Forgets the plan of the key: `RL.UNPLAN`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn unplan(&self, key: impl AsRef<[u8]>) -> RedisResult<bool> {
        let key = key.as_ref();
        let _freeing = self.asker().freeing(key);
        let mut command = redis::cmd("RL.UNPLAN");
        command.arg(key);
        read(self.asker().call(&command, key).await?)
    }
}
