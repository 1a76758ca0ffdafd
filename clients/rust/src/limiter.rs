//! The commands of an application.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::Instant;

use crate::asker::Asker;
use crate::by_script;
use crate::check::Check;
use crate::connection::turn;
use crate::denials::Denials;
use crate::node::Request;
use crate::receipt::{Receipt, has_too_many_holds};
use crate::reply::{Answer, Reply, Report};
use crate::rules::Rules;
use crate::script;
use crate::separately;
use crate::servers::Servers;
use crate::settlement::{Settlement, command, refund_command, renew_command, settle_command};
use crate::value;

/// How long a request may take to answer and still get back what it cost.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);

/// The most keys of one command. About more, the limiter asks key by key.
const MOST_KEYS: usize = 64;

/// Rate limits that the module redis-ratelimit decides, for all processes together. A clone is cheap
/// and is the same limiter.
#[derive(Clone)]
pub struct RateLimiter(Arc<Asker>);

impl RateLimiter {
    pub(crate) fn of(asker: Asker) -> Self {
        Self(Arc::new(asker))
    }

    pub(crate) const fn asker(&self) -> &Arc<Asker> {
        &self.0
    }

    /// Whether a server is away, or in a cluster any node.
    pub fn away(&self) -> bool {
        self.0.servers.nodes().iter().any(|node| node.is_away())
    }

    /// How many requests got no decision from the server.
    pub fn outages(&self) -> u64 {
        self.0.events.answered()
    }

    /// How many holds were not settled, because an outage outlasted them, too many waited, or their runtime
    /// ended.
    pub fn given_up(&self) -> u64 {
        self.0.cleans_up.given_up()
    }

    /// Waits for settlements, for less than a second, gives up the others, and ends all connections and
    /// probes. A limiter that is used after that connects again.
    pub async fn close(&self) {
        self.0.cleans_up.close().await;
        self.0.servers.nodes().iter().for_each(|node| node.close());
        turn().await;
    }

    /// Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`.
    ///
    /// # Errors
    /// Those of a wrong request; an outage under [`Outage::Raise`](crate::Outage::Raise); or that this
    /// process [is saturated](crate::is_saturated).
    pub async fn check(&self, check: impl Into<Check>) -> RedisResult<Reply> {
        let check = check.into();
        if check.limits.len() != 1 {
            return Ok(self.check_all(check).await?.reply());
        }
        self.unless_denied(&check, self.0.replies.as_ref(), self.0.decide(&check)).await
    }

    /// Decides over one or several keys, consumes from all or from none, and reports on each rule:
    /// `FULL`, `RL.MCHECK`.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn check_all(&self, check: impl Into<Check>) -> RedisResult<Report> {
        let check = check.into();
        self.unless_denied(&check, self.0.reports.as_ref(), self.report(&check)).await
    }

    /// Consumes from the first key that lets the request pass, or with [`Check::most`] from the one
    /// that has the most left afterwards, and from no other: `ANY`. The report has that key, or
    /// after a denial the key with the shortest wait. Without the server the first key decides.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn check_any(&self, check: impl Into<Check>) -> RedisResult<Report> {
        let check = check.into();
        check.validate_alone()?;
        let alone =
            Check { limits: check.limits.iter().take(1).cloned().collect(), ..check.clone() };
        let (any, first) = (check.any_command(), alone.any_command());
        let deciding = self.0.or_without(&alone, &alone, &first, self.0.ask_check(&check, &any));
        self.0.told(deciding, |report: &Report| report.told(&check)).await
    }

    /// Decides as [`Self::check_all`] does, and returns a receipt, which gives the charges back or ends
    /// the request's hold. If the future or the receipt is dropped, the hold ends by `settlement`.
    pub(crate) async fn charge(
        &self,
        check: &Check,
        settlement: Option<Settlement>,
    ) -> RedisResult<(Report, Receipt)> {
        self.0.need_module("count")?;
        Rules::refuse_bans(check.texts())?;
        let keys = check.limits.iter().map(|limit| limit.key.clone()).collect();
        let given = check.hold.and(check.id.clone());
        let is_given = given.is_some();
        let mut receipt = Receipt::new(&self.0, keys, given, check.hold.unwrap_or(LONGEST_REQUEST));
        receipt.settlement = settlement;
        let charging = async {
            if is_given || check.has_slots() {
                return self.report(check).await;
            }
            let held = check.clone().with_hold(&receipt.place.id, LONGEST_REQUEST).giving_back();
            match self.report(&held).await {
                Err(error) if has_too_many_holds(&self.0, &error) => self.report(check).await,
                charged => charged,
            }
        };
        let report = self.unless_denied(check, self.0.reports.as_ref(), charging).await;
        receipt.may_come_late = false;
        if let Ok(report) = &report {
            let slots = if is_given { Ok(()) } else { Rules::refuse_slots(report.texts()) };
            // A policy may have such rules. When dropped, the receipt gives all back.
            slots.and_then(|()| Rules::refuse_bans(report.texts())).inspect_err(|_| {
                receipt.settlement = Some(Settlement::Refund);
            })?;
        }
        match report {
            Ok(report) if report.is_allowed() => {
                receipt.place.source = report.source;
                Ok((report, receipt))
            }
            denied => {
                receipt.settlement = None;
                denied.map(|report| (report, receipt))
            }
        }
    }

    /// A remembered denial, or else the answer of `deciding`, which is remembered if it denies.
    async fn unless_denied<A: Answer>(
        &self,
        check: &Check,
        denials: Option<&Denials<A>>,
        deciding: impl Future<Output = RedisResult<A>>,
    ) -> RedisResult<A> {
        check.validate_alone()?;
        let deciding = async {
            let Some(denials) = denials else { return deciding.await };
            let now = Instant::now();
            if let Some(denial) = denials.find(now, check) {
                return Ok(denial);
            }
            let answer = deciding.await?;
            let first = check.limits.first().map(|limit| &limit.key);
            let key = answer.report().and_then(|report| report.key.as_ref()).or(first);
            let key = key.map(Vec::as_slice).unwrap_or_default();
            // The script's report has only the rule that decides.
            match answer.report().filter(|_| self.0.script.is_none()) {
                Some(report) => denials.keep(now, check, key, report.texts(), &answer),
                None => denials.keep(now, check, key, check.texts(), &answer),
            }
            Ok(answer)
        };
        self.0.told(deciding, |answer: &A| answer.told(check)).await
    }

    async fn report(&self, check: &Check) -> RedisResult<Report> {
        let most = if self.0.separately { 1 } else { MOST_KEYS };
        if let Servers::None = self.0.servers {
            self.0.decide(check).await
        } else if self.0.script.is_some() {
            by_script::decide(&self.0, check).await
        } else if check.limits.len() > most {
            separately::decide(&self.0, check).await
        } else {
            self.0.decide(check).await
        }
    }

    /// Decides for a key without consuming: `RL.PEEK`.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn peek(&self, check: impl Into<Check>) -> RedisResult<Reply> {
        self.peek_as(&check.into()).await
    }

    /// Reports on each rule of a key without consuming. The script reports on the one that decides.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub async fn peek_all(&self, check: impl Into<Check>) -> RedisResult<Report> {
        let check = check.into();
        if self.0.script.is_some() {
            return script::report(&self.peek_as(&check).await?, &check);
        }
        self.peek_as(&check).await
    }

    /// Ends a hold, on the server or in this process, wherever it was taken: `RL.SETTLE`. `false`:
    /// there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn settle(
        &self,
        key: impl AsRef<[u8]>,
        id: &str,
        settlement: Settlement,
    ) -> RedisResult<bool> {
        let key = value::key(&key)?;
        if let Settlement::Cost(cost) = &settlement {
            cost.validate()?;
        }
        let _freeing = self.0.freeing(key);
        self.where_held(&settle_command(key, id, &settlement), key).await
    }

    /// Moves a hold's end to `ttl` from now, on the server or in this process, wherever the hold was
    /// taken: `RL.RENEW`. `false`: there was none.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn renew(&self, key: impl AsRef<[u8]>, id: &str, ttl: Duration) -> RedisResult<bool> {
        let key = value::key(&key)?;
        value::time("the ttl", ttl)?;
        self.where_held(&renew_command(key, id, ttl), key).await
    }

    /// Sends a command to where its hold was taken: to the limiter in the process, under
    /// [`Outage::Local`](crate::Outage::Local), or to the server.
    async fn where_held(&self, command: &Cmd, key: &[u8]) -> RedisResult<bool> {
        // The server reports what is wrong with the command.
        let is_here = self.0.local.answer(command) == Ok(1);
        if is_here { Ok(true) } else { self.0.flag(command, key).await }
    }

    /// Gives units back to the states of these rules, or without rules to all states: `RL.REFUND`.
    /// Replies with the largest number that one state got back.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn refund(
        &self,
        key: impl AsRef<[u8]>,
        units: u64,
        rules: impl Into<Rules>,
    ) -> RedisResult<u64> {
        let key = value::key(&key)?;
        value::units(units)?;
        let _freeing = self.0.freeing(key);
        self.0.number(&refund_command(key, units, rules.into().texts()), key).await
    }

    /// Forgets what was consumed: `RL.RESET`. Blocks, exemptions and the history stay. `false`: there
    /// was nothing to forget.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> RedisResult<bool> {
        let key = value::key(&key)?;
        let _freeing = self.0.freeing(key);
        let command = command("RL.RESET", key);
        self.0.flag_of_both(&command, key).await
    }

    /// Sends any other command, such as `RL.INFO`, to the node of this key. The limiter goes
    /// on asking for checks even if the server forbids or does not know the command.
    ///
    /// # Errors
    /// Those of the server, and any outage.
    pub async fn call<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: impl AsRef<[u8]>,
    ) -> RedisResult<T> {
        let value = self.0.ask(Request::of(command, key.as_ref()), |value| Some(value.clone()));
        Ok(T::from_redis_value(value.await?)?)
    }

    async fn peek_as<A: Answer>(&self, check: &Check) -> RedisResult<A> {
        check.validate_alone()?;
        self.0.decide_by(check, &check.peek_command(A::FULL)?).await
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asker { outage, timeout, .. } = &*self.0;
        f.debug_struct("RateLimiter")
            .field("outage", outage)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}
