//! A limiter in the process, for as long as the server is away: the module's own decisions, on
//! what this process alone has counted.
//!
//! It takes the server's commands and gives the server's replies. Each process keeps to its part of
//! every limit. Only the server knows an operator's blocks and exemptions, and the pauses of other
//! processes.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use ratelimit_engine::check::{Bounds, Budget, Decision, KeyCheck, check_keys};
use ratelimit_engine::key::{self, Check, Limiter, hold_end_us};
use ratelimit_engine::rule::{Rule, RuleError, looks_like_rule};
use ratelimit_protocol::parse::{self, Limits, ParseError, RuleArgError, RuleResolver};
use redis::{Arg, Cmd, RedisResult};

use crate::reply::{Report, RuleReport, Source, Verdict};
use crate::rules::{self, Rules, refused};

const MOST_KEYS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// The module's defaults.
const BOUNDS: Bounds = Bounds { max_states: 256, max_holds: 10_000 };

type Keys = LruCache<Vec<u8>, Limiter>;

#[derive(Debug)]
pub struct Local {
    processes: NonZeroU32,
    policies: HashMap<String, Vec<Rule>>,
    keys: Mutex<Keys>,
}

impl Local {
    /// A limiter with these policies, for one process among this number of processes.
    pub fn new(processes: NonZeroU32, policies: &HashMap<String, Rules>) -> RedisResult<Self> {
        let rule = |text: &String| Ok(rules::parse(text)?.divided(processes));
        let read = |(name, rules): (&String, &Rules)| {
            Ok((name.clone(), rules.texts().iter().map(rule).collect::<RedisResult<_>>()?))
        };
        let policies = policies.iter().map(read).collect::<RedisResult<_>>()?;
        Ok(Self { processes, policies, keys: Mutex::new(LruCache::new(MOST_KEYS)) })
    }

    /// The decision that a server would make if only this process used it.
    pub fn decide(&self, command: &Cmd) -> RedisResult<Report> {
        let now_us = now_us();
        match &words(command)[..] {
            [b"RL.CHECK", key, check @ ..] => {
                self.check(&[&[b"1", *key][..], check].concat(), false, now_us)
            }
            [b"RL.MCHECK", check @ ..] => self.check(check, true, now_us),
            [b"RL.PEEK", key, peek @ ..] => self.peek(key, peek, now_us),
            _ => Err(refused("no check of the limiter in the process")),
        }
    }

    /// The reply of a server to any other command.
    pub fn answer(&self, command: &Cmd) -> RedisResult<i64> {
        let now_us = now_us();
        match &words(command)[..] {
            [b"RL.SETTLE", key, settlement @ ..] => self.change(key, |limiter| {
                let request = parse::settle(bytes(settlement), &Limits::ANY).map_err(refused)?;
                let how = request.settled.map(|costs| costs.with(&request.named));
                Ok(limiter.settle(request.id, how, now_us).into())
            }),
            [b"RL.RENEW", key, renewal @ ..] => self.change(key, |limiter| {
                let request = parse::renew(bytes(renewal), &Limits::ANY).map_err(refused)?;
                let end_us = hold_end_us(request.hold_us, now_us);
                Ok(limiter.renew(request.id, end_us, now_us).into())
            }),
            [b"RL.REFUND", key, refund @ ..] => self.change(key, |limiter| {
                let (mut resolver, mut rules) = (self.resolver(), Vec::new());
                let args = bytes(refund);
                let request = parse::refund(args, &Limits::ANY, &mut resolver, &mut rules);
                let units = request.map_err(refused)?.units;
                Ok(limiter.refund(units, now_us, &rules).try_into().unwrap_or(i64::MAX))
            }),
            [b"RL.RESET", key] => self.change(key, |limiter| Ok(limiter.reset(now_us).into())),
            [b"RL.PAUSE", key, pause @ ..] => self.change(key, |limiter| {
                let request = parse::pause(bytes(pause), &Limits::ANY).map_err(refused)?;
                let until_us = request.until_us(now_us).map_err(refused)?;
                limiter.pause_until(until_us, now_us, request.reason);
                Ok(limiter.pause().map_or(0, |pause| pause.left_ms(now_us)))
            }),
            [b"RL.RESUME", key] => self.change(key, |limiter| {
                let was_paused = limiter.pause_at(now_us).is_some();
                limiter.resume();
                Ok(was_paused.into())
            }),
            _ => Err(refused("no command of the limiter in the process")),
        }
    }

    /// Answers an `RL.MCHECK`. The reply names the keys if there may be `several`.
    fn check(&self, args: &[&[u8]], several: bool, now_us: u64) -> RedisResult<Report> {
        let (mut resolver, mut rules) = (self.resolver(), Vec::new());
        let request = parse::mcheck(bytes(args), &Limits::ANY_CHECK, &mut resolver, &mut rules);
        let request = request.map_err(refused)?;
        let names = args.get(1..).unwrap_or_default().iter().take(request.keys);
        let options = request.check.options_at(now_us);
        let check_of = |place: usize| {
            let group = request.groups.get(place).or(request.groups.first());
            let own = group.and_then(|group| rules.get(group.rules.clone())).unwrap_or_default();
            Check { rules: own, cost: request.check.cost, now_us, options: options.as_ref() }
        };

        let mut keys = self.keys();
        let found = names.clone().map(|name| (*name, keys.pop(*name).unwrap_or_default()));
        let mut found = found.collect::<Vec<_>>();
        let limiters = found.iter_mut().map(|(_, limiter)| limiter).enumerate();
        let checks = limiters.map(|(place, limiter)| KeyCheck::new(limiter, check_of(place)));
        let (mut checks, mut decisions) = (checks.collect::<Vec<_>>(), Vec::new());
        let answer = check_keys(&mut checks, BOUNDS, &mut decisions).map(|decider| {
            let shown = names.zip(&checks).map(|(name, key)| Shown {
                name: several.then_some(*name),
                check: *key.check(),
                decisions: key.decisions().clone(),
                limiter: key.limiter(),
            });
            let shown = shown.collect::<Vec<_>>();
            let summary = checks.first().map(|first| first.outcome().summary);
            summary.map(|summary| report(summary, &mut decisions, &shown, decider))
        });
        for (name, limiter) in found {
            keep(&mut keys, name, limiter);
        }
        answer.map_err(refused)?.ok_or_else(|| refused("no key"))
    }

    fn peek(&self, key: &[u8], args: &[&[u8]], now_us: u64) -> RedisResult<Report> {
        let (mut resolver, mut rules) = (self.resolver(), Vec::new());
        let limits = Limits::ANY_CHECK;
        let request = match parse::peek(bytes(args), &limits, &mut resolver, &mut rules) {
            // All rules are unknown policies, which limit nothing.
            Err(ParseError::Arity) if resolver.named_a_policy => {
                parse::peek([&b"1/s,shadow"[..]].into_iter(), &limits, &mut resolver, &mut rules)
            }
            request => request,
        };
        let request = request.map_err(refused)?;
        let options = request.options_at(now_us);
        let mut check =
            Check { rules: &rules, cost: request.cost, now_us, options: options.as_ref() };
        let (mut keys, new, mut decisions) = (self.keys(), Limiter::default(), Vec::new());
        let limiter = keys.get(key).unwrap_or(&new).as_of(now_us);
        let outcome = limiter.peek(&check, &mut decisions);
        check.cost = outcome.cost;
        let all = 0..decisions.len();
        let shown = Shown { name: None, check, decisions: all, limiter: &limiter };
        Ok(report(outcome.summary, &mut decisions, &[shown], None))
    }

    fn change(
        &self,
        key: &[u8],
        change: impl FnOnce(&mut Limiter) -> RedisResult<i64>,
    ) -> RedisResult<i64> {
        let mut keys = self.keys();
        let mut limiter = keys.pop(key).unwrap_or_default();
        let changed = change(&mut limiter);
        keep(&mut keys, key, limiter);
        changed
    }

    const fn resolver(&self) -> Resolver<'_> {
        Resolver { local: self, named_a_policy: false }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(keys: &mut Keys, name: &[u8], limiter: Limiter) {
    if !limiter.is_empty() {
        keys.put(name.to_vec(), limiter);
    }
}

/// Reads rules, and takes this process's part of their limits. An unknown policy limits nothing.
struct Resolver<'a> {
    local: &'a Local,
    named_a_policy: bool,
}

impl RuleResolver for Resolver<'_> {
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        self.named_a_policy = true;
        let name = str::from_utf8(name).unwrap_or_default();
        Ok(self.local.policies.get(name).map_or(&[], Vec::as_slice))
    }

    fn named_a_policy(&self) -> bool {
        self.named_a_policy
    }

    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        let is_rule = looks_like_rule(text);
        if is_rule {
            rules.push(Rule::from_text(text)?.divided(self.local.processes));
        }
        Ok(is_rule)
    }
}

/// A key in a reply.
struct Shown<'a> {
    name: Option<&'a [u8]>,
    check: Check<'a>,
    /// Where its decisions are.
    decisions: Range<usize>,
    limiter: &'a Limiter,
}

/// The report, as the server would send it.
fn report(
    summary: Decision,
    decisions: &mut [Decision],
    keys: &[Shown<'_>],
    decider: Option<usize>,
) -> Report {
    let granted = keys.first().and_then(|key| key.check.granted(summary.verdict)).map(u64::from);
    let rules = keys.iter().flat_map(|key| rules_of(key, decisions)).collect();
    let verdict = match summary.verdict {
        key::Verdict::Allowed => Verdict::Allowed,
        key::Verdict::Limited => Verdict::Limited,
        key::Verdict::Blocked => Verdict::Blocked,
    };
    let key = decider.and_then(|place| keys.get(place)?.name).map(<[u8]>::to_vec);
    Report { verdict, wait: time(summary.wait_ms), key, granted, rules, source: Source::Local }
}

fn rules_of(key: &Shown<'_>, decisions: &mut [Decision]) -> Vec<RuleReport> {
    let Shown { name, check, limiter, .. } = key;
    let budget = &Budget::of_command();
    let decisions = decisions.get_mut(key.decisions.clone()).unwrap_or_default();
    limiter.fill_resets(check, decisions, budget);
    let rules = limiter.rule_reports(check, decisions, budget).map(|report| RuleReport {
        rule: report.rule.to_string(),
        name: report.rule.name().map(|name| name.as_str().to_string()),
        key: name.map(<[u8]>::to_vec),
        cost: report.cost.into(),
        denies: report.decision.verdict != key::Verdict::Allowed,
        shadow: report.rule.is_shadow(),
        limit: report.decision.limit.try_into().unwrap_or_default(),
        quota: report.rule.limit().into(),
        period: time(report.period_ms).unwrap_or_default(),
        remaining: report.decision.remaining.try_into().unwrap_or_default(),
        wait: time(report.decision.wait_ms),
        next: time(report.next_ms),
        reset: time(report.decision.reset_ms),
    });
    rules.collect()
}

/// -1 is never.
fn time(ms: i64) -> Option<Duration> {
    ms.try_into().ok().map(Duration::from_millis)
}

fn words(command: &Cmd) -> Vec<&[u8]> {
    let words = command.args_iter().map(|word| match word {
        Arg::Simple(bytes) => bytes,
        _ => &[],
    });
    words.collect()
}

fn bytes<'a>(args: &[&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + Clone {
    args.iter().copied()
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    fn local(processes: u32) -> Local {
        let policies = HashMap::from([("free".to_string(), Rules::from("8/m"))]);
        Local::new(NonZeroU32::new(processes).unwrap(), &policies).unwrap()
    }

    fn command(line: &str) -> Cmd {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        command.arg(words.collect::<Vec<_>>());
        command
    }

    fn reply(local: &Local, line: &str) -> Reply {
        local.decide(&command(line)).unwrap().reply()
    }

    #[test]
    fn a_process_keeps_to_its_part() {
        let local = local(4);
        let left = |line| reply(&local, line).remaining;
        assert_eq!((left("RL.CHECK a 8/m"), left("RL.PEEK a 8/m")), (Some(1), Some(1)));
        assert_eq!(left("RL.CHECK a COST 1..9 8/m"), Some(0));
        assert!(!reply(&local, "RL.CHECK a 8/m").is_allowed());
        assert_eq!(left("RL.CHECK p @free"), Some(1));
        assert_eq!(left("RL.CHECK q @plan:free"), Some(1), "the default decides");
        for unlimited in ["RL.CHECK p @x", "RL.PEEK p @plan:x", "RL.CHECK p COST in=7 @x"] {
            assert_eq!(reply(&local, unlimited).limit, None, "{unlimited}");
        }
        assert_eq!(local.answer(&command("RL.REFUND a 1 8/m")), Ok(1));
        assert!(reply(&local, "RL.CHECK a 8/m").is_allowed());
    }

    #[test]
    fn several_keys_pass_together_or_not_at_all() {
        let local = local(1);
        assert!(reply(&local, "RL.CHECK b 1/m").is_allowed());
        let ask = "RL.MCHECK 2 a b COST y=3 FULL 5/m,name=x NEXT 1/m window:9/h,name=y";
        let report = local.decide(&command(ask)).unwrap();
        assert_eq!((report.is_allowed(), report.key), (false, Some(b"b".to_vec())));
        let rules = report.rules.iter();
        let rules = rules.map(|rule| (rule.label(), rule.cost, rule.denies, rule.remaining));
        let expected = [("x", 1, false, 5), ("log:1/1m", 1, true, 0), ("y", 3, false, 9)];
        assert_eq!(rules.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn wrong_requests_are_refused_as_by_the_server() {
        let local = local(1);
        for (line, error) in [
            ("RL.CHECK a 5/x", "\"ERR\": rule '5/x': the period 'x' has no known unit"),
            ("RL.CHECK a slots:1", "\"ERR\": rule 'slots:1': slots are held, give HOLD"),
            ("RL.PEEK a", "\"ERR\": wrong number of arguments"),
        ] {
            let given = local.decide(&command(line)).unwrap_err();
            assert!(given.to_string().starts_with(error), "{given}");
            assert!(!crate::outage::is_outage(&given));
        }
    }
}
