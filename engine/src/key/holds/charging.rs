//! What a hold is charged on a state, and how settling corrects the charge.
//!
//! A charge that turns out too high is corrected *as if the check had cost less*. The difference is
//! given back where it was charged, except units that have come back by themselves.
//!
//! If a charge turns out too low, settling consumes the difference unconditionally.

use super::{Detail, Track, TrackKind};
use crate::algorithm::log::Consumption;
use crate::algorithm::{Needs, State, Take, effective_time};
use crate::exact::{ceil_div, floor_div, millis_up, product};
use crate::key::{Charge, Costs, Hold, Holds, Settlement};
use crate::rule::{Kind, Rule};
use alloc::vec::Vec;

impl State {
    /// The units that a check of `cost` added to level `before`: a shadow may add less than its
    /// cost.
    fn taken(&self, rule: &Rule, cost: u32, before: u128) -> u32 {
        let Some(unit) = self.meter().unit() else { return cost };
        let after = self.meter().level(rule.limit(), self.meter().last_us());
        let taken = floor_div(after.saturating_sub(before), unit);
        u32::try_from(taken).map_or(cost, |taken| taken.min(cost))
    }

    /// The charge of a hold on this state for one rule. The check has already consumed `cost` at
    /// `stamp_us`; before that, the level was `before`. `needs` are those of the hold's log rules.
    pub fn charge(
        &self,
        holds: &mut Holds,
        place: usize,
        (rule, before): (&Rule, u128),
        needs: Needs,
        cost: u32,
        stamp_us: u64,
    ) -> Option<Charge> {
        let number = holds.track_for(place, self.meter())?;
        // A shadow at its capacity adds nothing.
        let units = if rule.is_shadow() { self.taken(rule, cost, before) } else { cost };
        let level = self.meter().level(rule.limit(), self.meter().last_us());
        let detail = match &mut holds.track_mut(number)?.kind {
            TrackKind::Bucket(leasts) if units > 0 => Detail::least(leasts.push(level)),
            TrackKind::Queue { .. } => {
                Detail::turn(millis_up(ceil_div(before, rule.limit().into())))
            }
            TrackKind::Log => Detail::window(needs.window_us),
            TrackKind::Plain | TrackKind::Bucket(_) => Detail::least(None),
        };
        Some(Charge {
            stamp_us,
            units,
            limit: if rule.kind() == Kind::Log { needs.units } else { rule.limit() },
            detail,
            track: number,
            by_default: rule.cost().own().is_none(),
            shadow: rule.is_shadow(),
        })
    }

    /// Corrects the charge of an ended hold to what the request really cost. If `later` is given,
    /// units that a log is to give back are only listed there: they stay in the log until the
    /// caller removes them.
    pub fn correct(
        &mut self,
        track: &mut Track,
        hold: &Hold,
        charge: &Charge,
        settlement: Settlement<Costs<'_>>,
        now_us: u64,
        later: Option<&mut Vec<Take>>,
    ) {
        let own_name = self.name();
        let (names, held_us) = match self.log() {
            Some(_) => (hold.log_names(), charge.detail.window_us()),
            None => (own_name.as_slice(), 0),
        };
        let cost = charge.settled(settlement, names);
        if cost < charge.units {
            let surplus = charge.units.saturating_sub(cost);
            match (self.log(), later) {
                (Some(_), Some(later)) => {
                    later.push(Take { time_us: charge.stamp_us, units: surplus.into() });
                }
                (_, _) => self.give_back(track, hold, charge, surplus),
            }
        } else if cost > charge.units {
            let last_us = self.meter().last_us();
            let window_us = self.meter().period_us().max(held_us);
            let Some(at_us) = effective_time(now_us, last_us, window_us) else { return };
            let before = self.meter().level(charge.limit, at_us);
            self.meter_mut().consume_excess(charge.excess(cost), at_us);
            track.note_consumption(before, Consumption::Admitted);
        }
    }

    /// Gives back up to `surplus` units of a charge, except those that had come back by themselves
    /// when the state was last consumed from. The state then is as if the check had cost less, at
    /// every time that a clock can show: one that steps back would see again what has come back since.
    fn give_back(&mut self, track: &mut Track, hold: &Hold, charge: &Charge, surplus: u32) {
        let meter = self.meter_mut();
        let owed = meter.level(charge.limit, meter.last_us());
        let unit = meter.unit().unwrap_or_default();
        let owing = product(surplus.into(), unit);
        let queued_last = track.queued_last(hold);
        let given = match (&mut track.kind, charge.detail.position()) {
            (TrackKind::Bucket(leasts), Some(position)) => leasts.give_back(position, owed, owing),
            (TrackKind::Queue { .. }, _) if queued_last => owing.min(owed),
            (TrackKind::Plain | TrackKind::Log, _) => {
                meter.give_back(charge.stamp_us, surplus.into());
                return;
            }
            (TrackKind::Bucket(_) | TrackKind::Queue { .. }, _) => 0,
        };
        meter.take_off(given);
    }
}
