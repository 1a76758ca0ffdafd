//! The saved form of a limiter: one versioned payload.
//!
//! ```text
//! | version: 1 byte | bincode (standard: little endian, variable integers) |
//! ```
//!
//! `docs/internals/design.md`, *Payloads*, lists the fields of each part. The writer and the reader
//! of a part stand side by side and name its fields in that order. A change needs a new version, with
//! golden payloads added to the tests; every released version stays readable.
//!
//! Decoding is total: any byte string gives a limiter or an error. Decoding takes no more memory
//! than the decoded value, and fails if memory is short.
//!
//! ```text
//! holds   holds and their charges
//! parts   payloads for tests, with any bytes in place of one part
//! ```

mod holds;
#[cfg(feature = "testing")]
#[allow(clippy::arithmetic_side_effects, reason = "only for tests")]
pub mod parts;

use self::holds::{load_holds, save_holds};
use super::{
    Access, AccessEntry, Author, BanCount, Compound, Entry, History, Limiter, MAX_END_US,
    MAX_FORGOTTEN_US, MAX_SPAN_US, MAX_USER, Pause, PauseAndPlan, Plan, Verdict,
};
use crate::algorithm::{Meter, State};
use crate::rule::{Kind, MAX_PERIOD_US, MAX_UNITS, Name};
use crate::saved::{
    DecodeError, VERSION, WITHOUT_AUTHOR, check_time, load_items, load_name, load_text, put,
    put_bytes, save_items, take, within,
};
use alloc::{boxed::Box, vec::Vec};
use core::num::NonZeroU64;

/// Whether it is an exemption, its end, the length of the ban, and the reason.
type SavedAccess<'a> = (bool, Option<u64>, Option<u64>, &'a [u8]);
/// When it was set, and the name of the user.
type SavedAuthor<'a> = (u64, &'a [u8]);
/// How many entries to keep, until when, and the entries.
type SavedHistory<'a> = (u32, u64, &'a [u8]);
/// The time, the cost, the verdict's code, and the text of `META`.
type SavedEntry<'a> = (u64, u32, u8, Option<&'a [u8]>);
/// The count, when it is forgotten, and its span.
type SavedBans = (u32, u64, u64);
/// The end, the length, and the reason.
type SavedPause<'a> = (u64, u64, &'a [u8]);
/// The end, and the name of the policy.
type SavedPlan<'a> = (Option<u64>, &'a str);

/// The most bytes that the payload of a key with one state takes, unless the state is a log or has
/// a long name.
const USUAL_BYTES: usize = 64;

/// Encodes a limiter in its saved form.
pub fn encode(limiter: &Limiter) -> Vec<u8> {
    let mut payload = Vec::with_capacity(USUAL_BYTES);
    let access = limiter.access();
    let authored = access.and_then(|access| Some((access, access.author.as_ref()?)));
    payload.push(if authored.is_some() { VERSION } else { WITHOUT_AUTHOR });
    put_bytes(&mut payload, |payload| save_states(limiter.states(), payload));
    match authored {
        None => put(&mut payload, &access.map(save_access)),
        Some((access, Author { since_us, user })) => {
            put(&mut payload, &(save_access(access), (since_us, &**user)));
        }
    }
    let history = limiter.history().map(save_history);
    let holds = limiter.holds().map(save_holds).unwrap_or_default();
    let bans = limiter.bans().map(|count| (count.bans, count.forgotten_us, count.span_us));
    put(&mut payload, &(history, holds, bans));
    let (pause, plan) = (limiter.pause(), limiter.plan());
    if pause.is_some() || plan.is_some() {
        put(&mut payload, &pause.map(|it| (it.until_us, it.length_us, &*it.reason)));
    }
    if let Some(plan) = plan {
        put(&mut payload, &(plan.until_us, plan.name.as_str()));
    }
    payload
}

/// Decodes a saved limiter.
///
/// # Errors
/// [`DecodeError`] if the payload is malformed, exceeds a bound or has an unknown version.
pub fn decode(payload: &[u8]) -> Result<Limiter, DecodeError> {
    let (&version, mut body) = payload.split_first().ok_or(DecodeError::Empty)?;
    if !(WITHOUT_AUTHOR..=VERSION).contains(&version) {
        return Err(DecodeError::Version(version));
    }
    let states = take(&mut body)?;
    let access = match version {
        WITHOUT_AUTHOR => take::<Option<_>>(&mut body)?.map(|access| (access, None)),
        _ => Some(take(&mut body).map(|(access, author)| (access, Some(author)))?),
    };
    let (history, holds, bans): (Option<_>, _, Option<_>) = take(&mut body)?;
    let history = history.map(load_history).transpose()?;
    let pause_and_plan = load_pause_and_plan(&mut body)?;
    if !body.is_empty() {
        return Err(DecodeError::Trailing(body.len()));
    }
    let states = load_states(states)?;
    let holds = load_holds(holds, &states)?;
    let held = |place| holds.as_ref().is_some_and(|holds| holds.track_of(place).is_some());
    if (0..).zip(&states).any(|(place, state)| state.meter().is_empty() && !held(place)) {
        return Err(DecodeError::Idle);
    }
    let access = access.map(load_access).transpose()?.map(Box::new);
    let bans = bans.map(load_bans).transpose()?.map(Box::new);
    let (history, holds) = (history.map(Box::new), holds.map(Box::new));
    let limiter = Limiter::of(Compound { states, access, pause_and_plan, bans, history, holds });
    if limiter.is_empty() { Err(DecodeError::Idle) } else { Ok(limiter) }
}

fn save_states(states: &[State], payload: &mut Vec<u8>) {
    for state in states {
        put(payload, &state.name().as_ref().map(Name::as_str));
        state.meter().save(payload);
    }
}

/// The states of a limiter, each as its algorithm saves it. No first pass counts them, because the
/// list takes less memory than the allocations of the states in it.
fn load_states(mut saved: &[u8]) -> Result<Vec<State>, DecodeError> {
    let mut states = Vec::new();
    while !saved.is_empty() {
        let state = load_state(&mut saved)?;
        // Most keys have one state.
        let reserved = match states.is_empty() {
            true => states.try_reserve_exact(1),
            false => states.try_reserve(1),
        };
        reserved.map_err(|_| DecodeError::NoMemory(states.len()))?;
        states.push(state);
    }
    states.shrink_to_fit();
    Ok(states)
}

fn load_state(from: &mut &[u8]) -> Result<State, DecodeError> {
    let name: Option<&str> = take(from)?;
    let meter = Meter::load(from)?;
    let name = name.map(load_name).transpose()?;
    within(name.is_none() || !meter.is_of_kind(Kind::Log), "the name of a log")?;
    Ok(State::named(name.as_ref(), meter))
}

fn save_access(access: &AccessEntry) -> SavedAccess<'_> {
    let ban_us = access.ban_us.map(NonZeroU64::get);
    (access.kind == Access::Exempt, access.until_us, ban_us, &access.reason)
}

/// A ban of 0 microseconds is read as no ban.
fn load_access(
    (saved, author): (SavedAccess<'_>, Option<SavedAuthor<'_>>),
) -> Result<AccessEntry, DecodeError> {
    let (exempt, until_us, ban_us, reason) = saved;
    let kind = if exempt { Access::Exempt } else { Access::Block };
    let ban_us = ban_us.and_then(NonZeroU64::new);
    let author = author.map(load_author).transpose()?;
    Ok(AccessEntry { kind, until_us, ban_us, reason: load_text(reason)?, author })
}

fn load_author((since_us, user): SavedAuthor<'_>) -> Result<Author, DecodeError> {
    check_time(since_us)?;
    within(user.len() <= MAX_USER, "the name of a user")?;
    Ok(Author { since_us, user: load_text(user)? })
}

/// Takes the last parts, which only a key with a pause or a plan has. The pause or its absence comes
/// first, and then the plan, if any.
fn load_pause_and_plan(body: &mut &[u8]) -> Result<Option<Box<PauseAndPlan>>, DecodeError> {
    let left = body.len();
    if left == 0 {
        return Ok(None);
    }
    let pause: Option<_> = take(body)?;
    let plan = if body.is_empty() { None } else { Some(load_plan(take(body)?)?) };
    if pause.is_none() && plan.is_none() {
        return Err(DecodeError::Trailing(left));
    }
    let pause = pause.map(load_pause).transpose()?.map(Box::new);
    Ok(Some(Box::new(PauseAndPlan { pause, plan: plan.map(Box::new) })))
}

fn load_plan((until_us, name): SavedPlan<'_>) -> Result<Plan, DecodeError> {
    within(until_us.is_none_or(|until_us| until_us <= MAX_END_US), "a time")?;
    Ok(Plan { name: load_name(name)?, until_us })
}

fn load_pause((until_us, length_us, reason): SavedPause<'_>) -> Result<Pause, DecodeError> {
    within(until_us <= MAX_END_US, "a time")?;
    within(length_us <= MAX_PERIOD_US, "the length of a pause")?;
    Ok(Pause { until_us, length_us, reason: load_text(reason)? })
}

fn load_bans((bans, forgotten_us, span_us): SavedBans) -> Result<BanCount, DecodeError> {
    within(bans > 0, "a number of bans")?;
    within(forgotten_us <= MAX_FORGOTTEN_US, "a time")?;
    within(span_us <= MAX_SPAN_US, "the span of bans")?;
    Ok(BanCount { bans, forgotten_us, span_us })
}

/// The verdicts, in the order of their codes.
const VERDICTS: [Verdict; 3] = [Verdict::Allowed, Verdict::Limited, Verdict::Blocked];

fn save_history(history: &History) -> (u32, u64, Vec<u8>) {
    let entries = history.entries.iter();
    let entries = entries
        .map(|entry| (entry.time_us, entry.cost, entry.verdict as u8, entry.meta.as_deref()));
    (history.keep, history.until_us, save_items(entries))
}

fn load_history((keep, until_us, entries): SavedHistory<'_>) -> Result<History, DecodeError> {
    const ENTRIES: &str = "the length of a history";
    within(until_us <= MAX_END_US, "a time")?;
    let load_entry = |(time_us, cost, verdict, meta): SavedEntry<'_>| {
        check_time(time_us)?;
        within(cost <= MAX_UNITS, "a cost")?;
        let verdict = VERDICTS.get(usize::from(verdict));
        let verdict = *verdict.ok_or(DecodeError::OutOfRange("a verdict"))?;
        Ok(Entry { time_us, cost, verdict, meta: meta.map(load_text).transpose()? })
    };
    let entries = load_items(entries, keep as usize, ENTRIES, load_entry)?;
    within(!entries.is_empty(), ENTRIES)?;
    Ok(History { keep, until_us, entries: entries.into() })
}

#[cfg(all(test, feature = "testing"))]
mod tests;
