//! A key's value.
//!
//! ```text
//! limiter    the value: states, and what else a key may hold
//! access     a block or an exemption
//! check      a check's arguments, and what a check did
//! history    the last checks, with the text that callers gave
//! deadline   when the key should expire
//! codec      versioned bytes <-> limiter
//! report     a limiter for RL.INFO and RL.LOG
//! ```

pub mod access;
pub mod check;
pub mod codec;
pub mod deadline;
pub mod history;
pub mod limiter;
pub mod report;
