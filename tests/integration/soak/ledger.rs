//! All admissions and pauses of a run, and the times at which the server may have forgotten some.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::laws::{Admission, Law};

#[derive(Debug, Default)]
pub struct Ledger {
    /// By the index of the key.
    admissions: Mutex<BTreeMap<usize, Vec<Admission>>>,
    /// By the index of the key, the start and the end of its pauses. A deletion ends a pause early.
    pauses: Mutex<BTreeMap<usize, Vec<(i64, i64)>>>,
    /// The start and end of each time in which keys were deleted, by the server's clock, in
    /// order.
    forgetting: Mutex<Vec<(i64, i64)>>,
}

impl Ledger {
    pub fn admit(&self, key: usize, admission: Admission) {
        let mut all = self.admissions.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_default().push(admission);
    }

    pub fn pause(&self, key: usize, from_us: i64, until_us: i64) {
        let mut all = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_default().push((from_us, until_us));
    }

    /// Notes that keys were deleted between these times.
    pub fn forgot(&self, from_us: i64, to_us: i64) {
        let mut all = self.forgetting.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((from_us, to_us));
    }

    /// How many admissions each key had.
    pub fn counts(&self) -> BTreeMap<usize, usize> {
        let all = self.admissions.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(key, admissions)| (*key, admissions.len())).collect()
    }

    /// The breaches of the laws of a key. Each stretch in which the server forgot nothing is
    /// judged by itself.
    pub fn breaches(&self, key: usize, laws: &[Law]) -> Vec<String> {
        let all = self.admissions.lock().unwrap_or_else(PoisonError::into_inner);
        let forgetting = self.forgetting.lock().unwrap_or_else(PoisonError::into_inner);
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let pauses = pauses.get(&key).map_or(&[][..], Vec::as_slice);
        let (mut breaches, mut periods) = (Vec::new(), BTreeMap::<usize, Vec<Admission>>::new());
        for one in all.get(&key).into_iter().flatten() {
            // How often the server had forgotten before the admission began, and before it
            // ended.
            let before = forgetting.partition_point(|(_, to_us)| *to_us < one.from_us);
            let begun = forgetting.partition_point(|(from_us, _)| *from_us <= one.to_us);
            if before == begun {
                // A unit that the server forgets is held no longer.
                let ends_us = forgetting.get(begun).map_or(i64::MAX, |(from_us, _)| *from_us);
                let held_until_us = one.held_until_us.min(ends_us);
                periods.entry(before).or_default().push(Admission { held_until_us, ..*one });
                let is_paused = |&&(from_us, until_us): &&(i64, i64)| {
                    let kept = forgetting.partition_point(|(_, to_us)| *to_us < from_us) == before;
                    kept && from_us <= one.from_us && one.to_us < until_us
                };
                let pause = pauses.iter().find(|pause| !one.synced && is_paused(pause));
                breaches.extend(pause.map(|pause| format!("{one:?} in the pause {pause:?}")));
            }
        }
        let of_period = |admissions: &Vec<Admission>| {
            laws.iter().filter_map(|law| law.breach(admissions)).collect::<Vec<_>>()
        };
        breaches.extend(periods.values().flat_map(of_period));
        breaches
    }
}

#[test]
fn forgotten_admissions_do_not_count() {
    let one = |us| Admission {
        from_us: us,
        to_us: us + 2,
        units: 1,
        held_until_us: us + 900,
        synced: us == 310,
    };
    let laws = [Law::Log { limit: 2, window_us: 1_000 }, Law::Slots { limit: 2 }];
    let ledger = Ledger::default();
    for us in [0, 10, 100, 201, 300, 310] {
        ledger.admit(7, one(us));
    }
    assert_eq!(ledger.breaches(7, &laws).len(), 2);
    ledger.forgot(50, 60);
    assert_eq!(ledger.breaches(7, &laws).len(), 2);
    ledger.forgot(150, 202);
    assert_eq!(ledger.breaches(7, &laws), [""; 0]);
    assert_eq!(ledger.counts(), BTreeMap::from([(7, 6)]));
    ledger.pause(7, 140, 400);
    ledger.pause(7, 305, 312);
    assert_eq!(ledger.breaches(7, &laws), [""; 0]);
    // A pause does not deny a sync.
    ledger.pause(7, 305, 400);
    assert_eq!(ledger.breaches(7, &laws), [""; 0]);
    ledger.pause(7, 203, 303);
    assert_eq!(ledger.breaches(7, &laws).len(), 1);
}
