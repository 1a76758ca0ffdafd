//! Converts a limiter to its saved form.

use super::form::{
    Bytes, SavedAccess, SavedBans, SavedEntry, SavedHistory, SavedMeter, SavedNeeds, SavedPast,
    SavedPastNeeds, SavedState, put, save_items,
};
use crate::limit::algorithm::fixed::Fixed;
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::meter::Meter;
use crate::limit::algorithm::state::State;
use crate::limit::series::needs::Needs;
use crate::limit::value::access::{Access, AccessEntry};
use crate::limit::value::bans::BanCount;
use crate::limit::value::check::Verdict;
use crate::limit::value::history::History;
use crate::rule::Name;
use std::num::NonZeroU64;

pub fn save_states(states: &[State]) -> Bytes<'static> {
    let mut bytes = Vec::new();
    for state in states {
        let name = state.name();
        let name = name.as_ref().map(Name::as_str);
        put(&mut bytes, &SavedState { name, meter: save_meter(state.meter()) });
    }
    bytes.into()
}

pub fn save_access(access: &AccessEntry) -> SavedAccess<'_> {
    SavedAccess {
        exempt: access.kind == Access::Exempt,
        until_us: access.until_us,
        ban_us: access.ban_us.map(NonZeroU64::get),
        reason: &access.reason,
    }
}

pub const fn save_bans(&BanCount { bans, forgotten_us, span_us }: &BanCount) -> SavedBans {
    SavedBans { bans, forgotten_us, span_us }
}

pub fn save_history(history: &History) -> SavedHistory<'static> {
    let entries = save_items(history.entries.iter().map(|entry| SavedEntry {
        time_us: entry.time_us,
        cost: entry.cost,
        verdict: match entry.verdict {
            Verdict::Allowed => 0,
            Verdict::Limited => 1,
            Verdict::Blocked => 2,
        },
        meta: entry.meta.as_deref(),
    }));
    SavedHistory { keep: history.keep, until_us: history.until_us, entries }
}

pub fn save_meter(meter: &Meter) -> SavedMeter<'static> {
    match meter {
        Meter::Log(log) => save_log(log),
        Meter::Window(window) => SavedMeter::Window {
            last_us: window.last_us(),
            period_us: window.period_us(),
            limit: window.limit(),
            counts: save_items(window.counts()),
        },
        Meter::Fixed(fixed) => save_fixed(fixed, None),
        Meter::FixedWithPast(kept) => {
            let windows = save_items(kept.past.iter().map(|past| (past.start_us, past.count)));
            save_fixed(&kept.fixed, Some(SavedPast { keep: kept.keep, windows }))
        }
        Meter::Debt(debt) => SavedMeter::Debt {
            last_us: debt.last_us,
            period_us: debt.period_us(),
            rem: debt.rem.get(),
            units: debt.units,
            limit: debt.limit,
            burst_or_queue: debt.burst_or_queue.units(),
            leaky: debt.is_leaky(),
        },
        Meter::Interval(interval) => SavedMeter::Interval {
            last_us: interval.last_us(),
            period_us: interval.period_us(),
            start_us: interval.window.start_us().cast_unsigned(),
            used: interval.used,
            limit: interval.limit,
            burst: interval.burst,
        },
        Meter::Slots(limit) => SavedMeter::Slots { limit: *limit },
    }
}

fn save_log(log: &Log) -> SavedMeter<'static> {
    let admitted = save_entries(log.admitted().iter());
    let charged = save_entries(log.charged().iter().flat_map(|series| series.iter()));
    let past = save_items(log.past_needs().iter().map(|past| SavedPastNeeds {
        needs: save_needs(past.needs.unpack()),
        until_us: past.until_us,
    }));
    SavedMeter::Log { needs: save_needs(log.needs()), past, admitted, charged }
}

const fn save_needs(Needs { window_us, units, admitted }: Needs) -> SavedNeeds {
    SavedNeeds { window_us, units, admitted }
}

fn save_fixed<'a>(fixed: &Fixed, past: Option<SavedPast<'a>>) -> SavedMeter<'a> {
    SavedMeter::Fixed {
        last_us: fixed.last_us(),
        period_us: fixed.period_us(),
        start_us: fixed.start_us(),
        count: fixed.count(),
        limit: fixed.limit,
        tz_min: fixed.anchor.tz_min(),
        calendar: fixed.anchor.code(),
        past,
    }
}

fn save_entries(entries: impl Iterator<Item = (u64, u32)>) -> Bytes<'static> {
    let mut before_us = 0u64;
    save_items(entries.map(|(time_us, units)| {
        let gap_us = time_us.saturating_sub(before_us);
        before_us = time_us;
        (gap_us, units)
    }))
}
