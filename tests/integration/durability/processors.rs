//! Servers on two processors exchange their files: each loads what the other has saved, and then holds
//! the same bytes. `make test-arm64` runs this test; it needs servers of both processors.

use std::collections::BTreeMap;

use redis::{Connection, Value, cmd};

use super::golden;
use super::persistence::fill::{Filler, fill};
use super::persistence::snapshot::{Snapshot, assert_same, snapshot};
use crate::support::dump::{Dump, uncompressed};
use crate::support::files::{eventually_saved, has_preamble, restart_from_aof, with_aof};
use crate::support::holds;
use crate::support::policies::{self, Policies};
use crate::support::server::{self, Builder, Processor, Server};

/// What a server holds: the decisions of each key, the replies of `DUMP` and `RL.INFO` for it, and the
/// policies.
type Held = (Snapshot, BTreeMap<String, (Vec<u8>, Value)>, Policies);

fn held(server: &Server, filler: &Filler) -> Held {
    let (c, resp3) = (&mut server.connect(), &mut server.connect_resp3());
    let snapshot = snapshot(c, server.flavor(), &filler.telling_times_us());
    let mut shown = |key: &String| timeless(cmd("RL.INFO").arg(key).query(resp3).unwrap());
    let value = |key: &String| (key.clone(), (Dump::of(c, key).payload, shown(key)));
    let values = snapshot.keys().map(value).collect();
    (snapshot, values, policies::known(c))
}

/// A reply of `RL.INFO` without what changes with time.
fn timeless(reply: Value) -> Value {
    const KEPT: [&str; 9] =
        ["states", "rule", "access", "kind", "reason", "since_ms", "by", "pause_reason", "history"];
    let is_kept = |name: &Value| KEPT.iter().any(|kept| *name == Value::BulkString((*kept).into()));
    match reply {
        Value::Array(values) => Value::Array(values.into_iter().map(timeless).collect()),
        Value::Map(pairs) => {
            let kept = pairs.into_iter().filter(|(name, _)| is_kept(name));
            Value::Map(kept.map(|(name, value)| (name, timeless(value))).collect())
        }
        other => other,
    }
}

/// Policies, and keys of every kind: of random traffic, with holds, and all golden payloads.
fn fill_all(c: &mut Connection) -> Filler {
    policies::set(c, &["free 20/m 800/d", "paid bucket:90/m,burst=9 slots:3,name=gpu"]);
    let filler = fill(c);
    golden::restored(c);
    holds::take(c, "hold:");
    filler
}

/// Fills a server and moves it four times to the other processor with `restart`. Calls `before` before
/// each move.
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
            let (snapshot, values, policies) = held(server, &filler);
            server.change_processor();
            restart(server);
            let (moved, moved_values, moved_policies) = held(server, &filler);
            let what = format!("journey {journey}");
            assert_same(&moved, &snapshot, &what);
            for (key, value) in values {
                assert_eq!(moved_values[&key], value, "{what}: {key}");
            }
            assert_eq!(moved_policies, policies, "{what}");
        }
    });
}

/// Each processor loads the other's AOF of commands, then the other's rewritten AOF.
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
fn each_processor_loads_the_others_aofs_with_a_preamble() {
    assert_aof_travels(true);
}

#[test]
#[ignore = "needs servers of two processors: make test-arm64"]
fn each_processor_loads_the_others_aofs_without_a_preamble() {
    assert_aof_travels(false);
}
