use super::*;
use crate::algorithm::LogReport;
use crate::key::{Change, Check, CheckOptions, HoldRequest, Meta};
use crate::tests::rules_of_line as rules;

const NOW_US: u64 = 1_700_000_000_000_000;
const MINUTE_US: u64 = 60_000_000;

fn record(limiter: &mut Limiter, text: &str, cost: u32, now_us: u64, change: Change) {
    limiter.record(&Check::new(&rules(text), cost, now_us), change);
}

#[test]
fn each_state_shows_its_last_rule() {
    for text in [
        "window:100/1m",
        "window:100/90s,res=6",
        "fixed:100/1w",
        "fixed:100/7d",
        "fixed:100/1month,tz=-02:30",
        "fixed:100/1h,align=first",
        "fixed:100/1d,keep=7",
        "bucket:100/1m",
        "bucket:100/1m,burst=7,name=short",
        "bucket:100/1m,refill=interval",
        "leaky:100/1m,queue=0",
        "leaky:100/1m",
    ] {
        let mut limiter = Limiter::default();
        record(&mut limiter, text, 1, NOW_US, Change::Admitted);
        let reports = limiter.report(NOW_US);
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].rule.as_str(), reports[0].consumed), (text, 1));
        assert_eq!(reports[0].last_ms, NOW_US / 1_000);
        assert!(reports[0].reset_ms > 0, "{text}");
    }
}

#[test]
fn consumed_units_are_those_that_still_count() {
    let mut limiter = Limiter::default();
    let text = "bucket:60/m log:100/m log:9/2h,count=all leaky:30/m";
    record(&mut limiter, text, 10, NOW_US, Change::Admitted);
    record(&mut limiter, text, 2, NOW_US + MINUTE_US, Change::Charged);
    let reports = limiter.report(NOW_US + 2_500_000);
    let consumed: Vec<_> = reports.iter().map(|report| report.consumed).collect();
    // The log is read at the time of its last denial.
    assert_eq!(consumed, [8, 9, 12]);
    let log = LogReport { entries: 2, denied: 2, span_ms: 60_000 };
    assert_eq!(reports[2].details, Some(Details::Log(log)));
    assert_eq!(reports[2].rule, "log/2h");
    assert_eq!(limiter.report(NOW_US + 200 * MINUTE_US)[2].consumed, 0);
}

#[test]
fn a_window_shows_what_counts_in_full_and_what_is_weighted() {
    // Both windows begin with a minute.
    let start_us = NOW_US / MINUTE_US * MINUTE_US;
    let mut limiter = Limiter::default();
    let text = "window:100/m window:100/m,res=3";
    for (second, cost) in [(10, 5), (50, 7), (65, 2)] {
        record(&mut limiter, text, cost, start_us + second * 1_000_000, Change::Admitted);
    }
    let seen = |second: u64| -> Vec<_> {
        let reports = limiter.report(start_us + second * 1_000_000);
        let window = |report: &StateReport| match report.details {
            Some(Details::Window(window)) => Some((window.current, window.previous)),
            _ => None,
        };
        reports.iter().map(window).collect()
    };
    assert_eq!(seen(65), [Some((2, 12)), Some((9, 5))]);
    assert_eq!(seen(85), [Some((2, 12)), Some((9, 0))]);
    assert_eq!(seen(125), [Some((0, 2)), Some((0, 2))]);
    assert_eq!(seen(190), [Some((0, 0)), Some((0, 0))]);
    let mut other = Limiter::default();
    record(&mut other, "fixed:9/m", 1, NOW_US, Change::Admitted);
    assert_eq!(other.report(NOW_US)[0].details, None);
}

#[test]
fn past_windows_are_shown_oldest_first() {
    let mut limiter = Limiter::default();
    let start_us = NOW_US / MINUTE_US * MINUTE_US;
    for (minute, cost) in [(0, 5), (1, 7), (3, 2)] {
        let now_us = start_us + minute * MINUTE_US;
        record(&mut limiter, "fixed:100/m,keep=5,name=graph", cost, now_us, Change::Admitted);
    }
    let start_ms = (start_us / 1_000).cast_signed();
    let rows = vec![(start_ms, 5), (start_ms + 60_000, 7), (start_ms + 180_000, 2)];
    assert_eq!(limiter.report(NOW_US)[0].details, Some(Details::Windows(rows)));
}

#[test]
fn last_checks_are_the_history_or_else_the_log() {
    let mut limiter = Limiter::default();
    let seen = |limiter: &Limiter| -> Vec<_> {
        let brief = |entry: Entry| (entry.time_us - NOW_US, entry.cost, entry.verdict);
        limiter.last_checks().map(brief).collect()
    };
    record(&mut limiter, "90/h,count=all", 1, NOW_US, Change::Admitted);
    record(&mut limiter, "90/h,count=all", 2, NOW_US + 1, Change::Charged);
    record(&mut limiter, "90/h,count=all", 3, NOW_US + 2, Change::Admitted);
    let (allowed, limited, blocked) = (Verdict::Allowed, Verdict::Limited, Verdict::Blocked);
    assert_eq!(seen(&limiter), [(2, 3, allowed), (1, 2, limited), (0, 1, allowed)]);

    let meta = Some(Meta { text: b"user:7", keep: 3 });
    let options = CheckOptions { meta, ..CheckOptions::default() };
    for (cost, verdict) in [(3, limited), (4, blocked)] {
        let now_us = NOW_US + u64::from(cost);
        let rules = rules("90/h");
        let check = Check::new(&rules, cost, now_us).with(&options);
        limiter.record(&check, Change::HistoryOnly(verdict));
    }
    record(&mut limiter, "90/h", 5, NOW_US + 5, Change::Admitted);
    assert_eq!(seen(&limiter), [(5, 5, allowed), (4, 4, blocked), (3, 3, limited)]);
    // A fourth entry evicts the oldest.
    record(&mut limiter, "bucket:90/h", 6, NOW_US + 6, Change::Admitted);
    assert_eq!(seen(&limiter), [(6, 6, allowed), (5, 5, allowed), (4, 4, blocked)]);
}

#[test]
fn the_holds_that_lapse_next_are_shown_first() {
    let (mut limiter, rules) = (Limiter::default(), rules("window:9/m bucket:9/m,cost=2"));
    for (id, end_us, refund) in [("b", 2_500, false), ("a", 1_000, false), ("c", 2_000, true)] {
        let hold = Some(HoldRequest { id: id.as_bytes(), end_us: NOW_US + end_us, refund });
        let options = CheckOptions { hold, ..CheckOptions::default() };
        limiter.record(&Check::new(&rules, 1, NOW_US).with(&options), Change::Admitted);
    }
    let report = |id: &[u8], ttl_ms, refund| HoldReport { id: id.into(), ttl_ms, units: 2, refund };
    let (c, b) = (report(b"c", 1, true), report(b"b", 2, false));
    assert_eq!(limiter.next_holds(NOW_US + 1_000, 9), [c.clone(), b]);
    assert_eq!(limiter.next_holds(NOW_US + 1_000, 1), [c]);
    assert_eq!(limiter.next_holds(NOW_US + 2_500, 9), []);
}
