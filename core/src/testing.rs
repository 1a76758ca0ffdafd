//! What the tests and the fuzz targets of this repository's other crates use of the laws and the naive
//! models. It can change in any release.

pub use crate::key::parts;
pub use crate::tests::{laws, naive, rules_of_line};
