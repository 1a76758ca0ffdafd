//! `RL.SYNC`: lowers the units that remain of a rule to the number that an upstream gives.

use super::opened::{EffectArgs, Opened, refused};
use super::request::{self, Scratch};
use crate::config;
use crate::server::{Call, CommandError};
use ratelimit_engine::check::CheckError;
use ratelimit_protocol::effect::{Action, Recorded};
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.SYNC`
pub fn sync(call: &Call<'_>) -> Result<(), CommandError> {
    call.require_args(["RL.SYNC", "key", "REMAINING", "n", "rule"].len())?;
    request::with(call, |Scratch { rules, mut resolver, .. }| {
        let request = parse::sync(
            call.after_key().bytes(),
            &config::limits(),
            &mut request::plans_of_call(call, &mut resolver),
            rules,
        )?;
        let mut opened = Opened::first(call, request.at_us)?;
        opened.lapse();
        let (at_us, mut consumed) = (opened.at_us, 0_i64);
        // A rule can let one unit more pass at once than one check can cost, so this may take two
        // effects.
        for _ in 0..2 {
            let mut units = Ok(0);
            opened.change(|limiter| {
                if let Some(rule) = rules.first_mut() {
                    units = limiter.sync(config::bounds(), rule, request.remaining, at_us);
                }
            })?;
            let units =
                units.map_err(|why| refused(call.args().from(1), &CheckError { key: 0, why }))?;
            if units == 0 {
                break;
            }
            consumed = consumed.saturating_add(units.into());
            let recorded = Recorded::Admitted;
            let action = Action::Check { recorded, cost: units, meta: None };
            opened.after_change(action, Cause::Consumed { rules, hold: None }, || {
                EffectArgs::of_check(call.args().last(1), &resolver, 0, rules)
            });
        }
        call.reply_integer(consumed);
        Ok(())
    })
}
