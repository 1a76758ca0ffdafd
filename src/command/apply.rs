//! `RL.APPLY`, internal: repeats what a command did on a primary or before a restart.

use super::changed;
use super::scratch::{self, Scratch};
use crate::datatype::{self, LIMITER};
use crate::newer_data;
use crate::server::{Call, CommandError};
use ratelimit_core::effect::{self, EffectError};
use ratelimit_core::limit::Limiter;

/// `RL.APPLY key effect ...`, in the form that `effect/` describes
pub fn apply(call: &Call<'_>) -> Result<(), CommandError> {
    require_obedience(call, "RL.APPLY")?;
    scratch::with(call, |Scratch { rules, named_costs, .. }| {
        let name = call.key_name()?;
        let effect = effect::read(call.after_key().bytes(), rules, named_costs).map_err(
            |error| match error {
                EffectError::Newer { .. } => newer_data::refuse(call, error.to_string()),
                EffectError::Parse(error) => error.into(),
                EffectError::UnknownWord { .. } => CommandError::Because(error.to_string().into()),
            },
        )?;

        let mut key = call.open_write(name, &LIMITER)?;
        let mut new = Limiter::default();
        effect.perform(rules, named_costs, key.value().unwrap_or(&mut new));
        datatype::store(&mut key, new)?;
        if key.value().is_some_and(|limiter| limiter.is_empty()) {
            key.delete();
        }
        changed::set_expiry(&mut key, effect.expiry);
        call.replicate_verbatim();
        call.signal_modified(name);
        call.reply_ok();
        changed::close(call, key, name, effect.action.event());
        Ok(())
    })
}

/// Refuses an internal command to clients, because it could forge states.
///
/// # Errors
/// Unless the caller is the primary's link, a migrating slot or the loader.
pub fn require_obedience(call: &Call<'_>, command: &str) -> Result<(), CommandError> {
    if call.must_be_obeyed() {
        return Ok(());
    }
    let why = format!("{command} is internal: only a primary's link and the loader may use it");
    Err(CommandError::Because(why.into()))
}
