//! Servers on two processors exchange their files: each loads what the other has saved, as the
//! same bytes. `make test-arm64` runs this, which needs servers of both.

use std::collections::BTreeMap;

use redis::{Connection, cmd};

use super::golden;
use super::persistence::fill::{Filler, fill};
use super::persistence::snapshot::{Snapshot, assert_same, snapshot};
use crate::support::dump::{Dump, uncompressed};
use crate::support::files::{eventually_saved, has_preamble, restart_from_aof, with_aof};
use crate::support::holds;
use crate::support::server::{self, Builder, Processor, Server};

/// What a server holds: how keys decide, and the bytes that `DUMP` gives of them.
type Held = (Snapshot, BTreeMap<String, Vec<u8>>);

fn held(server: &Server, filler: &Filler) -> Held {
    let c = &mut server.connect();
    let snapshot = snapshot(c, server.flavor(), &filler.telling_times_us());
    let dumps = snapshot.keys().map(|key| (key.clone(), Dump::of(c, key).payload)).collect();
    (snapshot, dumps)
}

/// Keys of every kind: of random traffic, with holds, and all golden payloads.
fn fill_all(c: &mut Connection) -> Filler {
    let filler = fill(c);
    golden::restored(c);
    holds::take(c, "hold:");
    filler
}

/// Fills a server, which then goes four times to the other processor, by `restart`. `before` is
/// called before each of them.
fn assert_files_travel(
    configure: impl Fn(Builder) -> Builder,
    before: impl Fn(&mut Server, usize),
    restart: impl Fn(&mut Server),
) {
    let (tested, other) = (Processor::Tested.machine(), Processor::Other.machine());
    assert_ne!(tested, other, "both modules are for one processor");
    let configure = |builder: Builder| configure(uncompressed(builder).allow_at());
    server::on_all_with(configure, |server| {
        let mut filler = fill_all(&mut server.connect());
        for journey in 0..4 {
            filler.send(&mut server.connect(), 500);
            before(server, journey);
            let (snapshot, dumps) = held(server, &filler);
            server.change_processor();
            restart(server);
            let (moved, moved_dumps) = held(server, &filler);
            let what = format!("journey {journey}");
            assert_same(&moved, &snapshot, &what);
            for (key, dump) in dumps {
                assert_eq!(moved_dumps[&key], dump, "{what}: {key}");
            }
        }
    });
}

/// Both processors load the other's commands, then its rewritten AOF.
fn assert_aof_travels(preamble: bool) {
    let rewrite = |server: &mut Server, journey| {
        if journey >= 2 {
            let c = &mut server.connect();
            let () = cmd("BGREWRITEAOF").query(c).unwrap();
            eventually_saved(c);
            assert_eq!(has_preamble(server), preamble, "the form of the AOF");
        }
    };
    assert_files_travel(|builder| with_aof(builder, preamble), rewrite, restart_from_aof);
}

#[test]
#[ignore = "needs servers of two processors: make test-arm64"]
fn each_processor_loads_rdb_files_of_the_other() {
    assert_files_travel(|builder| builder, |_, _| (), Server::restart);
}

#[test]
#[ignore = "needs servers of two processors: make test-arm64"]
fn each_processor_loads_aofs_with_a_preamble_of_the_other() {
    assert_aof_travels(true);
}

#[test]
#[ignore = "needs servers of two processors: make test-arm64"]
fn each_processor_loads_aofs_without_a_preamble_of_the_other() {
    assert_aof_travels(false);
}
