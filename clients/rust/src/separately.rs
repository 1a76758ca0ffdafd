//! Checks several keys one after the other.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use crate::asker::Asker;
use crate::check::Check;
use crate::receipt::{Receipt, has_too_many_holds};
use crate::reply::{Answer, Report, Source};
use crate::rules::Rules;
use crate::settlement::Settlement;

/// How long the charges of one key can be given back: longer than the other keys take.
const TTL: Duration = Duration::from_secs(10);

/// Each key but the last is charged under a hold. If a later key denies, or the future is dropped,
/// settling these holds gives everything back. If the request passes, the holds lapse and the
/// charges stand.
pub async fn decide(asker: &Arc<Asker>, check: &Check) -> RedisResult<Report> {
    let (given, each) = (check.hold.and(check.id.clone()), check.each()?);
    let is_given = given.is_some();
    let ttl = check.hold.unwrap_or(TTL);
    let mut charged = Receipt::new(asker, Vec::new(), given, ttl);
    let mut all = Report::passed(Source::Server);
    let last = each.len().saturating_sub(1);
    for (place, one) in each.into_iter().enumerate() {
        let Some(limit) = one.limits.first() else { continue };
        let ask = async |one: &Check| asker.ask_check::<Report>(one, &one.command(true)).await;
        let is_held = is_given || (place < last && !one.has_slots());
        if is_held {
            charged.place.keys.push(limit.key.clone());
        }
        let asked = if is_given || !is_held {
            ask(&one).await
        } else {
            match ask(&one.clone().with_hold(&charged.place.id, TTL)).await {
                Err(error) if has_too_many_holds(asker, &error) => ask(&one).await,
                asked => asked,
            }
        };
        let asked = asked.and_then(|report| {
            if !is_given {
                // A policy may have slots.
                Rules::refuse_slots(report.texts())?;
            }
            Ok(report)
        });
        let mut report = match asked {
            Ok(report) => report,
            Err(error) => {
                // A task gives the charges back, so that a silent server delays no answer.
                drop(charged);
                return asker.without(error, check, &check.command(true));
            }
        };
        for rule in &mut report.rules {
            rule.key = Some(limit.key.clone());
        }
        all.rules.append(&mut report.rules);
        if !report.is_allowed() {
            if is_held {
                charged.place.keys.pop();
            }
            give_back(charged).await;
            let key = Some(limit.key.clone());
            return Ok(Report { key, rules: all.rules, ..report });
        }
        all.wait = all.wait.max(report.wait);
        all.granted = report.granted;
    }
    charged.settlement = None;
    Ok(all)
}

/// Charges stay if the server is away.
async fn give_back(charged: Receipt) {
    if let Err(error) = charged.settle(Settlement::Refund).await {
        tracing::debug!(code = error.code(), "a charge is not given back");
    }
}
