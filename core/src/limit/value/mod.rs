//! The value of a key.
//!
//! ```text
//! limiter    the value: states, and what else a key may hold
//! standing   a block or an exemption, and how often the key was banned
//! blocking   blocks, exemptions and bans of a key
//! pause      a pause of a key's upstream
//! pausing    pauses of a key
//! check      a check's arguments, and what a check did
//! record     what a check does to the value, once it is decided
//! holding    what holds do to states
//! returning  which states get something back
//! history    the last checks, with the text that callers gave
//! slots      what holds take of slots
//! deadline   when the key should expire
//! replayed   when it should after a command without `AT`
//! codec      versioned bytes <-> limiter
//! report     a limiter for RL.INFO and RL.LOG
//! ```

mod blocking;
pub mod check;
pub mod codec;
pub mod deadline;
pub mod history;
mod holding;
pub mod limiter;
pub mod pause;
mod pausing;
mod record;
mod replayed;
pub mod report;
mod returning;
pub mod slots;
pub mod standing;
