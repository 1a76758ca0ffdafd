//! The value of a key.
//!
//! ```text
//! limiter    the value: states, and what else a key may hold
//! access     what overrides or chooses the rules: a block, an exemption, a pause, a plan
//! blocking   blocks, exemptions, bans, pauses and plans of a key
//! holds      what checks were charged, to be corrected later
//! check      a check's arguments, and what a check did
//! record     what a check does to the value, once it is decided
//! holding    what holds do to states, and which states get something back
//! history    the last checks, with the text that callers gave
//! slots      the slots that holds occupy
//! deadline   when the key should expire
//! codec      versioned bytes <-> limiter
//! report     a limiter as RL.INFO and RL.LOG show it
//! ```

pub(crate) mod access;
mod blocking;
pub(crate) mod check;
#[cfg(feature = "saved")]
pub(crate) mod codec;
pub(crate) mod deadline;
pub(crate) mod history;
mod holding;
pub(crate) mod holds;
pub(crate) mod limiter;
mod record;
pub(crate) mod report;
pub(crate) mod slots;

#[cfg(feature = "saved")]
pub use crate::saved::DecodeError;
pub(crate) use access::PauseAndPlan;
pub use access::{
    Access, AccessEntry, Author, BanCount, MAX_FORGOTTEN_US, MAX_SPAN_US, MAX_USER, Pause, Plan,
};
pub use check::{Change, Check, CheckOptions, Meta, Verdict};
#[cfg(feature = "testing")]
pub use codec::parts;
#[cfg(feature = "saved")]
pub use codec::{decode, encode};
pub use deadline::{Deadline, Expiry};
pub use history::{Entry, History};
pub(crate) use holds::{Charge, Hold, Holds, LapsedCopy, Length};
pub use holds::{
    Costs, HoldOption, HoldRequest, MAX_END_US, MAX_ID, MOST_HOLDS, Settlement, hold_end_us,
};
pub(crate) use limiter::Compound;
pub use limiter::Limiter;
pub use report::{HoldReport, StateReport};
pub(crate) use slots::Slots;
