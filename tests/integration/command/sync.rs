//! `RL.SYNC`.

use crate::support::client::{ask, dump, remaining, replica_of, replicated, verdict};
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

#[test]
fn replicas_and_policies_follow_too() {
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
