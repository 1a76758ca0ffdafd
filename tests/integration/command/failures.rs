//! A command that fails decides nothing about the next one.
//!
//! Two servers get the same random commands. One of them also gets commands that fail, between the
//! others. Both must give the same replies and end with the same keys, counters and policies.
//!
//! Left out are errors that a server only gives in another state: as a replica, in a cluster, while it
//! loads or runs a script, and when it cannot save.

use fastrand::Rng;
use redis::{Connection, Value, cmd};

use crate::docs::errors::WRONG;
use crate::support::client::{START_US, ask, command, raw_reply, refusal};
use crate::support::seed;
use crate::support::server::{self, Builder, Server};

const COMMANDS: usize = 1_500;
/// Keys whose commands have times, so that replies do not depend on the clock.
const KEYS: [&str; 4] = ["k", "a", "b", "c"];
/// A key whose commands use the server's clock. Its rules last so long that milliseconds show nothing
/// else.
const CLOCKED: &str = "t";
const RULES: [&str; 10] = [
    "2/m",
    "bucket:3/m,name=b",
    "fixed:5/h,count=all",
    "window:9/h,res=2",
    "leaky:2/m,queue=1",
    "4/m,ban=1h:2h",
    "@p0",
    "@p1",
    "@plan:p0",
    "@plan:p1",
];
const LONG_RULES: [&str; 5] =
    ["3/300d", "bucket:3/300d", "fixed:9/366d,align=first", "@plan:long", "@long"];

fn one_of<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    rng.choice(words).expect("some")
}

/// One or two rules, which may have the same identity.
fn rules(rng: &mut Rng, of: &[&str]) -> String {
    let count = rng.usize(1..=2);
    (0..count).map(|_| one_of(rng, of)).collect::<Vec<_>>().join(" ")
}

/// The start of a check, up to its rules.
fn options(rng: &mut Rng, at_us: u64, may_hold: bool) -> String {
    let cost = one_of(rng, &["", "", "COST 2 ", "COST 1..4 ", "COST b=2 "]);
    let hold = one_of(rng, &["", "", "HOLD h EX 60 ", "HOLD i EX 9 REFUND META who "]);
    let full = one_of(rng, &["", "", "", "FULL "]);
    format!("{cost}{}AT {at_us} {full}", if may_hold { hold } else { "" })
}

/// A command. It may fail, as those of clients do.
fn any(rng: &mut Rng, at_us: u64) -> String {
    let key = one_of(rng, &KEYS);
    let p = one_of(rng, &["p0", "p1", "p2"]);
    match rng.u32(0..30) {
        0..7 => format!("RL.CHECK {key} {}{}", options(rng, at_us, true), rules(rng, &RULES)),
        7..9 => {
            format!("RL.CHECK {key} AT {at_us} HOLD s EX 5 slots:2 {}", rules(rng, &["@plan:p0"]))
        }
        9..11 => format!("RL.PEEK {key} {}{}", options(rng, at_us, false), rules(rng, &RULES)),
        11..16 => {
            let any = one_of(rng, &["", "ANY ", "ANY ", "ANY MOST "]);
            let (options, first) = (options(rng, at_us, true), rules(rng, &RULES));
            let next =
                if rng.bool() { format!(" NEXT {}", rules(rng, &RULES)) } else { String::new() };
            let keys = one_of(rng, &["a b", "b c", "c k"]);
            format!("RL.MCHECK 2 {keys} {any}{options}{first}{next}")
        }
        16 => format!("RL.REFUND {key} 1 AT {at_us} {}", rules(rng, &RULES)),
        17 => format!("RL.SETTLE {key} {} AT {at_us}", one_of(rng, &["h COST 1", "i REFUND", "s"])),
        18 => format!("RL.RENEW {key} {} EX 30 AT {at_us}", one_of(rng, &["h", "i", "s"])),
        19 => format!("RL.SYNC {key} REMAINING 1 AT {at_us} {}", one_of(rng, &RULES)),
        20 => {
            let (set, lift) =
                (one_of(rng, &["BLOCK", "EXEMPT"]), one_of(rng, &["UNBLOCK", "UNEXEMPT"]));
            let set = format!("RL.{set} {key} PXAT 4102444900000");
            if rng.u32(0..3) == 0 { set } else { format!("RL.{lift} {key}") }
        }
        21 => format!("RL.{} {key}", one_of(rng, &["RESET", "UNPLAN", "LOG", "RESUME", "INFO"])),
        22 | 23 => format!("RL.PLAN {key} {p}"),
        24 => {
            let rules = rules(rng, &["2/m", "9/m,name=b", "fixed:3/h", "bucket:9/m,name=c"]);
            format!("RL.POLICY SET {p} {rules}")
        }
        25 => match rng.bool() {
            true => format!("RL.POLICY GET {p}"),
            false => format!("RL.POLICY DEL {p} FORCE"),
        },
        26 => one_of(
            rng,
            &["RL.POLICY LIST", "RL.POLICY HELP", "RL.TOP", "RL.BLOCKS 0 MATCH k COUNT 99"],
        )
        .into(),
        27 => format!("RL.EXPLAIN {}", rules(rng, &RULES)),
        28 => match rng.u32(0..4) {
            0 => format!("RL.THROTTLE {CLOCKED}2 2 3 900000000"),
            1 => format!("RL.PLAN {CLOCKED} long"),
            2 => format!("RL.PAUSE {CLOCKED}3 EX 9000000"),
            _ => format!("RL.CHECK {CLOCKED}3 {}", rules(rng, &LONG_RULES)),
        },
        _ => format!("RL.WAIT {CLOCKED} 0 {}", rules(rng, &LONG_RULES)),
    }
}

/// A command that fails, whatever the keys hold: one of those for the documented errors, or a
/// command that asks for something which is unknown after everything else was read.
fn failing(rng: &mut Rng, at_us: u64) -> String {
    if rng.bool() {
        return one_of(rng, WRONG).into();
    }
    // No plan is bound to the key `unsold`.
    let (key, unknown) = match rng.bool() {
        true => (one_of(rng, &KEYS), one_of(rng, &["@nobody", "5/x", "x"])),
        false => ("unsold", "@plan:nobody"),
    };
    let rule = one_of(rng, &["fixed:9/m", "@plan:p2", "@p2", "bucket:7/m"]);
    match rng.u32(0..8) {
        0 | 1 => format!("RL.CHECK {key} {}{rule} {unknown}", options(rng, at_us, true)),
        2 => format!("RL.PEEK {key} {}{rule} {unknown}", options(rng, at_us, false)),
        3 => format!(
            "RL.MCHECK 3 a b {key}z {}{rule} NEXT @plan:p1 NEXT {unknown}",
            options(rng, at_us, true)
        ),
        // The last key has another type.
        4 => format!("RL.MCHECK 3 a b string ANY MOST {}@plan:p2", options(rng, at_us, true)),
        5 => format!("RL.WAIT {key} 5 FLOW f {rule} {unknown}"),
        6 => format!("RL.REFUND {key} 1 AT {at_us} {rule} {unknown}"),
        _ => format!("RL.SYNC {key} REMAINING 1 AT {at_us} {unknown}"),
    }
}

/// Errors of the server itself: full memory, a transaction, too few replicas, a lack of rights.
fn failing_by_the_server(c: &mut Connection, nobody: &mut Connection, line: &str) {
    let write = "RL.CHECK a COST 2 @plan:p2 9/m";
    for (setting, on, off) in [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")] {
        let () = ask(c, &format!("CONFIG SET {setting} {on}"));
        refusal(c, write);
        let () = ask(c, &format!("CONFIG SET {setting} {off}"));
    }
    let () = ask(c, "MULTI");
    let _ = raw_reply(c, write);
    refusal(c, "RL.NOSUCH");
    refusal(c, "EXEC");
    refusal(nobody, line);
}

/// Whether two replies are alike: times that follow the clock may differ by two minutes, and an
/// allocator may give a few bytes more.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => {
            let follows_clock = one.min(other) > &1_000_000;
            one == other || follows_clock && one.abs_diff(*other) < 120_000
        }
        (Value::Array(one), Value::Array(other)) => {
            let is_bytes = |at: usize| {
                at.checked_sub(1)
                    .is_some_and(|name| one[name] == Value::BulkString(b"bytes".into()))
            };
            let mut pairs = one.iter().zip(other).enumerate();
            one.len() == other.len()
                && pairs.all(|(at, (one, other))| is_bytes(at) || alike(one, other))
        }
        _ => one == other,
    }
}

/// The counters of the policies, of plans and of decisions.
fn counters(c: &mut Connection) -> String {
    let info: String = cmd("INFO").arg("everything").query(c).expect("text");
    let counts = |line: &&str| {
        let is_decision =
            ["_allowed:", "_limited:", "_blocked:"].iter().any(|end| line.contains(end));
        line.starts_with("ratelimit_policy_")
            || line.starts_with("ratelimit_plans_unknown")
            || line.starts_with("ratelimit_") && is_decision
    };
    info.lines().filter(counts).collect::<Vec<_>>().join("\n")
}

fn prepared(c: &mut Connection) {
    for line in [
        "SET string x",
        "RL.CHECK full window:5/h,name=r window:5/h,name=s",
        "RL.CHECK full window:5/h,name=t window:5/h,name=u",
        "RL.CHECK holding HOLD a EX 9000 slots:5",
        "RL.POLICY SET p0 3/m",
        "RL.POLICY SET p1 fixed:4/h",
        "RL.POLICY SET long bucket:2/366d",
        "ACL SETUSER nobody on >x",
    ] {
        let _: Value = ask(c, line);
    }
}

/// Makes both servers store which holds have lapsed, as any check does, even one that fails.
fn store_lapses(servers: &mut [&mut Connection; 2], key: &str, at_us: u64) {
    for c in servers {
        let _ = raw_reply(c, &format!("RL.CHECK {key} AT {at_us} 0/m"));
    }
}

fn compare(calm: &Server, disturbed: &Server, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut calm, mut c) = (calm.connect(), disturbed.connect());
    let mut nobody = disturbed.connect();
    prepared(&mut calm);
    prepared(&mut c);
    let () = ask(&mut nobody, "AUTH nobody x");
    let mut at_us = START_US;
    for n in 0..COMMANDS {
        at_us += rng.u64(0..4_000_000);
        for _ in 0..rng.usize(0..3) {
            let line = failing(&mut rng, at_us);
            refusal(&mut c, &line);
        }
        let line = any(&mut rng, at_us);
        if n % 100 == 0 {
            failing_by_the_server(&mut c, &mut nobody, &line);
        }
        if let Some(key) = line.strip_prefix("RL.INFO ") {
            store_lapses(&mut [&mut calm, &mut c], key, at_us);
        }
        let (expected, reply) = (raw_reply(&mut calm, &line), raw_reply(&mut c, &line));
        assert!(alike(&expected, &reply), "{line} (seed {seed}):\n{expected:?}\n{reply:?}");
    }
    for key in KEYS {
        store_lapses(&mut [&mut calm, &mut c], key, at_us);
        let shown = |c: &mut Connection| raw_reply(c, &format!("RL.INFO {key}"));
        let (expected, shown) = (shown(&mut calm), shown(&mut c));
        assert!(alike(&expected, &shown), "{key} (seed {seed}):\n{expected:?}\n{shown:?}");
    }
    assert_eq!(counters(&mut calm), counters(&mut c), "seed {seed}");
}

/// At most two rules, four states and one hold, so that each of these errors is easy to reach.
fn narrow(builder: Builder) -> Builder {
    let args = ["max-rules", "2", "max-states", "4", "max-holds", "1"];
    builder.module_args(&args).allow_at()
}

#[test]
fn a_failing_command_decides_nothing_about_the_next() {
    let seed = seed("RATELIMIT_FAILURES_SEED");
    server::on_all_with(narrow, |disturbed| {
        let calm = narrow(disturbed.flavor().builder()).start();
        compare(&calm, disturbed, seed);
    });
}

#[test]
fn a_wrong_name_in_one_request_changes_no_plan_of_another() {
    server::on_all(|server| {
        let mut c = server.connect();
        for line in ["RL.POLICY SET free 2/m", "RL.POLICY SET pro 100/m", "RL.PLAN u pro"] {
            let () = ask(&mut c, line);
        }
        let check = |c: &mut Connection| ask::<[i64; 5]>(c, "RL.CHECK u @plan:free");
        assert_eq!(check(&mut c)[..3], [0, 100, 99]);
        for wrong in
            ["RL.CHECK other", "RL.PEEK other", "RL.WAIT other 0", "RL.MCHECK 2 other u ANY"]
        {
            assert!(refusal(&mut c, &format!("{wrong} @plan:none")).contains("unknown policy"));
            let _: Value = command("RL.EXPLAIN @plan:none").query(&mut c).unwrap_or(Value::Nil);
            assert_eq!(check(&mut c)[..2], [0, 100], "{wrong}");
        }
    });
}
