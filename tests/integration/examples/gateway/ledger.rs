//! What the model did, by its log, and whether that is within the limits.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A call that reached the model.
#[derive(Clone, Debug)]
pub struct Served {
    pub id: String,
    pub gateway: String,
    pub begin_us: u64,
    /// The number of tokens that went in plus the number that were made.
    pub tokens: u64,
}

/// All calls that have ended, and the most calls that ran at once.
#[derive(Default)]
pub struct Ledger {
    pub served: Vec<Served>,
    pub most_at_once: usize,
    /// Running calls.
    running: HashMap<(String, String), u64>,
}

impl Ledger {
    /// Reads lines `TIME begin|end ID GATEWAY INPUT MADE`, in the order in which they happened.
    pub fn read(log: &Path) -> Self {
        let mut ledger = Self::default();
        for line in fs::read_to_string(log).expect("a log").lines() {
            let [time_us, event, id, gateway, input, made] =
                line.split(' ').collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let call = (id.to_string(), gateway.to_string());
            if event == "begin" {
                let twice = ledger.running.insert(call, number(time_us));
                assert!(twice.is_none(), "{id} runs twice in one gateway");
                ledger.most_at_once = ledger.most_at_once.max(ledger.running.len());
            } else {
                let begin_us = ledger.running.remove(&call).expect("it has begun");
                let (id, gateway) = call;
                let tokens = number(input) + number(made);
                ledger.served.push(Served { id, gateway, begin_us, tokens });
            }
        }
        ledger
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }
}

/// A charge, made at some time between `after_us` and `before_us`.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub after_us: u64,
    pub before_us: u64,
    pub units: u64,
}

/// Checks that no interval of any length has more units than `allowed` returns for it. A charge
/// surely belongs to an interval only if both of its times do.
pub fn within(mut charges: Vec<Charge>, allowed: impl Fn(u64) -> u64) {
    charges.sort_unstable_by_key(|charge| charge.before_us);
    for first in &charges {
        let mut units = 0;
        for charge in charges.iter().filter(|charge| charge.after_us >= first.after_us) {
            units += charge.units;
            let length_us = charge.before_us - first.after_us;
            let allowed = allowed(length_us);
            assert!(units <= allowed, "{units} units within {length_us} us, {allowed} allowed");
        }
    }
}
