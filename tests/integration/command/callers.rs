//! Several callers with different log rules on one key: none makes room for another.

use crate::support::client::{ask, expires_ms};
use crate::support::server;

const DAY_MS: i64 = 86_400_000;

/// A time that stays ahead of the server's clock while a test runs.
const AT_S: u64 = 4_102_444_800;

fn check(c: &mut redis::Connection, rule: &str, second: u64) -> [i64; 5] {
    ask(c, &format!("RL.CHECK user AT {}000000 {rule}", AT_S + second))
}

#[test]
fn a_cheap_endpoint_does_not_wipe_a_login_limit() {
    server::on_all_with(
        |builder| builder.module_args(&["allow-at", "yes"]),
        |server| {
            let mut c = server.connect();
            let flavor = server.flavor();
            for _ in 0..5 {
                assert_eq!(check(&mut c, "5/d", 0)[0], 0);
            }
            assert_eq!(check(&mut c, "5/d", 1)[0], 1);
            let expires = expires_ms(&mut c, flavor, "user");
            assert_eq!(check(&mut c, "100/s", 2)[..3], [0, 100, 99]);
            assert_eq!(check(&mut c, "5/d", 3), [1, 5, 0, DAY_MS - 3_000, DAY_MS - 1_000]);
            assert!(expires_ms(&mut c, flavor, "user") >= expires, "the key expires earlier");
        },
    );
}

#[test]
fn a_small_limit_does_not_trim_what_a_large_one_needs() {
    server::on_all_with(
        |builder| builder.module_args(&["allow-at", "yes"]),
        |server| {
            let mut c = server.connect();
            for _ in 0..100 {
                assert_eq!(check(&mut c, "100/d", 0)[0], 0);
            }
            for second in 10..15 {
                assert_eq!(check(&mut c, "5/s", second)[0], 0);
            }
            assert_eq!(check(&mut c, "100/d", 15)[0], 1);
            // A restart forgets none of it.
            drop(c);
            server.restart();
            let mut c = server.connect();
            assert_eq!(check(&mut c, "5/s", 16)[0], 0);
            assert_eq!(check(&mut c, "100/d", 17)[0], 1);
        },
    );
}
