//! `RL.INFO`: what a key holds. `RL.LOG`: its last checks.

use super::access::kind_name;
use crate::datatype::{self, LIMITER};
use crate::server::reply::Value::{Count, Integer, Nested, Null, Text};
use crate::server::{Call, CommandError, Writer, clock};
use crate::{policy, unreadable};
use ratelimit_engine::algorithm::Details;
use ratelimit_engine::key::{Entry, HoldReport, Limiter, Plan, StateReport};
use ratelimit_engine::rule::MS_US;
use ratelimit_protocol::parse;

/// How many holds are shown at most: those that lapse next.
const NEXT_HOLDS: usize = 10;

/// `RL.INFO`
pub fn info(call: &Call<'_>) -> Result<(), CommandError> {
    unreadable::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    parse::no_arguments(call.after_key().bytes())?;
    let mut key = call.open_shown(name, &LIMITER)?;
    let bytes = key.as_mut().map_or(0, datatype::bytes);
    let Some((key, limiter)) = key.as_ref().and_then(|key| key.value().map(|value| (key, value)))
    else {
        #[allow(
            clippy::redundant_closure_for_method_calls,
            reason = "the method has one lifetime"
        )]
        call.reply(|to| to.null());
        return Ok(());
    };
    let now_us = clock::now_us();
    let ttl_ms = key.expires_at_ms().map(|at_ms| at_ms.saturating_sub(now_us / 1_000));
    let seen = limiter.as_of(now_us);
    let states = seen.report(now_us);
    let history = limiter.history().map_or(0, |history| history.entries.len());
    let states = |to: &Writer<'_>| to.list(&states, show_state);
    let bans = limiter.bans_at(now_us);
    let pause = limiter.pause_at(now_us);
    let plan = limiter.plan_at(now_us);
    let is_unknown = |plan: &Plan| policy::get(plan.name.as_bytes()).is_none();
    let holds = seen.live_holds(now_us);
    let next_holds = seen.next_holds(now_us, NEXT_HOLDS);
    let next_holds = |to: &Writer<'_>| to.list(&next_holds, show_hold);
    call.reply(|to| {
        to.map([
            Some(("states", Nested(&states))),
            Some(("access", Nested(&|to| show_access(to, limiter, now_us)))),
            Some(("paused_ms", Integer(pause.map_or(0, |pause| pause.left_ms(now_us))))),
            Some(("pause_reason", pause.map_or(Null, |pause| Text(&pause.reason)))),
            Some(("plan", plan.map_or(Null, |plan| Text(plan.name.as_bytes())))),
            Some(("plan_ttl_ms", Integer(plan.map_or(0, |plan| plan.left_ms(now_us))))),
            Some(("plan_unknown", Integer(plan.is_some_and(is_unknown).into()))),
            Some(("bans", Count(bans.map_or(0, |count| count.bans.into())))),
            Some(("forgiven_ms", Integer(bans.map_or(0, |count| count.left_ms(now_us))))),
            Some(("holds", Count(holds as u64))),
            Some(("next_holds", Nested(&next_holds))),
            Some(("history", Count(history as u64))),
            Some(("ttl_ms", ttl_ms.map_or(Integer(-1), Count))),
            Some(("bytes", Count(bytes as u64))),
        ]);
    });
    Ok(())
}

fn show_state(to: &Writer<'_>, state: &StateReport) {
    let StateReport { rule, consumed, last_ms, reset_ms, details } = state;
    let (mut log, mut window, mut windows) = (None, None, None);
    match details {
        Some(Details::Log(report)) => log = Some(report),
        Some(Details::Window(report)) => window = Some(report),
        Some(Details::Windows(past)) => windows = Some(past),
        None => {}
    }
    let show_window = |to: &Writer<'_>, &(start_ms, count): &(i64, u64)| {
        to.row(&[Integer(start_ms), Count(count)]);
    };
    let windows = windows.map(|windows| move |to: &Writer<'_>| to.list(windows, show_window));
    to.map([
        Some(("rule", Text(rule.as_bytes()))),
        Some(("consumed", Count(*consumed))),
        Some(("last_ms", Count(*last_ms))),
        Some(("reset_ms", Integer(*reset_ms))),
        log.map(|log| ("entries", Count(log.entries))),
        log.map(|log| ("denied", Count(log.denied))),
        log.map(|log| ("span_ms", Count(log.span_ms))),
        window.map(|window| ("current", Count(window.current))),
        window.map(|window| ("previous", Count(window.previous))),
        windows.as_ref().map(|windows| ("windows", Nested(windows))),
    ]);
}

fn show_hold(to: &Writer<'_>, hold: &HoldReport) {
    let HoldReport { id, ttl_ms, units, refund } = hold;
    to.map([
        Some(("id", Text(id))),
        Some(("ttl_ms", Integer(*ttl_ms))),
        Some(("units", Count(*units))),
        Some(("refund", Integer((*refund).into()))),
    ]);
}

/// Writes the block or exemption in effect, or null.
fn show_access(to: &Writer<'_>, limiter: &Limiter, now_us: u64) {
    let Some(access) = limiter.access_at(now_us) else { return to.null() };
    let user = access.author.as_ref().map(|author| &*author.user).filter(|user| !user.is_empty());
    to.map([
        Some(("kind", Text(kind_name(access.kind).as_bytes()))),
        Some(("reason", Text(&access.reason))),
        Some(("ttl_ms", Integer(access.left_ms(now_us)))),
        Some(("since_ms", access.since_us().map_or(Null, |us| Count(us / MS_US)))),
        Some(("by", user.map_or(Null, Text))),
    ]);
}

/// `RL.LOG`
pub fn log(call: &Call<'_>) -> Result<(), CommandError> {
    unreadable::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    let count = parse::log(call.after_key().bytes())?;
    let key = call.open_shown(name, &LIMITER)?;
    let limiter = key.as_ref().and_then(|key| key.value());
    let limiter = limiter.map(|limiter| limiter.as_of(clock::now_us()));
    let last_checks = limiter.as_deref().into_iter().flat_map(Limiter::last_checks);
    let entries: Vec<Entry> = last_checks.take(count).collect();
    call.reply(|to| {
        to.list(&entries, |to, entry| {
            to.row(&[
                Count(entry.time_us / 1_000),
                Count(entry.cost.into()),
                Integer(entry.verdict.code()),
                entry.meta.as_deref().map_or(Null, Text),
            ]);
        });
    });
    Ok(())
}
