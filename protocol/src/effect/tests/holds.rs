//! Effects of holds.

use super::*;
use ratelimit_engine::key::{Costs, MAX_ID, Settlement};
use ratelimit_engine::rule::{Name, NamedCost};

/// The arguments of an effect in the newest version.
fn newest(line: &str) -> String {
    format!("v1:{line}")
}

fn costs(named: &[NamedCost]) -> String {
    let text = |cost: &NamedCost| format!("{}={}", cost.name.as_str(), cost.cost);
    named.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_action_of_a_hold_is_read_and_written() {
    let (mut rules, mut named) = (Vec::new(), Vec::new());
    let hold = |end_us, refund| HoldRequest { id: b"req", end_us, refund };
    let held = |hold, cost, meta| Action::Check { recorded: Recorded::Held(hold), cost, meta };
    let settle = |settled| Action::Settle { id: b"req", settled };
    let costs_of = |default| settle(Settlement::Cost(Costs { default, named: &[] }));
    let meta = Some(Meta { text: b"user:7", keep: 128 });
    for (line, action, read_rules, read_costs) in [
        ("5:9:hold:2:77:0 req 20/m", held(hold(77, false), 2, None), "log:20/1m", ""),
        (
            "5:9:hold:0:77:1:128 req user:7 20/m 1/s",
            held(hold(77, true), 0, meta),
            "log:20/1m log:1/1s",
            "",
        ),
        ("5:9:settle req", settle(Settlement::AsCharged), "", ""),
        ("5:9:settle req REFUND", settle(Settlement::Refund), "", ""),
        ("5:9:settle req COST 5", costs_of(Some(5)), "", ""),
        ("5:9:settle req COST in=5", costs_of(None), "", "in=5"),
        ("5:9:settle req COST b=0 COST 7 COST a=1", costs_of(Some(7)), "", "b=0 a=1"),
        ("5:9:renew:77 req", Action::Renew { id: b"req", end_us: 77 }, "", ""),
    ] {
        let line = newest(line);
        let effect = Effect { at_us: 5, expiry: Expiry::At(9), action };
        assert_eq!(read(words(&line), &mut rules, &mut named), Ok(effect), "{line}");
        assert_eq!(texts(&rules), read_rules, "{line}");
        assert_eq!(costs(&named), read_costs, "{line}");
        let texts = action.texts().into_iter().flatten();
        let texts = texts.map(|text| format!(" {}", text.escape_ascii()));
        let written = head(&effect) + &texts.collect::<String>();
        assert!(line.starts_with(&written), "{line} is written as {written}");
    }
}

#[test]
fn the_longest_head_of_a_hold_is_not_cut_off() {
    let end_us = MAX_TIME_US + MAX_PERIOD_US;
    let hold = HoldRequest { id: b"", end_us, refund: true };
    let meta = Some(Meta { keep: u32::MAX, text: b"" });
    let action = Action::Check { recorded: Recorded::Held(hold), cost: MAX_UNITS, meta };
    let effect = Effect { at_us: MAX_TIME_US, expiry: Expiry::At(u64::MAX), action };
    let (expiry, keep) = (i64::MAX, u32::MAX);
    let line = format!("{MAX_TIME_US}:{expiry}:hold:{MAX_UNITS}:{end_us}:1:{keep}");
    assert_eq!(head(&effect), newest(&line));
}

#[test]
fn the_action_of_a_check_says_what_became_of_its_hold() {
    let rules = rules_of_line("20/m");
    let hold = HoldRequest { id: b"r", end_us: 77, refund: true };
    let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
    let check = Check::new(&rules, 2, 5).with(&options);
    let recorded = |recorded| Action::Check { recorded, cost: 2, meta: None };
    let refused = Verdict::Blocked;
    for (change, action) in [
        (Change::Nothing, None),
        (Change::Admitted, Some(recorded(Recorded::Held(hold)))),
        (Change::Renewed, Some(Action::Renew { id: b"r", end_us: 77 })),
        (Change::Charged, Some(recorded(Recorded::Charged))),
        (Change::HistoryOnly(refused), Some(recorded(Recorded::HistoryOnly(refused)))),
    ] {
        assert_eq!(Action::of_check(&check, change), action, "{change:?}");
    }
}

#[test]
fn errors_name_what_was_given_and_expected() {
    for (line, error) in [
        ("5:0:hold:1:77:0", "wrong number of arguments"),
        ("5:0:hold:1:77:0 req", "wrong number of arguments"),
        ("5:0:hold:1:77:0:5 req meta", "wrong number of arguments"),
        ("5:0:settle", "wrong number of arguments"),
        ("5:0:renew:77", "wrong number of arguments"),
        ("5:0:hold:1:77:2 req 20/m", "refund is '2', expected an integer 0..1"),
        ("5:0:hold:1:-1:0 req 20/m", "the end is '-1', expected an integer 0..253433923199999999"),
        ("5:0:renew:x req", "the end is 'x', expected an integer 0..253433923199999999"),
        ("5:0:settle:1 req", "unexpected '1', expected the effect to end before it"),
        ("5:0:settle req REFUND COST 1", "REFUND and COST are given, expected one of them"),
        ("5:0:settle req AT 1", "unexpected 'AT', expected a rule such as 20/1m"),
    ] {
        let line = newest(line);
        let read = read(words(&line), &mut Vec::new(), &mut Vec::new());
        assert_eq!(read.expect_err(&line).to_string(), error, "{line}");
    }
}

/// How a hold is settled, and the settlement's arguments.
fn settlements() -> impl Strategy<Value = (Settlement<Costs<'static>>, Vec<String>)> {
    let named = prop::collection::btree_map("[a-zA-Z0-9_.-]{1,32}", 0..=MAX_UNITS, 0..6);
    let costs = (prop::option::of(0..=MAX_UNITS), named).prop_map(|(default, named)| {
        let named = named.iter().map(|(name, cost)| format!("{name}={cost}"));
        let values: Vec<_> =
            default.map(|cost| cost.to_string()).into_iter().chain(named).collect();
        let settled = match values.is_empty() {
            true => Settlement::AsCharged,
            false => Settlement::Cost(Costs { default, named: &[] }),
        };
        (settled, values.into_iter().flat_map(|value| ["COST".into(), value]).collect())
    });
    prop_oneof![Just((Settlement::Refund, vec!["REFUND".into()])), costs]
}

proptest! {
    #[test]
    fn a_written_settlement_is_read_back(
        id in prop::collection::vec(any::<u8>(), 1..=MAX_ID),
        (settled, written) in settlements(),
    ) {
        let action = Action::Settle { id: &id, settled };
        let effect = Effect { at_us: 5, expiry: Expiry::Keep, action };
        let head = Head::of(&effect);
        let settlement = written.iter().map(String::as_bytes);
        let args = [head.text(), &id].into_iter().chain(settlement);
        let mut named = Vec::new();
        prop_assert_eq!(read(args, &mut Vec::new(), &mut named), Ok(effect));
        let by_name = written.iter().filter_map(|text| text.split_once('='));
        let by_name = by_name.map(|(name, cost)| NamedCost {
            name: Name::new(name.as_bytes()).unwrap(),
            cost: cost.parse().unwrap(),
        });
        prop_assert_eq!(named, by_name.collect::<Vec<_>>());
    }
}

/// A key in which a hold has two charges on one state could be saved, but not loaded.
#[test]
fn two_rules_of_one_identity_are_refused() {
    for rules in ["slots:8 20/m slots:9", "bucket:5/s,name=x 20/m bucket:6/s,name=x"] {
        for line in [format!("5:0:hold:1:77:0 req {rules}"), format!("5:0:refund:1 {rules}")] {
            let line = newest(&line);
            let read = read(words(&line), &mut Vec::new(), &mut Vec::new());
            let error = read.expect_err(&line).to_string();
            assert!(error.contains("same identity as rule"), "{error}");
        }
    }
}
