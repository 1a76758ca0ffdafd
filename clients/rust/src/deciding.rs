//! Decides checks: by the server, or without it.

use std::sync::Arc;

use redis::{Cmd, RedisError, RedisResult};

use crate::asker::Asker;
use crate::check::{Check, Limit};
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
        self.or_without(check, check, command, self.ask_check(check, command)).await
    }

    /// The server's answer to what was `sent`, or the one to the check without it.
    pub async fn or_without<A: Answer>(
        self: &Arc<Self>,
        sent: &Check,
        check: &Check,
        command: &Cmd,
        asking: impl Future<Output = RedisResult<A>>,
    ) -> RedisResult<A> {
        if let Servers::None = self.servers {
            return self.locally(command);
        }
        let may_be_lost = self.may_lose(sent);
        asking.await.or_else(|error| {
            if may_be_lost {
                self.give_back_lost(sent, &error);
            }
            self.without(error, check, command)
        })
    }

    /// Whether the server will get this check and take a hold that must be given back if the reply is
    /// lost.
    fn may_lose(&self, check: &Check) -> bool {
        let is_sent = |limit: &Limit| !self.servers.rests(&limit.key);
        check.gives_back && check.limits.first().is_some_and(is_sent)
    }

    /// Gives back the hold of a check that was sent, if its reply was lost.
    fn give_back_lost(self: &Arc<Self>, check: &Check, error: &RedisError) {
        if let (Some(ttl), Some(id)) = (check.hold, &check.id)
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
