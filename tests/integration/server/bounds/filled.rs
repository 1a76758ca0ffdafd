//! Keys that hold as much as the settings allow.

use std::ops::Range;

use redis::{Cmd, Connection};

use crate::support::client::{START_US, command};

/// How many rules a check may have at most, under the default settings.
pub const RULES: usize = 32;
/// How many states a key may have at most.
pub const STATES: usize = 256;
/// How many holds a key may have at most.
pub const HOLDS: usize = 10_000;
/// How many rules each hold may have, if the key has as many holds as possible.
pub const RULES_OF_HOLD: usize = 4;
/// How many requests a log may have at most.
pub const ENTRIES: usize = 100_000;

/// A time at which all holds that [`holds`] takes with `REFUND` have ended.
pub const LAPSED_US: u64 = START_US + 3_600_000_000;

/// The most arguments that the checks of one script call have together: few enough for the call to end
/// in time on a busy machine.
const AT_ONCE: usize = 4_000;

/// Runs a check repeatedly, each time one step of time later. The argument `{n}` becomes the
/// number of the check.
fn repeat(c: &mut Connection, key: &str, times: usize, step_us: u64, args: &[String]) {
    repeat_for(c, key, 0..times, step_us, args);
}

/// Runs the checks with these numbers. A check's number is also its time, in steps after the start.
fn repeat_for(c: &mut Connection, key: &str, numbers: Range<usize>, step_us: u64, args: &[String]) {
    let script = "local start, step = tonumber(ARGV[3]), tonumber(ARGV[4])
        local args, number = {unpack(ARGV, 5)}, nil
        for i, arg in ipairs(args) do if arg == '{n}' then number = i end end
        for n = ARGV[1], ARGV[2] - 1 do
            if number then args[number] = string.format('%064d', n) end
            local at = string.format('%d', start + n * step)
            redis.call('RL.CHECK', KEYS[1], 'AT', at, unpack(args))
        end";
    let checks = (AT_ONCE / args.len()).max(1);
    for first in numbers.clone().step_by(checks) {
        let (last, mut eval) = (numbers.end.min(first + checks), command("EVAL"));
        eval.arg(script).arg(1).arg(key).arg(first).arg(last).arg(START_US).arg(step_us);
        let () = eval.arg(args).query(c).expect("the key is filled");
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(ToString::to_string).collect()
}

/// `count` rules with names of 32 bytes, numbered from `first`.
pub fn named(rule: &str, first: usize, count: usize) -> Vec<String> {
    (first..first + count).map(|n| format!("{rule},name={n:032}")).collect()
}

/// Makes a key with this many states of a rule, each with a name. Each state gets this many
/// checks.
pub fn states(
    c: &mut Connection,
    key: &str,
    count: usize,
    rule: &str,
    checks: usize,
    step_us: u64,
) {
    for first in (0..count).step_by(RULES) {
        repeat(c, key, checks, step_us, &named(rule, first, RULES));
    }
}

/// Makes a key with a log of this many units: requests of equal cost, one step of time apart.
pub fn log(c: &mut Connection, key: &str, units: usize, cost: usize, step_us: u64) {
    repeat(c, key, units / cost, step_us, &words(&format!("COST {cost} {units}/366d")));
}

/// Makes a key with a log of this many units: one request of cost 2, then requests of cost 1.
pub fn log_of_unlike_costs(c: &mut Connection, key: &str, units: usize, step_us: u64) {
    let rule = format!("{units}/366d");
    repeat(c, key, 1, step_us, &words(&format!("COST 2 {rule}")));
    repeat(c, key, units - 2, step_us, &words(&rule));
}

/// Makes a key with a log of admitted requests and as many charged denials, one of them of cost 2.
pub fn log_with_denials(c: &mut Connection, key: &str) {
    let rules = "100000/366d 100000/365d,name=a,count=all";
    repeat(c, key, ENTRIES, 1, &words(rules));
    repeat(c, key, 1, 1, &words(&format!("COST 2 {rules}")));
    repeat(c, key, ENTRIES, 100_000_000, &words(rules));
}

/// Makes a key with a history of this many checks of a rule, each with a text of this many
/// bytes.
pub fn history(c: &mut Connection, key: &str, rule: &str, checks: usize, text: usize) {
    repeat(c, key, checks, 1, &["META".to_string(), "x".repeat(text), rule.to_string()]);
}

/// Blocks a key, with the longest reason.
pub fn block(c: &mut Connection, key: &str) {
    let text = "x".repeat(256);
    let () = command("RL.BLOCK").arg(key).arg(&["REASON", &text]).query(c).expect("OK");
}

/// Makes a key with this many holds, each on these rules. The charges of a hold come back when it
/// lapses. Taking ten thousand holds takes 0.4 s.
pub fn holds(c: &mut Connection, key: &str, count: usize, rules: &[String]) {
    let hold = words("HOLD {n} EX 300 REFUND");
    repeat(c, key, count, 40, &[&hold[..], rules].concat());
}

/// The holds of [`log_with_holds`] begin to lapse at most a second after this time, at which
/// a check under [`SHORT`] is denied.
pub const LOG_LAPSES_US: u64 = START_US + 10_800_100_000;
pub const SHORT: &str = "100/h";

/// Makes a key with a log of requests of different costs. In its middle are holds with
/// `REFUND`, of which one lapses each millisecond. A rule with a shorter window denies when
/// they begin to lapse.
pub fn log_with_holds(c: &mut Connection, key: &str) {
    const STEP_US: u64 = 1_000;
    let rule = words("100000/366d");
    let held = words("HOLD {n} PX 10757000 REFUND");
    repeat_for(c, key, 0..44_000, STEP_US, &rule);
    repeat_for(c, key, 44_000..44_001, STEP_US, &[words("COST 2"), rule.clone()].concat());
    repeat_for(c, key, 44_001..54_001, STEP_US, &[held, rule.clone()].concat());
    repeat_for(c, key, 54_001..98_001, STEP_US, &rule);
    repeat_for(c, key, 10_800_000..10_800_100, STEP_US, &words(SHORT));
}

/// Rules that read one log, each with a different window.
pub fn log_rules() -> Vec<String> {
    (0..RULES).map(|n| format!("100000/{}d", 366 - n)).collect()
}

/// Makes a key with a log and a few holds, so that each check looks ahead.
pub fn log_with_few_holds(c: &mut Connection, key: &str) {
    repeat_for(c, key, 0..99_000, 1_000, &words("100000/366d"));
    let held = words("HOLD {n} EX 300 REFUND COST 2 100000/366d");
    repeat_for(c, key, 99_000..99_016, 1_000, &held);
}

/// Makes a key with as many holds as possible, on as many pools of slots as a check may name.
pub fn slots(c: &mut Connection, key: &str) -> Vec<String> {
    let pools = named("slots:1000000", 0, RULES);
    let holds = HOLDS / (RULES / RULES_OF_HOLD);
    for (n, four) in pools.chunks(RULES_OF_HOLD).enumerate() {
        let held = [&words("HOLD {n} EX 300")[..], four].concat();
        repeat_for(c, key, n * holds..(n + 1) * holds, 1, &held);
    }
    pools
}

/// Makes a key with as many holds as possible, on deleted states: each check uses the same names as
/// the check before, for buckets of another period.
pub fn orphans(c: &mut Connection, key: &str) {
    let of_day = named("bucket:1000000/d,burst=1000000", 0, RULES_OF_HOLD);
    let of_hour = named("bucket:1000000/h,burst=1000000", 0, RULES_OF_HOLD);
    for n in 0..HOLDS {
        let rules = if n % 2 == 0 { &of_day } else { &of_hour };
        let held = [&words("HOLD {n} EX 300 REFUND")[..], rules].concat();
        repeat_for(c, key, n..n + 1, 1, &held);
    }
}

/// Gives a key nearly as many states as it may have, and returns a few more rules, which each of its
/// holds can have.
pub fn rules_of_holds(c: &mut Connection, key: &str, rule: &str) -> Vec<String> {
    states(c, key, STATES - RULES, rule, 1, 1);
    named(rule, STATES - RULES, RULES_OF_HOLD)
}

/// A command on a key: its words, then rules.
pub fn on(line: &str, rules: &[String]) -> Cmd {
    let mut asked = command(line);
    asked.arg(rules);
    asked
}
