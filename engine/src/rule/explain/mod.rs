//! A rule in plain English, for people who choose one.
//!
//! Each text says what the rule means, the worst burst it lets through, what it keeps in memory and
//! what its options add. The worst bursts are exact: the most units that can pass at whole
//! microseconds within `(t-W, t]`, for any `t`, if nothing was consumed before. Each algorithm's
//! file of words derives its formula.

use super::{CommonOption, Kind, MS_US, Period, Rule, Unit, memory};
use alloc::{string::String, vec::Vec};

/// What a rule means, its worst burst and its memory, in a few sentences.
pub fn explain(rule: &Rule) -> String {
    let sentences = if rule.limit() == 0 {
        "the limit 0 denies every request, only a cost of 0 passes. Worst burst: none. \
         Memory: none, since nothing is consumed."
            .into()
    } else {
        rule.params().explain(rule)
    };
    let options = CommonOption::ALL.map(|option| remark(rule, option)).concat();
    format!("{rule}: {sentences}{options}")
}

/// What an option or its absence adds to the sentences about the algorithm.
fn remark(rule: &Rule, option: CommonOption) -> String {
    match option {
        CommonOption::Name => identity(rule),
        CommonOption::Count if rule.counts_all() => {
            " Denied requests are charged too: a client that keeps asking stays limited.".into()
        }
        CommonOption::Shadow if rule.is_shadow() => {
            " On trial (shadow): reported, and charged when \
             the check is allowed, but it never denies."
                .into()
        }
        CommonOption::Count | CommonOption::Shadow => String::new(),
        CommonOption::Cost => cost(rule),
        CommonOption::Ban => ban(rule),
    }
}

/// The most units that can pass within one period.
pub(crate) fn worst_in_period(rule: &Rule) -> u64 {
    if rule.limit() == 0 { 0 } else { rule.params().worst_in_period(rule) }
}

/// The worst burst in words. If more than the capacity can pass in one period, `burst`
/// describes it.
pub(crate) fn at_worst(rule: &Rule, burst: impl FnOnce(u64) -> String) -> String {
    let (most, worst) = (rule.capacity(), worst_in_period(rule));
    if worst > most {
        burst(worst)
    } else {
        format!("{} at once, and never more in any {}", requests(most), per(rule.period_us()))
    }
}

pub(crate) fn constant() -> String {
    format!("{} bytes, however many requests come", memory::KEY)
}

/// The rule's identity, and what may change without the rule losing its state.
fn identity(rule: &Rule) -> String {
    if let Some(name) = rule.name() {
        let name = name.as_str();
        return if rule.kind() == Kind::Log {
            format!(" The name '{name}' labels it; all log rules read the key's one log.")
        } else {
            format!(
                " Identity: the name '{name}', so limit, period and options may change and what \
                 was consumed is kept."
            )
        };
    }
    let Some((shape, free)) = rule.params().identity() else { return String::new() };
    format!(" Identity: the {shape}, so the {free} may change and what was consumed is kept.")
}

fn cost(rule: &Rule) -> String {
    let Some(cost) = rule.cost().written() else { return String::new() };
    let taken = match cost {
        0 => "nothing".into(),
        cost => amount(cost.into(), "unit"),
    };
    let text = format!(" A check takes {taken} of it, whatever COST n says");
    match rule.name() {
        Some(name) => format!("{text}; COST {}=n takes n.", name.as_str()),
        None => format!("{text}."),
    }
}

fn ban(rule: &Rule) -> String {
    let Some(ladder) = rule.ban() else { return String::new() };
    if rule.is_shadow() {
        return " Its ban never sets in while it is on trial.".into();
    }
    let rungs: Vec<_> = ladder.rungs_us().map(time).collect();
    let denial = format!(" A denial by it blocks the key for {}", rungs.join(", then "));
    if !ladder.counts_bans() {
        return format!("{denial}.");
    }
    let longest = time(ladder.longest_us());
    format!("{denial} each time; bans are forgotten {longest} after the last one ends.")
}

pub(crate) fn requests(count: u64) -> String {
    amount(count, "request")
}

/// `1 byte`, `2 bytes`.
pub(crate) fn amount(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A length of time in the longest unit that divides it: `1 minute`, `90 seconds`.
pub(crate) fn time(us: u64) -> String {
    let (count, noun) = count_and_noun(us);
    amount(count, noun)
}

/// A length of time after "any" or "each": `minute`, `90 seconds`.
pub(crate) fn per(us: u64) -> String {
    match count_and_noun(us) {
        (1, noun) => noun.into(),
        (count, noun) => amount(count, noun),
    }
}

fn count_and_noun(us: u64) -> (u64, &'static str) {
    let Some(Period { count, unit }) = Period::of_micros(us, Unit::Week) else {
        return (us, "microsecond");
    };
    let noun = match unit {
        Unit::Month => "month",
        Unit::Week => "week",
        Unit::Day => "day",
        Unit::Hour => "hour",
        Unit::Minute => "minute",
        Unit::Second => "second",
        Unit::Millisecond => "millisecond",
    };
    (count, noun)
}

/// The fraction `us / of` of a length of time: `3 seconds` if exact, else rounded down to
/// milliseconds, or below 10 ms to microseconds.
pub(crate) fn share(us: u128, of: u64) -> String {
    let of = u128::from(of.max(1));
    let whole_us = u64::try_from(us.checked_div(of).unwrap_or(0)).unwrap_or(u64::MAX);
    let ms = whole_us / MS_US;
    match whole_us {
        0 => "less than 1 microsecond".into(),
        _ if us.is_multiple_of(of) && (whole_us.is_multiple_of(MS_US) || ms < 10) => time(whole_us),
        _ if ms < 10 => format!("about {}", amount(whole_us, "microsecond")),
        _ => format!("about {}", amount(ms, "millisecond")),
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
