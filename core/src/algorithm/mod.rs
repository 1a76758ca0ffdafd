//! What a rule consumed, in its algorithm's form: one file per algorithm.
//!
//! ```text
//! state         what a rule finds by its identity: a meter, and its name
//! meter         what a rule consumed, of whatever algorithm
//! series        the times of a sliding log, in one allocation
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

pub(crate) mod calendar;
pub(crate) mod debt;
pub(crate) mod fixed;
pub(crate) mod interval;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod open_window;
pub(crate) mod reading;
pub(crate) mod series;
pub(crate) mod state;
pub(crate) mod uint48;
pub(crate) mod window;

pub use log::LogReport;
pub use window::WindowReport;
