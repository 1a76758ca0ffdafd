//! Decides checks: by the server, or without it.

use std::sync::Arc;

use redis::{Cmd, RedisError, RedisResult};

use crate::asker::Asker;
use crate::check::Check;
use crate::receipt::Receipt;
use crate::reply::Answer;
use crate::servers::Servers;

impl Asker {
    pub async fn decide<A: Answer>(self: &Arc<Self>, check: &Check) -> RedisResult<A> {
        self.decide_by(check, &check.command(A::FULL)).await
    }

    /// The answer to a check by this command.
    pub async fn decide_by<A: Answer>(
        self: &Arc<Self>,
        check: &Check,
        command: &Cmd,
    ) -> RedisResult<A> {
        self.or_without(check, command, self.ask_check(check, command)).await
    }

    /// The server's answer to a check, or the one without it.
    pub async fn or_without<A: Answer>(
        self: &Arc<Self>,
        check: &Check,
        command: &Cmd,
        asking: impl Future<Output = RedisResult<A>>,
    ) -> RedisResult<A> {
        if let Servers::None = self.servers {
            return self.locally(command);
        }
        let is_sent = self.sends(check);
        asking.await.or_else(|error| {
            if is_sent {
                self.give_back_lost(check, &error);
            }
            self.without(error, check, command)
        })
    }

    /// Whether the server will get this check.
    pub fn sends(&self, check: &Check) -> bool {
        check.limits.first().is_some_and(|limit| !self.servers.rests(&limit.key))
    }

    /// Gives back the hold of a check that was sent, if its reply was lost.
    pub fn give_back_lost(self: &Arc<Self>, check: &Check, error: &RedisError) {
        if let (true, Some(ttl), Some(id)) = (check.gives_back, check.hold, &check.id)
            && error.is_io_error()
            && !error.is_connection_refusal()
        {
            let keys = check.limits.iter().map(|limit| limit.key.clone()).collect();
            // Dropped, it settles.
            let mut lost = Receipt::new(self, keys, Some(id.clone()), ttl);
            lost.may_come_late = true;
        }
    }
}
