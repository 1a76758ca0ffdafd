//! Command arguments: every parser gives a request within the settings, or an error in one
//! line.

use super::{assert_printable, words};
use crate::parse::{
    CheckRequest, Limits, MAX_FLOW, ParseError, RuleArgError, RuleCache, RuleResolver, access,
    blocks, check, explain, log, mcheck, no_arguments, pause, peek, plan, policy, refund, renew,
    settle, sync, throttle, top, wait, written_policy,
};
use ratelimit_engine::rule::{Kind, MAX_TIME_US, MAX_UNITS, Rule, RuleError};

/// The settings of a new server.
const DEFAULT: Limits = Limits {
    max_rules: 32,
    max_log_entries: 100_000,
    same_identity: false,
    allow_at: false,
    max_meta: 256,
    log_entries: 128,
    observe: false,
};
/// The settings of a new server, but with `AT` allowed.
const TIMED: Limits = Limits { allow_at: true, ..DEFAULT };
const STRICT: Limits =
    Limits { max_rules: 2, max_log_entries: 10, max_meta: 3, log_entries: 0, ..TIMED };

/// The policy `@p`, and a cache of rules, as a server has them.
struct Policies {
    rules: [Rule; 2],
    cache: RuleCache,
}

impl Default for Policies {
    fn default() -> Self {
        let rules = [&b"5/s"[..], b"bucket:9/h"].map(|text| Rule::from_text(text).unwrap());
        Self { rules, cache: RuleCache::default() }
    }
}

impl RuleResolver for Policies {
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        if name == b"p" { Ok(&self.rules) } else { Err(RuleArgError::UnknownPolicy) }
    }

    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        self.cache.add(text, rules)
    }
}

pub fn run(data: &[u8]) {
    let args = || words(data);
    let mut rules = Vec::new();
    let policies = &mut Policies::default();
    for limits in [&DEFAULT, &TIMED, &STRICT] {
        let checked = check(args(), limits, policies, &mut rules);
        if let Ok(request) = &checked {
            test_check(request, limits, &rules);
        }
        let peeked = peek(args(), limits, policies, &mut rules);
        if let Ok(request) = &peeked {
            test_check(request, limits, &rules);
            // A check of slots needs a hold.
            if rules.iter().all(|rule| rule.kind() != Kind::Slots) {
                assert_eq!(Ok(request), checked.as_ref(), "a check takes what a peek takes");
            }
        }
        let waited = wait(args(), limits, policies, &mut rules);
        if let Ok(request) = &waited {
            test_check(&request.check, limits, &rules);
            assert_eq!(request.check.at_us, None);
            assert!(request.flow.len() <= MAX_FLOW && request.priority <= 9);
            assert!((1..=1_000).contains(&request.weight));
        }
        let many = mcheck(args(), limits, policies, &mut rules);
        if let Ok(request) = &many {
            assert!([1, request.keys].contains(&request.groups.len()));
            for group in &request.groups {
                let group = rules.get(group.rules.clone()).expect("rules that were parsed");
                test_check(&request.check, limits, group);
            }
        }
        let refunded = refund(args(), limits, policies, &mut rules);
        if let Ok(request) = &refunded {
            assert!(request.units <= MAX_UNITS && rules.len() <= limits.max_rules);
            test_time(request.at_us, limits);
        }
        let synced = sync(args(), limits, policies, &mut rules);
        if let (Ok(request), [rule]) = (&synced, rules.as_slice()) {
            assert!(u64::from(request.remaining) <= rule.capacity());
            test_time(request.at_us, limits);
        }
        let explained = explain(args(), limits, policies, &mut rules);
        let set = policy(args(), limits, &mut rules);
        let written = written_policy(data, limits, &mut rules);
        let errors = [
            checked.err(),
            peeked.err(),
            waited.err(),
            many.err(),
            refunded.err(),
            explained.err(),
            set.err(),
            written.err(),
            settle(args(), limits).err(),
            renew(args(), limits).err(),
            access(args(), limits).err(),
            pause(args(), limits).err(),
            plan(args()).err(),
            synced.err(),
        ];
        test_errors(&errors);
    }
    test_errors(&[
        throttle(args()).err(),
        log(args()).err(),
        top(args()).err(),
        blocks(args()).err(),
        no_arguments(args()).err(),
    ]);
}

fn test_check(request: &CheckRequest<'_>, limits: &Limits, rules: &[Rule]) {
    assert!(request.cost <= MAX_UNITS);
    assert!((1..=limits.max_rules).contains(&rules.len()));
    test_time(request.at_us, limits);
    let options = request.options_at(request.at_us.unwrap_or(MAX_TIME_US));
    if let Some(meta) = options.and_then(|options| options.meta) {
        assert!(meta.text.len() <= limits.max_meta && u64::from(meta.keep) == limits.log_entries);
    }
}

fn test_time(at_us: Option<u64>, limits: &Limits) {
    assert!(at_us.is_none_or(|at_us| limits.allow_at && at_us <= MAX_TIME_US));
}

fn test_errors(errors: &[Option<ParseError>]) {
    errors.iter().flatten().for_each(assert_printable);
}
