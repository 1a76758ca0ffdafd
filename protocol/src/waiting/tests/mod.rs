//! Tests of the line's laws against a naive model, and of its parts.

mod driven;
mod exhaustive;
mod fair;
mod laws;
mod naive;
mod wakes;
mod world;

use super::*;
use ratelimit_engine::rule::identities;
use ratelimit_engine::testing::rules_of_line;

const ROOM: Room = Room { waiters: usize::MAX, flows: usize::MAX, bytes: usize::MAX };

fn place(key: &str, db: i32) -> Place {
    Place { key: key.as_bytes().into(), db }
}

fn rules(line: &str) -> Rules {
    Rules::of(&rules_of_line(line))
}

fn request(flow: &str, priority: u8, of: &str) -> Request {
    let flow = Flow { priority, name: flow.as_bytes().into() };
    Request { flow, weight: 1, rules: rules(of), plan_end: None, hold: None }
}

/// A request that names no flow.
fn plain() -> Request {
    request("", 0, "1/s")
}

/// A denial by these rules for `wait_ms`.
fn denied(wait_ms: u64, by: &str) -> Denial {
    Denial { wait_ms, again_ms: wait_ms, by: identities(&rules_of_line(by)) }
}

fn attempt(ticket: u64) -> Option<Due> {
    Some(Due::Try(Ticket(ticket)))
}

fn deadline(ticket: u64) -> Option<Due> {
    Some(Due::Deadline(Ticket(ticket)))
}

/// Everything that is due before a deadline.
fn all_due(queues: &mut Queues<char>, now_us: u64) -> Vec<Due> {
    std::iter::from_fn(|| queues.due(now_us).filter(|due| !matches!(due, Due::Deadline(_))))
        .filter(|&due| due != Due::More)
        .collect()
}

/// Two clients in the line of `a` and one in the line of `b`, all denied.
fn three() -> Queues<char> {
    let mut queues = Queues::EMPTY;
    for (key, deadline_us, wait_ms, bytes, value) in
        [("a", 100_000, 50, 1, 'x'), ("a", 90_000, 40, 2, 'y'), ("b", 95_000, 60, 4, 'z')]
    {
        let ticket = queues.join(place(key, 0), plain(), deadline_us, bytes, value);
        queues.deny(ticket, denied(wait_ms, "1/s"), 0);
    }
    assert_eq!(queues.due(0), None);
    queues
}

#[test]
fn only_the_head_of_a_flow_is_tried() {
    let mut queues = three();
    assert_eq!(queues.next_us(), Some(50_000));
    assert_eq!(queues.due(49_999), None);
    assert_eq!(queues.due(50_000), attempt(0));
    assert_eq!(queues.due(50_000), None, "a try is due once");
    queues.deny(Ticket(1), denied(5, "1/s"), 50_000);
    assert_eq!(queues.next_us(), Some(60_000), "the second is not tried");
    queues.deny(Ticket(0), denied(20, "1/s"), 50_000);
    queues.deny(Ticket(0), denied(15, "1/s"), 50_000);
    assert_eq!([queues.due(65_000), queues.due(65_000)], [attempt(2), attempt(0)]);
    assert_eq!(queues.due(89_999), None);
    assert_eq!(queues.due(90_000), deadline(1));
    assert_eq!(queues.due(90_000), deadline(1), "a deadline stays until the waiter leaves");
}

#[test]
fn the_next_client_is_due_at_once_when_the_head_leaves() {
    let mut queues = three();
    assert_eq!(queues.behind(Ticket(0)), None);
    assert_eq!(queues.behind(Ticket(1)), Some(50_000));
    assert_eq!(queues.leave(Ticket(0), None), Some('x'));
    assert_eq!(queues.leave(Ticket(0), None), None);
    assert_eq!([queues.due(0), queues.due(0)], [attempt(1), None]);
    assert_eq!(queues.leave(Ticket(1), None), Some('y'));
    assert_eq!(queues.in_front(&place("a", 0), &plain(), 0), None);
    assert_eq!(queues.in_front(&place("b", 0), &plain(), 0), Some(60_000));
    assert_eq!(queues.next_us(), Some(60_000));
    assert_eq!((queues.leave(Ticket(2), None), queues.next_us()), (Some('z'), None));
    assert_eq!(queues.waiting(), 0);
}

#[test]
fn a_later_client_that_leaves_changes_nothing_for_the_head() {
    let mut queues = three();
    assert_eq!(queues.leave(Ticket(1), None), Some('y'));
    assert_eq!(queues.due(49_999), None);
    assert_eq!(all_due(&mut queues, 99_000).len(), 2);
}

#[test]
fn a_changed_key_wakes_its_heads_in_every_database() {
    let mut queues = three();
    for (key, db) in [("a", 3), ("aa", 0)] {
        let ticket = queues.join(place(key, db), plain(), 80_000, 0, 'v');
        queues.deny(ticket, denied(70, "1/s"), 0);
    }
    assert_eq!(queues.due(0), None);
    queues.key_changed(b"a", Cause::Changed);
    assert_eq!(all_due(&mut queues, 0), [0, 3].map(|n| Due::Try(Ticket(n))));
    queues.key_changed(b"other", Cause::Changed);
    assert_eq!(queues.due(0), None);
}

#[test]
fn rules_are_read_again_after_a_change_of_everything() {
    let mut queues = three();
    queues.everything_changed();
    assert_eq!(queues.due(0), Some(Due::Read(Ticket(0))));
    assert_eq!(queues.behind(Ticket(0)), None, "the first may be decided by any rules");
    queues.read(Ticket(0), rules("2/s"), None);
    assert_eq!([queues.due(0), queues.due(0)], [attempt(0), Some(Due::Read(Ticket(2)))]);
    queues.leave(Ticket(0), None);
    queues.leave(Ticket(2), None);
    assert_eq!(queues.due(0), Some(Due::Read(Ticket(1))), "the second, when it is the head");
}

#[test]
fn a_head_passes_others_if_it_lacks_a_denying_rule() {
    let mut queues = Queues::EMPTY;
    let mut join = |flow, of| queues.join(place("k", 0), request(flow, 0, of), 90_000, 1, 'x');
    for (flow, of) in [("a", "5/s 1/s,name=a"), ("b", "5/s 1/s,name=a"), ("c", "5/s"), ("d", "5/s")]
    {
        join(flow, of);
    }
    assert_eq!(queues.due(0), attempt(0));
    queues.deny(Ticket(0), denied(9, "1/s,name=a"), 0);
    assert_eq!(queues.due(0), attempt(2), "b has the rule that denies a");
    assert_eq!(queues.behind(Ticket(1)), Some(9_000));
    queues.deny(Ticket(2), denied(4, "5/s"), 0);
    assert_eq!((queues.behind(Ticket(2)), queues.behind(Ticket(3))), (None, Some(9_000)));
    assert_eq!(queues.due(3_999), None, "d has the rule that denies c");
    let newcomer = |of| queues.in_front(&place("k", 0), &request("e", 0, of), 0).is_none();
    assert_eq!(["5/s", "1/s,name=a", "9/m"].map(newcomer), [false, false, true]);
    queues.leave(Ticket(0), None);
    let due = [queues.due(3_999), queues.due(3_999)];
    assert_eq!(due, [attempt(1), None], "b is due, and c is known to be denied");
}

#[test]
fn a_newcomer_lets_heads_that_may_pass_go_first() {
    let mut queues = Queues::EMPTY;
    let newcomer = request("b", 0, "9/m");
    let open = |queues: &mut Queues<_>, now_us| {
        ["k", "other"].map(|key| queues.in_front(&place(key, 0), &newcomer, now_us).is_none())
    };
    for key in ["k", "other"] {
        let ticket = queues.join(place(key, 0), request("a", 0, "1/s"), 90_000, 1, 'x');
        assert!(!open(&mut queues, 0)[usize::from(key == "other")], "{key} is not tried yet");
        queues.deny(ticket, denied(if key == "k" { 5 } else { 6 }, "1/s"), 0);
    }
    let opens = [0, 4_999, 5_000, 6_000].map(|now_us| open(&mut queues, now_us));
    assert_eq!(opens, [[true; 2], [true; 2], [false, true], [false; 2]]);
}

#[test]
fn a_head_is_tried_if_it_lacks_the_rules_that_deny_others() {
    let mut queues = Queues::EMPTY;
    let join = |queues: &mut Queues<_>, flow, of| {
        queues.join(place("k", 0), request(flow, 0, of), 90_000, 1, 'x');
    };
    for (flow, of) in [("a", "1/s"), ("b", "1/s"), ("c", "2/m")] {
        join(&mut queues, flow, of);
    }
    for (ticket, by) in [(0, "1/s"), (2, "2/m")] {
        assert_eq!(queues.due(0), attempt(ticket));
        queues.deny(Ticket(ticket), denied(9, by), 0);
    }
    queues.leave(Ticket(0), None);
    join(&mut queues, "d", "3/h");
    assert_eq!(queues.due(0), attempt(1));
    queues.deny(Ticket(1), denied(9, "1/s"), 0);
    assert_eq!([queues.due(0), queues.due(0)], [attempt(3), None]);
}

#[test]
fn a_denial_by_a_rule_of_all_heads_ends_the_wake() {
    let mut queues = Queues::EMPTY;
    for number in 0..5_000 {
        queues.join(place("k", 0), request(&number.to_string(), 0, "1/s"), 90_000, 1, 'x');
    }
    queues.leave(Ticket(0), None);
    assert_eq!(queues.due(0), attempt(1));
    queues.deny(Ticket(1), denied(9, "1/s"), 0);
    assert_eq!((queues.due(0), queues.next_us()), (None, Some(9_000)), "no more steps");
}

#[test]
fn a_pause_denies_all() {
    let mut queues = Queues::EMPTY;
    for flow in ["a", "b"] {
        queues.join(place("k", 0), request(flow, 0, "slots:1"), 90_000, 1, 'x');
    }
    assert_eq!(queues.due(0), attempt(0));
    queues.deny(Ticket(0), Denial { wait_ms: 5, again_ms: 5, by: Box::default() }, 0);
    assert_eq!(queues.due(4_999), None);
    assert_eq!(queues.in_front(&place("k", 0), &request("c", 9, "9/s"), 0), None);
    assert_eq!(queues.in_front(&place("k", 0), &request("c", 0, "9/s"), 0), Some(5_000));
}

#[test]
fn a_key_that_cannot_be_changed_keeps_all_clients_in_line() {
    let mut queues = Queues::EMPTY;
    for (flow, of) in [("a", "1/s"), ("b", "2/m")] {
        queues.join(place("k", 0), request(flow, 0, of), 9_000, 1, 'x');
    }
    assert_eq!(queues.due(0), attempt(0));
    queues.put_off(Ticket(0), 5, 0);
    assert_eq!(queues.due(4_999), None, "the second may not pass the first");
    assert_eq!(queues.due(5_000), attempt(0));
    queues.put_off(Ticket(0), 5, 5_000);
    assert_eq!(queues.due(9_000), deadline(1));
    queues.put_off(Ticket(1), 2, 9_000);
    assert_eq!(queues.due(9_999), None, "both deadlines are put off");
    assert_eq!(queues.due(10_000), attempt(0));
    queues.leave(Ticket(0), Some(1));
    assert_eq!(queues.due(10_999), None);
    assert_eq!([queues.due(11_000), queues.due(11_000)], [attempt(1), deadline(1)]);
}

#[test]
fn room_is_bounded_in_flows() {
    let mut queues = Queues::EMPTY;
    let fits = |queues: &Queues<char>, key, flow| {
        let room = Room { flows: 2, ..ROOM };
        queues.has_room(room, &place(key, 0), &request(flow, 0, "1/s"), 1)
    };
    for flow in ["a", "b", "a"] {
        assert!(fits(&queues, "k", flow));
        queues.join(place("k", 0), request(flow, 0, "1/s"), 90_000, 1, 'x');
    }
    assert_eq!(["a", "b", "c"].map(|flow| fits(&queues, "k", flow)), [true, true, false]);
    assert!(fits(&queues, "other", "c"));
    queues.leave(Ticket(1), None);
    assert!(fits(&queues, "k", "c"));
}

#[test]
fn room_is_bounded_in_waiters_and_in_bytes() {
    let mut queues = three();
    let shared = plain().rules.bytes();
    let fits = |queues: &Queues<_>, waiters, bytes, with: usize| {
        let room = Room { waiters, bytes, ..ROOM };
        queues.has_room(room, &place("a", 0), &plain(), with)
    };
    assert_eq!((queues.waiting(), queues.bytes()), (3, 7 + shared));
    assert!(fits(&queues, 9, usize::MAX, usize::MAX - 7 - shared));
    assert!(fits(&queues, 4, 10 + shared, 3), "equal rules count once");
    assert!(!fits(&queues, 3, 10 + shared, 3), "one too many");
    assert!(!fits(&queues, 4, 10 + shared, 4), "a byte too many");
    queues.leave(Ticket(2), None);
    assert!(fits(&queues, 3, 10 + shared, 7));
    assert!(!fits(&queues, 0, 10 + shared, 0));
    let other = |bytes| {
        let room = Room { bytes, ..ROOM };
        queues.has_room(room, &place("a", 0), &request("", 0, "2/s"), 1)
    };
    assert_eq!([4 + shared, 4 + 2 * shared].map(other), [false, true], "other rules count too");
    for ticket in 0..2 {
        queues.leave(Ticket(ticket), None);
    }
    assert_eq!(queues.bytes(), 0);
}
