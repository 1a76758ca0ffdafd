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
