//! The bytes that everything saved is made of, and what refuses them.
//!
//! ```text
//! error   versions, and why a payload is refused
//! form    items <-> bytes, with bincode
//! bounds  what several parts are tested for
//! ```

pub(crate) mod bounds;
pub(crate) mod error;
pub(crate) mod form;

pub(crate) use bounds::{
    MAX_WINDOW_US, check_period, check_start, check_time, check_units, check_window, load_name,
};
pub use error::DecodeError;
pub(crate) use error::VERSION;
pub(crate) use form::{
    SavedDetail, each_item, load_items, load_text, put, save_items, take, within,
};
