//! Active defragmentation: it moves the allocations of values and changes nothing else.

mod lines;

use redis::{Connection, Pipeline, Value};

use crate::support::client::{
    ask, command, digest, info, raw_reply, refusal, remaining, replica_of, replicated,
};
use crate::support::server::{self, Builder, Server};

/// The time of the first check, Unix microseconds.
const T: u64 = 1_700_000_000_000_000;

/// A kind of value, and the checks that make one.
struct Kind {
    rules: &'static str,
    cost: u32,
    checks: u64,
    apart_us: u64,
}

/// Together, these values have every kind of allocation.
const KINDS: [Kind; 9] = [
    Kind { rules: "900/h", cost: 1, checks: 12, apart_us: 1_000 },
    // Many entries in one allocation.
    Kind { rules: "900/h", cost: 1, checks: 150, apart_us: 1_000 },
    // Weights beside the entries.
    Kind { rules: "900/h", cost: 3, checks: 60, apart_us: 1_000 },
    // Gaps too long for an offset, so that the log has segments.
    Kind { rules: "900/30d", cost: 1, checks: 40, apart_us: 7_200_000_000 },
    // Charged denials beside admitted requests.
    Kind { rules: "20/h,count=all", cost: 1, checks: 60, apart_us: 1_000 },
    Kind { rules: "window:900/h,res=60", cost: 1, checks: 9, apart_us: 60_000_000 },
    Kind { rules: "fixed:9/m,keep=30", cost: 1, checks: 30, apart_us: 60_000_000 },
    // Several states, with names and without.
    Kind {
        rules: "bucket:9/h,name=a leaky:9/h,name=b window:9/h,name=c fixed:9/h bucket:9/d",
        cost: 1,
        checks: 3,
        apart_us: 1_000,
    },
    // A block and its reason.
    Kind { rules: "2/h,ban=1d,name=abcdefghijklmnopqrstuvwxyz", cost: 1, checks: 4, apart_us: 0 },
];

impl Kind {
    fn make(&self, c: &mut Connection, key: &str) {
        let Self { rules, cost, checks, apart_us } = self;
        for at in (0..*checks).map(|n| T + n * apart_us) {
            let _: Value = ask(c, &format!("RL.CHECK {key} COST {cost} AT {at} {rules}"));
        }
    }

    /// A call whose reply shows all limits after these checks.
    fn peek(&self, key: &str) -> String {
        format!("RL.PEEK {key} AT {} FULL {}", T + self.checks * self.apart_us, self.rules)
    }
}

/// Whether the server was built with an allocator that supports defragmentation.
fn can_defragment(server: &Server) -> bool {
    server.flavor().name == "redis-8.2"
}

fn eager(builder: Builder) -> Builder {
    let builder = builder.allow_at().config("hz", "100");
    // Defragments with the most effort, for any gain.
    [("ignore-bytes", 1), ("threshold-lower", 0), ("threshold-upper", 1), ("cycle-min", 50)]
        .into_iter()
        .fold(builder, |builder, (name, to)| {
            builder.config(&format!("active-defrag-{name}"), &to.to_string())
        })
}

/// Makes `copies` copies of a key, `PREFIX1` and so on, and deletes two of three again.
fn riddle_with_holes(c: &mut Connection, key: &str, prefix: &str, copies: u32) {
    let script = "for i = 1, ARGV[2] do redis.call('COPY', KEYS[1], ARGV[1] .. i) end
        for i = 1, ARGV[2] do
            if i % 3 ~= 0 then redis.call('DEL', ARGV[1] .. i) end
        end";
    let mut eval = command("EVAL");
    let () = eval.arg(script).arg(1).arg(key).arg(prefix).arg(copies).query(c).unwrap();
}

/// The memory that the allocator holds, as a multiple of the memory in use.
fn fragmentation(c: &mut Connection) -> f64 {
    info(c, "memory", "allocator_frag_ratio")
}

/// What the server holds: a digest of all data, and the limits and dumps of some keys.
fn content(c: &mut Connection, kind: &Kind) -> (String, Vec<Value>) {
    let mut calls = Pipeline::new();
    for key in (3..900).step_by(3).map(|n| format!("k{n}")) {
        calls.add_command(command(&kind.peek(&key)));
        calls.cmd("DUMP").arg(&key);
    }
    (digest(c), calls.query(c).unwrap())
}

#[test]
fn every_kind_of_allocation_can_move() {
    server::oldest_and_newest();
    const COPIES: u32 = 24_000;
    server::on_all_with(eager, |server| {
        if !can_defragment(server) {
            return; // see `defragmentation_is_refused_without_support_by_the_allocator`
        }
        let mut c = server.connect();
        // The server defers values with more fields than the setting, and defragments them in
        // steps.
        for (kind, at_once) in KINDS.iter().flat_map(|kind| [(kind, 1_000), (kind, 1)]) {
            let what = format!("{}, {at_once} fields at once", kind.rules);
            let () = ask(&mut c, &format!("CONFIG SET active-defrag-max-scan-fields {at_once}"));
            kind.make(&mut c, "k");
            riddle_with_holes(&mut c, "k", "k", COPIES);
            let before = content(&mut c, kind);
            let moved = info(&mut c, "stats", "active_defrag_hits");
            // The server measures its memory ten times a second.
            server::eventually(&format!("holes in memory: {what}"), || fragmentation(&mut c) > 1.8);

            let () = ask(&mut c, "CONFIG SET activedefrag yes");
            server::eventually(&format!("the holes to be filled: {what}"), || {
                fragmentation(&mut c) < 1.4
            });
            let () = ask(&mut c, "CONFIG SET activedefrag no");
            assert!(info(&mut c, "stats", "active_defrag_hits") > moved);
            assert_eq!(content(&mut c, kind), before, "{what}");

            // Moved allocations can grow, shrink and be freed.
            kind.make(&mut c, "k3");
            let _: Value = ask(&mut c, "RL.REFUND k6 1000");
            let _: Value = ask(&mut c, "RL.RESET k9");
            let () = ask(&mut c, "FLUSHALL SYNC");
        }
    });
}

#[test]
fn checks_decide_alike_while_allocations_move() {
    server::oldest_and_newest();
    const ROUNDS: u64 = 40;
    const BUSY: u64 = 100;
    server::on_all_with(eager, |server| {
        if !can_defragment(server) {
            return; // see `defragmentation_is_refused_without_support_by_the_allocator`
        }
        // The replica moves nothing, so it shows what the primary must still answer.
        let replica = replica_of(server);
        let (mut c, mut r) = (server.connect(), replica.connect());
        let () = ask(&mut c, "CONFIG SET activedefrag yes");
        for round in 0..ROUNDS {
            let kind = &KINDS[round as usize % KINDS.len()];
            let key = format!("template{round}");
            kind.make(&mut c, &key);
            riddle_with_holes(&mut c, &key, &format!("{key}-"), 3_000);
            let mut checks = Pipeline::new();
            for key in 0..BUSY {
                let rules = "100/d 900/30d bucket:100/300d,name=b window:900/30d,res=60";
                checks
                    .add_command(command(&format!("RL.CHECK busy{key} AT {} {rules}", T + round)));
            }
            let replies: Vec<[i64; 5]> = checks.query(&mut c).unwrap();
            let left = 99 - round as i64;
            assert!(replies.iter().all(|reply| reply[..3] == [0, 100, left]), "round {round}");
        }
        assert!(info(&mut c, "stats", "active_defrag_key_hits") > 1_000.0);
        replicated(&mut c);
        assert_eq!(digest(&mut c), digest(&mut r));
        for key in 0..BUSY {
            let peek = format!("RL.PEEK busy{key} AT {T} 100/d");
            assert_eq!(remaining(&mut c, &peek), 100 - ROUNDS as i64);
        }
    });
}

#[test]
fn defragmentation_is_refused_without_support_by_the_allocator() {
    server::on_all(|server| {
        let mut c = server.connect();
        if can_defragment(server) {
            assert_eq!(raw_reply(&mut c, "CONFIG SET activedefrag yes"), Value::Okay);
        } else {
            let why = refusal(&mut c, "CONFIG SET activedefrag yes");
            assert!(why.contains("Active defragmentation cannot be enabled"), "{why}");
            assert!(why.contains("Jemalloc"), "{why}");
        }
    });
}
