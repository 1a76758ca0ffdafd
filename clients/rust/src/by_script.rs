//! Checks of several keys by the script, which decides one key per call.

use std::mem;
use std::sync::Arc;

use redis::RedisResult;

use crate::asker::Asker;
use crate::check::Check;
use crate::clean_up::joined;
use crate::reply::{Answer, Reply, Report, Source};
use crate::script::{charges, needs_module, report};
use crate::settlement::refund_command;

/// Asks key by key. If a later key denies, or the future is dropped, refunds give back what each key
/// was charged, since the script knows no holds.
pub async fn decide(asker: &Arc<Asker>, check: &Check) -> RedisResult<Report> {
    if check.hold.is_some() {
        return Err(needs_module("HOLD"));
    }
    if check.cost.is_range() {
        return Err(needs_module("a range of costs"));
    }
    let mut charged = Charged { asker: Arc::clone(asker), checks: Vec::new() };
    let mut all = Report::passed(Source::Server);
    for one in check.each()? {
        let (mut report, mut own) = match ask(asker, one).await {
            Ok(answer) => answer,
            Err(error) => {
                // A task gives the charges back, so that a silent server delays no answer.
                drop(charged);
                return asker.without(error, check, &check.command(true));
            }
        };
        all.rules.append(&mut report.rules);
        if !report.is_allowed() {
            charged.give_back().await;
            return Ok(Report { rules: all.rules, ..report });
        }
        all.wait = all.wait.max(report.wait);
        charged.checks.append(&mut own.checks);
    }
    charged.checks.clear();
    Ok(all)
}

/// Asks about one key in a task. If nobody awaits the answer any more, this gives its charge back too.
async fn ask(asker: &Arc<Asker>, one: Check) -> RedisResult<(Report, Charged)> {
    let mut charged = Charged { asker: Arc::clone(asker), checks: Vec::new() };
    let asking = tokio::spawn(async move {
        let reply: Reply = charged.asker.ask_check(&one, &one.command(false)).await?;
        let report = report(&reply, &one)?;
        if report.is_allowed() {
            charged.checks.push(one);
        }
        Ok((report, charged))
    });
    joined(asking).await
}

/// When dropped, gives back what checks have consumed.
struct Charged {
    asker: Arc<Asker>,
    checks: Vec<Check>,
}

impl Charged {
    /// Charges stay if the server is away. Dropping the future does not stop this.
    fn give_back(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let (asker, checks) = (Arc::clone(&self.asker), mem::take(&mut self.checks));
        let giving_back = (!checks.is_empty()).then(|| {
            let refunding = async move {
                let limits = checks.iter().flat_map(|check| &check.limits);
                let _freeing = limits.map(|limit| asker.freeing(&limit.key)).collect::<Vec<_>>();
                for check in &checks {
                    refund(&asker, check).await?;
                }
                Ok(())
            };
            let lost = || tracing::warn!("a charge is not given back");
            self.asker.cleans_up.run(refunding, lost)
        });
        async move {
            if let Some(giving_back) = giving_back
                && let Err(error) = giving_back.await
            {
                tracing::debug!(code = error.code(), "a charge is not given back");
            }
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

async fn refund(asker: &Asker, check: &Check) -> RedisResult<()> {
    for limit in &check.limits {
        for (units, rules) in charges(check)? {
            asker.number(&refund_command(&limit.key, units, &rules), &limit.key).await?;
        }
    }
    Ok(())
}
