//! A limiter made of naive states.

use super::{Identity, Micros, NaiveMeter, Owned, capacity, effective_time, least, least_ms};
use crate::algorithm::log::naive::{NaiveLog, longest_window};
use crate::check::Decision;
use crate::key::{Change, Verdict};
use crate::rule::{Kind, Rule};

#[derive(Clone, Debug, Default)]
pub struct Model {
    states: Vec<Owned>,
    pub log: NaiveLog,
    /// When a ban by a rule ends, and how long it lasts.
    pub ban: Option<(Micros, Micros)>,
    bans: Option<Bans>,
}

/// The remembered bans by ladders.
#[derive(Clone, Debug)]
struct Bans {
    count: u32,
    forgotten: Micros,
    /// The time from setting the last ban until the bans are forgotten.
    span: Micros,
}

impl Bans {
    /// If the clock has stepped back, the bans are forgotten no later than `span` after `now`.
    fn shorten(&mut self, now: Micros) {
        self.forgotten = self.forgotten.min(now + self.span);
    }
}

/// The answer to a check.
#[derive(Clone, Debug)]
pub struct Answer {
    pub summary: Decision,
    /// The cost of the rule that decided.
    pub cost: i128,
    pub decisions: Vec<Decision>,
    pub change: Change,
    /// The rule that caused a ban, and the ban's length in microseconds.
    pub ban: Option<(usize, u64)>,
    /// True if the check made the present ban end earlier.
    pub ban_shortened: bool,
    /// True if a rule ignored a state because it is too far ahead of the clock. The state counts
    /// again once the clock comes near it.
    pub passed_over: bool,
}

impl Model {
    /// What a rule sees, and the time at which the state is read; `None` if the rule sees
    /// nothing.
    fn view(&self, rules: &[Rule], rule: &Rule, now: Micros) -> Option<View> {
        if rule.kind() == Kind::Log {
            let last = self.log.last()?;
            let at = effective_time(now, last, longest_window(rules))?;
            let needed = at < self.log.needed_until();
            return needed.then_some(View { at, last, meter: None });
        }
        let state = self.states.iter().find(|state| state.identity == Identity::of(rule))?;
        let at = effective_time(now, state.last, rule.period_us().into())?;
        Some(View { at, last: state.last, meter: Some(state.seen_by(rule, at)?) })
    }

    pub fn fits(&self, rules: &[Rule], rule: &Rule, cost: i128, now: Micros) -> bool {
        if cost > capacity(rule) {
            return false;
        }
        if rule.limit() == 0 {
            return true;
        }
        match self.view(rules, rule, now) {
            None => true,
            Some(View { at, last, meter: Some(meter) }) => meter.fits(rule, last, at, cost),
            Some(View { at, .. }) => self.log.fits(rule, at, cost),
        }
    }

    fn is_clear(&self, rules: &[Rule], rule: &Rule, now: Micros) -> bool {
        match self.view(rules, rule, now) {
            None => true,
            Some(View { at, last, meter: Some(meter) }) => {
                meter.is_clear(rule.limit().into(), last, at)
            }
            Some(View { at, .. }) => self.log.used(rule, at) == 0,
        }
    }

    /// The most units that fit.
    fn remaining(&self, rules: &[Rule], rule: &Rule, now: Micros) -> i64 {
        let too_many = |cost| cost > capacity(rule) || !self.fits(rules, rule, cost, now);
        let least = least(too_many).unwrap();
        i64::try_from(least - 1).unwrap().max(0)
    }

    fn reset_ms(&self, rules: &[Rule], rule: &Rule, now: Micros) -> i64 {
        least_ms(|us| self.is_clear(rules, rule, now + us))
    }

    /// The time until the cost fits; if it fits now, the time until its turn.
    fn wait_ms(&self, rules: &[Rule], rule: &Rule, cost: i128, now: Micros) -> i64 {
        if !self.fits(rules, rule, cost, now) {
            least_ms(|us| self.fits(rules, rule, cost, now + us))
        } else if rule.kind() == Kind::Leaky && rule.limit() > 0 {
            self.reset_ms(rules, rule, now)
        } else {
            0
        }
    }

    fn decide(&self, rules: &[Rule], rule: &Rule, cost: i128, now: Micros) -> Decision {
        let fits = self.fits(rules, rule, cost, now);
        Decision {
            verdict: if fits { Verdict::Allowed } else { Verdict::Limited },
            limit: i64::try_from(capacity(rule)).unwrap(),
            remaining: self.remaining(rules, rule, now),
            wait_ms: self.wait_ms(rules, rule, cost, now),
            reset_ms: self.reset_ms(rules, rule, now),
        }
    }

    fn decide_all(&self, rules: &[Rule], cost: u32, now: Micros) -> Vec<Decision> {
        rules.iter().map(|rule| self.decide(rules, rule, cost_of(rule, cost), now)).collect()
    }

    /// True if a rule ignores a state that is too far ahead of the clock.
    fn passes_over(&self, rules: &[Rule], now: Micros) -> bool {
        let log_last = self.log.last().unwrap_or(0);
        rules.iter().any(|rule| match rule.kind() {
            Kind::Log => {
                log_last > now && effective_time(now, log_last, longest_window(rules)).is_none()
            }
            Kind::Slots => false,
            Kind::Window | Kind::Fixed | Kind::Bucket | Kind::Leaky => {
                self.states.iter().any(|state| {
                    state.identity == Identity::of(rule)
                        && state.last > now
                        && effective_time(now, state.last, rule.period_us().into()).is_none()
                })
            }
        })
    }

    /// Decides, and consumes if `consume`. `cost` is the default cost.
    pub fn check(&mut self, rules: &[Rule], cost: u32, now_us: u64, consume: bool) -> Answer {
        let now = i128::from(now_us);
        let is_free = |rule: &Rule| cost_of(rule, cost) == 0;
        if let Some(mut blocked) = self.blocked(now) {
            if let (true, Some((until, length))) = (consume, &mut self.ban) {
                blocked.ban_shortened = *until > now + *length;
                *until = (*until).min(now + *length);
                if let (true, Some(bans)) = (blocked.ban_shortened, &mut self.bans) {
                    bans.shorten(now);
                }
            }
            return blocked;
        }
        let mut decisions = self.decide_all(rules, cost, now);
        let denying = |decisions: &[Decision]| -> Vec<usize> {
            (0..rules.len())
                .filter(|&i| decisions[i].verdict == Verdict::Limited && !rules[i].is_shadow())
                .collect()
        };
        let denials = denying(&decisions);
        let mut change = Change::Nothing;
        if denials.is_empty() {
            if !rules.iter().all(is_free) && consume {
                change = Change::Admitted;
                self.consume(rules, cost, now, false);
                for (rule, decision) in rules.iter().zip(&mut decisions) {
                    decision.remaining = self.remaining(rules, rule, now);
                    decision.reset_ms = self.reset_ms(rules, rule, now);
                }
            }
        } else {
            let hopeless =
                rules.iter().any(|rule| !rule.is_shadow() && cost_of(rule, cost) > capacity(rule));
            let charged = rules.iter().any(|rule| rule.counts_all() && !is_free(rule));
            if charged && !hopeless && consume {
                change = Change::Charged;
                self.consume(rules, cost, now, true);
                decisions = self.decide_all(rules, cost, now);
            }
            for decision in
                decisions.iter_mut().filter(|decision| decision.verdict == Verdict::Allowed)
            {
                decision.wait_ms = 0;
            }
        }
        let before = self.bans.as_ref().filter(|bans| bans.forgotten > now);
        let before = before.map_or(0, |bans| bans.count);
        if change != Change::Nothing {
            self.drop_ended_ban(now);
        }
        let (mut summary, deciding_cost) = summarize(rules, cost, &decisions, !denials.is_empty());
        let passed_over = self.passes_over(rules, now);
        let ban_us = |&i: &usize| {
            let rungs: Vec<u64> = rules[i].ban()?.rungs_us().collect();
            Some(rungs[rungs.len().min(before as usize + 1) - 1])
        };
        let longest = denials.iter().filter_map(ban_us).max();
        let ban = denials.iter().copied().find(|i| longest.is_some() && ban_us(i) == longest);
        let ban = ban.zip(longest);
        if !consume {
            return Answer {
                summary,
                cost: deciding_cost,
                decisions,
                change,
                ban: None,
                ban_shortened: false,
                passed_over,
            };
        }
        if let Some(longest) = longest {
            self.ban = Some((now + i128::from(longest), longest.into()));
            let is_ladder =
                |i: &&usize| rules[**i].ban().is_some_and(|ban| ban.rungs_us().count() > 1);
            let ladders: Vec<&usize> = denials.iter().filter(is_ladder).collect();
            let longest_ladder = ladders.iter().rev().max_by_key(|i| ban_us(i));
            if let Some(&&i) = longest_ladder {
                let quiet = rules[i].ban().and_then(|ban| ban.rungs_us().max()).unwrap();
                let span = i128::from(longest) + i128::from(quiet);
                self.bans = Some(Bans { count: before + 1, forgotten: now + span, span });
            } else if let Some(bans) = self.bans.as_mut().filter(|bans| bans.forgotten > now) {
                bans.shorten(now);
            }
            let ban_ms = i64::try_from(longest.div_ceil(1_000)).unwrap();
            for ms in [&mut summary.wait_ms, &mut summary.reset_ms] {
                if *ms >= 0 {
                    *ms = (*ms).max(ban_ms);
                }
            }
        }
        let cost = deciding_cost;
        Answer { summary, cost, decisions, change, ban, ban_shortened: false, passed_over }
    }

    /// Drops a ban that has ended, and a count of bans whose time has passed. Every change of the key
    /// does this, and a later step back of the clock brings neither back.
    fn drop_ended_ban(&mut self, now: Micros) {
        self.ban = self.ban.filter(|&(until, _)| until > now);
        self.bans = self.bans.take().filter(|bans| bans.forgotten > now);
        if let Some(bans) = &mut self.bans {
            bans.shorten(now);
        }
    }

    fn blocked(&self, now: Micros) -> Option<Answer> {
        let (until, length) = self.ban.filter(|&(until, _)| until > now)?;
        // A step back of the clock does not prolong the ban.
        let until = until.min(now + length);
        let left_ms = i64::try_from((until - now + 999) / 1_000).unwrap();
        let summary = Decision {
            verdict: Verdict::Blocked,
            limit: 0,
            remaining: 0,
            wait_ms: left_ms,
            reset_ms: left_ms,
        };
        let (decisions, change) = (Vec::new(), Change::Nothing);
        Some(Answer {
            summary,
            cost: 0,
            decisions,
            change,
            ban: None,
            ban_shortened: false,
            passed_over: false,
        })
    }

    /// Consumes what a settled hold cost beyond its charge, even if it does not fit. `now` is
    /// no earlier than the time of any state.
    pub fn consume_excess(&mut self, rules: &[Rule], now: Micros) {
        let (logs, others): (Vec<Rule>, Vec<Rule>) =
            rules.iter().partition(|rule| rule.kind() == Kind::Log);
        self.consume(&logs, 0, now, false);
        self.log.latest.units += logs.first().map_or(0, |rule| cost_of(rule, 0));
        for rule in others.iter().filter(|rule| cost_of(rule, 0) > 0) {
            let identity = Identity::of(rule);
            if !self.states.iter().any(|state| state.identity == identity) {
                self.states.push(Owned::new(rule, now));
            }
            let state = self.states.iter_mut().find(|state| state.identity == identity).unwrap();
            state.meter.take_excess(rule, state.last, now, cost_of(rule, 0));
            state.last = now;
        }
        self.states.retain(|state| !state.meter.is_empty());
    }

    /// Plays a check that cost nothing in the end: it drained the debt at the rule's limit until
    /// `now`, and set the end of the state. `now` is no earlier than the time of the state.
    pub fn drain(&mut self, rule: &Rule, now: Micros) {
        let identity = Identity::of(rule);
        for state in self.states.iter_mut().filter(|state| state.identity == identity) {
            if let NaiveMeter::Debt(debt) = &mut state.meter {
                debt.take(rule, state.last, now, 0);
                state.last = now;
            }
        }
    }

    pub fn consume(&mut self, rules: &[Rule], cost: u32, now: Micros, denied: bool) {
        let charged = |rule: &&Rule| !denied || rule.counts_all();
        let consuming = || rules.iter().filter(charged).filter(|rule| cost_of(rule, cost) > 0);
        // A name loses its state to a rule of another algorithm. A rule of another shape reshapes the
        // state.
        for rule in consuming() {
            let identity = Identity::of(rule);
            self.states.retain(|state| state.identity != identity || state.kind == rule.kind());
            if let Some(state) = self.states.iter_mut().find(|state| state.identity == identity) {
                state.take_shape(rule, now);
            }
        }
        for rule in consuming() {
            if rule.kind() != Kind::Log {
                self.consume_one(rules, rule, cost_of(rule, cost), now);
            }
        }
        // All log rules have one cost.
        if let Some(log_rule) = consuming().find(|rule| rule.kind() == Kind::Log) {
            let at = match self.log.last() {
                Some(last) => effective_time(now, last, longest_window(rules)),
                None => {
                    self.drop_stale(rules, now);
                    Some(now)
                }
            };
            if at.is_none() {
                self.log.step_back(longest_window(rules), now);
            }
            self.log.take(rules, at.unwrap_or(now), cost_of(log_rule, cost), denied);
        }
        self.states.retain(|state| !state.meter.is_empty());
    }

    fn consume_one(&mut self, rules: &[Rule], rule: &Rule, cost: i128, now: Micros) {
        let identity = Identity::of(rule);
        if !self.states.iter().any(|state| state.identity == identity) {
            self.drop_stale(rules, now);
            self.states.push(Owned::new(rule, now));
        }
        let state = self.states.iter_mut().find(|state| state.identity == identity).unwrap();
        let at = effective_time(now, state.last, rule.period_us().into()).unwrap_or_else(|| {
            *state = Owned::new(rule, now);
            now
        });
        state.meter.take(rule, state.last, at, cost);
        state.last = at;
    }

    /// Called before a new state is added. Drops states that have not mattered for two of their
    /// windows, unless a rule of this check reads them.
    fn drop_stale(&mut self, rules: &[Rule], now: Micros) {
        let is_log = |rule: &Rule| rule.kind() == Kind::Log;
        self.states.retain(|state| {
            rules.iter().any(|rule| !is_log(rule) && state.identity == Identity::of(rule))
                || !state.meter.is_over(state.last, now - 2 * state.period)
        });
        if rules.iter().any(is_log) {
            return;
        }
        if now - 2 * self.log.window() >= self.log.needed_until() {
            self.log.clear();
        }
    }

    /// Gives units back to the states of these rules, or to all states if there are no rules.
    pub fn refund(&mut self, units: u32, now_us: u64, rules: &[Rule]) -> u64 {
        let (units, now) = (i128::from(units), i128::from(now_us));
        let mut most = 0;
        for state in &mut self.states {
            let rule = rules.iter().find(|rule| state.identity == Identity::of(rule));
            if !rules.is_empty() && rule.is_none_or(|rule| rule.kind() != state.kind) {
                continue;
            }
            let window = rule.map_or(state.period, |rule| rule.period_us().into());
            let at = effective_time(now, state.last, window);
            let Some(at) = at.filter(|&at| !state.has_ended(at)) else { continue };
            most = most.max(state.meter.refund(state.last, at, units));
            // A state in which nothing counts has no time.
            if state.meter.counts_nothing() {
                state.last = 0;
            }
        }
        let window = if rules.is_empty() { self.log.window() } else { longest_window(rules) };
        if window > 0
            && let Some(at) = self.log.last().and_then(|last| effective_time(now, last, window))
            && at < self.log.needed_until()
        {
            most = most.max(self.log.refund(window, at, units));
        }
        if self.log.last().is_none() {
            self.log.clear();
        }
        if most > 0 {
            self.drop_ended_ban(now);
        }
        self.states.retain(|state| !state.meter.is_empty());
        u64::try_from(most).unwrap()
    }

    pub fn reset(&mut self, now_us: u64) {
        if self.log.last().is_some() || !self.states.is_empty() {
            self.drop_ended_ban(now_us.into());
        }
        self.log.clear();
        self.states.clear();
    }
}

/// A state at a time; `meter` is `None` for the log.
struct View {
    at: Micros,
    last: Micros,
    meter: Option<NaiveMeter>,
}

/// The cost of a rule in a check of this default cost.
fn cost_of(rule: &Rule, default: u32) -> i128 {
    rule.cost().own().unwrap_or(default).into()
}

/// A rule's decision, if the rule may decide, and its cost.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    pub cost: i128,
    pub decision: Decision,
}

impl Voice {
    pub fn of(rule: &Rule, default: u32, decision: Decision) -> Self {
        Self { cost: cost_of(rule, default), decision }
    }

    /// `remaining / cost`, compared as fractions; a cost of 0 makes it the largest.
    pub fn is_less_than(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|voice| i128::from(voice.decision.remaining));
        match (self.cost, other.cost) {
            (0, 0) => own < others,
            (0, _) => false,
            (_, 0) => true,
            (cost, other) => own * other < others * cost,
        }
    }
}

/// The deciding rule's five integers, and its cost.
fn summarize(rules: &[Rule], cost: u32, decisions: &[Decision], denied: bool) -> (Decision, i128) {
    let deciding_rules = rules.iter().zip(decisions).filter(|(rule, _)| !rule.is_shadow());
    let voices: Vec<Voice> =
        deciding_rules.map(|(rule, &decision)| Voice::of(rule, cost, decision)).collect();
    let length = |ms: i64| if ms < 0 { i64::MAX } else { ms };
    let wait = |voice: &Voice| length(voice.decision.wait_ms);
    if denied {
        let denies = |voice: &Voice| voice.decision.verdict == Verdict::Limited;
        let denials: Vec<Voice> = voices.into_iter().filter(denies).collect();
        let longest = denials.iter().map(wait).max();
        let voice = denials.iter().find(|voice| Some(wait(voice)) == longest).unwrap();
        return (voice.decision, voice.cost);
    }
    let wait_ms = voices.iter().map(wait).max().unwrap_or(0);
    let is_least = |voice: &&Voice| !voices.iter().any(|other| other.is_less_than(voice));
    match voices.iter().find(is_least) {
        Some(voice) => (Decision { wait_ms, ..voice.decision }, voice.cost),
        None => {
            let verdict = Verdict::Allowed;
            (Decision { verdict, limit: -1, remaining: -1, wait_ms: 0, reset_ms: 0 }, 0)
        }
    }
}
