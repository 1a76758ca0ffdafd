//! The saved form of a debt.

use super::BurstOrQueue;
use crate::algorithm::{Debt, Meter, Saved, Uint48};
use crate::saved::{DecodeError, check_period, check_time, check_units, put, take, within};
use alloc::{boxed::Box, vec::Vec};

impl Saved for Debt {
    const CODE: u32 = 3;

    fn save(&self, to: &mut Vec<u8>) {
        let Self { last_us, period, rem, units, limit, burst_or_queue } = *self;
        let (burst_or_queue, leaky) = (burst_or_queue.units(), self.is_leaky());
        put(to, &(last_us, period.get(), rem.get(), units, limit, burst_or_queue, leaky));
    }
}

/// Takes the fields and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (last_us, period_us, rem, units, limit, burst_or_queue, leaky) = take(from)?;
    check_time(last_us)?;
    check_period(period_us)?;
    check_units(limit)?;
    check_units(burst_or_queue)?;
    within(limit > 0, "a limit")?;
    within(rem < period_us, "a remainder")?;
    let (period, rem) = (Uint48::saturating(period_us), Uint48::saturating(rem));
    let burst_or_queue = BurstOrQueue::new(burst_or_queue, leaky);
    let mut debt = Debt { last_us, period, rem, units, limit, burst_or_queue };
    debt.set(debt.owed());
    Ok(Meter::Debt(Box::new(debt)))
}
