//! The internal commands: what a check did elsewhere, recorded here.
//!
//! Replication and the AOF carry effects, not decisions. A replica decides
//! nothing and looks at no clock, so it ends up with what its primary has,
//! byte for byte.
//!
//! ```text
//! RL.APPLY key at-us admit|charge|refund units expiry-ms|-1|0 [rule ...]
//! RL.LOAD  key payload
//! ```
//!
//! Nobody but the primary's link and the loader may speak them: a client could
//! forge states with them.

use super::expiry;
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::limit::{self, Change, Check, Limiter};
use crate::parse::{self, EffectKind};
use crate::server::{Call, Failure};

/// Refuses a command to all but these.
fn only_if_obeyed(call: &Call<'_>, refusal: &'static str) -> Result<(), Failure> {
    if call.must_be_obeyed() { Ok(()) } else { Err(Failure::because(refusal)) }
}

/// `RL.APPLY`: what consumed or gave back, consumes or gives back here.
pub fn apply(call: &Call<'_>) -> Result<(), Failure> {
    only_if_obeyed(call, "RL.APPLY is internal: only a primary's link and the loader may use it")?;
    scratch::with(|Scratch { rules, .. }| {
        let name = call.key_name()?;
        let effect = parse::apply(call.after_key().bytes(), rules)?;
        let check = Check { rules, cost: effect.units, now_us: effect.at_us };
        let record = |limiter: &mut Limiter| match effect.kind {
            EffectKind::Admit => limiter.record(&check, Change::Admitted),
            EffectKind::Charge => limiter.record(&check, Change::Charged),
            EffectKind::Refund => {
                limiter.refund(effect.units, effect.at_us, rules);
            }
        };

        let mut key = call.open_write(name, &LIMITER)?;
        match key.value() {
            Some(limiter) => {
                record(limiter);
                if limiter.is_empty() {
                    key.delete();
                }
            }
            None => {
                let mut limiter = Limiter::default();
                record(&mut limiter);
                if !limiter.is_empty() {
                    key.set(&LIMITER, limiter)?;
                }
            }
        }
        expiry::set(&mut key, effect.expiry);
        call.replicate_verbatim();
        call.signal_modified(name);
        call.reply_ok();
        Ok(())
    })
}

/// `RL.LOAD`: the key holds this from now on; its expiry stays.
pub fn load(call: &Call<'_>) -> Result<(), Failure> {
    only_if_obeyed(call, "RL.LOAD is internal: only a primary's link and the loader may use it")?;
    let name = call.key_name()?;
    let payload = call.args().get(2).ok_or(Failure::WrongArity)?;
    if call.args().len() != 3 {
        return Err(Failure::WrongArity);
    }
    let loaded = limit::decode(payload.bytes())
        .map_err(|error| Failure::Because(error.to_string().into()))?;

    let mut key = call.open_write(name, &LIMITER)?;
    match key.value() {
        Some(limiter) => *limiter = loaded,
        None => key.set(&LIMITER, loaded)?,
    }
    call.replicate_verbatim();
    call.signal_modified(name);
    call.reply_ok();
    Ok(())
}
