//! Random commands of every kind on keys of every kind.

use redis::{Cmd, Connection, Value, cmd, pipe};

use crate::support::client::{now_us, verdict};
use crate::support::server::eventually;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;

/// Keys and their rules. The shortest window is an hour, so that no key expires while a test runs.
pub const SCENARIOS: [(&str, &[&str]); 15] = [
    ("log", &["log:40/h", "log:200/d,name=day"]),
    ("log-all", &["log:9/h,count=all", "log:20/3h"]),
    ("log-gaps", &["log:30/30d"]),
    ("window", &["window:60/h"]),
    ("window-res", &["window:200/d,res=6,name=six"]),
    ("fixed", &["fixed:30/h,keep=5"]),
    ("fixed-zone", &["fixed:99/d,tz=-03:30", "fixed:999/w", "fixed:9999/month"]),
    ("fixed-first", &["fixed:9/2h,align=first,count=all"]),
    ("bucket", &["bucket:70/3h,burst=11"]),
    ("bucket-all", &["bucket:70/h,count=all,name=b"]),
    ("bucket-lump", &["bucket:9/h,refill=interval,name=lump"]),
    ("leaky", &["leaky:50/h,queue=6"]),
    ("banned", &["bucket:9/h,ban=20m,name=strict"]),
    ("shadow", &["log:99/h", "leaky:5/h,shadow,count=all"]),
    ("all", &["log:90/h", "window:80/d,res=24", "fixed:70/d,keep=2", "bucket:60/h", "leaky:50/h"]),
];

/// Commands that make a key with only a block, an exemption or a history, and the verdict that a
/// peek at this key then gives.
const WITHOUT_STATES: [(&str, i64); 6] = [
    ("RL.BLOCK blocked-for-good", 2),
    ("RL.BLOCK blocked EX 7200 REASON abuse", 2),
    ("RL.EXEMPT exempt-for-good REASON vip", 0),
    ("RL.EXEMPT exempt PX 7200000", 0),
    ("RL.CHECK denied META who 0/h", 1),
    ("RL.CHECK denied-often META who 0/d", 1),
];

/// Commands of every kind, each a little later than the previous one.
pub struct Filler {
    rng: fastrand::Rng,
    /// The server's clock at the beginning.
    began_us: u64,
    /// The last time given with `AT`.
    at_us: u64,
}

impl Filler {
    fn command(&mut self) -> Cmd {
        self.at_us += self.rng.u64(..120 * SECOND_US);
        let (scenario, rules) = SCENARIOS[self.rng.usize(..SCENARIOS.len())];
        // Half of the keys use the server's clock, the others `AT`.
        let live = self.rng.bool();
        let key = if live { format!("{scenario}:live") } else { scenario.to_string() };
        let at = if live { vec![] } else { vec!["AT".to_string(), self.at_us.to_string()] };
        let copy = format!("{scenario}:copy");
        let cost = self.rng.u32(..=4);
        // Arbitrary bytes, or none.
        let text: Vec<u8> = (0..self.rng.usize(..20)).map(|_| self.rng.u8(..)).collect();
        let script = "return redis.call('RL.CHECK', KEYS[1], unpack(ARGV))";
        match self.rng.u32(..100) {
            0 => cmd("RL.RESET").arg(key).to_owned(),
            1 => cmd("DEL").arg(copy).to_owned(),
            2..5 => cmd("COPY").arg(key).arg(copy).arg("REPLACE").to_owned(),
            5..8 => cmd("RL.REFUND").arg(key).arg(cost).arg(at).to_owned(),
            8..11 => cmd("RL.REFUND").arg(key).arg(cost).arg(at).arg(rules).to_owned(),
            11..15 => cmd("EVAL").arg(script).arg(1).arg(key).arg(at).arg(rules).to_owned(),
            15..20 => cmd("RL.PEEK").arg(key).arg(at).arg(rules).to_owned(),
            20..25 => cmd("RL.CHECK").arg(key).arg(at).arg("FULL").arg(rules).to_owned(),
            // Lifts blocks more often than it sets them, so that most checks evaluate rules.
            25 => self.block_or_exempt(key, text),
            26..29 => cmd("RL.UNBLOCK").arg(key).to_owned(),
            29..32 => cmd("RL.UNEXEMPT").arg(key).to_owned(),
            32..45 => {
                let mut check = cmd("RL.CHECK");
                check.arg(key).arg("META").arg(text).arg("COST").arg(cost).arg(at);
                check.arg(rules).to_owned()
            }
            45 => cmd("RL.LOG").arg(key).to_owned(),
            46 => cmd("RL.INFO").arg(key).to_owned(),
            47 => cmd("RL.BLOCKS").arg(0).arg("COUNT").arg(5).to_owned(),
            _ => cmd("RL.CHECK").arg(key).arg("COST").arg(cost).arg(at).arg(rules).to_owned(),
        }
    }

    /// A block or an exemption, for good or for longer than a test runs.
    fn block_or_exempt(&mut self, key: String, reason: Vec<u8>) -> Cmd {
        let mut command = cmd(if self.rng.bool() { "RL.BLOCK" } else { "RL.EXEMPT" });
        command.arg(key);
        if self.rng.bool() {
            command.arg("EX").arg(self.rng.u32(3_600..7_200));
        }
        if self.rng.bool() {
            command.arg("REASON").arg(reason);
        }
        command
    }

    /// Times at which different states lead to different decisions, for both kinds of keys.
    pub fn telling_times_us(&self) -> Vec<u64> {
        let later_s = [0, 1, 60, 1_800, 7_200, 86_400, 40 * 86_400];
        let after = |from_us| later_s.map(|s| from_us + s * SECOND_US);
        [self.began_us, self.at_us].into_iter().flat_map(after).collect()
    }

    pub fn send(&mut self, c: &mut Connection, commands: usize) {
        for _ in 0..commands / 100 {
            let mut batch = pipe();
            if self.rng.bool() {
                batch.atomic();
            }
            for _ in 0..100 {
                batch.add_command(self.command());
            }
            let _: Vec<Value> = batch.query(c).unwrap();
        }
    }
}

/// Sends some thousand commands. They make every kind of state, reach some limits, and ban a
/// key.
pub fn fill(c: &mut Connection) -> Filler {
    let now_us = now_us(c);
    for days_ago in [20, 10, 5] {
        let at_us = now_us - days_ago * DAY_US;
        let mut check = cmd("RL.CHECK");
        let () = check.arg("log-gaps:old").arg("AT").arg(at_us).arg("30/30d").query(c).unwrap();
    }
    let rng = fastrand::Rng::with_seed(1);
    let mut filler = Filler { rng, began_us: now_us, at_us: now_us - 2 * DAY_US };
    filler.send(c, 3_000);

    let (banned, strict) = SCENARIOS.iter().find(|(scenario, _)| *scenario == "banned").unwrap();
    let key = format!("{banned}:live");
    let _: i64 = cmd("RL.UNEXEMPT").arg(&key).query(c).unwrap();
    eventually("a ban", || verdict(c, &format!("RL.CHECK {key} {}", strict.join(" "))) == 2);

    for (line, expected) in WITHOUT_STATES {
        let words: Vec<&str> = line.split(' ').collect();
        let _: Value = cmd(words[0]).arg(&words[1..]).query(c).unwrap();
        assert_eq!(verdict(c, &format!("RL.PEEK {} 0/d", words[1])), expected, "{line}");
    }
    // Fills its history.
    for _ in 0..200 {
        assert_eq!(verdict(c, "RL.CHECK denied-often META again 0/d"), 1);
    }
    filler
}
