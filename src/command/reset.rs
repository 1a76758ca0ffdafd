//! `RL.RESET`: forgets what a key consumed.

use super::audit;
use super::effect_args::EffectArgs;
use super::opened::Opened;
use crate::server::{Call, CommandError};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.RESET`
pub fn reset(call: &Call<'_>) -> Result<(), CommandError> {
    parse::no_arguments(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let reset = opened.key.value_mut().is_some_and(|limiter| limiter.reset(opened.at_us));
    if reset {
        opened.changed(Action::Reset, Cause::Changed, EffectArgs::default);
        audit::key_changed(call);
    }
    call.reply_integer(reset.into());
    Ok(())
}
