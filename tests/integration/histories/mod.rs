//! Histories: could concurrent clients have got the same replies one after another, in some order?
//!
//! Clients call a server at once. For each call the test records when it began, when the reply came,
//! and the reply. Then a checker looks for one order of all calls in which each stands between its
//! begin and its end, and each reply is that of the model (Herlihy and Wing 1990; the search is that
//! of Wing and Gong, with Lowe's cache). A call without a reply may have happened, or not.
//!
//! The model in `model.rs` knows no clock: either the rules last for months, so nothing comes back by
//! itself while a test runs, or the calls give the time (`timed.rs`). The model is written from the
//! documents, and shares no code with the module.
//!
//! ```text
//! call     what clients ask, as a command
//! model    a key, and what each call does to it
//! timed    rules whose answers depend on the time that a call gives
//! record   clients that call at once, and what they saw
//! verdict  the search for an order
//! loss     the search after a failover, and what the new primary lacks
//! ```
//!
//! Not covered: partitions (`make test-partitions`), steps of the server's clock, full memory; `RL.RENEW`,
//! `RL.SYNC`, `RL.EXEMPT`, flows, bans, ranges of costs, `count=all`; holds and refunds with `AT`.
//!
//! A history has two keys, in one slot, and few calls: each further call makes the search longer. A few
//! histories run in `make test`; `make histories` runs as many as fit into `RATELIMIT_HISTORIES_S`
//! seconds.

mod call;
mod loss;
mod model;
mod record;
mod timed;
mod verdict;

use std::env;
use std::time::{Duration, Instant};

use self::call::Theme;
use self::loss::loss;
use self::model::Reply;
use self::record::{Disturbance, Link, record, record_failover, record_moves};
use self::verdict::explain;
use crate::support::seed;
use crate::support::server::cluster;
use crate::support::server::{self, Flavor, Server};
use crate::support::workload::link::{primary, replica_of};

/// How many histories of each theme a server gets in `make test`.
const FEW: u64 = 2;
const THEMES: [Theme; 4] = [Theme::Rates, Theme::Holds, Theme::One, Theme::Timed];
/// How many slots move at once.
const MOVED: usize = 4;

/// Decides whether to record another history.
struct Pace {
    end: Option<Instant>,
}

impl Pace {
    fn new() -> Self {
        let seconds = env::var("RATELIMIT_HISTORIES_S").ok();
        let length = seconds.map(|text| text.parse().expect("a number of seconds"));
        Self { end: length.map(|seconds| Instant::now() + Duration::from_secs(seconds)) }
    }

    fn goes_on(&self, done: u64) -> bool {
        self.end.map_or(done < FEW, |end| Instant::now() < end)
    }
}

/// A server that writes each effect to its append-only file before it sends the reply.
fn start(flavor: Flavor) -> Server {
    let builder = flavor.builder().allow_at();
    builder.config("appendonly", "yes").config("appendfsync", "always").start()
}

fn histories_have_an_order(disturbance: Disturbance) {
    let seed = seed("RATELIMIT_HISTORIES_SEED");
    server::on_each_at_once(|flavor| {
        let (mut server, pace, mut done) = (start(flavor), Pace::new(), 0);
        while pace.goes_on(done) {
            for theme in THEMES {
                let random = fastrand::Rng::with_seed(seed ^ done << 1 ^ theme as u64);
                let group = format!("{}-{done}-{theme:?}", flavor.name);
                let history = record(&mut server, &group, theme, disturbance, random);
                if let Some(why) = explain(&history) {
                    panic!("RATELIMIT_HISTORIES_SEED={seed}, history {group}: {why}");
                }
            }
            done += 1;
        }
        eprintln!("{}: {done} histories of each theme, {disturbance:?}", flavor.name);
    });
}

#[test]
fn concurrent_calls_have_an_order() {
    histories_have_an_order(Disturbance::None);
}

#[test]
fn calls_that_clients_send_again_have_an_order() {
    histories_have_an_order(Disturbance::Disconnect);
}

#[test]
fn calls_around_a_kill_have_an_order() {
    histories_have_an_order(Disturbance::Kill);
}

#[test]
fn calls_on_keys_whose_slot_moves_have_an_order() {
    let seed = seed("RATELIMIT_HISTORIES_SEED");
    cluster::on_all(|cluster| {
        let (pace, mut done) = (Pace::new(), 0);
        let [a, b, ..] = &cluster.masters()[..] else { panic!("two masters") };
        let slots = a.slots[..MOVED].to_vec();
        while pace.goes_on(done) {
            let group = cluster.keys_in(&slots, 1).remove(0);
            let random = fastrand::Rng::with_seed(seed ^ done);
            let history = record_moves(cluster, &group, random, || {
                cluster.reshard(a, b, MOVED);
                cluster.settled();
                cluster.reshard(b, a, MOVED);
            });
            if let Some(why) = explain(&history) {
                panic!("RATELIMIT_HISTORIES_SEED={seed}, history {group}: {why}");
            }
            done += 1;
        }
    });
}

/// A promoted replica goes on from a state that its primary had. All calls that `WAIT` confirmed come
/// before this state: `docs/operate/outages.md`.
#[test]
fn a_failover_loses_only_the_last_calls_and_no_confirmed_one() {
    let seed = seed("RATELIMIT_HISTORIES_SEED");
    server::on_each_at_once(|flavor| {
        let (pace, mut done) = (Pace::new(), 0);
        let mut lost = [0; 5];
        while pace.goes_on(done) {
            let link = [Link::Up, Link::Cut][done as usize % 2];
            for theme in THEMES {
                let mut primary = primary(flavor);
                let replica = replica_of(&primary);
                let random = fastrand::Rng::with_seed(seed ^ done << 1 ^ theme as u64);
                let group = format!("{}-{done}-{theme:?}", flavor.name);
                let failover = record_failover(&mut primary, &replica, &group, theme, link, random);
                let loss = loss(&failover).unwrap_or_else(|why| {
                    panic!("RATELIMIT_HISTORIES_SEED={seed}, history {group}, {link:?}: {why}")
                });
                let confirmed = failover.calls.iter().filter(|seen| seen.confirmed).count();
                let units = loss.units.iter().sum::<i64>() as usize;
                let more = [failover.calls.len(), confirmed, loss.calls, units, loss.holds.len()];
                lost.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                if pace.end.is_some() && (units > 0 || !loss.holds.is_empty()) {
                    eprintln!("{group}, {link:?}: {loss:?}");
                }
            }
            done += 1;
        }
        let [calls, confirmed, lost, units, holds] = lost;
        eprintln!(
            "{}: {done} failovers of each theme: of {calls} calls {confirmed} were confirmed, {lost} lost: \
             {units} units, {holds} holds",
            flavor.name
        );
    });
}

/// Raises what remains by one unit one reply at a time, as a lost charge would. If calls overlap, another order explains a few of
/// these replies.
#[test]
fn a_wrong_reply_has_no_order() {
    let mut server = start(server::one());
    let random = fastrand::Rng::with_seed(1);
    let history = record(&mut server, "wrong", Theme::Rates, Disturbance::None, random);
    assert_eq!(explain(&history), None);
    let admitted = (0..history.len()).filter(|&index| {
        let reply = history[index].end.as_ref().map(|(_, reply)| reply);
        matches!(reply, Some(Reply::Decision { verdict: 0, .. }))
    });
    let (mut checked, mut refused) = (0, 0);
    for index in admitted {
        let mut wrong = history.clone();
        if let Some((_, Reply::Decision { remaining, .. })) = &mut wrong[index].end {
            *remaining += 1;
        }
        refused += usize::from(explain(&wrong).is_some());
        checked += 1;
    }
    assert!(checked > 5 && refused * 2 > checked, "{refused} of {checked}");
}
