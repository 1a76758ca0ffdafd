//! Keys with holds on every algorithm, and the replies to settling them.
//!
//! A value that was saved, moved or copied must settle like its original: with the same replies
//! and digests.

use redis::{Connection, Value};

use crate::support::client::{START_US, ask, digest_of};

/// Commands that take holds, and other commands on their keys. `%` is the prefix of keys, `@s`
/// a time in seconds after the start.
const TAKEN: &[&str] = &[
    "RL.CHECK %log @0 HOLD r EX 90 REFUND COST 40 100/m,name=a 200/m,name=b",
    "RL.CHECK %log @5 HOLD s EX 90 META who COST 10 100/m,name=a 200/m,name=b",
    "RL.CHECK %window @10 HOLD r EX 110 COST 6 window:9/m",
    "RL.CHECK %window @70 COST 2 window:9/m",
    "RL.CHECK %fixed @-10 HOLD r EX 600 COST 400 fixed:1000/d,keep=2",
    "RL.CHECK %fixed @10 HOLD s EX 600 REFUND COST 300 fixed:1000/d,keep=2",
    // Four holds with different least debts, in fractions of a unit.
    "RL.CHECK %bucket @0 HOLD a EX 60 COST 20 bucket:7/s,burst=50",
    "RL.CHECK %bucket @1.5 HOLD b EX 60 COST 5 bucket:7/s,burst=50",
    "RL.CHECK %bucket @2.100001 HOLD c EX 60 COST 9 bucket:7/s,burst=50",
    "RL.CHECK %bucket @2.2 bucket:7/s,burst=50",
    "RL.CHECK %bucket @2.300003 HOLD d EX 9 REFUND COST 12 bucket:7/s,burst=50",
    "RL.CHECK %interval @0 HOLD h EX 120 COST 3 bucket:5/m,refill=interval",
    "RL.CHECK %leaky @0 HOLD h EX 60 COST 3 leaky:1/s,queue=9",
    "RL.CHECK %leaky @0.5 HOLD i EX 60 REFUND COST 2 leaky:1/s,queue=9",
    "RL.CHECK %slots @0 HOLD a EX 30 slots:3",
    "RL.CHECK %slots @0 HOLD b EX 10 REFUND COST 2 slots:3 slots:9,name=gpu,cost=4",
    "RL.RENEW %slots a EX 45 @1",
    "RL.CHECK %several @0 HOLD req EX 120 REFUND COST 4000 COST out=0 slots:20,cost=1 500/m,cost=1 bucket:100000/m bucket:8000/m,name=out fixed:2000000/d",
    // A rule of another shape has replaced the state of a hold.
    "RL.CHECK %orphan @0 HOLD h EX 60 REFUND COST 3 fixed:5/m,name=x 9/m",
    "RL.CHECK %orphan @1 HOLD i EX 60 bucket:5/m,name=x",
    "RL.CHECK %settled @0 HOLD a EX 60 COST 10 bucket:1/s,burst=50",
    "RL.CHECK %settled @0 HOLD b EX 60 COST 20 bucket:1/s,burst=50",
    "RL.CHECK %settled @0 HOLD c EX 60 COST 15 bucket:1/s,burst=50",
    "RL.SETTLE %settled b COST 5 @5",
];

/// Commands that settle the holds, let them lapse, and look at what is left.
const SETTLED: &[&str] = &[
    "RL.SETTLE %log r COST b=25 @20",
    "RL.PEEK %log @20 100/m,name=a",
    "RL.SETTLE %log s COST 12 @20",
    "RL.PEEK %log @20 100/m,name=a",
    "RL.SETTLE %window r COST 2 @75",
    "RL.PEEK %window @75 window:9/m",
    "RL.SETTLE %fixed s COST 100 @20",
    "RL.SETTLE %fixed r COST 1000 @20",
    "RL.PEEK %fixed @20 fixed:1000/d,keep=2",
    "RL.SETTLE %bucket c COST 2 @2.5",
    "RL.PEEK %bucket @2.5 bucket:7/s,burst=50",
    "RL.SETTLE %bucket a REFUND @2.5",
    "RL.PEEK %bucket @2.5 bucket:7/s,burst=50",
    "RL.PEEK %bucket @11.3 bucket:7/s,burst=50",
    "RL.CHECK %bucket @11.4 COST 20 bucket:7/s,burst=50",
    "RL.SETTLE %bucket d @11.4",
    "RL.SETTLE %bucket b REFUND @11.5",
    "RL.PEEK %bucket @11.5 bucket:7/s,burst=50",
    "RL.SETTLE %interval h COST 1 @20",
    "RL.PEEK %interval @20 bucket:5/m,refill=interval",
    "RL.PEEK %leaky @1 leaky:1/s,queue=9",
    "RL.SETTLE %leaky i REFUND @1",
    "RL.SETTLE %leaky h REFUND @1",
    "RL.PEEK %leaky @1 leaky:1/s,queue=9",
    "RL.PEEK %slots @2 slots:3",
    "RL.CHECK %slots @10 HOLD c EX 30 COST 2 slots:3",
    "RL.SETTLE %slots b @10",
    "RL.SETTLE %slots a @11",
    "RL.PEEK %slots @11 slots:3 slots:9,name=gpu",
    "RL.SETTLE %several req COST 2710 COST out=70 @1",
    "RL.PEEK %several @1 500/m",
    "RL.PEEK %several @1 bucket:100000/m",
    "RL.PEEK %several @1 bucket:8000/m,name=out",
    "RL.PEEK %several @1 fixed:2000000/d",
    "RL.SETTLE %orphan h REFUND @2",
    "RL.SETTLE %orphan i REFUND @2",
    "RL.PEEK %orphan @2 bucket:5/m,name=x",
    "RL.PEEK %orphan @2 9/m",
    "RL.SETTLE %settled a REFUND @5",
    "RL.SETTLE %settled c REFUND @5",
    "RL.PEEK %settled @5 bucket:1/s,burst=50",
];

/// The keys, without their prefix.
const KEYS: [&str; 10] = [
    "log", "window", "fixed", "bucket", "interval", "leaky", "slots", "several", "orphan",
    "settled",
];

/// The keys with a prefix.
pub fn keys(prefix: &str) -> Vec<String> {
    KEYS.iter().map(|key| format!("{prefix}{key}")).collect()
}

/// How many commands [`take`] sends.
pub const COUNT: usize = TAKEN.len();

/// A line with its keys and its time.
fn line(template: &str, prefix: &str) -> String {
    let word = |word: &str| match (word.strip_prefix('%'), word.strip_prefix('@')) {
        (Some(key), _) => format!("{prefix}{key}"),
        (_, Some(seconds)) => {
            let us = (seconds.parse::<f64>().expect("seconds") * 1e6).round() as i64;
            format!("AT {}", START_US.checked_add_signed(us).expect("a time"))
        }
        (None, None) => word.to_string(),
    };
    template.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Commands that take holds in keys with this prefix.
pub fn taken(prefix: &str) -> impl Iterator<Item = String> {
    TAKEN.iter().map(move |template| line(template, prefix))
}

/// Takes holds in keys with this prefix.
pub fn take(c: &mut Connection, prefix: &str) {
    for line in taken(prefix) {
        let _: Value = ask(c, &line);
    }
}

/// Settles the holds in keys with this prefix. Returns each command without the prefix, its reply,
/// and the digest of its key.
fn settle(c: &mut Connection, prefix: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for template in SETTLED {
        let reply: Value = ask(c, &line(template, prefix));
        let key = template.split(['%', ' ']).nth(2).expect("a key");
        let digest = digest_of(c, &format!("{prefix}{key}"));
        answers.push(format!("{template}: {reply:?} {digest:?}"));
    }
    answers
}

/// Settles the holds in keys with this prefix, and expects what [`settled_at_once`] returned.
pub fn assert_settles(c: &mut Connection, prefix: &str, expected: &[String], what: &str) {
    for (answer, expected) in settle(c, prefix).iter().zip(expected) {
        assert_eq!(answer, expected, "{what}");
    }
}

/// What [`settle`] returns for keys whose values were never saved, moved or copied.
pub fn settled_at_once(c: &mut Connection) -> Vec<String> {
    take(c, "{at-once}");
    let answers = settle(c, "{at-once}");
    // On the bucket, `d` has lapsed and `b` has not. On the slots, `b` has lapsed.
    for (what, reply) in [
        ("RL.SETTLE %bucket d", "int(0)"),
        ("RL.SETTLE %bucket b", "int(1)"),
        ("RL.SETTLE %slots b", "int(0)"),
    ] {
        let answer = answers.iter().find(|answer| answer.starts_with(what)).expect(what);
        assert!(answer.contains(reply), "{answer}");
    }
    answers
}
