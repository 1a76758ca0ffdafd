//! Finds the least number by bisection.

/// The least `n >= 0` for which `holds`, given that it then holds for all larger ones too;
/// `None` if it lies beyond 2^70.
pub fn least(holds: impl Fn(i128) -> bool) -> Option<i128> {
    if holds(0) {
        return Some(0);
    }
    let mut high = 1;
    while !holds(high) {
        high *= 2;
        if high > 1 << 70 {
            return None;
        }
    }
    let mut low = high / 2;
    // holds(high), not holds(low)
    while high - low > 1 {
        let middle = i128::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// `least` in milliseconds, as replied: -1 if there is none.
pub fn least_ms(holds_after_us: impl Fn(i128) -> bool) -> i64 {
    const LONGEST: i64 = i64::MAX - 1;
    least(|ms| holds_after_us(ms * 1_000))
        .map_or(-1, |ms| i64::try_from(ms).unwrap_or(LONGEST).min(LONGEST))
}
