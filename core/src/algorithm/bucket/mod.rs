//! Token bucket: a [debt](super::debt) that drains evenly, or an [interval] at whose
//! end all tokens come back.

pub mod interval;
#[cfg(any(test, feature = "testing"))]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;
mod words;

pub use interval::Interval;
pub use words::{BucketParams, Refill};
