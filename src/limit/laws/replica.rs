//! The replica law: recording what was decided, on an equal limiter, leaves an
//! equal limiter.

use super::traffic::{Action, Call, changing};
use super::{cases, check};
use crate::limit::{Check, Limiter, decode, encode};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn recording_gives_an_equal_limiter(traffic in changing(5, 60), resync in 1..20usize) {
        let mut primary = Limiter::default();
        let mut replica = Limiter::default();
        for (i, Call { rules, now_us, action }) in traffic.calls().into_iter().enumerate() {
            match action {
                Action::Check(cost) => {
                    let (outcome, _) = check(&mut primary, rules, cost, now_us);
                    replica.record(&Check { rules, cost, now_us }, outcome.change);
                    if let Some(ban) = outcome.ban {
                        replica.ban(&rules[ban.rule], ban.until_us);
                    }
                }
                Action::Peek(_) => {}
                Action::Refund(units, of_rules) => {
                    let rules = if of_rules { rules } else { &[] };
                    let back = primary.refund(units, now_us, rules);
                    // A refund of nothing is not replicated.
                    if back > 0 {
                        prop_assert_eq!(replica.refund(units, now_us, rules), back);
                    }
                }
                Action::Reset => prop_assert_eq!(primary.reset(), replica.reset()),
            }
            prop_assert_eq!(&primary, &replica);
            prop_assert_eq!(encode(&primary), encode(&replica));
            prop_assert_eq!(primary.deadline(), replica.deadline());
            if i % resync == 0 {
                replica = decode(&encode(&primary)).unwrap_or_default();
            }
        }
    }
}
