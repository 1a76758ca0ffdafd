//! Callers with different rules share a key's log while holds on it end. No rule admits more
//! than its limit, and units that come back no longer count for any rule.

use super::{Example, play_each};
use crate::support::client::{ask, exists};
use crate::support::server::{self, Builder};

const EXAMPLES: &[Example] = &[
    (
        "a refunded hold does not make room for a login",
        &[
            ("0", "CHECK k COST 4 5/d", "0 5 1 0 86400000"),
            ("0", "CHECK k 5/d", "0 5 0 0 86400000"),
            ("0", "CHECK k 5/d", "1 5 0 86400000 86400000"),
            ("1.2", "CHECK k COST 100 HOLD h EX 60 100/s", "0 100 0 0 1000"),
            ("2", "SETTLE k h REFUND", "1"),
            ("2", "CHECK k 5/d", "1 5 0 86398000 86398000"),
        ],
    ),
    (
        "a lapsed hold does not make room under a longer rule",
        &[
            ("0", "CHECK k 1/m", "0 1 0 0 60000"),
            ("10", "CHECK k HOLD h PX 1000 REFUND 1/5s", "0 1 0 0 1000"),
            ("12", "CHECK k 1/m", "1 1 0 48000 48000"),
        ],
    ),
    (
        "a hold settled below its charge does not make room under a longer rule",
        &[
            ("0", "CHECK k COST 5 5/d", "0 5 0 0 86400000"),
            ("1.5", "CHECK k COST 8 HOLD h EX 60 10/s", "0 10 2 0 1000"),
            ("2", "SETTLE k h COST 1", "1"),
            ("2", "CHECK k COST 2 5/d", "1 5 0 86398000 86398000"),
        ],
    ),
    (
        "an excess counts as long as a rule's window reaches back to it",
        &[
            ("0", "CHECK k COST 0 HOLD h EX 60 100/h", "0 100 100 0 0"),
            ("0", "CHECK k 5/s", "0 5 4 0 1000"),
            ("0", "SETTLE k h COST 50", "1"),
            ("1.1", "CHECK k 5/s", "0 5 4 0 1000"),
            ("1.1", "CHECK k COST 60 100/h", "1 100 48 3598900 3598900"),
        ],
    ),
    (
        "an excess counts though the hold outlived its rule's window",
        &[
            ("0", "CHECK k COST 10 HOLD h EX 3600 100/m", "0 100 90 0 60000"),
            ("61", "CHECK k 5/s", "0 5 4 0 1000"),
            ("62", "SETTLE k h COST 100", "1"),
            ("65", "CHECK k 5/s", "0 5 4 0 1000"),
            ("66", "CHECK k COST 60 100/m", "1 100 9 56000 56000"),
        ],
    ),
    (
        "a refund after the window of the hold's rule frees units for longer rules, too",
        &[
            ("0", "CHECK k COST 3 HOLD h EX 10 3/s", "0 3 0 0 1000"),
            ("1.3", "SETTLE k h REFUND", "1"),
            ("1.3", "CHECK k 2/m", "0 2 1 0 60000"),
        ],
    ),
    (
        "a cost of 0 takes a name from another algorithm only with a hold",
        &[
            ("0", "CHECK k COST 3 bucket:5/m,name=x", "0 5 2 0 36000"),
            ("1", "CHECK k COST 0 HOLD h EX 9 window:4/m,name=x", "0 4 4 0 0"),
            ("1", "PEEK k bucket:5/m,name=x", "0 5 5 0 0"),
            ("1", "SETTLE k h COST 3", "1"),
            ("1", "CHECK k COST 2 window:4/m,name=x", "1 4 1 79000 119000"),
            ("0", "CHECK j COST 3 bucket:5/m,name=x", "0 5 2 0 36000"),
            ("1", "CHECK j COST 0 window:4/m,name=x", "0 4 4 0 0"),
            ("1", "PEEK j bucket:5/m,name=x", "0 5 2 0 35000"),
        ],
    ),
    (
        "a cost of 0 gives a state its new shape, so that its hold can be settled",
        &[
            ("0", "CHECK k COST 0 HOLD a EX 60 window:4/2s,name=x", "0 4 4 0 0"),
            ("0", "CHECK k COST 0 HOLD b EX 60 window:4/s,name=x", "0 4 4 0 0"),
            ("0.1", "CHECK k window:4/s,name=x", "0 4 3 0 1900"),
            ("0.5", "SETTLE k b COST 3", "1"),
            ("0.5", "PEEK k window:4/s,name=x", "1 4 0 750 1500"),
        ],
    ),
    (
        "a cost of 0 passes a log full of denials, with or without a hold",
        &[
            ("0", "CHECK k COST 2 HOLD h EX 60 2/m,count=all", "0 2 0 0 60000"),
            ("1", "CHECK k 2/m,count=all", "1 2 0 59000 60000"),
            ("1", "CHECK k COST 0 2/m,count=all", "0 2 0 0 60000"),
            ("0", "CHECK j COST 2 2/m,count=all", "0 2 0 0 60000"),
            ("1", "CHECK j 2/m,count=all", "1 2 0 59000 60000"),
            ("1", "CHECK j COST 0 2/m,count=all", "0 2 0 0 60000"),
        ],
    ),
];

#[test]
fn holds_on_a_shared_log_come_out_exactly() {
    server::on_all_with(Builder::allow_at, |server| {
        play_each(&mut server.connect(), EXAMPLES);
    });
}

#[test]
fn a_refund_deletes_a_key_whose_only_name_changed_its_algorithm() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k bucket:5/m,name=x");
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k COST 0 window:4/m,name=x");
        assert!(exists(&mut c, "k"), "nothing was consumed");
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k window:4/m,name=x");
        let _: i64 = ask(&mut c, "RL.REFUND k 1");
        assert!(!exists(&mut c, "k"));
    });
}
