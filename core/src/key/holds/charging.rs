//! What a state is charged for a hold, and how settling corrects it.
//!
//! A charge that turns out too high is corrected *as if the check had cost that much*: the
//! difference is given back where it was charged, as far as it has not come back by itself.
//!
//! ```text
//! log                       the units that are still there at the stamp
//! window                    from the stamp's sub-interval, if it still counts
//! fixed                     if the stamp's window is open, or kept for graphs
//! bucket                    up to the least debt since the check, see `least`
//! bucket, refill=interval   if there was no refill since
//! leaky                     its debt, if nothing queued after it: a turn that was promised
//!                           must not be promised twice
//! ```
//!
//! If a charge turns out too low, settling consumes the difference unconditionally.

use super::request::Settlement;
use super::{Charge, Detail, Hold, Holds, Track, TrackKind};
use crate::algorithm::meter::Meter;
use crate::algorithm::reading::effective_time;
use crate::algorithm::series::Take;
use crate::algorithm::series::needs::Needs;
use crate::algorithm::state::State;
use crate::exact::{ceil_div, floor_div, millis_up, product};
use crate::rule::{Kind, Rule};

impl Meter {
    /// What is consumed at `at_us`, which is not before the last time: the debt drained at `limit`,
    /// in fractions of a unit, or the tokens taken. Other meters always take the full cost, so
    /// theirs is 0.
    pub fn level(&self, limit: u32, at_us: u64) -> u128 {
        match self {
            Self::Debt(debt) => debt.owed_at(limit, at_us),
            Self::Interval(interval) => interval.used_at(at_us).into(),
            Self::Log(_)
            | Self::Window(_)
            | Self::Fixed(_)
            | Self::FixedWithPast(_)
            | Self::Slots(_) => 0,
        }
    }

    /// Consumes what a settled hold cost beyond this charge, at `at_us >= last_us`, beyond any
    /// limit. A debt drains at the charge's limit. If a shadow was charged, a debt or an interval
    /// stops at its burst or queue, because the shadow stopped there too.
    pub fn consume_excess(&mut self, charge: &Charge, at_us: u64, units: u32) {
        if units == 0 {
            return;
        }
        let at_us = at_us.max(self.last_us());
        let most = |capacity: u64| match (charge.shadow, charge.limit) {
            (false, _) => u64::MAX,
            (true, 0) => 0,
            (true, _) => capacity,
        };
        match self {
            Self::Log(log) => log.consume_excess(charge.needs(), at_us, units),
            Self::Window(window) => window.add(at_us, units),
            Self::Fixed(fixed) => drop(fixed.add(at_us, units)),
            Self::FixedWithPast(past) => past.add(at_us, units),
            Self::Debt(debt) => {
                debt.add(charge.limit, at_us, units, most(debt.capacity()));
                debt.drain_no_faster_than(charge.limit);
            }
            Self::Interval(interval) => interval.add(at_us, units, most(interval.burst.into())),
            Self::Slots(_) => {}
        }
    }
}

impl State {
    /// The units that a check of `cost` took from level `before`: a shadow may take less than its
    /// cost.
    fn taken(&self, rule: &Rule, cost: u32, before: u128) -> u32 {
        let whole = match self.meter() {
            Meter::Debt(debt) => debt.period_us(),
            Meter::Interval(_) => 1,
            Meter::Log(_)
            | Meter::Window(_)
            | Meter::Fixed(_)
            | Meter::FixedWithPast(_)
            | Meter::Slots(_) => return cost,
        };
        let after = self.meter().level(rule.limit(), self.meter().last_us());
        let taken = floor_div(after.saturating_sub(before), whole);
        u32::try_from(taken).map_or(cost, |taken| taken.min(cost))
    }

    /// The charge of a hold on this state, for a rule whose check has already consumed `cost` at
    /// `stamp_us` from level `before`. `needs` are those of the hold's log rules.
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
        // A full shadow takes nothing.
        let units = if rule.is_shadow() { self.taken(rule, cost, before) } else { cost };
        let detail = match (self.meter(), &mut holds.track_mut(number)?.kind) {
            (Meter::Debt(debt), TrackKind::Bucket(leasts)) if units > 0 => {
                Detail::least(leasts.push(debt.owed()))
            }
            (Meter::Debt(_), TrackKind::Queue { .. }) => {
                Detail::turn(millis_up(ceil_div(before, rule.limit().into())))
            }
            (_, TrackKind::Log) => Detail::window(needs.window_us),
            (_, TrackKind::Plain | TrackKind::Bucket(_) | TrackKind::Queue { .. }) => {
                Detail::least(None)
            }
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

    /// Corrects the charge of an ended hold to what the request really cost. With `later`, units that
    /// a log gets back are added to that list and stay in the log for now.
    pub fn correct(
        &mut self,
        track: &mut Track,
        hold: &Hold,
        charge: &Charge,
        settlement: Settlement<'_>,
        now_us: u64,
        later: Option<&mut Vec<Take>>,
    ) {
        let own_name = self.name();
        let (names, held_us) = match self.log() {
            Some(_) => (hold.log_names(), charge.detail.window_us()),
            None => (own_name.as_slice(), 0),
        };
        let (last_us, window_us) = (self.meter().last_us(), self.meter().period_us().max(held_us));
        let Some(at_us) = effective_time(now_us, last_us, window_us) else { return };
        let cost = charge.settled(settlement, names);
        if cost < charge.units {
            let surplus = charge.units.saturating_sub(cost);
            match (self.log(), later) {
                (Some(_), Some(later)) => {
                    later.push(Take { time_us: charge.stamp_us, units: surplus.into() });
                }
                (_, _) => self.give_back(track, hold, charge, surplus, at_us),
            }
        } else if cost > charge.units {
            let before = self.meter().level(charge.limit, at_us);
            let excess = cost.saturating_sub(charge.units);
            self.meter_mut().consume_excess(charge, at_us, excess);
            track.note_consumption(before, true);
        }
    }

    /// Gives back up to `surplus` units of a charge, as far as they have not come back by
    /// themselves.
    fn give_back(
        &mut self,
        track: &mut Track,
        hold: &Hold,
        charge: &Charge,
        surplus: u32,
        at_us: u64,
    ) {
        let meter = self.meter_mut();
        let Meter::Debt(debt) = meter else {
            meter.give_back(charge.stamp_us, at_us, surplus.into());
            return;
        };
        let owed = debt.owed_at(charge.limit, at_us);
        let surplus = product(surplus.into(), debt.period_us());
        let queued_last = track.queued_last(hold);
        let given = match (&mut track.kind, charge.detail.position()) {
            (TrackKind::Bucket(leasts), Some(position)) => {
                leasts.give_back(position, owed, surplus)
            }
            (TrackKind::Queue { .. }, _) if queued_last => surplus.min(owed),
            (
                TrackKind::Plain | TrackKind::Log | TrackKind::Bucket(_) | TrackKind::Queue { .. },
                _,
            ) => 0,
        };
        debt.take_off(given);
    }
}
