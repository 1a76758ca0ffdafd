//! Checks of several keys by the script, which decides one key per call.

use std::mem;
use std::sync::Arc;

use redis::RedisResult;

use crate::asker::{Asker, read};
use crate::check::{Check, Cost};
use crate::reply::{Answer, Reply, Report, Source};
use crate::script::{charges, needs_module, report};
use crate::settlement::refund_command;

/// Asks key by key. If a later key denies, or the future is dropped, refunds give back what each key
/// was charged, since the script knows no holds.
pub async fn decide(asker: &Arc<Asker>, check: &Check) -> RedisResult<Report> {
    if check.hold.is_some() {
        return Err(needs_module("HOLD"));
    }
    if matches!(check.cost, Cost::Range(..)) {
        return Err(needs_module("a range of costs"));
    }
    let mut charged = Charged { asker: Arc::clone(asker), checks: Vec::new() };
    let mut all = Report::passed(Source::Server);
    for one in check.each()? {
        let Some(limit) = one.limits.first() else { continue };
        let asked = asker.ask(&one.command(false), &limit.key).await;
        let report = asked.and_then(read::<Reply>).and_then(|reply| report(&reply, &one));
        let mut report = match report {
            Ok(report) => report,
            Err(error) => {
                // A task gives the charges back, so that a silent server delays no answer.
                drop(charged);
                return asker.without(error, &check.command(true));
            }
        };
        all.rules.append(&mut report.rules);
        if !report.is_allowed() {
            charged.give_back().await;
            return Ok(Report { rules: all.rules, ..report });
        }
        all.wait = all.wait.max(report.wait);
        charged.checks.push(one);
    }
    charged.checks.clear();
    Ok(all)
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
            self.asker.cleans_up.run(async move {
                for limit in checks.iter().flat_map(|check| &check.limits) {
                    asker.forget(&limit.key);
                }
                for check in &checks {
                    refund(&asker, check).await?;
                }
                Ok(())
            })
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
            asker.call(&refund_command(&limit.key, units, &rules), &limit.key).await?;
        }
        asker.forget(&limit.key);
    }
    Ok(())
}
