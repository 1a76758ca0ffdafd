//! A search that starts from a guess.

/// The first index below `len` for which `later` holds, or `len`. `later` must also hold for all
/// indexes after it. Gallops from `guess` (Bentley and Yao, "An Almost Optimal Algorithm for
/// Unbounded Searching", 1976): the cost is the logarithm of the distance from it.
pub fn first_where(len: u32, guess: u32, later: impl Fn(u32) -> bool) -> u32 {
    let Some(last) = len.checked_sub(1) else { return 0 };
    let (mut low, mut high, mut step) = (0, len, 1u32);
    let guess = guess.min(last);
    if later(guess) {
        high = guess;
        while high > 0 {
            let probe = high.saturating_sub(step);
            if !later(probe) {
                low = probe.saturating_add(1);
                break;
            }
            high = probe;
            step = step.saturating_mul(2);
        }
    } else {
        low = guess.saturating_add(1);
        while low < len {
            let probe = low.saturating_add(step).min(last);
            if later(probe) {
                high = probe;
                break;
            }
            low = probe.saturating_add(1);
            step = step.saturating_mul(2);
        }
    }
    while low < high {
        let middle = low.midpoint(high);
        if later(middle) {
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    low
}
