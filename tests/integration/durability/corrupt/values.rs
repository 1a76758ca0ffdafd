//! Values of every kind, as a server dumps them.

use redis::{Connection, Value};

use crate::support::client::ask;
use crate::support::dump::Dump;

const MIDNIGHT_US: u64 = 1_605_916_800_000_000;

/// Rules of every algorithm.
pub const EVERY_RULE: &str = "100/m window:100/m window:100/h,res=6 fixed:100/m,keep=3 \
                              fixed:100/month bucket:100/m,burst=7 \
                              bucket:100/m,refill=interval,name=lump leaky:100/m \
                              log:50/s,name=fast,count=all";

/// The options and rules of some checks, their cost, and their times in seconds.
type Checks<'a> = (&'a str, u32, Vec<u64>);

pub fn values(c: &mut Connection) -> Vec<Dump> {
    let every_rule_and_meta = format!("META who {EVERY_RULE}");
    let checked: [Checks<'_>; 20] = [
        // Gaps of seconds, minutes, hours.
        ("400/w", 1, (0..80).map(|n| n * n * n).collect()),
        ("100/m", 3, vec![0, 0, 1, 59]),
        // Charged denials.
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
        // Histories: alone, beside a log, longer than 250 bytes, with every verdict.
        ("META user:7 0/s", 1, vec![0]),
        ("META user:7 100/m", 3, vec![0, 0, 1, 59]),
        ("META who bucket:2/h", 1, (0..20).collect()),
        ("META who 1/h,ban=1d,count=all", 1, vec![0, 1, 2]),
        // Everything at once.
        (EVERY_RULE, 1, vec![0, 1, 70]),
        (&every_rule_and_meta, 1, vec![0, 1, 70]),
    ];
    let blocked_or_exempt: [(Checks<'_>, &str); 6] = [
        (("100/h", 1, vec![0, 1]), "RL.BLOCK value EX 1000 REASON abuse"),
        (("100/h", 0, vec![0]), "RL.BLOCK value"),
        (("window:100/m", 1, vec![0]), "RL.EXEMPT value PX 1000000 REASON well-known"),
        (("META who fixed:9/h", 1, vec![0, 3]), "RL.EXEMPT value REASON well-known"),
        (("META who 0/h", 1, vec![0]), "RL.BLOCK value EX 1000 REASON abuse"),
        ((&every_rule_and_meta, 1, vec![0, 1]), "RL.BLOCK value REASON abuse"),
    ];
    let checked = checked.into_iter().map(|checks| (checks, None));
    let blocked_or_exempt =
        blocked_or_exempt.into_iter().map(|(checks, access)| (checks, Some(access)));
    checked.chain(blocked_or_exempt).map(|(checks, access)| value(c, &checks, access)).collect()
}

fn value(c: &mut Connection, (asks, cost, seconds): &Checks<'_>, access: Option<&str>) -> Dump {
    for second in seconds {
        let at_us = MIDNIGHT_US + second * 1_000_000 + second;
        let check = format!("RL.CHECK value COST {cost} AT {at_us} {asks}");
        let _: Value = ask(c, &check);
    }
    if let Some(access) = access {
        let _: Value = ask(c, access);
    }
    let dump = Dump::of(c, "value");
    let () = ask(c, "DEL value");
    dump
}
