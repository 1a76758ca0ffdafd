//! Rules in a configuration: their text, read and written by serde.

use crate::rules::Rules;
use alloc::string::String;
use serde_core::de::{Deserialize, Deserializer, Error};
use serde_core::ser::{Serialize, Serializer};

impl<const HELD: bool> Serialize for Rules<HELD> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'a, const HELD: bool> Deserialize<'a> for Rules<HELD> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
