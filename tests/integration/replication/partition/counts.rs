//! What passed on both sides of a partition, against what each side knew.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use crate::support::traffic::{Limit, Pass, units};

/// Units, added up over all limits.
pub struct Counts {
    limits: i64,
    before: i64,
    during: i64,
    after: i64,
    on_replica: i64,
    excess: i64,
    /// The time from the start of the fault until the old primary admitted its last unit.
    admitted_for: Duration,
}

impl Counts {
    /// Counts what passed on the old primary (`passes` and `rest`) and on the promoted replica
    /// (`by_new`, all that it admits), and checks each limit.
    pub fn new(
        limits: &[Limit],
        passes: &[Pass],
        confirmed_until: Instant,
        began: Instant,
        promoted: Instant,
        rest: &[i64],
        by_new: &[i64],
    ) -> Self {
        let by_old = units(limits, passes, |_| true);
        let confirmed = units(limits, passes, |pass| pass.confirmed || pass.at <= confirmed_until);
        let mut excess = 0;
        for (key, limit) in limits.iter().enumerate() {
            let (old, new) = (by_old[key] + rest[key], by_new[key]);
            let known = limit.units - new;
            assert!(old <= limit.units, "{limit:?}: {old} passed on one server");
            assert!((0..=old).contains(&known), "{limit:?}: the replica knows {known} of {old}");
            assert!(known >= confirmed[key], "{limit:?}: {known} of {} confirmed", confirmed[key]);
            excess += (old + new - limit.units).max(0);
        }
        let sum = |counts: &dyn Fn(&Pass) -> bool| -> i64 {
            passes.iter().filter(|pass| counts(pass)).map(|pass| pass.units).sum()
        };
        let last = passes.iter().map(|pass| pass.at).max().expect("units passed");
        let counts = Self {
            limits: limits.iter().map(|limit| limit.units).sum(),
            before: sum(&|pass| pass.at <= began),
            during: sum(&|pass| pass.at > began && pass.at <= promoted),
            after: sum(&|pass| pass.at > promoted) + rest.iter().sum::<i64>(),
            on_replica: by_new.iter().sum(),
            excess,
            admitted_for: last.saturating_duration_since(began),
        };
        let unconfirmed = sum(&|pass| pass.at > confirmed_until) + rest.iter().sum::<i64>();
        assert!(excess <= unconfirmed, "{counts}");
        counts
    }

    /// The units that passed beyond the limits.
    pub fn excess(&self) -> i64 {
        self.excess
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { limits, before, during, after, on_replica, excess, admitted_for } = self;
        write!(
            f,
            "primary {before} before, {during} during, {after} after the promotion \
             (the last {admitted_for:.1?} after the fault began), replica {on_replica}, \
             {excess} beyond limits of {limits}"
        )
    }
}
