//! SIGKILL while clients take and settle holds: the server keeps every acknowledged hold and
//! every acknowledged settlement exactly as it answered. `RATELIMIT_ROUNDS` sets how often each
//! server is killed, by default 5 times.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::client::ask;
use crate::support::files::{eventually_saved, with_synced_aof};
use crate::support::holders::{Held, Lasting, assert_known, work};
use crate::support::server::{self, Server, eventually};

const CLIENTS: usize = 3;
const KEYS: usize = 3;

/// Kills the server while clients work on holds, once it has answered `enough` commands. Returns
/// what the clients know.
fn kill_under_load(server: &mut Server, round: u32, enough: usize) -> Vec<Held> {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{round}:{key}")).collect();
    let progress = AtomicUsize::new(0);
    let connections: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        let (keys, progress) = (&keys, &progress);
        let clients: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(client, c)| {
                let name = format!("client{client}");
                scope.spawn(move || work(c, &name, keys, Lasting::Answered, progress))
            })
            .collect();
        eventually("enough replies", || progress.load(Ordering::Relaxed) >= enough);
        server.kill9();
        let held = |client: thread::ScopedJoinHandle<'_, _>| client.join().expect("it ends");
        clients.into_iter().flat_map(held).collect()
    })
}

#[test]
fn fsync_always_loses_no_acknowledged_hold_or_settlement() {
    let rounds = env::var("RATELIMIT_ROUNDS").map_or(5, |text| text.parse().expect("a number"));
    server::on_all_with(with_synced_aof, |server| {
        for round in 0..rounds {
            let holds = kill_under_load(server, round, fastrand::usize(500..2_500));
            server.resume();
            let mut c = server.connect();
            assert_known(&mut c, &holds);
            if round % 2 == 0 {
                // The next round appends to a file that begins with values.
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
            }
        }
    });
}
