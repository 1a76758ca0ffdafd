//! The network fails between clients and their server.

use std::time::Duration;

use redis::{Connection, RedisResult};

use super::Hosted;
use crate::support::client::{ask, remaining, verdict};
use crate::support::network::Network;
use crate::support::server::{self, eventually};
use crate::support::traffic::{Limit, limits_on};
use crate::support::waiters::{wait_on, waiting};

#[test]
#[ignore = "needs network namespaces: make test-partitions"]
fn a_check_without_a_reply_is_charged_once_at_most() {
    for flavor in server::all() {
        for replies_are_lost in [true, false] {
            let network = Network::new(2);
            let [at_server, at_client] = network.hosts();
            let hosted = Hosted::start(flavor, at_server, |builder| builder);
            let limits = limits_on((0..40).map(|n| format!("k{n}")).collect());
            let mut tally = vec![(0, 0); limits.len()];
            let (from, to) =
                if replies_are_lost { (at_server, at_client) } else { (at_client, at_server) };
            for _ in 0..8 {
                let mut c = hosted.connect_from(at_client);
                c.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
                checks(&mut c, &limits, &mut tally);
                network.cut(from, to);
                checks(&mut c, &limits, &mut tally);
                network.mend(from, to);
            }
            // The kernel may still send a command after its client has given up.
            let mut c = hosted.connect();
            eventually("the lost connections to end", || {
                let clients: String = ask(&mut c, "CLIENT LIST");
                clients.lines().count() == 1
            });
            let mut c = hosted.connect_from(at_client);
            let lost: i64 = tally.iter().map(|(_, lost)| lost).sum();
            let mut charged = 0;
            for (limit, (answered, lost)) in limits.iter().zip(tally) {
                let [_, _, left, ..]: [i64; 5] = limit.peek().query(&mut c).expect("a reply");
                let used = limit.units - left;
                let expected = answered..=answered + lost;
                assert!(expected.contains(&used), "{limit:?}: {used} used, not in {expected:?}");
                charged += used - answered;
            }
            let name = flavor.name;
            println!("{name}, replies lost {replies_are_lost}: {charged} of {lost} were charged");
            assert!(lost >= 8, "only {lost} checks got no reply");
        }
    }
}

/// Sends some checks of one unit for random limits, until one gets no reply. Counts the units that
/// passed, and those without a reply.
fn checks(c: &mut Connection, limits: &[Limit], tally: &mut [(i64, i64)]) {
    for _ in 0..15 {
        let index = fastrand::usize(..limits.len());
        let reply: RedisResult<[i64; 5]> = limits[index].check(1).query(c);
        match reply {
            Ok([0, ..]) => tally[index].0 += 1,
            Ok(_) => {}
            Err(_) => {
                tally[index].1 += 1;
                return; // The next reply on this connection could be the one to this request.
            }
        }
    }
}

#[test]
#[ignore = "needs network namespaces: make test-partitions"]
fn a_waiting_client_that_is_cut_off_leaves_the_line_when_its_connection_is_found_dead() {
    for flavor in server::all() {
        let network = Network::new(2);
        let [at_server, at_client] = network.hosts();
        let hosted =
            Hosted::start(flavor, at_server, |builder| builder.config("tcp-keepalive", "1"));
        let mut c = hosted.connect();
        let held = "RL.CHECK k HOLD held EX 3000 slots:1 9/366d";
        assert_eq!(verdict(&mut c, held), 0, "{}", flavor.name);
        let line = |id: &str| format!("RL.WAIT k 3600000 HOLD {id} EX 3000 slots:1 9/366d");
        let [far, near] = [hosted.connect_from(at_client), hosted.connect()];
        let _far = at_server.within(|| wait_on(&hosted.server, far, &line("far")));
        let near = at_server.within(|| wait_on(&hosted.server, near, &line("near")));
        network.cut(at_client, at_server);
        network.cut(at_server, at_client);
        eventually("the dead connection to be noticed", || waiting(&mut c) == 1);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        assert_eq!(near.verdict(), 0, "{}", flavor.name);
        assert_eq!(remaining(&mut c, "RL.PEEK k 9/366d"), 7, "the other was not charged");
    }
}

#[test]
#[ignore = "needs network namespaces: make test-partitions"]
fn a_waiting_client_that_is_admitted_while_cut_off_loses_its_slot_when_the_hold_lapses() {
    for flavor in server::all() {
        let network = Network::new(2);
        let [at_server, at_client] = network.hosts();
        let hosted = Hosted::start(flavor, at_server, |builder| builder);
        let mut c = hosted.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held EX 3000 slots:1"), 0);
        let [far, near] = [hosted.connect_from(at_client), hosted.connect()];
        let lines = ["far", "near"].map(|id| format!("RL.WAIT k 3600000 HOLD {id} EX 5 slots:1"));
        let _far = at_server.within(|| wait_on(&hosted.server, far, &lines[0]));
        let near = at_server.within(|| wait_on(&hosted.server, near, &lines[1]));
        network.cut(at_client, at_server);
        network.cut(at_server, at_client);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k held"), 1);
        eventually("the first in line to be admitted", || waiting(&mut c) == 1);
        assert!(near.waits(), "{}: two have one slot", flavor.name);
        assert_eq!(near.verdict(), 0, "{}", flavor.name);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k far"), 0, "it has lapsed");
    }
}
