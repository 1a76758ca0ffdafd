//! Deciding a check.
//!
//! ```text
//! check      several rules, of one key or several, one answer, all or nothing
//! fast       the fast path, where all rules look at the key's one state
//! decision   what one rule says: five integers
//! deciding   which rule decides, and which bans
//! crowd      how many states a key may hold
//! wait       how long a check waits for states that the clock will come near
//! outlook    when a rule lets one more unit pass
//! ```

pub mod check;
pub mod crowd;
pub mod deciding;
pub mod decision;
mod fast;
pub mod outlook;
mod wait;
