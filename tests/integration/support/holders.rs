//! Clients that take, renew and settle holds until their server is gone, and what they know of
//! each hold. A server with their data must agree exactly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Connection, Pipeline, Value, cmd, from_redis_value, pipe};

use crate::support::client::{ask, remaining};

/// A limit that no test uses up.
const LIMIT: i64 = 100_000;
/// Under these rules, a settlement can give back all units, and no unit comes back by itself.
const RULES: [&str; 6] = [
    "slots:100000",
    "log:100000/h",
    "window:100000/366d",
    "fixed:100000/366d,align=first",
    "bucket:100000/366d",
    REQUESTS,
];
/// Counts requests of any cost.
const REQUESTS: &str = "fixed:100000/366d,align=first,name=n,cost=1";

/// How many commands a client pipelines.
const BATCH: usize = 16;

/// A hold as its client knows it.
pub struct Held {
    key: String,
    id: String,
    cost: i64,
    known: Known,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    /// The check was sent.
    Taking,
    /// The check was answered.
    Alive,
    /// `RL.SETTLE` was sent.
    Settling(Charged),
    /// `RL.SETTLE` was answered.
    Settled(Charged),
}

/// What a settled hold leaves charged.
#[derive(Clone, Copy, Debug, Default)]
struct Charged {
    units: i64,
    requests: i64,
}

/// When a client counts a reply as lasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    Answered,
    /// A replica confirmed the command, with `WAIT`.
    Replicated,
}

/// One client: works on holds in these keys until the server is gone, and counts the replies
/// that last.
pub fn work(
    mut c: Connection,
    name: &str,
    keys: &[String],
    lasting: Lasting,
    progress: &AtomicUsize,
) -> Vec<Held> {
    let mut holds: Vec<Held> = Vec::new();
    // The holds whose latest replies do not count as lasting yet.
    let mut answered = Vec::new();
    loop {
        let (mut batch, mut sent) = (pipe(), Vec::new());
        for _ in 0..BATCH {
            let hold = command(&mut batch, name, keys, &mut holds, &sent);
            sent.push(hold);
        }
        if lasting == Lasting::Replicated {
            batch.cmd("WAIT").arg(1).arg(50);
        }
        if c.send_packed_command(&batch.get_packed_pipeline()).is_err() {
            return holds;
        }
        for hold in sent {
            let Ok(reply) = c.recv_response() else { return holds };
            assert_granted(&holds[hold], &reply);
            answered.push(hold);
            if lasting == Lasting::Answered {
                progress.fetch_add(learn(&mut holds, &mut answered), Ordering::Relaxed);
            }
        }
        if lasting == Lasting::Replicated {
            let Ok(reply) = c.recv_response() else { return holds };
            if from_redis_value::<i64>(reply).is_ok_and(|replicas| replicas > 0) {
                progress.fetch_add(learn(&mut holds, &mut answered), Ordering::Relaxed);
            }
        }
    }
}

/// Adds a command for a new hold, or for a live one that no other command of the batch uses.
/// Returns the number of the hold.
fn command(
    batch: &mut Pipeline,
    name: &str,
    keys: &[String],
    holds: &mut Vec<Held>,
    sent: &[usize],
) -> usize {
    let number = fastrand::usize(..holds.len().max(1));
    let hold = holds.get_mut(number).filter(|hold| matches!(hold.known, Known::Alive));
    match (fastrand::u32(..10), hold.filter(|_| !sent.contains(&number))) {
        (0, Some(Held { key, id, .. })) => {
            batch.cmd("RL.RENEW").arg(&*key).arg(&*id).arg("EX").arg(7_200);
            number
        }
        (1..9, Some(hold)) => {
            let settle = batch.cmd("RL.SETTLE").arg(&hold.key).arg(&hold.id);
            let charged = match fastrand::u32(..3) {
                0 => {
                    settle.arg("REFUND");
                    Charged::default()
                }
                1 => Charged { units: hold.cost, requests: 1 },
                _ => {
                    let units = fastrand::i64(0..12);
                    settle.arg("COST").arg(units);
                    Charged { units, requests: 1 }
                }
            };
            hold.known = Known::Settling(charged);
            number
        }
        (_, _) => {
            let (key, id) =
                (&keys[fastrand::usize(..keys.len())], format!("{name}-{}", holds.len()));
            let cost = fastrand::i64(0..10);
            let check = batch.cmd("RL.CHECK").arg(key).arg("HOLD").arg(&id).arg("EX").arg(3_600);
            if fastrand::bool() {
                check.arg("REFUND");
            }
            check.arg("COST").arg(cost).arg(&RULES);
            holds.push(Held { key: key.clone(), id, cost, known: Known::Taking });
            holds.len() - 1
        }
    }
}

fn assert_granted(hold: &Held, reply: &Value) {
    let granted = match reply {
        Value::Array(check) => check.first() == Some(&Value::Int(0)),
        one => *one == Value::Int(1),
    };
    assert!(granted, "{} {:?}: {reply:?}", hold.id, hold.known);
}

/// Marks the answered commands as lasting. Returns their number.
fn learn(holds: &mut [Held], answered: &mut Vec<usize>) -> usize {
    let count = answered.len();
    for number in answered.drain(..) {
        let known = &mut holds[number].known;
        *known = match *known {
            Known::Taking | Known::Alive => Known::Alive,
            Known::Settling(charged) | Known::Settled(charged) => Known::Settled(charged),
        };
    }
    count
}

/// What a key must have.
#[derive(Debug, Default)]
struct Expected {
    slots: i64,
    all: Charged,
}

/// Checks that a server has each hold as its client knows it, then settles the live ones.
pub fn assert_known(c: &mut Connection, holds: &[Held]) {
    let mut expected: BTreeMap<&str, Expected> = BTreeMap::new();
    let (mut alive, mut settled) = (Vec::new(), 0);
    for hold in holds {
        let Held { key, id, cost, known } = hold;
        let lives: bool = ask(c, &format!("RL.RENEW {key} {id} EX 3600"));
        let charged = match (known, lives) {
            (Known::Taking | Known::Alive | Known::Settling(_), true) => {
                alive.push(hold);
                expected.entry(key).or_default().slots += cost;
                Charged { units: *cost, requests: 1 }
            }
            (Known::Taking, false) => Charged::default(),
            (Known::Settling(charged), false) => *charged,
            (Known::Settled(charged), false) => {
                settled += 1;
                *charged
            }
            (Known::Alive, false) => panic!("the hold {id} is lost"),
            (Known::Settled(_), true) => panic!("the settlement of {id} is lost"),
        };
        let all = &mut expected.entry(key).or_default().all;
        all.units += charged.units;
        all.requests += charged.requests;
    }
    assert!(alive.len() > 20 && settled > 20, "{} live, {settled} settled", alive.len());
    assert_charged(c, &expected);

    for Held { key, id, cost, .. } in alive {
        let mut settle = cmd("RL.SETTLE");
        assert!(settle.arg(key).arg(id).arg("REFUND").query::<bool>(c).unwrap(), "{id}");
        let key = expected.get_mut(key.as_str()).expect("its key");
        key.slots -= cost;
        key.all.units -= cost;
        key.all.requests -= 1;
    }
    assert!(expected.values().all(|expected| expected.slots == 0));
    assert_charged(c, &expected);
}

fn assert_charged(c: &mut Connection, expected: &BTreeMap<&str, Expected>) {
    for (key, Expected { slots, all }) in expected {
        for rule in RULES {
            let charged = LIMIT - remaining(c, &format!("RL.PEEK {key} COST 0 {rule}"));
            let should = match rule {
                REQUESTS => all.requests,
                rule if rule.starts_with("slots") => *slots,
                _ => all.units,
            };
            assert_eq!(charged, should, "{key} {rule}");
        }
    }
}
