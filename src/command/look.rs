//! `RL.LOG` and `RL.INFO`: one key, for people.

use crate::datatype::{self, LIMITER};
use crate::limit::{Limiter, LogReport, Mark, OverrideKind, StateReport, WindowReport};
use crate::server::reply::Writer;
use crate::server::{Call, Failure, clock};
use crate::{newer, parse};

/// `RL.LOG key [COUNT n]`
pub fn log(call: &Call<'_>) -> Result<(), Failure> {
    newer::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    let count = parse::log(call.after_key().bytes())?;
    let key = call.open_shown(name, &LIMITER)?;
    let limiter = key.as_ref().and_then(|key| key.value());
    let marks: Vec<Mark> =
        limiter.map_or_else(Vec::new, |limiter| limiter.history().take(count).collect());
    call.reply(|to| {
        to.array(marks.len());
        for mark in &marks {
            to.array(4);
            to.count(mark.time_us / 1_000);
            to.count(mark.cost.into());
            to.integer(mark.verdict.code());
            match &mark.meta {
                Some(text) => to.text(text),
                None => to.null(),
            }
        }
    });
    Ok(())
}

/// `RL.INFO key`
pub fn info(call: &Call<'_>) -> Result<(), Failure> {
    newer::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    parse::nothing(call.after_key().bytes())?;
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
        to.text("override");
        show_override(to, limiter, now_us);
        to.text("marks");
        to.count(limiter.trail().map_or(0, |trail| trail.marks.len() as u64));
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
fn show_override(to: &Writer<'_>, limiter: &Limiter, now_us: u64) {
    let Some(overrule) = limiter.override_at(now_us) else { return to.null() };
    to.map(3);
    to.text_field("kind", kind_name(overrule.kind));
    to.text_field("reason", &overrule.reason);
    to.integer_field("ttl_ms", overrule.left_ms(now_us));
}

/// As replies name it.
pub const fn kind_name(kind: OverrideKind) -> &'static str {
    match kind {
        OverrideKind::Block => "blocked",
        OverrideKind::Exempt => "exempt",
    }
}
