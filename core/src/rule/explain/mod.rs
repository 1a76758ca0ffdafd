//! A rule in plain English, for people who choose one.
//!
//! Each text says what the rule means, the worst burst it lets through, what
//! it keeps in memory and what its options add. The worst bursts are exact:
//! the most units that can pass at whole microseconds within `(t-W, t]`, for
//! any `t`, starting with nothing consumed. With `g` a gap in microseconds:
//!
//! ```text
//! log                  L
//! window               2L - ceil(L*g/w)    w = W/res, g = 1 + gcd(W, res)/res
//! fixed                2L
//! fixed, align=first   2L - 1
//! bucket               B + L - ceil(L/W)
//! bucket, interval     2B - 1
//! leaky, admitted      Q + 1 + L - ceil(L/W)
//! ```
//!
//! *Window.* Let the current sub-interval be `e` old. The true window still covers `w-e` of the
//! oldest counted sub-interval, so that one counts `(w-e)/w` of its units. If all `L` of them
//! came at its very end, they all lie in the true window, and the rule admits `L*e/w` more.
//! Nothing else is miscounted. The sum `L + floor(L*e/w)` grows with `e`, but the covered part
//! must contain a whole microsecond: `w-e` is at least `g`, the smallest distance above 1
//! between a microsecond and a boundary. More sub-intervals do not lower the sum, they only
//! move the second crowd away from the first: the `res-1` sub-intervals before `t` are counted
//! in full, so no stretch of `W - w` admits more than `L`.
//!
//! *First.* The request that opens a window comes a whole period before the next boundary, so
//! it is not part of the crowd just before that boundary: hence the `- 1`.
//!
//! *Bucket.* The first and the last microsecond of a window are `W-1` apart, and meanwhile
//! `L*(W-1)/W` tokens come back.

use super::text::TimeZone;
use super::{
    BucketParams, Calendar, FixedParams, Kind, LeakyParams, MS_US, Params, Period, Refill, Rule,
    RuleOption, Unit, WEEK_US, WindowParams, memory,
};

/// What a rule means, its worst burst and its memory, in a few sentences.
pub fn explain(rule: &Rule) -> String {
    let sentences = if rule.limit() == 0 {
        "the limit 0 denies every request, only a cost of 0 passes. Worst burst: none. \
         Memory: none, since nothing is consumed."
            .into()
    } else {
        match rule.params() {
            Params::Log => log(rule),
            Params::Window(WindowParams { res }) => window(rule, res),
            Params::Fixed(FixedParams { calendar, tz_min, keep }) => {
                fixed(rule, &fixed_windows(rule, calendar, tz_min), keep)
            }
            Params::Bucket(BucketParams { burst, refill }) => bucket(rule, burst, refill),
            Params::Leaky(LeakyParams { queue }) => leaky(rule, queue),
            Params::Slots => slots(rule),
        }
    };
    let options = RuleOption::ALL.map(|option| remark(rule, option)).concat();
    format!("{rule}: {sentences}{options}")
}

/// What an option or its absence adds to the sentences about the algorithm.
fn remark(rule: &Rule, option: RuleOption) -> String {
    match option {
        RuleOption::Res
        | RuleOption::Align
        | RuleOption::Tz
        | RuleOption::Keep
        | RuleOption::Burst
        | RuleOption::Refill
        | RuleOption::Queue => String::new(),
        RuleOption::Name => identity(rule),
        RuleOption::Count if rule.counts_all() => {
            " Denied requests are charged too: a client that keeps asking stays limited.".into()
        }
        RuleOption::Shadow if rule.is_shadow() => " On trial (shadow): reported, and charged when \
             the check is allowed, but it never denies."
            .into(),
        RuleOption::Count | RuleOption::Shadow => String::new(),
        RuleOption::Cost => cost(rule),
        RuleOption::Ban => ban(rule),
    }
}

/// The most units that can pass within one period: the table above. A leaky bucket's
/// units count when they are admitted, not when their turn comes.
pub(crate) fn worst_in_period(rule: &Rule) -> u64 {
    let (limit, period_us) = (u64::from(rule.limit()), rule.period_us().max(1));
    let capacity = rule.capacity();
    match rule.params() {
        _ if limit == 0 => 0,
        Params::Log | Params::Slots => limit,
        Params::Window(WindowParams { res }) => worst_of_window(limit, period_us, res),
        Params::Fixed(FixedParams { calendar: Some(_), .. }) => limit.saturating_mul(2),
        Params::Fixed(FixedParams { calendar: None, .. })
        | Params::Bucket(BucketParams { refill: Refill::Interval, .. }) => {
            capacity.saturating_mul(2).saturating_sub(1)
        }
        Params::Bucket(BucketParams { refill: Refill::Even, .. }) | Params::Leaky(_) => {
            capacity.saturating_add(limit).saturating_sub(limit.div_ceil(period_us))
        }
    }
}

fn worst_of_window(limit: u64, period_us: u64, res: u8) -> u64 {
    let (limit, period_us, res) = (u128::from(limit), u128::from(period_us), u128::from(res));
    // g/w = (res + gcd) / W
    let gap = res.saturating_add(gcd(period_us, res));
    let missing = limit.saturating_mul(gap).div_ceil(period_us.max(1));
    u64::try_from(limit.saturating_mul(2).saturating_sub(missing)).unwrap_or(u64::MAX)
}

fn gcd(a: u128, b: u128) -> u128 {
    a.checked_rem(b).map_or(a, |rest| gcd(b, rest))
}

/// The worst burst in words. If more than the capacity can pass in one period, `burst`
/// describes it.
fn at_worst(rule: &Rule, burst: impl FnOnce(u64) -> String) -> String {
    let (most, worst) = (rule.capacity(), worst_in_period(rule));
    if worst > most {
        burst(worst)
    } else {
        format!("{} at once, and never more in any {}", requests(most), per(rule.period_us()))
    }
}

fn log(rule: &Rule) -> String {
    let limit = u64::from(rule.limit());
    let (least, most) = (memory::log_entry(0), memory::log_entry(rule.period_us()));
    let entry = if least == most { least.to_string() } else { format!("{least} to {most}") };
    format!(
        "at most {} in any {}, wherever it begins (sliding log, exact). \
         Worst burst: {}. \
         Memory: {} bytes, and {entry} a request remembered, up to {}; 4 more a \
         request once costs differ; one log serves all log rules of a key.",
        requests(limit),
        per(rule.period_us()),
        at_worst(rule, |worst| worst.to_string()),
        memory::LOG_KEY,
        limit.saturating_mul(most),
    )
}

fn window(rule: &Rule, res: u8) -> String {
    let (limit, period_us, parts) = (rule.limit(), rule.period_us(), u64::from(res));
    let (period, counters) = (per(period_us), parts.saturating_add(1));
    let part = share(period_us.into(), parts);
    let worst = at_worst(rule, |worst| {
        let crowds = format!(
            "{} at once, and up to {worst} in one {period}, if they crowd at the end of a \
             sub-interval and again {} later",
            requests(limit.into()),
            time(period_us)
        );
        if res == 1 {
            return crowds;
        }
        // W - w: exact where it is a whole number, else rounded down.
        let us = u128::from(period_us).saturating_mul(parts.saturating_sub(1).into());
        format!("{crowds}, but never more than {limit} in {}", share(us, parts))
    });
    format!(
        "about {} in any {period}, counted by sub-intervals of {part}: the oldest counts with \
         the share of it that is still in reach, as if its requests had come evenly \
         (sliding window counter). \
         Worst burst: {worst}. \
         Memory: {} bytes, and {} for each of {counters} counters.",
        requests(limit.into()),
        memory::WINDOW_KEY,
        memory::WINDOW_COUNTER,
    )
}

/// The windows of a `fixed` rule, in words.
fn fixed_windows(rule: &Rule, calendar: Option<Calendar>, tz_min: i16) -> String {
    let (us, zone) = (rule.period_us(), zone(tz_min));
    match calendar {
        None => format!("window of {}, opened by the first request", time(us)),
        Some(Calendar::Months) => format!("calendar month, from the 1st at 00:00 {zone}"),
        Some(Calendar::Weeks) if us == WEEK_US => format!("week, from Monday at 00:00 {zone}"),
        Some(Calendar::Weeks) => {
            format!("{}, counted from Monday 1970-01-05 00:00 {zone}", per(us))
        }
        Some(Calendar::Epoch) => format!("{}, counted from 1970-01-01 00:00 {zone}", per(us)),
    }
}

fn fixed(rule: &Rule, windows: &str, keep: u16) -> String {
    let limit = u64::from(rule.limit());
    let worst = at_worst(rule, |worst| {
        let before = worst.saturating_sub(limit);
        format!(
            "{} within a moment, {before} at the end of a window and {limit} at the start of \
             the next",
            requests(worst)
        )
    });
    let memory = match u64::from(keep) {
        0 => constant(),
        keep => format!(
            "{} bytes, and up to {} for {} kept for graphs",
            memory::KEY,
            amount(keep.saturating_mul(memory::PAST_WINDOW), "byte"),
            amount(keep, "past window")
        ),
    };
    format!(
        "at most {} in each {windows} (fixed window). Worst burst: {worst}. Memory: {memory}.",
        requests(limit)
    )
}

fn bucket(rule: &Rule, burst: u32, refill: Refill) -> String {
    let (burst, us) = (u64::from(burst), rule.period_us());
    let back = match refill {
        Refill::Even => {
            format!("they come back evenly, one in {}", share(us.into(), rule.limit().into()))
        }
        Refill::Interval => {
            format!("all come back at once, {} after the first was taken", time(us))
        }
    };
    let worst = at_worst(rule, |worst| match refill {
        Refill::Even => {
            format!("{} at once, and up to {worst} in one {}", requests(burst), per(us))
        }
        Refill::Interval => format!(
            "{} within a moment, {} just before the tokens come back and {burst} just after",
            requests(worst),
            worst.saturating_sub(burst)
        ),
    });
    format!(
        "a bucket of {}, full at first; a request takes one, and {back} (token bucket). \
         Worst burst: {worst}. Memory: {}.",
        amount(burst, "token"),
        constant(),
    )
}

fn leaky(rule: &Rule, queue: u32) -> String {
    let every = share(rule.period_us().into(), rule.limit().into());
    let turns = match queue {
        0 => "nobody waits, and one that comes sooner is denied".into(),
        _ => format!(
            "{queue} more can wait for their turn, which an allowed request reads from its wait_ms"
        ),
    };
    let burst = match queue {
        0 => format!("1 request at once, the next {every} later"),
        _ => format!(
            "{} admitted at once, but they proceed {every} apart if they wait their turn",
            requests(rule.capacity())
        ),
    };
    format!(
        "requests proceed one by one, one in {every}; {turns} (leaky bucket). \
         Worst burst: {burst}. Memory: {}.",
        constant()
    )
}

fn slots(rule: &Rule) -> String {
    format!(
        "at most {} at once: each takes a slot with HOLD, and gives it back when its hold is \
         settled or lapses (concurrency limit). Worst burst: {} at once, as often as holds are \
         settled. Memory: {} to {} bytes a hold with an id of up to 22 bytes.",
        requests(rule.limit().into()),
        rule.limit(),
        memory::HOLD,
        memory::HOLD.saturating_add(memory::HOLD / 8),
    )
}

fn constant() -> String {
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
    let (shape, free) = match rule.kind() {
        Kind::Log => return String::new(),
        Kind::Window => ("algorithm, period and res", "limit"),
        Kind::Fixed => ("algorithm, period, align and tz", "limit and keep"),
        Kind::Bucket => ("algorithm, period and refill", "limit and burst"),
        Kind::Leaky => ("algorithm and period", "limit and queue"),
        Kind::Slots => ("algorithm", "limit"),
    };
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
    format!("{denial} each time; bans are forgotten once the last has ended {longest} ago.")
}

fn requests(count: u64) -> String {
    amount(count, "request")
}

/// `1 byte`, `2 bytes`.
fn amount(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A length of time in the longest unit that divides it: `1 minute`, `90 seconds`.
fn time(us: u64) -> String {
    let (count, noun) = count_and_noun(us);
    amount(count, noun)
}

/// A length of time after "any" or "each": `minute`, `90 seconds`.
fn per(us: u64) -> String {
    match count_and_noun(us) {
        (1, noun) => noun.into(),
        (count, noun) => amount(count, noun),
    }
}

fn count_and_noun(us: u64) -> (u64, &'static str) {
    let Some(Period { count, unit }) = Period::of_micros(us, true) else {
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
fn share(us: u128, of: u64) -> String {
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

/// `UTC`, `UTC+02:00`.
fn zone(tz_min: i16) -> String {
    if tz_min == 0 { "UTC".into() } else { format!("UTC{}", TimeZone(tz_min)) }
}

#[cfg(test)]
mod tests;
