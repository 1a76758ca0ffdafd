//! `RL.LOAD`, internal: sets a key to a saved value, in a rewritten append-only file.

use super::apply::require_obedience;
use crate::datatype::{self, LIMITER};
use crate::newer_data;
use crate::server::{Call, CommandError};
use ratelimit_core::limit;

/// `RL.LOAD key payload`: replaces the value, and keeps the key's expiry.
pub fn load(call: &Call<'_>) -> Result<(), CommandError> {
    require_obedience(call, "RL.LOAD")?;
    let name = call.key_name()?;
    let payload = call.args().get(2).ok_or(CommandError::WrongArity)?;
    if call.args().len() != 3 {
        return Err(CommandError::WrongArity);
    }
    let loaded =
        limit::decode(payload.bytes()).map_err(|error| newer_data::refuse_value(call, &error))?;

    let mut key = call.open_write(name, &LIMITER)?;
    match key.value() {
        Some(limiter) => *limiter = loaded,
        None => datatype::store(&mut key, loaded)?,
    }
    call.replicate_verbatim();
    call.signal_modified(name);
    call.reply_ok();
    Ok(())
}
