//! The laws of the queue, tested against a naive model: one list in order of arrival, searched
//! from its start at every millisecond of a simulated clock.

use super::*;
use crate::limit::{Check, Limiter};
use crate::rule::Rule;
use proptest::prelude::*;

const ROOM: Room = Room { waiters: usize::MAX, bytes: usize::MAX };

fn place(key: &str, db: i32) -> Place {
    Place { key: key.as_bytes().into(), db }
}

fn first(ticket: u64) -> Option<Due> {
    Some(Due::First(Ticket(ticket)))
}

fn deadline(ticket: u64) -> Option<Due> {
    Some(Due::Deadline(Ticket(ticket)))
}

/// Two in the queue of `a`, one in that of `b`.
fn three() -> Queues<char> {
    let mut queues = Queues::EMPTY;
    queues.join(place("a", 0), 100, 50, 1, 'x');
    queues.join(place("a", 0), 90, 40, 2, 'y');
    queues.join(place("b", 0), 95, 60, 4, 'z');
    queues
}

#[test]
fn only_the_first_is_looked_at() {
    let mut queues = three();
    assert_eq!(queues.next_us(), Some(50));
    assert_eq!(queues.due(49), None);
    assert_eq!(queues.due(50), first(0));
    assert_eq!(queues.due(50), None, "a look is due once");
    queues.look_at(Ticket(1), 55);
    assert_eq!(queues.next_us(), Some(60), "the second is not looked at");
    queues.look_at(Ticket(0), 70);
    queues.look_at(Ticket(0), 65);
    assert_eq!([queues.due(65), queues.due(65), queues.due(89)], [first(2), first(0), None]);
    assert_eq!(queues.due(90), deadline(1));
    assert_eq!(queues.due(90), deadline(1), "a deadline stays until the waiter leaves");
}

#[test]
fn the_next_is_due_at_once_when_the_first_leaves() {
    let mut queues = three();
    assert_eq!(queues.behind(Ticket(0)), None);
    assert_eq!(queues.behind(Ticket(1)), Some(50));
    assert_eq!(queues.leave(Ticket(0)), Some('x'));
    assert_eq!(queues.leave(Ticket(0)), None);
    assert_eq!(queues.due(0), first(1));
    assert_eq!(queues.leave(Ticket(1)), Some('y'));
    assert!(queues.look_of(&place("a", 0)).is_none() && queues.look_of(&place("b", 0)).is_some());
    assert_eq!(queues.next_us(), Some(60));
    assert_eq!((queues.leave(Ticket(2)), queues.next_us()), (Some('z'), None));
    assert_eq!(queues.waiting(), 0);
}

#[test]
fn a_later_one_that_leaves_changes_nothing_for_the_first() {
    let mut queues = three();
    assert_eq!(queues.leave(Ticket(1)), Some('y'));
    assert_eq!(queues.due(49), None);
    assert_eq!(queues.due(99), first(0));
}

#[test]
fn changes_wake_the_first_of_the_key_in_every_database() {
    let mut queues = three();
    queues.join(place("a", 3), 80, 70, 0, 'v');
    queues.join(place("aa", 0), 80, 70, 0, 'w');
    queues.key_changed(b"a");
    assert_eq!([queues.due(0), queues.due(0), queues.due(0)], [first(0), first(3), None]);
    queues.key_changed(b"other");
    assert_eq!(queues.due(0), None);
    queues.everything_changed();
    let woken: Vec<_> = std::iter::from_fn(|| queues.due(0)).collect();
    assert_eq!(woken, [0, 2, 3, 4].map(|n| Due::First(Ticket(n))));
}

#[test]
fn room_is_bounded_in_waiters_and_in_bytes() {
    let mut queues = three();
    let room = |waiters, bytes| Room { waiters, bytes };
    assert_eq!((queues.waiting(), queues.bytes()), (3, 7));
    assert!(queues.has_room(ROOM, usize::MAX - 7));
    assert!(queues.has_room(room(4, 10), 3));
    assert!(!queues.has_room(room(3, 10), 3), "one too many");
    assert!(!queues.has_room(room(4, 10), 4), "a byte too many");
    queues.leave(Ticket(2));
    assert!(queues.has_room(room(3, 10), 7));
    assert!(!queues.has_room(room(0, 10), 0));
}

/// What happens. A number of milliseconds passes before it.
#[derive(Clone, Debug)]
enum Step {
    /// A client asks, and waits at most `patience_ms`.
    Ask {
        key: u8,
        cost: u32,
        patience_ms: u64,
    },
    /// A waiter leaves. The number chooses which one.
    Leave(usize),
    /// Units come back to a key.
    Refund {
        key: u8,
        units: u32,
    },
    /// A client that does not queue takes units.
    Take {
        key: u8,
        cost: u32,
    },
    Delete {
        key: u8,
    },
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let key = 0..3_u8;
    let what = prop_oneof![
        5 => (key.clone(), 1..4_u32, prop_oneof![0..50_u64, 0..3_000_u64])
            .prop_map(|(key, cost, patience_ms)| Step::Ask { key, cost, patience_ms }),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => (key.clone(), 1..4_u32).prop_map(|(key, units)| Step::Refund { key, units }),
        1 => (key.clone(), 1..3_u32).prop_map(|(key, cost)| Step::Take { key, cost }),
        1 => key.prop_map(|key| Step::Delete { key }),
    ];
    (prop_oneof![Just(0), 0..20_u64, 0..1_500_u64], what)
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop_oneof![
        Just("3/s"),
        Just("bucket:4/s,burst=3"),
        Just("window:5/s"),
        Just("fixed:3/s"),
        Just("3/s fixed:5/2s"),
    ]
    .prop_map(crate::parse::rules_of_line)
}

/// An answer: who, when, and whether admitted.
type Answer = (u64, u64, bool);

/// Keys with rules, on which checks can be tried.
struct Keys<'a> {
    limiters: [Limiter; 3],
    rules: &'a [Rule],
}

const START_US: u64 = 1_000_000_000;

impl<'a> Keys<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        Self { limiters: Default::default(), rules }
    }

    fn check(&self, cost: u32, now_us: u64) -> Check<'a> {
        Check::new(self.rules, cost, now_us)
    }

    /// The wait of a cost: 0 if it passes, `None` if it never does.
    fn wait_ms(&self, key: u8, cost: u32, now_us: u64) -> Option<u64> {
        let check = self.check(cost, now_us);
        let summary = self.limiters[usize::from(key)].peek(&check, &mut Vec::new()).summary;
        match summary.verdict.code() {
            0 => Some(0),
            _ => u64::try_from(summary.wait_ms).ok(),
        }
    }

    fn take(&mut self, key: u8, cost: u32, now_us: u64) -> bool {
        let check = self.check(cost, now_us);
        let limiter = &mut self.limiters[usize::from(key)];
        limiter.check(&check, &mut Vec::new()).summary.verdict.code() == 0
    }

    /// A step that changes a key; returns that key.
    fn change(&mut self, step: &Step, now_us: u64) -> Option<u8> {
        match *step {
            Step::Refund { key, units } => {
                self.limiters[usize::from(key)].refund(units, now_us, self.rules);
                Some(key)
            }
            Step::Take { key, cost } => {
                self.take(key, cost, now_us);
                Some(key)
            }
            Step::Delete { key } => {
                self.limiters[usize::from(key)] = Limiter::default();
                Some(key)
            }
            Step::Ask { .. } | Step::Leave(_) => None,
        }
    }
}

/// A client that waits.
#[derive(Clone, Copy, Debug)]
struct Asker {
    number: u64,
    key: u8,
    cost: u32,
    deadline_us: u64,
}

impl Asker {
    fn of(step: &Step, number: u64, now_us: u64) -> Option<Self> {
        match *step {
            Step::Ask { key, cost, patience_ms } => {
                Some(Self { number, key, cost, deadline_us: now_us + patience_ms * 1_000 })
            }
            _ => None,
        }
    }
}

/// The naive model: every millisecond it looks at the first waiter of each key, and at all
/// deadlines.
fn naive(steps: &[(u64, Step)], rules: &[Rule]) -> Vec<Answer> {
    let (mut keys, mut line, mut answers) = (Keys::new(rules), Vec::<Asker>::new(), Vec::new());
    let mut now_us = START_US;
    let mut settle = |keys: &mut Keys<'_>, line: &mut Vec<Asker>, now_us: u64| {
        loop {
            for key in 0..3 {
                while let Some(index) = line.iter().position(|asker| asker.key == key) {
                    let Asker { number, cost, .. } = line[index];
                    if keys.wait_ms(key, cost, now_us) != Some(0) {
                        break;
                    }
                    assert!(keys.take(key, cost, now_us));
                    answers.push((number, now_us, true));
                    line.remove(index);
                }
            }
            // A waiter that leaves may let the next one pass, even one with the same deadline.
            let expired = line.iter().filter(|asker| asker.deadline_us <= now_us);
            let Some(number) = expired.map(|asker| asker.number).min() else { break };
            line.retain(|asker| asker.number != number);
            answers.push((number, now_us, false));
        }
    };
    for (number, (after_ms, step)) in (0..).zip(steps) {
        for _ in 0..*after_ms {
            now_us += 1_000;
            settle(&mut keys, &mut line, now_us);
        }
        if let Some(asker) = Asker::of(step, number, now_us) {
            line.push(asker);
        }
        if let (&Step::Leave(index), false) = (step, line.is_empty()) {
            line.remove(index % line.len());
        }
        keys.change(step, now_us);
        settle(&mut keys, &mut line, now_us);
    }
    while !line.is_empty() {
        now_us += 1_000;
        settle(&mut keys, &mut line, now_us);
    }
    answers.sort_unstable();
    answers
}

/// What a server does: it waits for the next instant at which something is due.
struct Driver<'a> {
    keys: Keys<'a>,
    queues: Queues<Asker>,
    answers: Vec<Answer>,
    looks: usize,
}

impl Driver<'_> {
    fn serve(&mut self, now_us: u64) {
        while let Some(due) = self.queues.due(now_us) {
            self.looks += 1;
            match due {
                Due::First(ticket) => {
                    let &Asker { key, cost, number, .. } = self.queues.waiter(ticket).unwrap();
                    match self.keys.wait_ms(key, cost, now_us) {
                        Some(0) => {
                            self.queues.leave(ticket);
                            assert!(self.keys.take(key, cost, now_us));
                            self.answers.push((number, now_us, true));
                        }
                        Some(wait_ms) => self.queues.look_at(ticket, now_us + wait_ms * 1_000),
                        None => {}
                    }
                }
                Due::Deadline(ticket) => {
                    let asker = self.queues.leave(ticket).unwrap();
                    self.answers.push((asker.number, now_us, false));
                }
            }
        }
    }

    /// Serves everything that is due up to a time.
    fn run_until(&mut self, until_us: u64) {
        while let Some(at_us) = self.queues.next_us().filter(|&at_us| at_us <= until_us) {
            self.serve(at_us.max(START_US));
        }
    }
}

fn driven(steps: &[(u64, Step)], rules: &[Rule]) -> (Vec<Answer>, usize) {
    let mut driver =
        Driver { keys: Keys::new(rules), queues: Queues::EMPTY, answers: Vec::new(), looks: 0 };
    let mut now_us = START_US;
    let mut waiting = BTreeMap::new();
    for (number, (after_ms, step)) in (0..).zip(steps) {
        now_us += after_ms * 1_000;
        driver.run_until(now_us);
        if let Some(asker) = Asker::of(step, number, now_us) {
            let place = place(&asker.key.to_string(), 0);
            let ticket = driver.queues.join(place, asker.deadline_us, AT_ONCE, 1, asker);
            waiting.insert(number, ticket);
        }
        waiting.retain(|_, &mut ticket| driver.queues.waiter(ticket).is_some());
        if let (&Step::Leave(index), false) = (step, waiting.is_empty()) {
            let ticket = *waiting.values().nth(index % waiting.len()).unwrap();
            assert!(driver.queues.leave(ticket).is_some());
        }
        if let Some(key) = driver.keys.change(step, now_us) {
            driver.queues.key_changed(key.to_string().as_bytes());
        }
        driver.serve(now_us);
    }
    driver.run_until(u64::MAX);
    assert!(driver.queues.waiting() == 0 && driver.queues.bytes == 0);
    assert!(driver.queues.queues.is_empty() && driver.queues.instants.is_empty());
    driver.answers.sort_unstable();
    (driver.answers, driver.looks)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(600) })]

    /// Waiters are admitted in order of arrival, only as the rules allow, and none is lost or
    /// late.
    #[test]
    fn the_queue_answers_as_its_model(
        steps in proptest::collection::vec(step(), 1..60),
        rules in rules(),
    ) {
        let (answers, looks) = driven(&steps, &rules);
        prop_assert_eq!(&answers, &naive(&steps, &rules));
        // Nothing is polled: each look has a cause.
        prop_assert!(looks <= 8 * steps.len(), "{looks} looks at {} steps", steps.len());
    }
}
