//! INSTALL.md and the pages of `docs/operate`, followed step by step on the oldest and the newest server, with the servers'
//! own configuration files.

use redis::Connection;

use super::steps;
use crate::support::client::{
    ask, eventually_linked, exists, info_text, is_saving, refusal, remaining, replicated, verdict,
};
use crate::support::policies::{known, known_by_replica, policies, set};
use crate::support::server::{self, Flavor, Server, eventually};

const OUTAGES: &str = include_str!("../../../docs/operate/outages.md");
const UPGRADE: &str = include_str!("../../../INSTALL.md");

/// Runs a test on the oldest and on the newest server.
pub fn on_two(body: impl Fn(Flavor)) {
    let all = server::all();
    let newest = all.last().filter(|_| all.len() > 1);
    all.first().into_iter().chain(newest).for_each(|flavor| body(*flavor));
}

/// A primary with an AOF, and its replicas.
fn group(flavor: Flavor, replicas: usize) -> Vec<Server> {
    let builder = || flavor.builder().config("appendonly", "yes");
    let mut servers = vec![builder().start()];
    for _ in 0..replicas {
        let replica = builder().replica_of(&servers[0]).start();
        eventually_linked(&replica);
        servers.push(replica);
    }
    servers
}

/// The servers of a comment, in a group whose next primary is the second.
fn whom(comment: &str) -> Vec<usize> {
    let groups: [(&str, &[usize]); 7] = [
        ("every server", &[0, 1, 2]),
        ("old primary and the other", &[0, 2]),
        ("each replica", &[1, 2]),
        ("other replicas", &[2]),
        ("new primary", &[1]),
        ("primary", &[0]),
        ("any server", &[0]),
    ];
    let group = groups.into_iter().find(|(words, _)| comment.contains(words));
    group.unwrap_or_else(|| panic!("which server is {comment}?")).1.to_vec()
}

/// Which servers are primaries.
fn primaries(servers: &[Server]) -> Vec<usize> {
    let role = |server: &Server| info_text(&mut server.connect(), "replication", "role");
    (0..servers.len()).filter(|place| role(&servers[*place]) == "master").collect()
}

/// Consumes a unit of five, and returns what is left. Waits until both replicas have it.
fn consume(c: &mut Connection) -> i64 {
    let left = remaining(c, "RL.CHECK k 5/h");
    assert_eq!(ask::<i64>(c, "WAIT 2 15000"), 2);
    left
}

#[test]
fn an_upgrade_leaves_one_primary_whatever_restarts_later() {
    on_two(|flavor| {
        let mut servers = group(flavor, 2);
        assert_eq!(consume(&mut servers[0].connect()), 4);
        let lines = steps::of(UPGRADE, "## Upgrade", |_| true);
        steps::run(&lines, &mut servers, 1, whom);
        for restarted in 0..3 {
            assert_eq!(primaries(&servers), [1], "{}", flavor.name);
            [0, 2].into_iter().for_each(|replica| eventually_linked(&servers[replica]));
            assert_eq!(consume(&mut servers[1].connect()), 3 - restarted as i64);
            servers[restarted].restart();
        }
        assert_eq!(primaries(&servers), [1], "{}", flavor.name);
        assert_eq!(remaining(&mut servers[1].connect(), "RL.PEEK k 5/h"), 1);
    });
}

#[test]
fn the_way_back_keeps_data_roles_and_aof() {
    on_two(|flavor| {
        let mut servers = group(flavor, 2);
        assert_eq!(consume(&mut servers[0].connect()), 4);
        let lines = steps::of(UPGRADE, "## Go back", |_| true);
        steps::run(&lines, &mut servers, 0, whom);
        assert_eq!(primaries(&servers), [0]);
        assert_eq!(consume(&mut servers[0].connect()), 3);
        // What the AOF alone has.
        servers[0].kill9();
        servers[0].resume();
        assert_eq!(remaining(&mut servers[0].connect(), "RL.PEEK k 5/h"), 3);
    });
}

/// The block of a page for this server: for Redis before 7.2, or for later servers.
fn for_this(flavor: Flavor) -> impl Fn(&str) -> bool {
    let is_old = flavor.version < (7, 2);
    move |block| block.contains("rl-left") || block.contains("aof-use-rdb-preamble") == is_old
}

#[test]
fn a_removed_module_leaves_nothing_and_the_server_starts_without_it() {
    on_two(|flavor| {
        let mut servers = group(flavor, 2);
        let mut c = servers[0].connect();
        set(&mut c, &["free 5/h"]);
        let () = ask(&mut c, "SET other kept");
        for database in [0, 1, 7] {
            let () = ask(&mut c, &format!("SELECT {database}"));
            assert_eq!(verdict(&mut c, "RL.CHECK k 5/h"), 0);
            let () = ask(&mut c, "RL.BLOCK blocked");
        }
        for server in &servers {
            let mut c = server.connect();
            if flavor.is_7_or_later() {
                let () = ask(&mut c, "CONFIG SET ratelimit.top-size 64");
            }
            let () = ask(&mut c, "ACL SETUSER app on >secret ~* +rl.check");
            let () = ask(&mut c, "CONFIG REWRITE");
        }
        let lines = steps::of(UPGRADE, "## Remove the module", for_this(flavor));
        steps::run(&lines, &mut servers, 0, whom);
        eventually_linked(&servers[1]);
        for server in &servers {
            let mut c = server.connect();
            assert!(exists(&mut c, "other"), "{}", flavor.name);
            assert_eq!(info_text(&mut c, "keyspace", "db0").split(',').next(), Some("keys=1"));
            assert!(refusal(&mut c, "RL.EXPLAIN 5/m").contains("unknown command"));
        }
    });
}

#[test]
fn a_restored_backup_brings_limits_blocks_and_policies_back() {
    on_two(|flavor| {
        let mut servers = group(flavor, 1);
        let mut c = servers[0].connect();
        set(&mut c, &["free 5/h"]);
        assert_eq!(remaining(&mut c, "RL.CHECK k @free"), 4);
        let () = ask(&mut c, "RL.BLOCK blocked");
        let take = |block: &str| block.contains("--rdb");
        let whom: fn(&str) -> Vec<usize> = |_| vec![0];
        steps::run(&steps::of(OUTAGES, "## Backup and restore", take), &mut servers, 0, whom);
        assert_eq!(remaining(&mut c, "RL.CHECK k COST 3 @free"), 1);
        let _: i64 = ask(&mut c, "RL.UNBLOCK blocked");
        set(&mut c, &["free 9/h"]);
        replicated(&mut c);
        let restore = |block: &str| !block.contains("--rdb");
        let lines = steps::of(OUTAGES, "## Backup and restore", restore);
        steps::run(&lines, &mut servers, 0, whom);
        let restored = |c: &mut Connection| {
            assert_eq!(remaining(c, "RL.PEEK k @free"), 4);
            assert_eq!(verdict(c, "RL.PEEK blocked 5/h"), 2);
        };
        restored(&mut servers[0].connect());
        assert_eq!(known(&mut servers[0].connect()), policies(&["free log:5/1h"]));
        eventually("the replica to take all from its primary", || {
            let linked = info_text(&mut servers[1].connect(), "replication", "master_link_status");
            linked == "up" && known_by_replica(&servers[1]) == policies(&["free log:5/1h"])
        });
        restored(&mut servers[1].connect());
        let mut c = servers[0].connect();
        eventually("an AOF", || !is_saving(&mut c));
        servers[0].kill9();
        servers[0].resume();
        restored(&mut servers[0].connect());
    });
}
