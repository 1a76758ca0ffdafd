//! The memory of a key: `MEMORY USAGE` at the extremes.

use redis::Connection;

use super::Table;
use super::filled::{self, ENTRIES, HOLDS, RULES, RULES_OF_HOLD, STATES};
use crate::support::client::ask;
use crate::support::server::{self, Builder};

/// Makes a key hold an extreme.
type Fill = fn(&mut Connection, &str);

const YEAR_US: u64 = 366 * 86_400_000_000;

const EXTREMES: &[(&str, Fill)] = &[
    ("256 states of `bucket`", |c, key| filled::states(c, key, STATES, "bucket:5/m", 1, 1)),
    ("256 states of `window` with `res=60`", |c, key| {
        filled::states(c, key, STATES, "window:5/m,res=60", 60, 1_000_000);
    }),
    ("256 states of `fixed` with `keep=366`", |c, key| {
        filled::states(c, key, STATES, "fixed:5/ms,keep=366", 370, 1_000);
    }),
    ("a log of 100,000 requests within an hour", |c, key| filled::log(c, key, ENTRIES, 1, 30_000)),
    ("a log of 100,000 requests within a year", |c, key| {
        filled::log(c, key, ENTRIES, 1, YEAR_US / 100_001);
    }),
    ("a log of 50,000 requests of cost 2 within a year", |c, key| {
        filled::log(c, key, ENTRIES, 2, YEAR_US / 50_001);
    }),
    ("a log of 100,000 requests, one of cost 2, and charged denials within a year", |c, key| {
        filled::log_with_denials(c, key);
    }),
    ("128 entries of history, and a block, with texts of 256 bytes", |c, key| {
        filled::history(c, key, "5/m", 128, 256);
        filled::block(c, key);
    }),
    ("10,000 holds on one `bucket`, with ids of 64 bytes", |c, key| {
        filled::holds(c, key, HOLDS, &["bucket:1000000/d,burst=1000000".to_string()]);
    }),
    ("10,000 holds on 4 of 228 `bucket`s, with ids of 64 bytes", |c, key| {
        let rules = filled::rules_of_holds(c, key, "bucket:1000000/d,burst=1000000");
        filled::holds(c, key, HOLDS, &rules);
    }),
    ("10,000 holds on 4 `log` rules, with ids of 64 bytes", |c, key| {
        filled::holds(c, key, HOLDS, &filled::named("10000/d", 0, RULES_OF_HOLD));
    }),
    ("10,000 holds on 4 `bucket`s whose periods change, with ids of 64 bytes", filled::orphans),
    (
        "all of these: holds, states with `keep=366`, the log with denials, history and a block",
        |c, key| {
            let rules = filled::named("bucket:1000000/d,burst=1000000", 1_000, RULES_OF_HOLD);
            filled::log_with_denials(c, key);
            filled::states(c, key, STATES - RULES, "fixed:5/ms,keep=366", 370, 1_000);
            filled::holds(c, key, HOLDS, &rules);
            filled::history(c, key, "100000/366d", 128, 256);
            filled::block(c, key);
        },
    ),
];

/// What a key can hold under larger settings: a name, a number, and how to fill a key with as many.
const LARGER: &[(&str, usize, Fill)] = &[
    ("state of `window` with `res=60`", 2_048, |c, key| {
        filled::states(c, key, 2_048, "window:5/m,res=60", 60, 1_000_000);
    }),
    ("state of `fixed` with `keep=366`", 512, |c, key| {
        filled::states(c, key, 512, "fixed:5/ms,keep=366", 370, 1_000);
    }),
    ("request in a log", 200_000, |c, key| {
        filled::log(c, key, 200_000, 1, YEAR_US / 200_001);
    }),
    ("request in a log, if costs differ", 200_000, |c, key| {
        filled::log_of_unlike_costs(c, key, 200_000, YEAR_US / 200_001);
    }),
    ("hold on one rule", 20_000, |c, key| {
        filled::holds(c, key, 20_000, &["bucket:1000000/d,burst=1000000".to_string()]);
    }),
    ("rule of a hold", 200_000, |c, key| {
        filled::holds(c, key, 200, &filled::named("bucket:1000000/d,burst=1000000", 0, 1_000));
    }),
    ("check in the history, with a text of 1,000 bytes", 5_000, |c, key| {
        filled::history(c, key, "5/m", 5_000, 1_000);
    }),
];

#[test]
fn larger_settings_cost_no_more_memory_than_documented() {
    server::one_is_enough();
    let table = Table::under("Memory with larger settings");
    let with_larger_settings = |builder: Builder| {
        let settings = "max-states 10000 max-log-entries 1000000 max-holds 50000 max-rules 1000 \
                        log-entries 10000 max-meta 65536";
        builder.allow_at().module_args(&settings.split(' ').collect::<Vec<_>>())
    };
    server::on_all_with(with_larger_settings, |server| {
        let mut c = server.connect();
        for (one_more, count, fill) in LARGER {
            fill(&mut c, "k");
            let bytes: f64 = ask(&mut c, "MEMORY USAGE k SAMPLES 0");
            table.judge(server.flavor().name, one_more, bytes / *count as f64);
            table.judge_nearness(server.flavor().name, one_more, bytes / *count as f64);
            let () = ask(&mut c, "DEL k");
        }
    });
    table.assert_all_hold();
}

#[test]
fn no_key_takes_more_memory_than_documented() {
    server::one_is_enough();
    let table = Table::under("Memory of a key");
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        for (extreme, fill) in EXTREMES {
            fill(&mut c, "k");
            let bytes: f64 = ask(&mut c, "MEMORY USAGE k SAMPLES 0");
            table.judge(server.flavor().name, extreme, bytes);
            table.judge_nearness(server.flavor().name, extreme, bytes);
            let () = ask(&mut c, "DEL k");
        }
    });
    table.assert_all_hold();
}
