//! What a rule consumed, in its algorithm's form: one file per algorithm.
//!
//! ```text
//! state         what a rule finds by its identity: a meter, and its name
//! meter         what a rule consumed, of whatever algorithm
//! log           sliding log, over a series
//! window        sliding window counter
//! fixed         fixed window, over a calendar
//! calendar      where fixed windows begin and end
//! debt          token bucket and leaky bucket
//! interval      token bucket with refill=interval
//! open_window   the window now open, of fixed and interval
//! reading       what a rule reads in a state at a time
//! uint48        a number in six bytes
//! ```

pub mod calendar;
pub mod debt;
pub mod fixed;
pub mod interval;
pub mod log;
pub mod meter;
pub mod open_window;
pub mod reading;
pub mod state;
pub mod uint48;
pub mod window;
