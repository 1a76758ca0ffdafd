//! Which states of a key get something back, for the clients that wait for it.

use super::{Hold, Limiter, Settlement};
use crate::algorithm::State;
use crate::rule::{Identity, Kind, Rule};
use alloc::vec::Vec;

impl Limiter {
    /// The states that get something back when a hold is settled.
    pub fn states_settled(&self, id: &[u8], settlement: Settlement<'_>) -> Vec<Identity> {
        let keeps_charges = matches!(settlement, Settlement::AsCharged);
        let gives_back = |state: &State| !keeps_charges || state.meter().is_of_kind(Kind::Slots);
        self.states_charged_for(id).filter(|state| gives_back(state)).map(identity).collect()
    }

    /// The states that get something back earlier when a hold's end moves to `end_us`.
    pub fn states_renewed(&self, id: &[u8], end_us: u64) -> Vec<Identity> {
        let ends_us = self.holds().and_then(|holds| holds.find(id)).map(Hold::end_us);
        let states = self.states_charged_for(id).filter(|_| ends_us > Some(end_us));
        states.map(identity).collect()
    }

    /// The states that any hold was charged on, which get something back when holds lapse.
    pub fn states_held(&self) -> Vec<Identity> {
        let places = self.states().iter().enumerate();
        let held = places.filter(|&(place, _)| {
            self.holds().is_some_and(|holds| holds.track_of(place).is_some())
        });
        held.map(|(_, state)| identity(state)).collect()
    }

    /// The states that get something back from a refund to these rules; without rules, all states.
    pub fn states_refunded(&self, rules: &[Rule]) -> Vec<Identity> {
        if rules.is_empty() {
            self.states().iter().map(identity).collect()
        } else {
            rules.iter().map(Rule::state).collect()
        }
    }

    fn states_charged_for(&self, id: &[u8]) -> impl Iterator<Item = &State> {
        let charges = self.holds().and_then(|holds| Some((holds, holds.find(id)?)));
        let places = charges.into_iter().flat_map(|(holds, hold)| {
            hold.charges().iter().filter_map(|charge| holds.place_of(charge))
        });
        places.filter_map(|place| self.states().get(place))
    }
}

/// The identity of the rules that read a state as it is.
fn identity(state: &State) -> Identity {
    let meter = state.meter();
    if meter.is_of_kind(Kind::Log) {
        return Identity::LOG;
    }
    Identity::of_state(state.name().as_ref(), meter.params(), meter.period_us())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Check, CheckOptions, HoldRequest};
    use crate::tests::rules_of_line;

    const LINE: &str = "5/s log:9/m,name=l window:5/m fixed:5/d,keep=3 fixed:5/h,tz=+02:00 \
        leaky:5/m bucket:5/m bucket:5/h,refill=interval slots:5 slots:9,name=a bucket:5/m,name=b";

    fn held() -> (Limiter, Vec<Rule>) {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line(LINE));
        let hold = HoldRequest { id: b"h", end_us: 2_000_000, refund: true };
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        limiter.check(&Check::new(&rules, 1, 1_000_000).with(&options), &mut Vec::new());
        (limiter, rules)
    }

    fn sorted(mut identities: Vec<Identity>) -> Vec<Identity> {
        identities.sort_unstable();
        identities.dedup();
        identities
    }

    #[test]
    fn a_state_has_the_identity_of_the_rules_that_read_it() {
        let (limiter, rules) = held();
        let expected = sorted(rules.iter().map(Rule::state).collect());
        assert_eq!(sorted(limiter.states_refunded(&[])), expected);
        assert_eq!(limiter.states_refunded(&rules[..1]), [Identity::LOG]);
        assert_eq!(sorted(limiter.states_held()), expected);
        assert_eq!(sorted(limiter.states_settled(b"h", Settlement::Refund)), expected);
        assert_eq!(limiter.states_settled(b"other", Settlement::Refund), []);
        let slots = rules_of_line("slots:5 slots:9,name=a");
        let slots = sorted(slots.iter().map(Rule::state).collect());
        assert_eq!(sorted(limiter.states_settled(b"h", Settlement::AsCharged)), slots);
        assert_eq!(sorted(limiter.states_renewed(b"h", 1_999_999)), expected);
        assert_eq!(limiter.states_renewed(b"h", 2_000_000), []);
    }
}
