//! The servers, what happens to them, and the laws.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use ratelimit_core::check::Bounds;
use ratelimit_core::effect::{Action, Recorded};
use ratelimit_core::key::{
    Change, Check, CheckOptions, Expiry, HoldRequest, Limiter, Meta, Settlement, Standing,
    StandingEntry, Verdict,
};
use ratelimit_core::parse::Settled;
use ratelimit_core::rule::{Identity, Kind, Rule, identities};
use ratelimit_core::waiting::{Cause, Denial, Due, Flow, HoldId, Request, Rules, Ticket};

use super::disk::Disk;
use super::keyspace::{Keyspace, Propagated, propagated};
use super::line::{Ask, Line, Waiter, place};
use super::link::Replica;

const START_US: u64 = 1_700_000_000_000_000;
const MS_US: u64 = 1_000;
const KEYS: u8 = 3;
/// The most that a client waits.
const PATIENCE_MS: u64 = 20_000;
/// The bounds of each key.
const BOUNDS: Bounds = Bounds { max_states: 12, max_holds: 6 };

const RULES: [&str; 9] = [
    "3/s",
    "bucket:2/s,burst=4 10/m,count=all",
    "slots:2",
    "slots:1 fixed:5/2s",
    "leaky:2/s,queue=3",
    "window:4/s,ban=2s:5s,name=w",
    "log:6/3s bucket:3/s,refill=interval,name=r",
    "fixed:4/s,align=first,keep=2",
    // States of rules above, under a lower limit and a longer period.
    "bucket:1/s,burst=4 window:4/9s,name=w",
];

pub struct World {
    rng: Rng,
    /// The clock of the servers, which jumps, and the one of the line, which does not.
    wall_us: u64,
    steady_us: u64,
    rules: Vec<(Vec<Rule>, Vec<String>)>,
    primary: Keyspace,
    /// What the primary has propagated, applied as a replica applies it.
    told: Keyspace,
    /// The state after each effect.
    states: Vec<u64>,
    disk: Disk,
    syncs_always: bool,
    replica: Replica,
    line: Line,
    requests: u64,
    /// Requests that took holds.
    held: VecDeque<Ask>,
}

/// Who is woken by an effect.
#[derive(Clone, Debug)]
enum Woken {
    /// A check by the rules of this number consumed, and perhaps took a hold.
    Consumed(usize, Option<u64>),
    Returned(Vec<Identity>),
    All,
}

/// How a request looks before it is decided.
enum Look {
    /// Its rules admit it, at this cost.
    Passes(u32),
    /// It repeats a live hold.
    Repeats,
    Later(Denial),
    Decided,
}

fn state(keys: &Keyspace) -> u64 {
    let mut hasher = DefaultHasher::new();
    keys.snapshot().hash(&mut hasher);
    hasher.finish()
}

fn rules_of(line: &str) -> (Vec<Rule>, Vec<String>) {
    let rule = |text: &str| Rule::from_text(text.as_bytes()).expect("a rule");
    line.split(' ').map(|text| (rule(text), text.to_string())).unzip()
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut replica = Replica::default();
        replica.begin_again(&Vec::new(), 0);
        Self {
            wall_us: START_US,
            steady_us: 1,
            rules: RULES.map(rules_of).to_vec(),
            primary: Keyspace::default(),
            told: Keyspace::default(),
            states: vec![state(&Keyspace::default())],
            disk: Disk::default(),
            syncs_always: rng.bool(),
            replica,
            line: Line::EMPTY,
            requests: 0,
            held: VecDeque::new(),
            rng,
        }
    }

    pub fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.serve();
            self.test();
        }
        self.pass(2 * PATIENCE_MS);
        self.line.assert_nobody_is_forgotten();
    }

    fn step(&mut self) {
        let key = self.rng.u8(..KEYS);
        match self.rng.u32(..100) {
            0..30 => {
                let ask = self.ask(key);
                self.check(self.requests, ask);
            }
            30..45 => self.wait(key),
            45..55 => self.settle(),
            55..58 => self.renew(),
            58..61 => {
                let woken = Woken::Returned(self.primary.get(key).states_refunded(&[]));
                self.change(key, Action::Refund { units: 2 }, woken, |limiter, now_us| {
                    limiter.refund(2, now_us, &[]) > 0
                });
            }
            61..62 => self.change(key, Action::Reset, Woken::All, Limiter::reset),
            62..64 => self.block(key),
            64..66 => self.change(key, Action::Unblock, Woken::All, |limiter, now_us| {
                let pardons = limiter.can_be_pardoned(now_us);
                if pardons {
                    limiter.pardon();
                }
                pardons
            }),
            66..67 => self.pause(key),
            67..68 => self.sync(key),
            68..69 => self.change(key, Action::Resume, Woken::All, |limiter, now_us| {
                let paused = limiter.pause_at(now_us).is_some();
                if paused {
                    limiter.resume();
                }
                paused
            }),
            69..82 => {
                let ms = self.rng.u64(..2_500);
                self.pass(ms);
            }
            82..83 => self.line.give_up(&mut self.rng),
            83..84 => (0..KEYS).for_each(|key| self.expire(key)),
            84..86 => {
                self.wall_us = self.wall_us.saturating_add_signed(self.rng.i64(-9..=9) * 700_000);
                (0..KEYS).for_each(|key| self.line.queues.key_changed(&[key], Cause::Changed));
            }
            86..90 => self.replica.receive(self.rng.usize(..9)),
            90..92 => self.replica.cut(),
            92..95 => self.replica.link(|| self.told.snapshot(), self.last()),
            95..96 => self.disk = Disk::rewritten(self.told.snapshot(), self.last()),
            96..98 => self.disk.sync(self.last()),
            98..99 => self.crash(),
            _ => self.promote(),
        }
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }

    fn test(&mut self) {
        if self.rng.bool() {
            self.replica.receive(self.rng.usize(..3));
        }
        assert_eq!(state(&self.primary), self.states[self.last()], "what was propagated");
        assert_eq!(state(&self.replica.keys), self.states[self.replica.at], "the replica");
        for key in 0..KEYS {
            for head in self.line.heads(key) {
                let look = self.look(head.number, head.ask);
                let idles =
                    matches!(look, Look::Passes(_) | Look::Repeats) && !self.may_be_kept_back(head);
                assert!(!idles, "{head:?} is not served");
            }
        }
    }

    /// Whether the first of another flow is denied, and when it was tried perhaps only by rules that
    /// this one has too: consumption since then may have added others.
    fn may_be_kept_back(&self, waiter: &Waiter) -> bool {
        let rules = identities(&self.rules[waiter.ask.rules].0);
        let heads = self.line.heads(waiter.ask.key);
        let mut others = heads.iter().filter(|head| head.flow != waiter.flow);
        others.any(|head| match self.look(head.number, head.ask) {
            Look::Later(denial) => {
                head.flow.priority >= waiter.flow.priority
                    && (denial.by.is_empty() || denial.by.iter().any(|rule| rules.contains(rule)))
            }
            Look::Passes(_) | Look::Repeats | Look::Decided => false,
        })
    }

    /// Whether the first of another flow, of at least this priority, is denied, and only by rules
    /// that this one has too.
    fn is_kept_back(&self, waiter: &Waiter, priority: u8) -> bool {
        let rules = identities(&self.rules[waiter.ask.rules].0);
        let heads = self.line.heads(waiter.ask.key);
        let mut others = heads.iter().filter(|head| head.flow != waiter.flow);
        others.any(|head| match self.look(head.number, head.ask) {
            Look::Later(denial) => {
                head.flow.priority >= priority && denial.by.iter().all(|rule| rules.contains(rule))
            }
            Look::Passes(_) | Look::Repeats | Look::Decided => false,
        })
    }

    /// Tests that one may be admitted: nobody of its flow waits before it, and nobody of a higher
    /// priority keeps it back.
    fn assert_turn(&self, waiter: &Waiter) {
        let heads = self.line.heads(waiter.ask.key);
        let own = heads.iter().find(|head| head.flow == waiter.flow);
        assert!(own.is_none_or(|own| own.number >= waiter.number), "{waiter:?} overtakes {own:?}");
        let is_kept_back = self.is_kept_back(waiter, waiter.flow.priority + 1);
        assert!(!is_kept_back, "{waiter:?} passes one of a higher priority");
    }

    /// Propagates an effect on a key, which wakes those who wait for it.
    fn commit(&mut self, effect: &Propagated, woken: &Woken) {
        self.told.apply(effect);
        self.states.push(state(&self.told));
        self.disk.append(effect);
        if self.syncs_always {
            self.disk.sync(self.last());
        }
        self.replica.send(effect);
        let mut id = String::new();
        let cause = match woken {
            Woken::Consumed(of, hold) => {
                let hold = hold.map(|hold| {
                    id = hold.to_string();
                    id.as_bytes()
                });
                Cause::Consumed { rules: &self.rules[*of].0, hold }
            }
            Woken::Returned(states) => Cause::Returned(states),
            Woken::All => Cause::Changed,
        };
        self.line.queues.key_changed(&effect[0], cause);
    }

    /// Changes a key with an action that says whether it changed anything.
    fn change(
        &mut self,
        key: u8,
        action: Action<'_>,
        woken: Woken,
        change: impl FnOnce(&mut Limiter, u64) -> bool,
    ) {
        self.expire(key);
        let mut limiter = self.primary.get(key);
        if change(&mut limiter, self.wall_us) {
            let settled = [String::from("REFUND")];
            let refunds = matches!(action, Action::Settle { settled: Settled::Refund, .. });
            let words = if refunds { &settled[..] } else { &[] };
            self.store(key, limiter, action, words, &woken);
        }
    }

    /// Stores what an action has left of a key, and propagates the action.
    fn store(
        &mut self,
        key: u8,
        limiter: Limiter,
        action: Action<'_>,
        words: &[String],
        woken: &Woken,
    ) {
        let expiry = self.primary.expiry(key, &limiter, self.wall_us);
        self.primary.put(key, limiter, expiry);
        self.commit(&propagated(key, self.wall_us, expiry, action, words), woken);
    }

    /// Deletes a key that has expired, which changes no decision.
    fn expire(&mut self, key: u8) {
        if !self.primary.has_expired(key, self.wall_us) {
            return;
        }
        let (limiter, none) = (self.primary.get(key), Limiter::default());
        // A log lives as long as the rules need that consumed from it, so a longer one may see more.
        let sees_more = |rule: &Rule| rule.kind() == Kind::Log && rule.period_us() > 1_000 * MS_US;
        for (rules, _) in self.rules.iter().filter(|(rules, _)| !rules.iter().any(sees_more)) {
            let check = Check::new(rules, 1, self.wall_us);
            let [old, new] = [&limiter, &none].map(|one| one.peek(&check, &mut Vec::new()).summary);
            assert_eq!(old, new, "what has expired decides {rules:?}");
        }
        self.primary.put(key, none, Expiry::Keep);
        self.commit(&vec![vec![key]], &Woken::All);
    }

    fn settle(&mut self) {
        let Some(Ask { key, hold: Some(id), .. }) = self.held.pop_front() else { return };
        let (id, refund) = (id.to_string(), self.rng.bool());
        let (settled, settlement) = match refund {
            true => (Settled::Refund, Settlement::Refund),
            false => (Settled::AsCharged, Settlement::AsCharged),
        };
        let id = id.as_bytes();
        let woken = Woken::Returned(self.primary.get(key).states_settled(id, settlement));
        self.change(key, Action::Settle { id, settled }, woken, |limiter, now_us| {
            limiter.settle(id, settlement, now_us)
        });
    }

    fn renew(&mut self) {
        let Some(&Ask { key, hold: Some(id), .. }) = self.held.front() else { return };
        let (id, end_us) = (id.to_string(), self.wall_us + 3_000 * MS_US);
        let id = id.as_bytes();
        let woken = Woken::Returned(self.primary.get(key).states_renewed(id, end_us));
        self.change(key, Action::Renew { id, end_us }, woken, |limiter, now_us| {
            limiter.renew(id, end_us, now_us)
        });
    }

    fn block(&mut self, key: u8) {
        let kind = if self.rng.bool() { Standing::Block } else { Standing::Exempt };
        let until_us = Some(self.wall_us + self.rng.u64(1..3_000) * MS_US);
        let entry = StandingEntry { kind, until_us, ban_us: None, reason: b"why"[..].into() };
        self.change(key, Action::set(&entry, None), Woken::All, |limiter, _| {
            limiter.set_standing(Some(entry.clone()));
            true
        });
    }

    fn pause(&mut self, key: u8) {
        let (until_us, reason) = (self.wall_us + self.rng.u64(1..3_000) * MS_US, b"429");
        self.change(key, Action::Pause { until_us, reason }, Woken::All, |limiter, now_us| {
            limiter.pause_until(until_us, now_us, reason)
        });
    }

    /// Follows what an upstream says, as `RL.SYNC` does.
    fn sync(&mut self, key: u8) {
        let of_line = self.rng.usize(..RULES.len());
        let rule = self.rng.usize(..self.rules[of_line].0.len());
        let rule = self.rules[of_line].0[rule];
        if rule.kind() == Kind::Slots {
            return;
        }
        let remaining = self.rng.u32(..=rule.limit());
        let (mut limiter, now_us) = (self.open(key), self.wall_us);
        let left = |limiter: &Limiter| {
            let mut running = limiter.clone();
            running.set_standing(None);
            running.resume();
            running.peek(&Check::new(&[rule], 0, now_us), &mut Vec::new()).summary.remaining
        };
        let had = left(&limiter);
        let synced = limiter.sync(BOUNDS, &mut rule.clone(), remaining, now_us);
        let Ok(units @ 1..) = synced else { return };
        assert_eq!(left(&limiter), had.min(remaining.into()), "what a sync leaves of {rule}");
        let action = Action::Check { recorded: Recorded::Admitted, cost: units, meta: None };
        let woken = Woken::All;
        self.store(key, limiter, action, &[rule.to_string()], &woken);
    }

    fn ask(&mut self, key: u8) -> Ask {
        self.requests += 1;
        let repeated = self.held.back().filter(|_| self.rng.u8(..8) == 0);
        if let Some(&repeated) = repeated {
            return repeated;
        }
        let rules = self.rng.usize(..RULES.len());
        let holds = RULES[rules].contains("slots") || self.rng.u8(..4) == 0;
        let cost = self.rng.u32(1..4).min(2);
        let up_to = (self.rng.u8(..4) == 0).then(|| cost + self.rng.u32(..3));
        Ask { key, rules, cost, up_to, hold: holds.then_some(self.requests) }
    }

    /// Lets a function see the check that a request makes now.
    fn with_check<T>(&self, number: u64, ask: Ask, body: impl FnOnce(&Check<'_>) -> T) -> T {
        let id = ask.hold.map(|id| (id.to_string(), id.is_multiple_of(2)));
        let end_us = self.wall_us + 1_500 * MS_US;
        let hold = id.as_ref().map(|(id, refund)| HoldRequest {
            id: id.as_bytes(),
            end_us,
            refund: *refund,
        });
        let meta = number.is_multiple_of(5).then_some(Meta { text: b"who", keep: 3 });
        let options = CheckOptions { hold, meta, up_to: ask.up_to };
        body(&Check::new(&self.rules[ask.rules].0, ask.cost, self.wall_us).with(&options))
    }

    /// A key as a command finds it that may change it.
    fn open(&mut self, key: u8) -> Limiter {
        self.expire(key);
        let mut limiter = self.primary.get(key);
        let held = limiter.states_held();
        if limiter.lapse_if_due(self.wall_us) {
            self.store(key, limiter.clone(), Action::Lapse, &[], &Woken::Returned(held));
        }
        limiter
    }

    /// Decides a request, as `RL.CHECK` does.
    fn check(&mut self, number: u64, ask: Ask) -> Verdict {
        let mut limiter = self.open(ask.key);
        let (verdict, expiry, effects, woken) = self.with_check(number, ask, |check| {
            let renewed = check.options.and_then(|options| options.hold);
            let renewed = renewed.map(|hold| limiter.states_renewed(hold.id, hold.end_us));
            let Ok(outcome) = limiter.check_within(BOUNDS, check, &mut Vec::new()) else {
                return (Verdict::Limited, Expiry::Keep, Vec::new(), Woken::All);
            };
            assert!((ask.cost..=ask.up_to.unwrap_or(ask.cost)).contains(&outcome.cost));
            let expiry = match outcome.changed() {
                true => self.primary.expiry(ask.key, &limiter, self.wall_us),
                false => Expiry::Keep,
            };
            // A renewal needs no rules.
            let rules = match outcome.change {
                Change::Renewed => &[],
                _ => &self.rules[ask.rules].1[..],
            };
            let decided = Check { cost: outcome.cost, ..*check };
            let done = Action::of_check(&decided, outcome.change);
            let ban = limiter.standing().filter(|_| outcome.ban_changed());
            let of =
                |action, rules: &[String]| propagated(ask.key, self.wall_us, expiry, action, rules);
            let done = done.map(|action| of(action, rules));
            let ban = ban.map(|ban| of(Action::set(ban, limiter.bans()), &[]));
            let effects = done.into_iter().chain(ban).collect::<Vec<_>>();
            let woken = match outcome.change {
                _ if outcome.ban_changed() => Woken::All,
                Change::Renewed => Woken::Returned(renewed.unwrap_or_default()),
                _ => Woken::Consumed(ask.rules, ask.hold.filter(|_| outcome.held)),
            };
            (outcome.summary.verdict, expiry, effects, woken)
        });
        self.primary.put(ask.key, limiter, expiry);
        effects.iter().for_each(|effect| self.commit(effect, &woken));
        if verdict == Verdict::Allowed && ask.hold.is_some() {
            self.held.push_back(ask);
        }
        verdict
    }

    fn look(&self, number: u64, ask: Ask) -> Look {
        let limiter = self.seen(ask.key);
        self.with_check(number, ask, |check| {
            let mut decisions = Vec::new();
            let outcome = limiter.peek(check, &mut decisions);
            let seen = outcome.summary;
            let repeats = limiter.repeats_until(check);
            assert!(repeats.is_none_or(|end_us| end_us > self.wall_us), "a hold that has ended");
            match (seen.verdict, u64::try_from(seen.wait_ms)) {
                _ if repeats.is_some() => Look::Repeats,
                (Verdict::Allowed, _) => {
                    Look::Passes(Check { cost: outcome.cost, ..*check }.greatest_cost())
                }
                (Verdict::Limited, Ok(wait_ms)) => {
                    Look::Later(Denial::of(wait_ms, check, &decisions, Some(&limiter)))
                }
                _ => Look::Decided,
            }
        })
    }

    /// A key as a command finds it that changes nothing.
    fn seen(&self, key: u8) -> Limiter {
        match self.primary.has_expired(key, self.wall_us) {
            true => Limiter::default(),
            false => self.primary.get(key).as_of(self.wall_us).into_owned(),
        }
    }

    /// A request that waits in line, as `RL.WAIT` does.
    fn wait(&mut self, key: u8) {
        let ask = self.ask(key);
        let key = ask.key;
        let (number, ms) = (self.requests, self.rng.u64(1..PATIENCE_MS));
        let rules = Rules::of(&self.rules[ask.rules].0);
        let hold = ask.hold.map(|id| HoldId::of(id.to_string().as_bytes()));
        let name = [&b""[..], b"a", b"b"][self.rng.usize(..3)].into();
        let flow = Flow { priority: self.rng.u8(..5) / 4, name };
        let (weight, cost) = (self.rng.u16(1..4), ask.cost);
        let request = Request { flow: flow.clone(), weight, rules, cost, hold };
        let waiter = Waiter { number, ask, flow };
        let in_front = self.line.queues.in_front(&place(key), &request, self.steady_us);
        let denial = match self.look(number, ask) {
            Look::Passes(_) if in_front.is_some() => None,
            // Only a settled hold can end the wait earlier.
            Look::Later(denial) if denial.wait_ms <= ms || self.has_live_holds(key) => Some(denial),
            look => {
                if matches!(look, Look::Passes(_)) {
                    self.assert_turn(&waiter);
                }
                self.check(number, ask);
                return;
            }
        };
        let deadline_us = self.steady_us + ms * MS_US;
        let ticket = self.line.join(waiter, request, deadline_us);
        if let Some(denial) = denial {
            self.line.queues.deny(ticket, denial, self.steady_us);
        }
    }

    fn has_live_holds(&self, key: u8) -> bool {
        let limiter = self.seen(key);
        let has = limiter.live_holds(self.wall_us) > 0;
        assert_eq!(has, !limiter.next_holds(self.wall_us, 1).is_empty(), "live holds");
        has
    }

    /// Lets time pass, and serves the line at each instant at which something is due.
    fn pass(&mut self, ms: u64) {
        let until_us = self.steady_us + ms * MS_US;
        while let Some(at_us) = self.line.queues.next_us().filter(|&at_us| at_us <= until_us) {
            self.reach(at_us.max(self.steady_us));
            self.serve();
        }
        self.reach(until_us);
    }

    fn reach(&mut self, steady_us: u64) {
        self.wall_us += steady_us - self.steady_us;
        self.steady_us = steady_us;
    }

    fn serve(&mut self) {
        while let Some(due) = self.line.queues.due(self.steady_us) {
            match due {
                Due::Try(ticket) => self.attempt(ticket),
                Due::Read(_) => unreachable!("no policy changes"),
                Due::Deadline(ticket) => self.run_out(ticket),
            }
        }
    }

    fn attempt(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line");
        match self.look(waiter.number, waiter.ask) {
            Look::Later(denial) => self.line.queues.deny(ticket, denial, self.steady_us),
            Look::Passes(_) | Look::Repeats | Look::Decided => self.decide(ticket),
        }
    }

    /// Answers one whose deadline has come.
    fn run_out(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line");
        let passes = matches!(self.look(waiter.number, waiter.ask), Look::Passes(_));
        if passes && self.line.queues.behind(ticket).is_some() {
            let waiter = self.line.queues.leave(ticket).expect("in line");
            return self.line.answered(&waiter, false, self.steady_us);
        }
        self.decide(ticket);
    }

    fn decide(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line").clone();
        let look = self.look(waiter.number, waiter.ask);
        if let Look::Passes(cost) = look {
            self.assert_turn(&waiter);
            self.line.queues.admit(ticket, cost);
        } else {
            self.line.queues.leave(ticket);
        }
        let allowed = self.check(waiter.number, waiter.ask) == Verdict::Allowed;
        // A repeat overtakes those who wait, since it takes nothing.
        let repeats = matches!(look, Look::Repeats);
        self.line.answered(&waiter, allowed && !repeats, self.steady_us);
    }

    /// The primary dies and loads its file. The replica begins again.
    fn crash(&mut self) {
        let (keys, at) = self.disk.recover(&mut self.rng);
        assert!(
            at >= self.disk.synced_at,
            "{at} effects are left of {} synced",
            self.disk.synced_at
        );
        assert!(!self.syncs_always || at == self.last(), "an acknowledged effect is lost");
        assert_eq!(state(&keys), self.states[at], "the file");
        self.restart(keys, at);
    }

    /// The replica takes over. What it has not received is lost.
    fn promote(&mut self) {
        let (keys, at) = (self.replica.keys.clone(), self.replica.at);
        self.restart(keys, at);
    }

    /// Another history of effects begins after this one.
    fn restart(&mut self, keys: Keyspace, at: usize) {
        self.states.truncate(at + 1);
        self.disk = Disk::rewritten(keys.snapshot(), at);
        self.replica.begin_again(&keys.snapshot(), at);
        (self.primary, self.told) = (keys.clone(), keys);
        self.line.disconnected();
    }
}
