//! The internal commands. `RL.APPLY` repeats what a command did on a primary or before a restart.
//! `RL.LOAD`, which only a rewritten append-only file has, sets a key to a saved value.

use super::line;
use super::opened::Opened;
use super::request::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError};
use crate::unreadable;
use ratelimit_engine::key::{self, Limiter};
use ratelimit_protocol::effect;
use ratelimit_protocol::waiting::Cause;

/// `RL.APPLY key effect ...`, in the form that `effect/` describes
pub fn apply(call: &Call<'_>) -> Result<(), CommandError> {
    require_obedience(call, "RL.APPLY")?;
    request::with(call, |Scratch { rules, .. }| {
        let mut named_costs = Vec::new();
        let name = call.key_name()?;
        let effect = effect::read(call.after_key().bytes(), rules, &mut named_costs)
            .map_err(|error| unreadable::refuse_effect(call, &error))?;
        // The effect brings its own times, so this reads no clock.
        let key = call.open_write(name, &LIMITER)?;
        let mut opened = Opened { key, at_us: effect.at_us, clock_us: effect.at_us };
        opened.change(|limiter| effect.perform(rules, &named_costs, limiter))?;
        if opened.key.value().is_some_and(Limiter::is_empty) {
            opened.key.delete();
        }
        opened.set_expiry(effect.expiry);
        call.replicate_verbatim();
        call.signal_modified(name);
        line::tell(name, Cause::Changed);
        call.reply_ok();
        opened.close(effect.action.event());
        Ok(())
    })
}

/// `RL.LOAD key payload`: replaces the value, and keeps the key's expiry.
pub fn load(call: &Call<'_>) -> Result<(), CommandError> {
    require_obedience(call, "RL.LOAD")?;
    let [name, payload] = [1, 2].map(|index| call.args().get(index));
    let (Some(name), Some(payload), 3) = (name, payload, call.args().len()) else {
        return Err(CommandError::WrongArity);
    };
    let loaded =
        key::decode(payload.bytes()).map_err(|error| unreadable::refuse_value(call, &error))?;
    Opened::first(call, None)?.change(|limiter| *limiter = loaded)?;
    call.replicate_verbatim();
    call.signal_modified(name);
    line::tell(name, Cause::Changed);
    call.reply_ok();
    Ok(())
}

/// Refuses an internal command to clients, because it could forge states.
///
/// # Errors
/// Unless the caller is the primary's link, a migrating slot or the loader.
fn require_obedience(call: &Call<'_>, command: &str) -> Result<(), CommandError> {
    if call.must_be_obeyed() {
        return Ok(());
    }
    let why = format!("{command} is internal: only a primary's link and the loader may use it");
    Err(CommandError::Because(why.into()))
}
