//! `RL.REFUND` and `RL.RESET`.

use crate::support::client::{allowed, ask, exists, remaining};
use crate::support::server;

#[test]
fn refunds_give_units_back_and_delete_an_empty_key() {
    const FIXED: &str = "fixed:9/d,align=first";
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<i64>(&mut c, "RL.REFUND k 1"), 0);
        assert!(allowed(&mut c, &format!("RL.CHECK k COST 3 5/m {FIXED}")));
        assert_eq!(ask::<i64>(&mut c, &format!("RL.REFUND k 1 {FIXED}")), 1);
        assert_eq!(remaining(&mut c, "RL.PEEK k 5/m"), 2);
        assert_eq!(remaining(&mut c, &format!("RL.PEEK k {FIXED}")), 7);
        assert_eq!(ask::<i64>(&mut c, "RL.REFUND k 10"), 3);
        assert!(!exists(&mut c, "k"), "an empty key stays");
    });
}

#[test]
fn a_reset_deletes_the_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert!(allowed(&mut c, "RL.CHECK k COST 3 5/m"));
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 0);
        assert!(allowed(&mut c, "RL.CHECK k COST 5 5/m"));
    });
}
