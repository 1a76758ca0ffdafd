//! Deciding a check.
//!
//! ```text
//! one            a check or a sync of one key, on the fast path if it can take it
//! fast           the fast path: all rules read the key's one state
//! keys           the general path: several rules and keys, one answer, all or nothing
//! pool           a check that passes through one of several keys
//! refusal        why a check is an error, and how much a key may hold
//! full           what the reply to FULL shows of each rule
//! later_denials  waits that end later because a rule that admits now will deny later
//! lapses         waits and resets that end earlier because holds lapse
//! budget         the budget of a command for looking ahead at lapses
//! view           what the rules of a check read in a key, and what they decide
//! decision       what one rule decides, which rule's decision is the answer, and what was done
//! ```
//!
//! A denial's wait is computed in four steps:
//!
//! 1. The algorithm's `read` gives the time at which a rule admits.
//! 2. `Decision::of` turns that time into a wait.
//! 3. `Check::deciding_rule` takes the longest wait of a key's rules.
//! 4. `keys::conclude` takes the longest wait of all keys.
//!
//! With one rule the fast path calls `Decision::of` directly. Three things can lengthen a wait: a ban
//! and a pause (in `keys`), and a rule that will deny only later (in `later_denials`). One thing can
//! shorten a wait: a hold that gives back its charges when it lapses (in `lapses`).

pub(crate) mod budget;
pub(crate) mod decision;
mod fast;
pub(crate) mod full;
pub(crate) mod keys;
mod lapses;
mod later_denials;
mod one;
mod pool;
pub(crate) mod refusal;
mod view;

pub use budget::Budget;
pub use decision::{Ban, Decision, Decisions, Outcome};
pub(crate) use decision::{length, longer};
pub use full::{Field, FullReport, RuleReport, Shown};
pub(crate) use keys::peek_key;
pub use keys::{KeyCheck, check_keys};
pub(crate) use later_denials::until_all_admit;
pub use pool::deny_each;
pub use refusal::{Bounds, CheckError, RULES_A_HOLD, Refusal};
pub(crate) use view::View;
