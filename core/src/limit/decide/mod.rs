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
//! max_states  how many states a key may hold
//! foresee     waits and resets that end earlier because holds lapse
//! foresight   how far a command looks ahead at lapses
//! grant       what a check of a range of costs is granted
//! refusal     why a check is an error, and how much a key may hold
//! wait        the wait behind a clock that stepped back
//! outlook     when a rule lets one more unit pass
//! ```
//!
//! A denial's wait is computed in four steps: `keys::conclude` takes the longest wait of all keys,
//! `Evaluation::add` the longest of a key's rules, `Decision::of` turns the time at which a rule
//! admits into a wait, and the algorithm's `read` gives that time. With one rule the fast path
//! calls `Decision::of` directly. Two things can lengthen a wait: a ban (in `keys`), and a state
//! that the clock will reach again (in `wait`). One can shorten it: a hold that gives back its
//! charges when it lapses (in `foresee`).

pub mod check;
pub mod deciding;
pub mod decision;
mod evaluation;
mod fast;
mod foresee;
pub mod foresight;
mod grant;
pub mod keys;
pub mod max_states;
pub mod outcome;
pub mod outlook;
pub mod refusal;
mod wait;
