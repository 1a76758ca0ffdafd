//! A replica that records what its primary decided stays equal to it.

use super::cases;
use super::traffic::{Action, Call, changing};
use crate::key::{Access, AccessEntry, Change, Check, CheckOptions, Limiter, Meta, decode, encode};
use proptest::prelude::*;
use std::num::NonZeroU64;

/// What sometimes comes with a call.
#[derive(Clone, Copy, Debug)]
struct Extra {
    /// If set, the call has `META`, and the history keeps this many entries.
    keep: Option<u32>,
    /// Before the call, sets or lifts a block or an exemption: its kind, its duration, and the
    /// length of a ban.
    access: Option<(Option<Access>, Option<u64>, Option<u64>)>,
}

fn extra() -> impl Strategy<Value = Extra> {
    let kind = prop::sample::select(&[Some(Access::Block), Some(Access::Exempt), None, None]);
    let access = (kind, prop::option::weighted(0.8, 1..10_000u64), prop::option::of(1..10_000u64));
    (prop::option::weighted(0.2, 1..6u32), prop::option::weighted(0.1, access))
        .prop_map(|(keep, access)| Extra { keep, access })
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_replica_that_records_equals_its_primary(
        traffic in changing(5, 60),
        resync in 1..20usize,
        extras in prop::collection::vec(extra(), 60),
    ) {
        let mut primary = Limiter::default();
        let mut replica = Limiter::default();
        for (i, Call { rules, now_us, action }) in traffic.calls().into_iter().enumerate() {
            let Extra { keep, access } = extras[i];
            if let Some((kind, until_ms, ban_ms)) = access {
                let until_us = until_ms.map(|ms| now_us + ms * 1_000);
                let ban_us = ban_ms.and_then(|ms| NonZeroU64::new(ms * 1_000));
                let access = kind.map(|kind| AccessEntry {
                    ban_us,
                    ..AccessEntry::new(kind, until_us, &[7; 3])
                });
                primary.set_access(access.clone());
                replica.set_access(access);
            }
            match action {
                Action::Check(cost) => {
                    let meta = keep.map(|keep| Meta { text: &[1, 2, 3][..keep as usize % 4], keep });
                    let options = CheckOptions { meta, ..CheckOptions::default() };
                    let check = Check::new(rules, cost, now_us).with(&options);
                    let outcome = primary.check(&check, &mut Vec::new());
                    replica.record(&check, outcome.change);
                    prop_assert!(keep.is_none() || outcome.change != Change::Nothing);
                    if outcome.ban.is_some() || outcome.ban_shortened {
                        let ban = primary.access().expect("a ban").clone();
                        replica.set_ban(ban, primary.bans().copied());
                    }
                }
                Action::Peek(_) => {}
                Action::Refund(units, of_rules) => {
                    let rules = if of_rules { rules } else { &[] };
                    let back = primary.refund(units, now_us, rules);
                    // A refund of nothing is not propagated.
                    if back > 0 {
                        prop_assert_eq!(replica.refund(units, now_us, rules), back);
                    }
                }
                Action::Reset => prop_assert_eq!(primary.reset(now_us), replica.reset(now_us)),
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
