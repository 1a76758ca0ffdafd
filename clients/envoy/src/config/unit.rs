//! Units of time, as the protocol names them.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

const DAY: u64 = 24 * 3600;
/// Each unit, its period in the language of rules, and its seconds. Months and years have the days
/// that the reference gives them.
const UNITS: [(Unit, &str, u64); 7] = [
    (Unit::Second, "s", 1),
    (Unit::Minute, "m", 60),
    (Unit::Hour, "h", 3600),
    (Unit::Day, "d", DAY),
    (Unit::Week, "w", 7 * DAY),
    (Unit::Month, "30d", 30 * DAY),
    (Unit::Year, "365d", 365 * DAY),
];

/// The unit in the language of rules, if it is known.
pub fn period(unit: Unit) -> Option<&'static str> {
    UNITS.into_iter().find(|(known, ..)| *known == unit).map(|(_, period, _)| period)
}

/// The unit of this length, if there is one.
pub fn of(period: Duration) -> Unit {
    let found = UNITS.into_iter().find(|(_, _, seconds)| Duration::from_secs(*seconds) == period);
    found.map_or(Unit::Unknown, |(unit, ..)| unit)
}
