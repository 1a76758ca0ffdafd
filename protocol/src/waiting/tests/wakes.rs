//! Which causes wake which heads, and how many tries they take.

use super::{all_due, attempt, denied, place, request, rules};
use crate::waiting::{Cause, Due, HoldId, MOST_STEPS, PlanEnd, Queues, Request, Ticket};
use ratelimit_engine::key::{Check, CheckOptions, HoldRequest, Limiter, Settlement};
use ratelimit_engine::testing::rules_of_line;

/// A flow and its only client for each line of rules. All rules of the line deny the client.
fn denied_by_all(lines: &[&str]) -> Queues<char> {
    let mut queues = Queues::EMPTY;
    for (number, line) in lines.iter().enumerate() {
        let flow = format!("f{number}");
        let ticket = queues.join(place("k", 0), request(&flow, 0, line), 90_000_000, 1, 'x');
        queues.deny(ticket, denied(9_000, line), 0);
    }
    assert_eq!(queues.due(0), None);
    queues
}

/// The clients that are tried after a cause, if no head is denied again.
fn woken(lines: &[&str], cause: Cause<'_>) -> Vec<u64> {
    let mut queues = denied_by_all(lines);
    queues.key_changed(b"k", cause);
    let tried = all_due(&mut queues, 0).into_iter().map(|due| match due {
        Due::Try(Ticket(number)) => number,
        due => panic!("{due:?}"),
    });
    tried.collect()
}

fn consumed(line: &str, lines: &[&str]) -> Vec<u64> {
    woken(lines, Cause::Consumed { rules: &rules_of_line(line), hold: None })
}

const NOBODY: [u64; 0] = [];

#[test]
fn a_plain_consumption_wakes_nobody() {
    let lines = ["slots:8 slots:2,name=a", "slots:8 5/s", "bucket:3/s,name=b", "5/s 9/d"];
    for line in lines {
        assert_eq!(consumed(line, &["slots:8", "bucket:3/s,name=b"]), NOBODY, "{line}");
    }
    assert_eq!(consumed("9/d 5/s,ban=1h,cost=3", &["5/s", "9/d"]), NOBODY);
}

#[test]
fn a_consumption_wakes_heads_with_another_text_of_its_rule() {
    assert_eq!(consumed("bucket:3/s,name=b", &["slots:8", "bucket:4/s,name=b"]), [1], "reshaped");
    assert_eq!(consumed("5/s,name=b", &["slots:8", "bucket:4/s,name=b"]), [1], "replaced");
    assert_eq!(consumed("5/s", &["5/s,name=a", "bucket:3/s", "5/s 9/d"]), [0, 2], "trimmed");
    assert_eq!(consumed("fixed:1/s", &["5/s", "window:1/s"]), NOBODY, "another state");
}

#[test]
fn a_new_hold_wakes_the_clients_that_ask_for_its_id() {
    let mut queues = denied_by_all(&["slots:8"]);
    for (flow, id) in [("a", "mine"), ("b", "yours"), ("c", "mine")] {
        let hold = Some(HoldId::of(id.as_bytes()));
        let request = Request { hold, ..request(flow, 0, "slots:8") };
        let ticket = queues.join(place("k", 0), request, 90_000, 1, 'x');
        queues.deny(ticket, denied(9_000, "slots:8"), 0);
    }
    assert_eq!(queues.due(0), None);
    let hold = Some(&b"mine"[..]);
    let rules = rules_of_line("slots:8");
    queues.key_changed(b"k", Cause::Consumed { rules: &rules, hold });
    // The head before them is denied by the same rules.
    assert_eq!(all_due(&mut queues, 0), []);
    queues.leave(Ticket(0), None);
    assert_eq!(queues.due(0), attempt(1));
    queues.leave(Ticket(1), None);
    assert_eq!(queues.due(0), None, "b was denied as well");
    queues.leave(Ticket(2), None);
    assert_eq!(queues.due(0), attempt(3));
}

#[test]
fn a_state_that_gets_units_back_wakes_the_heads_that_it_denied() {
    let lines = ["slots:8 slots:2,name=a", "slots:2,name=b", "5/s", "9/d,name=l", "bucket:9/m"];
    let mut limiter = Limiter::default();
    let hold = HoldRequest { id: b"h", end_us: 9_000_000, refund: false };
    let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
    let held = rules_of_line("slots:2,name=b 100/h bucket:9/m");
    limiter.check(&Check::new(&held, 1, 1).with(&options), &mut Vec::new());
    let settled =
        |settlement| woken(&lines, Cause::Returned(&limiter.states_settled(b"h", settlement)));
    assert_eq!(settled(Settlement::AsCharged), [1]);
    assert_eq!(settled(Settlement::Refund), [1, 2, 3, 4], "log rules share one log");
    assert_eq!(woken(&lines, Cause::Changed), [0, 1, 2, 3, 4]);
}

fn own(number: u64) -> String {
    format!("slots:1,name=f{number}")
}

/// The next client to be tried.
fn next(queues: &mut Queues<char>) -> Option<u64> {
    match queues.due(0)? {
        Due::Try(Ticket(number)) => Some(number),
        Due::More => next(queues),
        due => panic!("{due:?}"),
    }
}

#[test]
fn each_head_is_tried_however_often_the_key_changes() {
    const FLOWS: u64 = 1_000;
    let lines: Vec<_> = (0..FLOWS).map(own).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let others: Vec<_> =
        lines.iter().flat_map(|line| rules_of_line(line)).map(|rule| rule.state()).collect();
    for cause in [Cause::Changed, Cause::Returned(&others)] {
        let mut queues = denied_by_all(&lines);
        queues.key_changed(b"k", cause);
        let newcomer = queues.join(place("k", 0), request("new", 0, "9/s"), 90_000, 1, 'x');
        let mut tried = Vec::new();
        // Each try is followed by another change.
        while tried.len() < 3 * lines.len() {
            let Some(number) = next(&mut queues) else { panic!("nobody is tried: {tried:?}") };
            queues.deny(Ticket(number), denied(9_000, &own(number)), 0);
            tried.push(number);
            queues.key_changed(b"k", cause);
        }
        for head in 0..FLOWS {
            let first = tried.iter().position(|&number| number == head);
            assert!(first.is_some_and(|tries| tries <= lines.len()), "{head}: {first:?}");
        }
        assert!(tried[..=lines.len()].contains(&newcomer.0));
    }
}

#[test]
fn lines_take_turns_and_a_deadline_that_has_passed_precedes_later_tries() {
    let mut queues = Queues::EMPTY;
    let mut join =
        |key, deadline_us| queues.join(place(key, 0), request("", 0, "1/s"), deadline_us, 1, 'x');
    let (first, second) = (join("a", 900), join("a", 900));
    let other = join("b", 900);
    let late = join("c", 5);
    queues.deny(late, denied(9, "1/s"), 0);
    let mut order = Vec::new();
    for now_us in 10..14 {
        let due = queues.due(now_us);
        order.extend(due);
        match due {
            Some(Due::Try(ticket)) => drop(queues.leave(ticket, Some(1))),
            Some(Due::Deadline(ticket)) => drop(queues.leave(ticket, None)),
            Some(Due::Read(_) | Due::More) | None => {}
        }
    }
    let tries = |ticket| Due::Try(ticket);
    assert_eq!(order, [tries(first), tries(other), Due::Deadline(late), tries(second)]);
}

#[test]
fn one_call_passes_over_few_heads() {
    const FLOWS: u64 = 100;
    let mut queues = Queues::EMPTY;
    for number in 0..FLOWS {
        let of = if number == FLOWS - 1 { "9/h".into() } else { format!("1/s {}", own(number)) };
        queues.join(place("k", 0), request(&number.to_string(), 0, &of), 90_000, 1, 'x');
    }
    assert_eq!(queues.due(0), attempt(0));
    queues.deny(Ticket(0), denied(9, "1/s"), 0);
    let newcomer = request("new", 0, "9/h");
    for _ in 0..(FLOWS as usize - 2) / MOST_STEPS {
        assert_eq!((queues.due(0), queues.next_us()), (Some(Due::More), Some(0)));
        assert_eq!(queues.in_front(&place("k", 0), &newcomer, 0), Some(9_000), "not tried yet");
    }
    assert_eq!(queues.due(0), attempt(FLOWS - 1));
}

#[test]
fn a_change_of_everything_reaches_a_hundred_lines_bit_by_bit() {
    let mut queues = Queues::EMPTY;
    for number in 0..100 {
        let key = place(&format!("k{number:02}"), 0);
        let ticket = queues.join(key, request("f", 0, "5/s"), 90_000_000, 1, 'x');
        queues.deny(ticket, denied(9_000, "5/s"), 0);
    }
    assert_eq!(queues.due(0), None);
    let is_open = |queues: &mut Queues<char>| {
        queues.in_front(&place("k00", 0), &request("new", 0, "7/s,name=z"), 0).is_none()
    };
    assert!(is_open(&mut queues));
    queues.everything_changed();
    assert!(matches!(queues.due(0), Some(Due::Read(_))));
    assert!(queues.stale_from.is_some());
    assert!(!is_open(&mut queues), "the head of any line may pass now");
    let mut tried = Vec::new();
    while let Some(due) = queues.due(0) {
        match due {
            Due::Read(ticket) => queues.read(ticket, rules("5/s"), None),
            Due::Try(ticket) => {
                tried.push(ticket);
                queues.deny(ticket, denied(9_000, "5/s"), 0);
            }
            Due::More => {}
            Due::Deadline(ticket) => panic!("{ticket:?} has time"),
        }
    }
    tried.sort_unstable();
    assert_eq!(tried, (0..100).map(Ticket).collect::<Vec<_>>(), "each once");
    assert!(queues.stale_from.is_none() && is_open(&mut queues));
}

#[test]
fn equal_rules_are_shared_until_their_last_client_leaves() {
    let mut queues = denied_by_all(&["slots:8", "slots:8", "5/s"]);
    assert_eq!(queues.rules.len(), 2);
    queues.everything_changed();
    assert_eq!(queues.due(0), Some(Due::Read(Ticket(0))));
    queues.read(Ticket(0), rules("5/s"), None);
    assert_eq!(queues.rules.len(), 2);
    queues.leave(Ticket(1), None);
    assert_eq!(queues.rules.len(), 1);
    for number in 0..3 {
        queues.leave(Ticket(number), None);
    }
    assert_eq!((queues.rules.len(), queues.bytes()), (0, 0));
}

/// Serves what is due until nothing is. All rules are `now` and `plan_end`, and deny. Returns the clients
/// whose rules were read, and those that were tried.
fn serve_denied(
    queues: &mut Queues<char>,
    now_us: u64,
    (now, plan_end): (&str, Option<PlanEnd>),
) -> [Vec<u64>; 2] {
    let [mut read, mut tried] = [Vec::new(), Vec::new()];
    while let Some(due) = queues.due(now_us) {
        match due {
            Due::Read(ticket) => {
                read.push(ticket.0);
                queues.read(ticket, rules(now), plan_end);
            }
            Due::Try(ticket) => {
                tried.push(ticket.0);
                queues.deny(ticket, denied(90_000, now), now_us);
            }
            Due::More => {}
            Due::Deadline(ticket) => panic!("{ticket:?} has time"),
        }
    }
    [read, tried]
}

/// A head, and another whose rules depend on the key's plan and that the first keeps back.
fn a_head_and_one_by_plan(plan_end: PlanEnd) -> Queues<char> {
    let mut queues = Queues::EMPTY;
    let first = queues.join(place("k", 0), request("a", 0, "9/s"), u64::MAX, 1, 'a');
    queues.deny(first, denied(90_000, "9/s"), 0);
    let planned = Request { plan_end: Some(plan_end), ..request("b", 0, "9/s 5/m") };
    queues.join(place("k", 0), planned, u64::MAX, 1, 'b');
    assert_eq!(queues.due(0), None, "it is kept back by the first");
    queues
}

#[test]
fn rules_of_a_plan_are_read_again_after_a_change_of_the_key() {
    let mut queues = a_head_and_one_by_plan(PlanEnd::Never);
    assert_eq!(queues.next_us(), Some(90_000_000));
    queues.key_changed(b"k", Cause::Changed);
    assert_eq!(serve_denied(&mut queues, 0, ("2/m", None)), [vec![0, 1], vec![0]]);
    queues.key_changed(b"k", Cause::Changed);
    let all = serve_denied(&mut queues, 0, ("2/m", None));
    assert_eq!(all, [vec![], vec![0]], "no rules depend on the plan any more");
}

#[test]
fn the_end_of_a_plan_wakes_all_heads_and_rules_are_read_again() {
    let mut queues = a_head_and_one_by_plan(PlanEnd::At(5_000));
    assert_eq!(queues.next_us(), Some(5_000));
    assert_eq!(queues.due(4_999), None);
    let newcomer = request("c", 0, "7/h");
    assert_eq!(queues.in_front(&place("k", 0), &newcomer, 4_999), None);
    assert!(queues.in_front(&place("k", 0), &newcomer, 5_000).is_some(), "heads may pass now");
    // The first of these readings finds the plan in effect, as after a step of the wall clock.
    let read = serve_denied(&mut queues, 5_000, ("2/m", Some(PlanEnd::At(8_000))));
    assert_eq!(read, [vec![0, 1], vec![0]]);
    assert_eq!(queues.next_us(), Some(8_000));
    queues.key_changed(b"k", Cause::Changed);
    let replaced = Some(PlanEnd::At(6_000));
    assert_eq!(serve_denied(&mut queues, 5_000, ("2/m", replaced)), [vec![0, 1], vec![0]]);
    assert_eq!(queues.next_us(), Some(6_000), "a plan with an earlier end");
    let ended = Some(PlanEnd::Never);
    assert_eq!(serve_denied(&mut queues, 6_000, ("2/m", ended)), [vec![0, 1], vec![0]]);
    assert_eq!(queues.next_us(), Some(90_006_000));
}

#[test]
fn a_later_client_learns_of_the_end_when_it_becomes_the_head() {
    let mut queues = Queues::EMPTY;
    let first = queues.join(place("k", 0), request("", 0, "9/s"), u64::MAX, 1, 'a');
    queues.deny(first, denied(90_000, "9/s"), 0);
    let planned = Request { plan_end: Some(PlanEnd::At(5_000)), ..request("", 0, "5/m") };
    queues.join(place("k", 0), planned, u64::MAX, 1, 'b');
    assert_eq!(serve_denied(&mut queues, 5_000, ("9/s", None)), [vec![0], vec![0]]);
    queues.leave(first, Some(1));
    assert_eq!(serve_denied(&mut queues, 5_000, ("2/m", None)), [vec![1], vec![1]]);
}
