//! How long commands take at the extremes: the CPU time of the server's main thread, which
//! hardly depends on other work of the machine.

use std::fs;

use redis::{Cmd, Connection, RedisResult, Value, cmd};

use super::Table;
use super::filled::{self, HOLDS, LAPSED_US, RULES, RULES_OF_HOLD, STATES, on};
use crate::support::client::{START_US, ask, command};
use crate::support::server::{self, Builder, Flavor, Server, eventually};
use crate::support::waiters::waiting;

/// A bucket on which holds of one unit never add up to the burst.
const BUCKET: &str = "bucket:1000000/d,burst=1000000";
const WINDOW: &str = "window:1000000/d,res=60";

/// For each kind of state: its column in the table, a rule, and a cost that the rule denies while
/// holds have units.
const KINDS: [(&str, &str, u32); 8] = [
    ("`bucket`", BUCKET, 1_000_000),
    ("another algorithm", WINDOW, 1_000_000),
    ("another algorithm", "100000/d", 100_000),
    ("another algorithm", "fixed:1000000/d", 1_000_000),
    // The holds span more windows than are kept.
    ("another algorithm", "fixed:1000000/ms,keep=366", 1_000_000),
    ("another algorithm", "fixed:1000000/d,align=first", 1_000_000),
    ("another algorithm", "bucket:1000000/d,burst=1000000,refill=interval", 1_000_000),
    ("another algorithm", "leaky:1000000/d,queue=1000000", 1_000_000),
];

/// Measures commands on one server.
struct Stopwatch<'a> {
    c: Connection,
    server: &'a Server,
    table: &'a Table,
}

impl Stopwatch<'_> {
    /// How long the server's main thread has run, in milliseconds.
    fn cpu_ms(&self) -> f64 {
        let pid = self.server.pid();
        let stat =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).expect("a thread");
        let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
        ns.expect("nanoseconds") / 1_000_000.0
    }

    /// Sends a command, and returns the reply and how long the server took, in milliseconds.
    fn time(&mut self, asked: &Cmd) -> (RedisResult<Value>, f64) {
        let before = self.cpu_ms();
        let reply = asked.query(&mut self.c);
        (reply, self.cpu_ms() - before)
    }

    /// Checks that a command takes no longer than its row says. Measures up to five times, because the
    /// machine does other work, too. `before` runs before each measurement.
    fn holds_after(&mut self, row: &str, asked: &Cmd, before: impl Fn(&mut Connection)) {
        let bound = self.table.bound(row);
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            before(&mut self.c);
            let (reply, ms) = self.time(asked);
            reply.unwrap_or_else(|error| panic!("{row}: {error}"));
            least = least.min(ms);
            if least <= bound {
                break;
            }
        }
        self.table.judge(self.server.flavor().name, row, least);
    }

    fn holds(&mut self, row: &str, asked: &Cmd) {
        self.holds_after(row, asked, |_| ());
    }

    /// Checks that after a command every `PING` is answered within the bound of a row.
    fn holds_while(&mut self, row: &str, asked: &Cmd) {
        let bound = self.table.bound(row);
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            let (reply, ms) = self.time(asked);
            reply.unwrap_or_else(|error| panic!("{row}: {error}"));
            least = least.min(self.longest_ping().max(ms));
            if least <= bound {
                break;
            }
        }
        self.table.judge(self.server.flavor().name, row, least);
    }

    /// The longest time of a `PING`, until the server has nothing else to do.
    fn longest_ping(&mut self) -> f64 {
        let (mut longest, mut quick) = (0.0_f64, 0);
        while quick < 200 {
            let (reply, ms) = self.time(&command("PING"));
            reply.expect("PONG");
            longest = longest.max(ms);
            quick = if ms < 0.5 { quick + 1 } else { 0 };
        }
        longest
    }
}

/// A command with `AT` and this time in place of its `@`.
fn at(line: &str, at_us: u64, rules: &[String]) -> Cmd {
    on(&line.replace('@', &format!("AT {at_us}")), rules)
}

/// Copies a key for a command that changes the copy.
fn copied(from: &str, to: &str) -> impl Fn(&mut Connection) {
    move |c| {
        let () = ask(c, &format!("DEL {to}"));
        // COPY came with 6.2.
        let _: bool = ask(c, &format!("COPY {from} {to}"));
    }
}

fn on_small_keys(watch: &mut Stopwatch<'_>) {
    let rules = filled::named(WINDOW, 0, RULES);
    filled::states(&mut watch.c, "states", STATES, WINDOW, 60, 1_000_000);
    let later = START_US + 61_000_000;
    watch.holds("`RL.CHECK`, 32 rules, 256 states", &at("RL.CHECK states @", later, &rules));
    let denied = at("RL.CHECK states @ COST 1000000 FULL", later, &rules);
    watch.holds("`RL.CHECK` `FULL`, denied, 32 rules, 256 states", &denied);
    watch.holds("`RL.EXPLAIN`, 32 rules", &on("RL.EXPLAIN", &rules));
    watch.holds("`RL.POLICY SET`, 32 rules", &on("RL.POLICY SET p", &rules));
    watch.holds("`RL.POLICY GET`, 32 rules", &command("RL.POLICY GET p"));
    watch.holds("`RL.THROTTLE`", &command("RL.THROTTLE throttled 15 30 60"));

    filled::states(&mut watch.c, "keep", STATES, "fixed:5/ms,keep=366", 370, 1_000);
    watch.holds("`RL.INFO`, 256 states with `keep=366`", &command("RL.INFO keep"));

    watch.holds("`RL.SYNC`, 256 states", &at("RL.SYNC states @ REMAINING 1", later, &rules[..1]));
    let reason = "x".repeat(256);
    for (row, line) in
        [("`RL.BLOCK`", "RL.BLOCK blocked REASON"), ("`RL.EXEMPT`", "RL.EXEMPT blocked REASON")]
    {
        watch.holds(row, command(line).arg(&reason));
    }
    watch.holds("`RL.PAUSE`", command("RL.PAUSE blocked EX 9 REASON").arg(&reason));
    watch.holds("`RL.RESUME`", &command("RL.RESUME blocked"));
    watch.holds("`RL.UNBLOCK`, `RL.UNEXEMPT`", &command("RL.UNEXEMPT blocked"));
    watch.holds("`RL.PLAN`, `RL.UNPLAN`", &command("RL.PLAN blocked p"));

    let fill = "for n = 1, 5000 do redis.call('RL.BLOCK', string.rep('x', 190) .. string.format('%010d', n), 'REASON', ARGV[1]) end";
    let () = cmd("EVAL").arg(fill).arg(0).arg(&reason).query(&mut watch.c).expect("OK");
    watch.holds("`RL.BLOCKS`, 4096 keys, all blocked", &command("RL.BLOCKS 0"));
    let deny = "for n = 1, 5000 do redis.call('RL.CHECK', string.rep('x', 290) .. string.format('%010d', n), '0/m') end";
    let () = cmd("EVAL").arg(deny).arg(0).query(&mut watch.c).expect("OK");
    watch.holds("`RL.TOP`, 128 keys", &command("RL.TOP COUNT 1000"));
    let () = ask(&mut watch.c, "FLUSHALL");
}

fn on_several_keys(watch: &mut Stopwatch<'_>) {
    for (row, options) in [
        ("`RL.MCHECK`, 64 keys, 32 rules each", &[][..]),
        ("`RL.MCHECK` `FULL`, denied, 64 keys, 32 rules each", &["COST", "1000000", "FULL"]),
        ("`RL.MCHECK` `ANY MOST`, 64 keys, 32 rules each", &["ANY", "MOST"]),
        (
            "`RL.MCHECK` `ANY` `FULL`, denied, 64 keys, 32 rules each",
            &["ANY", "COST", "1000000", "FULL"],
        ),
    ] {
        let mut asked = mcheck("key");
        asked.arg(options);
        for key in 0..KEYS {
            asked.arg((key > 0).then_some("NEXT")).arg(filled::named(WINDOW, 0, RULES));
        }
        watch.holds(row, &asked);
    }
    let () = ask(&mut watch.c, "FLUSHALL");
}

fn on_logs(watch: &mut Stopwatch<'_>) {
    filled::log_with_denials(&mut watch.c, "log");
    let rules = ["100000/366d".to_string(), "100000/365d,name=a,count=all".to_string()];
    let now_us = START_US + 100_000 * 100_000_000;
    watch.holds("`RL.CHECK`, a log of 200,000 entries", &at("RL.CHECK log @", now_us, &rules));
    watch.holds("`RL.LOG`, 200,000 entries", &command("RL.LOG log COUNT 1000000"));
    let refund = at("RL.REFUND copy 1000000 @", now_us, &[]);
    watch.holds_after("`RL.REFUND` of a log of 200,000 entries", &refund, copied("log", "copy"));
    let () = ask(&mut watch.c, "FLUSHALL");
}

fn on_holds(watch: &mut Stopwatch<'_>) {
    let one = [BUCKET.to_string()];
    filled::holds(&mut watch.c, "one", HOLDS, &one);
    let now_us = START_US + 1_000_000;
    let denied =
        |key: &str, rules: &[String]| at(&format!("RL.CHECK {key} @ COST 1000000"), now_us, rules);
    watch.holds("`RL.CHECK`, denied, 10,000 holds on one rule with `REFUND`", &denied("one", &one));
    copy_to_all("one", "one")(&mut watch.c);
    let mut several = mcheck("one");
    several.arg(&["AT", &now_us.to_string(), "COST", "1000000"]).arg(&one);
    watch.holds("`RL.MCHECK`, denied, 64 such keys", &several);
    let () = ask(&mut watch.c, "FLUSHALL");
    on_holds_of_several_keys(watch);

    for (kind, rule, cost) in KINDS {
        let rules = filled::rules_of_holds(&mut watch.c, "k", rule);
        filled::holds(&mut watch.c, "k", HOLDS, &rules);
        let row = |what: &str| format!("{what}, of {kind}");
        let denied = at(&format!("RL.CHECK k @ COST {cost}"), now_us, &rules);
        watch.holds(&row("`RL.CHECK`, denied"), &denied);
        let lapsed = at("RL.CHECK copy @", LAPSED_US, &rules);
        watch.holds_after(&row("`RL.CHECK` after all have lapsed"), &lapsed, copied("k", "copy"));
        watch.holds(&row("`RL.PEEK` after all have lapsed"), &at("RL.PEEK k @", LAPSED_US, &rules));
        watch.holds(&row("`DUMP`"), &command("DUMP k"));
        watch.holds(&row("`DEBUG DIGEST-VALUE`"), &command("DEBUG DIGEST-VALUE k"));
        let dump: Vec<u8> = ask(&mut watch.c, "DUMP k");
        let mut restore = command("RESTORE copy 0");
        restore.arg(dump).arg("REPLACE");
        watch.holds(&row("`RESTORE`"), &restore);
        watch.holds(&row("`COPY`"), &command("COPY k copy REPLACE"));
        for (name, line) in [
            ("`RL.SETTLE`", format!("RL.SETTLE copy {:064} AT {now_us} COST 5", HOLDS / 2)),
            ("`RL.RENEW`", format!("RL.RENEW copy {:064} EX 9999 AT {now_us}", HOLDS / 2)),
            ("`RL.INFO`", "RL.INFO copy".to_string()),
            ("`RL.RESET`", "RL.RESET copy".to_string()),
            ("`DEL`", "DEL copy".to_string()),
        ] {
            watch.holds_after(&row(name), &command(&line), copied("k", "copy"));
        }
        let () = ask(&mut watch.c, "FLUSHALL");
    }
}

const KEYS: usize = 64;
/// How many flows a line may have at most.
const FLOWS: usize = 1_024;

/// The start of an `RL.MCHECK` with as many keys as possible.
fn mcheck(prefix: &str) -> Cmd {
    let mut several = command(&format!("RL.MCHECK {KEYS}"));
    several.arg((0..KEYS).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>());
    several
}

/// Copies a key to those that [`mcheck`] names.
fn copy_to_all(from: &'static str, prefix: &'static str) -> impl Fn(&mut Connection) {
    move |c| {
        for n in 0..KEYS {
            copied(from, &format!("{prefix}{n}"))(c);
        }
    }
}

/// The extremes for a check of several keys: each key has the extreme.
fn on_holds_of_several_keys(watch: &mut Stopwatch<'_>) {
    let rules = filled::named(WINDOW, 0, RULES);
    filled::holds(&mut watch.c, "k", HOLDS / 10, &rules);
    copy_to_all("k", "k")(&mut watch.c);
    let mut denied = mcheck("k");
    denied.arg(&["AT", &(START_US + 1_000_000).to_string(), "COST", "1000000"]).arg(&rules);
    watch.holds("`RL.MCHECK`, denied, 64 keys of 1,000 holds on 32 rules", &denied);
    let () = ask(&mut watch.c, "FLUSHALL");

    filled::log_with_holds(&mut watch.c, "k");
    let short = [filled::SHORT.to_string()];
    let denied = at("RL.CHECK k @", filled::LOG_LAPSES_US, &short);
    let row = "`RL.CHECK`, denied, 10,000 holds with `REFUND` on a log that two windows read";
    watch.holds(row, &denied);
    copy_to_all("k", "k")(&mut watch.c);
    let mut denied = mcheck("k");
    denied.arg(&["AT", &filled::LOG_LAPSES_US.to_string()]).arg(&short);
    watch.holds("`RL.MCHECK`, denied, 64 such logs", &denied);
    let () = ask(&mut watch.c, "FLUSHALL");

    filled::log_with_few_holds(&mut watch.c, "k");
    copy_to_all("k", "k")(&mut watch.c);
    let mut full = mcheck("k");
    full.arg(&["AT", &(START_US + 100_000_000).to_string(), "COST", "0", "FULL"]);
    full.arg(filled::log_rules());
    let row = "`RL.MCHECK` `FULL`, 64 keys, 32 `log` rules each, 100,000 entries, 16 holds";
    watch.holds(row, &full);
    let () = ask(&mut watch.c, "FLUSHALL");

    let pools = filled::slots(&mut watch.c, "k");
    copy_to_all("k", "k")(&mut watch.c);
    let mut denied = mcheck("k");
    denied.arg(&["AT", &(START_US + 1_000_000).to_string(), "COST", "1000000"]);
    denied.arg(&["HOLD", "z", "EX", "9"]).arg(&pools);
    watch.holds("`RL.MCHECK`, denied, 64 keys of 10,000 holds on 32 `slots`", &denied);
    let mut full = mcheck("k");
    full.arg(&["AT", &(START_US + 1_000_000).to_string(), "COST", "1000000"]);
    full.arg(&["HOLD", "z", "EX", "9", "FULL"]).arg(&pools);
    watch.holds("`RL.MCHECK` `FULL`, denied, 64 keys of 10,000 holds on 32 `slots`", &full);
    let () = ask(&mut watch.c, "FLUSHALL");

    let rules = filled::named(BUCKET, 0, RULES_OF_HOLD);
    filled::holds(&mut watch.c, "k", HOLDS, &rules);
    let mut lapsed = mcheck("k");
    lapsed.arg(&["AT", &LAPSED_US.to_string()]).arg(&rules);
    let row = "`RL.MCHECK` after all have lapsed, 64 keys of 10,000 holds on 4 rules of `bucket`";
    watch.holds_after(row, &lapsed, copy_to_all("k", "k"));
    let () = ask(&mut watch.c, "FLUSHALL");
}

/// A line of as many flows as possible. Each flow has 32 of 35 rules, and all 32 deny it. No flow
/// keeps another back, although their rules are nearly the same.
fn on_a_line(watch: &mut Stopwatch<'_>) {
    let rules = filled::named("bucket:9/1800s,burst=9", 0, RULES + 3);
    for some in rules.chunks(RULES) {
        let _: Value = on("RL.CHECK line COST 9", some).query(&mut watch.c).expect("a reply");
    }
    let all = 0..rules.len();
    let pairs = all.clone().flat_map(|a| (0..a).map(move |b| (a, b)));
    let triples = pairs.flat_map(|(a, b)| (0..b).map(move |c| [a, b, c]));
    let clients = triples.take(FLOWS).map(|[a, b, c]| {
        let named = all.clone().filter(|rule| ![a, b, c].contains(rule));
        let rules: Vec<_> = named.map(|rule| rules[rule].clone()).collect();
        let wait = on(&format!("RL.WAIT line 3600000 FLOW {a}-{b}-{c} COST 9"), &rules);
        let mut client = watch.server.connect();
        client.send_packed_command(&wait.get_packed_command()).expect("sent");
        client
    });
    let clients: Vec<Connection> = clients.collect();
    eventually("all to wait", || waiting(&mut watch.c) == FLOWS);
    watch.longest_ping();
    let row = "any command, while 1,024 flows of 32 rules are looked at";
    for cause in ["RL.REFUND line 1", "RL.POLICY SET other"] {
        watch.holds_while(row, &on(cause, &rules[..1]));
    }
    drop(clients);
    eventually("all to have left", || waiting(&mut watch.c) == 0);
    let () = ask(&mut watch.c, "FLUSHALL");
}

/// Arguments of megabytes: refused, or accepted as the name of a key.
fn with_long_arguments(watch: &mut Stopwatch<'_>) {
    let row = "any command with an argument of 4 MB";
    let long = "9".repeat(4 << 20);
    let calls: [&[&str]; 12] = [
        &["RL.CHECK", &long, "0/m"],
        &["RL.CHECK", "k", &long],
        &["RL.CHECK", "k", "COST", &long, "5/m"],
        &["RL.CHECK", "k", "META", &long, "5/m"],
        &["RL.CHECK", "k", "HOLD", &long, "EX", "5", "5/m"],
        &["RL.WAIT", "k", &long, "5/m"],
        &["RL.SETTLE", "k", &long],
        &["RL.EXPLAIN", &long],
        &["RL.BLOCK", "k", "REASON", &long],
        &["RL.BLOCKS", "0", "MATCH", &long],
        &["RL.POLICY", "SET", &long, "5/m"],
        &["RL.THROTTLE", "k", &long, "5", "5"],
    ];
    for call in calls {
        let mut asked = cmd(call[0]);
        asked.arg(&call[1..]);
        let least = (0..5).map(|_| watch.time(&asked).1).fold(f64::INFINITY, f64::min);
        watch.table.judge(watch.server.flavor().name, row, least);
    }
}

/// A server with large settings: many states per key, and many rules per check.
fn generous(flavor: Flavor) -> Server {
    let settings = ["allow-at", "yes", "max-states", "10000", "max-rules", "1000"];
    flavor.builder().module_args(&settings).start()
}

/// Each rule of a check searches among the states.
fn with_larger_settings(flavor: Flavor, table: &Table) {
    let server = generous(flavor);
    let mut watch = Stopwatch { c: server.connect(), server: &server, table };
    let rules = filled::named(BUCKET, 0, 1_000);
    filled::states(&mut watch.c, "k", 992, BUCKET, 1, 1);
    let held = at("RL.CHECK k @ HOLD h EX 300", START_US + 1_000_000, &rules);
    watch.holds_after("`RL.CHECK` with `HOLD`, 1,000 rules, 1,000 states", &held, |c| {
        let _: i64 = ask(c, "RL.SETTLE k h COST 0");
    });
    filled::states(&mut watch.c, "k", 9_984, BUCKET, 1, 1);
    let rules = filled::named(BUCKET, 8_984, 1_000);
    let last = at("RL.CHECK k @", START_US + 1_000_000, &rules);
    watch.holds("`RL.CHECK`, 1,000 rules, 9,984 states", &last);
}

/// A payload that no client could produce by commands, under the default settings.
fn with_a_hostile_payload(watch: &mut Stopwatch<'_>) {
    let maker = generous(watch.server.flavor());
    let mut c = maker.connect();
    filled::states(&mut c, "k", 9_984, BUCKET, 1, 1);
    let rules = filled::named(BUCKET, 9_952, RULES);
    filled::holds(&mut c, "k", 100, &rules);
    let dump: Vec<u8> = ask(&mut c, "DUMP k");
    let mut restore = command("RESTORE k 0");
    restore.arg(dump).arg("REPLACE");
    watch.holds("`RESTORE`, 9,984 states, 100 holds on 32 of them", &restore);
    let denied = at("RL.CHECK k @ COST 1000000", START_US + 1_000_000, &rules);
    watch.holds("`RL.CHECK`, denied, after that `RESTORE`", &denied);
    let lapsed = at("RL.PEEK k @", LAPSED_US, &rules);
    watch.holds("`RL.PEEK` after that `RESTORE`, when all have lapsed", &lapsed);
}

#[test]
fn no_command_takes_longer_than_documented() {
    server::one_is_enough();
    let table = Table::under("Time of a command");
    server::on_all_with(Builder::allow_at, |server| {
        let mut watch = Stopwatch { c: server.connect(), server, table: &table };
        on_small_keys(&mut watch);
        on_several_keys(&mut watch);
        on_logs(&mut watch);
        on_holds(&mut watch);
        on_a_line(&mut watch);
        with_long_arguments(&mut watch);
        with_a_hostile_payload(&mut watch);
        with_larger_settings(server.flavor(), &table);
    });
    table.assert_all_hold();
}
