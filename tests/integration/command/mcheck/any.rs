//! `RL.MCHECK ... ANY`: one request passes through one of several keys.

use std::collections::HashMap;

use fastrand::Rng;
use redis::{Connection, Value, from_redis_value};

use super::{DAY_MS, HOUR_MS, at, line};
use crate::support::client::{ask, attempt, dump, info, now_us, refusal, remaining};
use crate::support::seed;
use crate::support::server::{self, Builder};

/// The integers that `RL.MCHECK` replies for these keys. `rest` contains `ANY`.
fn any(c: &mut Connection, keys: &str, rest: &str) -> Vec<i64> {
    ask(c, &line(keys, rest))
}

#[test]
fn a_hold_is_taken_on_the_charged_key_and_repeated_there() {
    server::on_all(|server| {
        let mut c = server.connect();
        let hold =
            |c: &mut _, id: &str| any(c, "{p}a {p}b", &format!("HOLD {id} EX 60 ANY slots:1"));
        assert_eq!(hold(&mut c, "h")[5], 0);
        assert_eq!(hold(&mut c, "h")[5], 0);
        assert_eq!(remaining(&mut c, "RL.PEEK {p}a slots:9"), 8, "it is charged once");
        assert_eq!(hold(&mut c, "g")[5], 1);
        assert_eq!((hold(&mut c, "i")[0], hold(&mut c, "i")[5]), (1, -1));
        // With `h` settled, the first key has a free slot, but the second key has the hold `g`.
        let settled: i64 = ask(&mut c, "RL.SETTLE {p}a h");
        assert_eq!((settled, hold(&mut c, "g")[5]), (1, 1));
        // The hold is never taken a second time on another key.
        let () = ask(&mut c, "RL.BLOCK {p}b");
        assert_eq!((hold(&mut c, "g")[0], hold(&mut c, "g")[5]), (2, -1));
        let _: Value = ask(&mut c, "RL.UNBLOCK {p}b");
        let error = refusal(&mut c, "RL.MCHECK 2 {p}a {p}b HOLD g EX 60 COST 2 ANY slots:3");
        assert!(error.contains("'{p}b'") || error.contains("cost"), "{error}");
    });
}

#[test]
fn full_shows_the_deciding_key_alone() {
    type Map = HashMap<String, Value>;
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let mut full = |ms| -> (i64, i64, Option<String>, Vec<Map>) {
            let rest = format!("FULL AT {} ANY 1/h NEXT 1/d", at(ms));
            let map: Map = ask(&mut c, &line("{p}a {p}b", &rest));
            let get = |field: &str| from_redis_value(map[field].clone()).expect("an integer");
            let key = from_redis_value(map["key"].clone()).expect("a text");
            let rules = from_redis_value(map["rules"].clone()).expect("rules");
            (get("verdict"), get("chosen"), key, rules)
        };
        for (ms, verdict, chosen, key, limit_ms) in
            [(0, 0, 0, "{p}a", HOUR_MS), (0, 0, 1, "{p}b", DAY_MS), (0, 1, -1, "{p}a", HOUR_MS)]
        {
            let (said, index, name, rules) = full(ms);
            assert_eq!((said, index, name.as_deref()), (verdict, chosen, Some(key)));
            let [rule] = rules.as_slice() else { panic!("{rules:?}") };
            let period: i64 = from_redis_value(rule["period_ms"].clone()).expect("an integer");
            assert_eq!(period, limit_ms);
        }
    });
}

#[test]
fn keys_after_the_one_that_admits_are_not_opened() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "SET {p}text x");
        assert_eq!(any(&mut c, "{p}a {p}text", "ANY 1/h")[5], 0);
        for check in ["RL.MCHECK 2 {p}a {p}text ANY 1/h", "RL.MCHECK 2 {p}b {p}text ANY MOST 1/h"] {
            assert!(refusal(&mut c, check).contains("WRONGTYPE"), "{check}");
        }
    });
}

/// Rules of one key.
const RULES: [&str; 9] = [
    "5/m",
    "bucket:3/s bucket:20/m,burst=5",
    "fixed:4/m,count=all,ban=10s",
    "log:3/10s log:8/m",
    "leaky:2/s,queue=3",
    "window:6/m,shadow",
    "0/m",
    "fixed:9/h,name=n,cost=2 7/m",
    "bucket:6/m,shadow leaky:5/m,queue=1,count=all",
];

fn pick<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(..of.len())]
}

/// A line without the surplus spaces that empty words leave.
fn spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a check with `ANY` should reply. Finds it by peeks and checks of single keys, all at one
/// time.
fn expected(
    c: &mut Connection,
    keys: &[String],
    groups: &[&str],
    options: &[String; 2],
    most: bool,
) -> Vec<i64> {
    let [peeked, all] = options;
    let of =
        |index: usize| (&keys[index], if groups.len() == 1 { groups[0] } else { groups[index] });
    let mut chosen = None::<(i64, usize)>;
    for index in 0..keys.len() {
        let (key, rules) = of(index);
        let peek: Vec<i64> = ask(c, &spaced(&format!("RL.PEEK {key} {peeked} {rules}")));
        if peek[0] != 0 {
            continue;
        }
        // A check of a copy shows how many units would remain.
        let _: Value = ask(c, "DEL {t}copy");
        let _: Value = ask(c, &format!("COPY {key} {{t}}copy"));
        let copy: Vec<i64> = ask(c, &spaced(&format!("RL.CHECK {{t}}copy {all} {rules}")));
        let left = if copy[1] == -1 { i64::MAX } else { copy[2] };
        if chosen.is_none_or(|(best, _)| most && left > best) {
            chosen = Some((left, index));
        }
    }
    let _: Value = ask(c, "DEL {t}copy");
    let mut check = |index: usize| -> Vec<i64> {
        let (key, rules) = of(index);
        ask(c, &spaced(&format!("RL.CHECK {key} {all} {rules}")))
    };
    if let Some((_, index)) = chosen {
        let index_of_key = i64::try_from(index).expect("a small number");
        return [check(index), vec![index_of_key]].concat();
    }
    let denials: Vec<Vec<i64>> = (0..keys.len()).map(&mut check).collect();
    let wait = |denial: &&Vec<i64>| if denial[3] == -1 { i64::MAX } else { denial[3] };
    let mut answer = denials.iter().min_by_key(wait).expect("a key").clone();
    answer[0] = if denials.iter().all(|denial| denial[0] == 2) { 2 } else { 1 };
    answer.push(-1);
    answer
}

#[test]
fn any_equals_a_peek_of_each_key_and_a_check_of_the_first_or_the_best() {
    server::one_is_enough();
    let seed = seed("RATELIMIT_ANY_SEED");
    println!("RATELIMIT_ANY_SEED={seed}");
    server::on_all_with(Builder::allow_at, |server| {
        let (mut c, mut random) = (server.connect(), Rng::with_seed(seed));
        let start_ms = i64::try_from(now_us(&mut c) / 1_000).expect("a time");
        for run in 0..30 {
            let mut ms = 0;
            let count = random.usize(1..=4);
            let twins = ["any", "own"].map(|twin| -> Vec<String> {
                (0..count).map(|key| format!("{{t}}{twin}{run}-{key}")).collect()
            });
            let base: Vec<&str> = (0..count).map(|_| pick(&mut random, &RULES)).collect();
            for _ in 0..40 {
                ms += pick(&mut random, &["0", "0", "300", "1000", "7000", "60000"])
                    .parse::<i64>()
                    .unwrap();
                let now_ms = start_ms + ms;
                let (key, now) = (random.usize(..count), format!("AT {now_ms}000"));
                let until = now_ms + random.i64(1..20_000);
                // Times follow the server's clock, as some of these commands take no `AT`.
                let aside = match random.u8(..12) {
                    0 => format!("RL.BLOCK KEY PXAT {until}"),
                    1 => "RL.UNBLOCK KEY".into(),
                    2 => format!("RL.PAUSE KEY PXAT {until}"),
                    3 => "RL.RESUME KEY".into(),
                    4 if random.u8(..3) == 0 => format!("RL.EXEMPT KEY PXAT {until}"),
                    5 => "RL.UNEXEMPT KEY".into(),
                    6 => format!("RL.CHECK KEY {now} COST 2 {}", base[key]),
                    7 => format!("RL.CHECK KEY {now} HOLD h PX 2500 REFUND 5/m"),
                    _ => String::new(),
                };
                if !aside.is_empty() {
                    // A pause stores when it was set, so change one twin, and copy the other from it.
                    let [any, own] = twins.each_ref().map(|keys| &keys[key]);
                    let _ = attempt(&mut c, &aside.replace("KEY", own));
                    let _: Value = ask(&mut c, &format!("DEL {any}"));
                    let _: Value = ask(&mut c, &format!("COPY {own} {any}"));
                }
                let cost = pick(&mut random, &["", "", "COST 2", "COST 1..3", "COST 0", "COST 9"]);
                let meta = pick(&mut random, &["", "META who"]);
                let groups = if random.bool() { base.clone() } else { vec![base[0]] };
                let most = random.bool();
                let options = [format!("{now} {cost}"), format!("{now} {cost} {meta}")];
                let wanted = expected(&mut c, &twins[1], &groups, &options, most);
                let word = if most { "ANY MOST" } else { "ANY" };
                let asked = format!("{} {word} {}", options[1], groups.join(" NEXT "));
                let got = any(&mut c, &twins[0].join(" "), &spaced(&asked));
                assert_eq!(got, wanted, "{:?} {asked}", server.flavor());
                for (one, other) in twins[0].iter().zip(&twins[1]) {
                    // A key that was not chosen may have stored that its holds have lapsed. A refund of
                    // 0 makes the twin store this, too.
                    for key in [one, other] {
                        let _ = attempt(&mut c, &format!("RL.REFUND {key} 0 {now}"));
                    }
                    let values = [one, other].map(|key| dump(&mut c, key));
                    assert_eq!(values[0], values[1], "{one} {asked}");
                }
            }
        }
    });
}

/// The lines of the policies' counters.
fn counted(c: &mut Connection) -> Vec<String> {
    let section: String = ask(c, "INFO ratelimit_policies");
    let counters = section.lines().filter_map(|line| line.strip_prefix("ratelimit_policy_"));
    counters.map(ToString::to_string).collect()
}

#[test]
fn policies_count_the_charged_key_or_each_key_that_denies() {
    server::on_all(|server| {
        let mut c = server.connect();
        for policy in ["free", "pro"] {
            let () = ask(&mut c, &format!("RL.POLICY SET {policy} 1/d"));
        }
        for (free, pro) in [
            ("free:allowed=1,limited=0,shadowed=0", "pro:allowed=0,limited=0,shadowed=0"),
            ("free:allowed=1,limited=0,shadowed=0", "pro:allowed=1,limited=0,shadowed=0"),
            ("free:allowed=1,limited=1,shadowed=0", "pro:allowed=1,limited=1,shadowed=0"),
        ] {
            any(&mut c, "{p}a {p}b", "ANY @free NEXT @pro");
            assert_eq!(counted(&mut c), [free, pro]);
        }
        // A blocked key is no denial by its policy.
        let () = ask(&mut c, "RL.BLOCK {p}b");
        any(&mut c, "{p}a {p}b", "ANY @free NEXT @pro");
        assert_eq!(
            counted(&mut c),
            ["free:allowed=1,limited=2,shadowed=0", "pro:allowed=1,limited=1,shadowed=0"]
        );
        // Each key has a plan, and one of the plans is unknown.
        let () = ask(&mut c, "RL.PLAN {q}a pro");
        let () = ask(&mut c, "RL.PLAN {q}b gone");
        let unknown = |c: &mut Connection| info(c, "ratelimit", "ratelimit_plans_unknown") as u64;
        for (most, expected, unknown_plans) in [
            ("", ["free:allowed=1,limited=2,shadowed=0", "pro:allowed=2,limited=1,shadowed=0"], 0),
            ("", ["free:allowed=2,limited=2,shadowed=0", "pro:allowed=2,limited=1,shadowed=0"], 1),
            (
                "MOST ",
                ["free:allowed=2,limited=3,shadowed=0", "pro:allowed=2,limited=2,shadowed=0"],
                2,
            ),
        ] {
            any(&mut c, "{q}a {q}b", &format!("ANY {most}@plan:free"));
            assert_eq!(counted(&mut c), expected);
            assert_eq!(unknown(&mut c), unknown_plans);
        }
    });
}
