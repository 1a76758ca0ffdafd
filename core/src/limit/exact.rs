//! Exact products and quotients: too wide to overflow, and rounded only where the name says so.

/// `a * b`, which always fits.
pub fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

/// `n / d`, rounded down; 0 for a divisor of 0; capped at `u64::MAX`.
#[inline(always)]
pub fn floor_div(n: u128, d: u64) -> u64 {
    match u64::try_from(n) {
        Ok(n) => n.checked_div(d).unwrap_or(0),
        Err(_) => wide_floor_div(n, d),
    }
}

/// `n / d`, rounded up; 0 for a divisor of 0; capped at `u64::MAX`. The sum does not wrap: `n` is at
/// most a product of two `u64`.
#[inline(always)]
pub fn ceil_div(n: u128, d: u64) -> u64 {
    floor_div(n.wrapping_add(d.wrapping_sub(1).into()), d)
}

/// Out of line, since such large numbers are rare.
#[cold]
#[inline(never)]
fn wide_floor_div(n: u128, d: u64) -> u64 {
    narrow(n.checked_div(u128::from(d)).unwrap_or(0))
}

/// `n`, capped at `u64::MAX`.
pub fn narrow(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up, so that a caller never waits too short.
pub fn millis_up(us: u64) -> u64 {
    us.div_ceil(1_000)
}
