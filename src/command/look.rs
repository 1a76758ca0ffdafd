//! `RL.LOG` and `RL.INFO`: one key, for people.

use crate::datatype::{self, LIMITER};
use crate::limit::{Access, Entry, Limiter, LogReport, StateReport, WindowReport};
use crate::server::reply::Writer;
use crate::server::{Call, CommandError, clock};
use crate::{newer, parse};

/// `RL.LOG key [COUNT n]`
pub fn log(call: &Call<'_>) -> Result<(), CommandError> {
    newer::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    let count = parse::log(call.after_key().bytes())?;
    let key = call.open_shown(name, &LIMITER)?;
    let limiter = key.as_ref().and_then(|key| key.value());
    let entries: Vec<Entry> =
        limiter.map_or_else(Vec::new, |limiter| limiter.last_checks().take(count).collect());
    call.reply(|to| {
        to.array(entries.len());
        for entry in &entries {
            to.array(4);
            to.count(entry.time_us / 1_000);
            to.count(entry.cost.into());
            to.integer(entry.verdict.code());
            match &entry.meta {
                Some(text) => to.text(text),
                None => to.null(),
            }
        }
    });
    Ok(())
}

/// `RL.INFO key`
pub fn info(call: &Call<'_>) -> Result<(), CommandError> {
    newer::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    parse::no_arguments(call.after_key().bytes())?;
    let mut key = call.open_shown(name, &LIMITER)?;
    let bytes = key.as_mut().map_or(0, datatype::bytes);
    let Some((key, limiter)) = key.as_ref().and_then(|key| key.value().map(|value| (key, value)))
    else {
        call.reply(|to| to.null());
        return Ok(());
    };
    let now_us = clock::now_us();
    let ttl_ms = key.expires_at_ms().map(|at_ms| at_ms.saturating_sub(now_us / 1_000));
    let states = limiter.report(now_us);
    call.reply(|to| {
        to.map(5);
        to.text("states");
        to.array(states.len());
        for state in &states {
            show_state(to, state);
        }
        to.text("access");
        show_access(to, limiter, now_us);
        to.text("history");
        to.count(limiter.history().map_or(0, |history| history.entries.len() as u64));
        to.text("ttl_ms");
        match ttl_ms {
            Some(ms) => to.count(ms),
            None => to.integer(-1),
        }
        to.text("bytes");
        to.count(bytes as u64);
    });
    Ok(())
}

fn show_state(to: &Writer<'_>, state: &StateReport) {
    let StateReport { rule, consumed, last_ms, reset_ms, log, window, windows } = state;
    let of_log = if log.is_some() { 3 } else { 0 };
    let of_window = if window.is_some() { 2 } else { 0 };
    let fields: [usize; 4] = [4, of_log, of_window, usize::from(windows.is_some())];
    to.map(fields.iter().sum());
    to.text_field("rule", rule);
    to.text("consumed");
    to.count(*consumed);
    to.text("last_ms");
    to.count(*last_ms);
    to.integer_field("reset_ms", *reset_ms);
    if let Some(LogReport { entries, denied, span_ms }) = log {
        for (name, value) in [("entries", entries), ("denied", denied), ("span_ms", span_ms)] {
            to.text(name);
            to.count(*value);
        }
    }
    if let Some(WindowReport { current, previous }) = window {
        for (name, value) in [("current", current), ("previous", previous)] {
            to.text(name);
            to.count(*value);
        }
    }
    if let Some(rows) = windows {
        to.text("windows");
        to.array(rows.len());
        for &(start_ms, count) in rows {
            to.array(2);
            to.integer(start_ms);
            to.count(count);
        }
    }
}

/// The block or exemption in force, or null.
fn show_access(to: &Writer<'_>, limiter: &Limiter, now_us: u64) {
    let Some(access) = limiter.access_at(now_us) else { return to.null() };
    to.map(3);
    to.text_field("kind", kind_name(access.kind));
    to.text_field("reason", &access.reason);
    to.integer_field("ttl_ms", access.left_ms(now_us));
}

/// As replies name it.
pub const fn kind_name(kind: Access) -> &'static str {
    match kind {
        Access::Block => "blocked",
        Access::Exempt => "exempt",
    }
}
