//! Keys that hold as much as the settings allow.

use redis::{Cmd, Connection};

use crate::support::client::{START_US, command};

/// How many rules a check may have, by the default settings.
pub const RULES: usize = 32;
/// How many states a key may hold.
pub const STATES: usize = 256;
/// How many holds a key may have.
pub const HOLDS: usize = 10_000;
/// On how many rules each of so many holds may be.
pub const RULES_OF_HOLD: usize = 4;
/// How many requests a log may have.
pub const ENTRIES: usize = 100_000;

/// When the last hold that [`holds`] takes with `REFUND` has ended.
pub const LAPSED_US: u64 = START_US + 3_600_000_000;

/// How many checks a script makes: few enough to be done in time on a busy machine.
const AT_ONCE: usize = 2_000;

/// Runs a check again and again, each step of time later. The argument `{n}` is the number of the
/// check.
fn repeat(c: &mut Connection, key: &str, times: usize, step_us: u64, args: &[String]) {
    let script = "local start, step = tonumber(ARGV[3]), tonumber(ARGV[4])
        local args, number = {unpack(ARGV, 5)}, nil
        for i, arg in ipairs(args) do if arg == '{n}' then number = i end end
        for n = ARGV[1], ARGV[2] - 1 do
            if number then args[number] = string.format('%064d', n) end
            local at = string.format('%d', start + n * step)
            redis.call('RL.CHECK', KEYS[1], 'AT', at, unpack(args))
        end";
    for first in (0..times).step_by(AT_ONCE) {
        let (last, mut eval) = (times.min(first + AT_ONCE), command("EVAL"));
        eval.arg(script).arg(1).arg(key).arg(first).arg(last).arg(START_US).arg(step_us);
        let () = eval.arg(args).query(c).expect("the key is filled");
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(ToString::to_string).collect()
}

/// Rules with names of 32 bytes: so many, the first with this number.
pub fn named(rule: &str, first: usize, count: usize) -> Vec<String> {
    (first..first + count).map(|n| format!("{rule},name={n:032}")).collect()
}

/// Makes a key hold so many states of a rule, each with a name, after so many checks of each.
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

/// Makes a key hold a log of so many units, of requests so far apart, each of this cost.
pub fn log(c: &mut Connection, key: &str, units: usize, cost: usize, step_us: u64) {
    repeat(c, key, units / cost, step_us, &words(&format!("COST {cost} {units}/366d")));
}

/// Makes a key hold a log of so many units: one request of cost 2, then requests of cost 1.
pub fn log_of_unlike_costs(c: &mut Connection, key: &str, units: usize, step_us: u64) {
    let rule = format!("{units}/366d");
    repeat(c, key, 1, step_us, &words(&format!("COST 2 {rule}")));
    repeat(c, key, units - 2, step_us, &words(&rule));
}

/// Makes a key hold a log of requests of unlike costs, and as many charged denials.
pub fn log_with_denials(c: &mut Connection, key: &str) {
    let rules = "100000/366d 100000/365d,name=a,count=all";
    repeat(c, key, ENTRIES, 1, &words(rules));
    repeat(c, key, 1, 1, &words(&format!("COST 2 {rules}")));
    repeat(c, key, ENTRIES, 100_000_000, &words(rules));
}

/// Makes a key keep a history of so many checks of a rule, each with a text of so many bytes.
pub fn history(c: &mut Connection, key: &str, rule: &str, checks: usize, text: usize) {
    repeat(c, key, checks, 1, &["META".to_string(), "x".repeat(text), rule.to_string()]);
}

/// Blocks a key, with the longest reason.
pub fn block(c: &mut Connection, key: &str) {
    let text = "x".repeat(256);
    let () = command("RL.BLOCK").arg(key).arg(&["REASON", &text]).query(c).expect("OK");
}

/// Makes a key keep so many holds, each on these rules, which return when they lapse.
pub fn holds(c: &mut Connection, key: &str, count: usize, rules: &[String]) {
    let hold = words("HOLD {n} EX 300 REFUND");
    repeat(c, key, count, 1, &[&hold[..], rules].concat());
}

/// Rules that all holds of a key may be on, in a key with nearly all the other states that it may
/// hold.
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
