//! `RL.SYNC`.

use crate::support::client::{ask, dump, info, remaining, replica_of, replicated, verdict};
use crate::support::files::with_synced_aof;
use crate::support::server::{self, Builder};

#[test]
fn a_sync_lowers_what_remains_and_never_raises_it() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK k 100/h"), 99);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 12 100/h"), 87);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK k 100/h")[..3], [0, 100, 12]);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 50 100/h"), 0);
        assert_eq!(remaining(&mut c, "RL.PEEK k 100/h"), 12);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 0 100/h"), 12);
        assert_eq!(verdict(&mut c, "RL.CHECK k 100/h"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 100 100/h"), 0);
    });
}

#[test]
fn a_hold_counts_as_consumed() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD a EX 60 COST 40 bucket:100/d"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 60 bucket:100/d"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 55 bucket:100/d"), 5);
    });
}

/// Only a leaky bucket with the largest queue lets 1,000,000,001 units pass. The cost of a check and
/// the units of an effect are at most 1,000,000,000.
#[test]
fn a_sync_of_the_largest_queue_reaches_replicas_and_the_file() {
    const RULE: &str = "leaky:1/h,queue=1000000000";
    server::on_all_with(with_synced_aof, |server| {
        let mut c = server.connect();
        let replica = replica_of(server);
        let sync = format!("RL.SYNC k REMAINING 0 {RULE}");
        assert_eq!(ask::<i64>(&mut c, &sync), 1_000_000_001);
        assert_eq!(ask::<i64>(&mut c, &sync), 0);
        replicated(&mut c);
        let (mut r, own) = (replica.connect(), dump(&mut c, "k"));
        assert_eq!(dump(&mut r, "k"), own);
        assert_eq!(info(&mut r, "ratelimit", "ratelimit_unreadable_effects"), 0.0);
        server.kill9();
        server.resume();
        assert_eq!(dump(&mut server.connect(), "k"), own);
    });
}

#[test]
fn a_sync_by_policy_reaches_replicas() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let replica = replica_of(server);
        let () = ask(&mut c, "RL.POLICY SET api window:100/h,cost=5,name=a");
        assert_eq!(remaining(&mut c, "RL.CHECK k AT 4102444800000000 @api"), 95);
        assert_eq!(ask::<i64>(&mut c, "RL.SYNC k REMAINING 12 AT 4102444800000000 @api"), 83);
        replicated(&mut c);
        let mut r = replica.connect();
        assert_eq!(dump(&mut r, "k"), dump(&mut c, "k"));
        assert_eq!(remaining(&mut c, "RL.PEEK k AT 4102444800000000 @api"), 12);
    });
}
