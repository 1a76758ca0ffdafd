//! Deciding a check.
//!
//! ```text
//! decision    what one rule decides: five integers
//! deciding    which rule's decision is the answer, and which rule bans
//! outcome     the answer to a check, and what was done
//! evaluation  every rule of a key reads its state and decides
//! keys        the general path: several rules and keys, one answer, all or nothing
//! fast        the fast path: all rules read the key's one state
//! check       a check of one key, on the fast path if it can take it
//! room        how many states a key may hold
//! wait        the wait behind a clock that stepped back
//! outlook     when a rule lets one more unit pass
//! ```
//!
//! Why a denial's wait is what it is, in four steps: [`keys::check_keys`] takes the
//! longest wait of all keys, `Check::deciding_rule` the longest of a key's rules,
//! `Decision::of` turns the time at which a rule admits into a wait, and the
//! algorithm's `read` gives that time. Two things can make it longer: a ban (in
//! `keys`) and a state that the clock will come near again (in `wait`).

pub mod check;
pub mod deciding;
pub mod decision;
mod evaluation;
mod fast;
pub mod keys;
pub mod outcome;
pub mod outlook;
pub mod room;
mod wait;
