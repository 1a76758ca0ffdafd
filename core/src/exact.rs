//! Exact products and quotients: too wide to overflow, and rounded only where the name says so.

/// `a * b`, which always fits.
pub fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

/// `n / d`, rounded down; 0 for a divisor of 0; capped at `u64::MAX`.
pub fn floor_div(n: u128, d: u64) -> u64 {
    match (u64::try_from(n), d) {
        (_, 0) => 0,
        (Ok(n), d) => n.checked_div(d).unwrap_or(0),
        (Err(_), d) => wide_floor_div(n, d),
    }
}

/// `n / d`, rounded up; 0 for a divisor of 0; capped at `u64::MAX`.
#[inline(always)]
pub fn ceil_div(n: u128, d: u64) -> u64 {
    match (u64::try_from(n), d) {
        (_, 0) => 0,
        (Ok(n), d) => n.div_ceil(d),
        (Err(_), d) => wide_ceil_div(n, d),
    }
}

/// Out of line, since such large numbers are rare.
#[cold]
#[inline(never)]
fn wide_floor_div(n: u128, d: u64) -> u64 {
    narrow(n.checked_div(u128::from(d)).unwrap_or(0))
}

#[cold]
#[inline(never)]
fn wide_ceil_div(n: u128, d: u64) -> u64 {
    narrow(n.div_ceil(u128::from(d)))
}

/// `n`, capped at `u64::MAX`.
pub fn narrow(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up, so that no caller waits too briefly.
pub fn millis_up(us: u64) -> u64 {
    us.div_ceil(1_000)
}
