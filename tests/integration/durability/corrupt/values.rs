//! Values of every kind: what a server dumps after some traffic.

use redis::{Cmd, Connection, Value, cmd};

use crate::support::dump::Dump;

const MIDNIGHT_US: u64 = 1_605_916_800_000_000;

/// Rules of every kind.
pub const EVERY_RULE: &str = "100/m window:100/m window:100/h,res=6 fixed:100/m,keep=3 \
                              fixed:100/month bucket:100/m,burst=7 \
                              bucket:100/m,refill=interval,name=lump leaky:100/m \
                              log:50/s,name=fast,count=all";

/// What some checks have in common, with the seconds when they come.
type Checks<'a> = (&'a str, u32, Vec<u64>);

pub fn values(c: &mut Connection) -> Vec<Dump> {
    let every_rule_and_meta = format!("META who {EVERY_RULE}");
    let checked: [Checks<'_>; 20] = [
        // Gaps of seconds, minutes, hours.
        ("400/w", 1, (0..80).map(|n| n * n * n).collect()),
        ("100/m", 3, vec![0, 0, 1, 59]),
        // Denied requests that were charged.
        ("3/m,count=all", 2, vec![0, 1, 2, 3]),
        ("window:100/m", 1, vec![0, 30, 70]),
        ("window:100/h,res=6", 2, vec![0, 700, 2_000, 3_500]),
        ("fixed:100/m", 1, vec![0]),
        ("fixed:100/m,keep=3", 7, vec![0, 60, 130, 190, 250]),
        ("fixed:100/month,tz=-05:30", 1, vec![0, 3_000_000]),
        ("fixed:100/w,align=first", 1, vec![0]),
        ("bucket:7/m,burst=20", 5, vec![0, 3]),
        ("bucket:100/m,refill=interval", 1, vec![0]),
        ("leaky:7/h,queue=5,name=a-queue", 1, vec![0, 1, 2]),
        // Bans.
        ("1/h,ban=1d", 1, vec![0, 1]),
        ("fixed:1/h,ban=1d,name=only bucket:9/h", 1, vec![0, 1]),
        // Trails: alone, beside a log, longer than 250 bytes, of every verdict.
        ("META user:7 0/s", 1, vec![0]),
        ("META user:7 100/m", 3, vec![0, 0, 1, 59]),
        ("META who bucket:2/h", 1, (0..20).collect()),
        ("META who 1/h,ban=1d,count=all", 1, vec![0, 1, 2]),
        // Everything at once.
        (EVERY_RULE, 1, vec![0, 1, 70]),
        (&every_rule_and_meta, 1, vec![0, 1, 70]),
    ];
    let ruled: [(Checks<'_>, &str); 6] = [
        (("100/h", 1, vec![0, 1]), "RL.BLOCK value EX 1000 REASON abuse"),
        (("100/h", 0, vec![0]), "RL.BLOCK value"),
        (("window:100/m", 1, vec![0]), "RL.EXEMPT value PX 1000000 REASON well-known"),
        (("META who fixed:9/h", 1, vec![0, 3]), "RL.EXEMPT value REASON well-known"),
        (("META who 0/h", 1, vec![0]), "RL.BLOCK value EX 1000 REASON abuse"),
        ((&every_rule_and_meta, 1, vec![0, 1]), "RL.BLOCK value REASON abuse"),
    ];
    let checked = checked.into_iter().map(|checks| (checks, None));
    let ruled = ruled.into_iter().map(|(checks, ruling)| (checks, Some(ruling)));
    checked.chain(ruled).map(|(checks, ruling)| value(c, &checks, ruling)).collect()
}

fn value(c: &mut Connection, (asks, cost, seconds): &Checks<'_>, ruling: Option<&str>) -> Dump {
    for second in seconds {
        let at_us = MIDNIGHT_US + second * 1_000_000 + second;
        let check = format!("RL.CHECK value COST {cost} AT {at_us} {asks}");
        let _: Value = words(&check).query(c).unwrap();
    }
    if let Some(ruling) = ruling {
        let _: Value = words(ruling).query(c).unwrap();
    }
    let dump = Dump::of(c, "value");
    let () = cmd("DEL").arg("value").query(c).unwrap();
    dump
}

/// A command as one types it.
pub fn words(line: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(line.split(' ').collect::<Vec<_>>()).to_owned()
}
