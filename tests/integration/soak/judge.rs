//! Judges whether more was admitted than the rules allow, from what clients saw.
//!
//! The server forgets consumption when keys are deleted and, in part, when a replica takes
//! over. So time is cut into periods, during which the server forgets nothing. A request
//! counts only if it was sent and answered in one period. Ignoring the other requests can hide a fault,
//! but cannot invent one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many slots a key has.
pub const SLOTS: usize = 3;
/// How long a client may keep a slot.
pub const LEASE: Duration = Duration::from_secs(2);
/// How many units a key admits per second, and how many at once.
pub const RATE: f64 = 50.0;
pub const BURST: f64 = 5.0;

/// Identifies a period, or a gap between two periods. In a gap nothing counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(u64);

/// Identifies an admission.
pub type Ticket = u64;

#[derive(Debug)]
pub struct Judge(Mutex<Ledger>);

#[derive(Debug)]
struct Ledger {
    /// The number of the period. A gap between two periods has an odd number.
    number: u64,
    /// A time shortly before the period began.
    began: Instant,
    /// By key, the admissions that surely hold a slot, each with the end of its lease.
    holders: BTreeMap<String, Vec<(Ticket, Instant)>>,
    /// How many units were consumed, by key.
    consumed: BTreeMap<String, f64>,
    /// By key, the start and the end of each time in which the key surely is paused.
    pauses: BTreeMap<String, Vec<(Instant, Instant)>>,
    admitted: u64,
    faults: Vec<String>,
}

impl Judge {
    pub fn new() -> Self {
        Self(Mutex::new(Ledger {
            number: 0,
            began: Instant::now(),
            holders: BTreeMap::new(),
            consumed: BTreeMap::new(),
            pauses: BTreeMap::new(),
            admitted: 0,
            faults: Vec::new(),
        }))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current period, for a request that is about to be sent.
    pub fn period(&self) -> Period {
        Period(self.ledger().number)
    }

    /// Runs `forget`, which makes the server forget, in a gap between two periods.
    pub fn between_periods<T>(&self, forget: impl FnOnce() -> T) -> T {
        self.ledger().number += 1;
        let began = Instant::now();
        let done = forget();
        let mut ledger = self.ledger();
        ledger.number += 1;
        ledger.began = began;
        ledger.holders.clear();
        ledger.consumed.clear();
        ledger.pauses.clear();
        done
    }

    /// Notes that a request, sent in this period at this time, got a slot. Its lease began
    /// later, at its admission.
    pub fn took_slot(&self, key: &str, sent: Period, at: Instant) -> Ticket {
        let mut ledger = self.ledger();
        ledger.admitted += 1;
        let (ticket, now) = (ledger.admitted, Instant::now());
        if ledger.counts(sent) {
            ledger.test_pauses(key, at);
            let holders = ledger.holders.entry(key.into()).or_default();
            holders.push((ticket, at + LEASE));
            holders.retain(|(_, until)| *until > now);
            let held = holders.len();
            if held > SLOTS {
                ledger.faults.push(format!("{held} clients hold {SLOTS} slots of {key}"));
            }
        }
        ticket
    }

    /// Notes that a client is about to give back its slot.
    pub fn gives_slot_back(&self, key: &str, slot: Ticket) {
        if let Some(holders) = self.ledger().holders.get_mut(key) {
            holders.retain(|(ticket, _)| *ticket != slot);
        }
    }

    /// Notes that a request, sent in this period at this time, consumed a unit.
    pub fn consumed(&self, key: &str, sent: Period, at: Instant) {
        let mut ledger = self.ledger();
        ledger.admitted += 1;
        if !ledger.counts(sent) {
            return;
        }
        ledger.test_pauses(key, at);
        let most = BURST + RATE * ledger.began.elapsed().as_secs_f64();
        let units = ledger.consumed.entry(key.into()).or_default();
        *units += 1.0;
        let units = *units;
        if units > most {
            ledger.faults.push(format!("{units} units of {key} passed, {most} could"));
        }
    }

    /// Notes that a pause, asked for at this time, has begun.
    pub fn paused(&self, key: &str, asked: Instant, length: Duration) {
        let pause = (Instant::now(), asked + length);
        self.ledger().pauses.entry(key.into()).or_default().push(pause);
    }

    /// Notes that the pause of a key is about to end.
    pub fn resumes(&self, key: &str) {
        self.ledger().pauses.remove(key);
    }

    /// Notes a fault.
    pub fn fault(&self, what: String) {
        self.ledger().faults.push(what);
    }

    pub fn faults(&self) -> Vec<String> {
        self.ledger().faults.clone()
    }

    pub fn admitted(&self) -> u64 {
        self.ledger().admitted
    }
}

impl Ledger {
    fn counts(&self, period: Period) -> bool {
        self.number.is_multiple_of(2) && period == Period(self.number)
    }

    /// Tests that no pause of the key covers the whole time from `sent` until now.
    fn test_pauses(&mut self, key: &str, sent: Instant) {
        let now = Instant::now();
        let pauses = self.pauses.get(key).map_or(&[][..], Vec::as_slice);
        if pauses.iter().any(|&(from, until)| from <= sent && now < until) {
            self.faults.push(format!("{key} admitted in a pause"));
        }
    }
}

#[test]
fn a_slot_too_many_is_a_fault_only_within_a_period() {
    let judge = Judge::new();
    let take = |period| judge.took_slot("k", period, Instant::now());
    let first = judge.period();
    let slots: Vec<_> = (0..SLOTS).map(|_| take(first)).collect();
    judge.gives_slot_back("k", slots[0]);
    take(first);
    judge.between_periods(|| take(judge.period()));
    take(first);
    assert_eq!(judge.faults(), [""; 0]);
    let second = judge.period();
    for _ in 0..SLOTS {
        take(second);
    }
    judge.took_slot(
        "k",
        second,
        Instant::now().checked_sub(LEASE).expect("the machine has been up for longer"),
    );
    assert_eq!(judge.faults(), [""; 0]);
    take(second);
    assert_eq!(judge.faults().len(), 1);
}

#[test]
fn a_unit_too_many_is_a_fault() {
    let judge = Judge::new();
    for _ in 0..5 {
        judge.consumed("k", judge.period(), Instant::now());
    }
    assert!(judge.faults().is_empty());
    for _ in 0..1_000 {
        judge.consumed("k", judge.period(), Instant::now());
    }
    assert!(!judge.faults().is_empty());
}

#[test]
fn a_unit_in_a_pause_is_a_fault() {
    let (judge, before) = (Judge::new(), Instant::now());
    judge.paused("k", before, Duration::from_secs(99));
    judge.consumed("k", judge.period(), before);
    judge.consumed("other", judge.period(), Instant::now());
    assert_eq!(judge.faults(), [""; 0]);
    judge.consumed("k", judge.period(), Instant::now());
    assert_eq!(judge.faults().len(), 1);
    judge.resumes("k");
    judge.consumed("k", judge.period(), Instant::now());
    assert_eq!(judge.faults().len(), 1);
}
