//! Tests that every effect that a command can write is read back. Each number of each command is at
//! its bounds or anywhere between, at times from 1970 to the end of the year 9999. A replica that
//! reads the effects must equal its primary, and the saved key must load.

use super::*;
use crate::parse::{self, Limits, NoPolicies, ParseError};
use proptest::test_runner::{TestCaseError, TestCaseResult};
use ratelimit_engine::check::Bounds;
use ratelimit_engine::key::{decode, encode, hold_end_us};
use ratelimit_engine::rule::{MS_US, SECOND_US};

/// A primary's key, and its replica's.
#[derive(Default)]
struct Key {
    primary: Limiter,
    replica: Limiter,
    now_us: u64,
    /// The server's clock. The expiry is counted from this or from `now_us`, whichever is later.
    server_us: u64,
}

fn bytes(line: &str) -> impl Iterator<Item = &[u8]> {
    line.split_whitespace().map(str::as_bytes)
}

/// The texts of rules as effects have them. If the request gave a rule's cost by name, the text has
/// that cost.
fn rule_texts(line: &str, rules: &[Rule]) -> Vec<String> {
    let written: Vec<&str> = line.split_whitespace().collect();
    let written = &written[written.len() - rules.len()..];
    let text = |(written, rule): (&&str, &Rule)| match rule.cost().is_named() {
        true => format!("{rule:#}"),
        false => (*written).to_string(),
    };
    written.iter().zip(rules).map(text).collect()
}

impl Key {
    /// Writes an action's effect as the primary does, and lets the replica read and perform it.
    fn propagate(&mut self, action: Action<'_>, more: &[String]) -> TestCaseResult {
        let expiry = match self.primary.is_empty() {
            true => Expiry::Keep,
            false => self.primary.deadline().expiry(self.now_us, self.server_us, None),
        };
        let effect = Effect { at_us: self.now_us, expiry, action };
        let head = Head::of(&effect);
        let texts = action.texts().into_iter().flatten();
        let more = more.iter().map(String::as_bytes);
        let args: Vec<&[u8]> = std::iter::once(head.text()).chain(texts).chain(more).collect();
        let (mut rules, mut named) = (Vec::new(), Vec::new());
        let again = read(args.iter().copied(), &mut rules, &mut named);
        prop_assert_eq!(again.as_ref(), Ok(&effect));
        effect.perform(&rules, &named, &mut self.replica);
        Ok(())
    }

    fn lapse(&mut self) -> TestCaseResult {
        match self.primary.lapse_if_due(self.now_us) {
            true => self.propagate(Action::Lapse, &[]),
            false => Ok(()),
        }
    }

    fn check(&mut self, check: &Check<'_>, rules: &[String]) -> TestCaseResult {
        self.lapse()?;
        let outcome = self.primary.check_within(Bounds::ANY, check, &mut Vec::new());
        // A repeat with another cost is refused.
        let Ok(outcome) = outcome else { return Ok(()) };
        let check = Check { cost: outcome.cost, ..*check };
        if let Some(action) = Action::of_check(&check, outcome.change) {
            let renews = matches!(action, Action::Renew { .. });
            self.propagate(action, if renews { &[] } else { rules })?;
        }
        if outcome.ban_changed() {
            let (ban, count) = (self.primary.access().cloned(), self.primary.bans().copied());
            self.propagate(Action::set(&ban.expect("a ban"), count.as_ref()), &[])?;
        }
        Ok(())
    }

    /// Runs a command as the module does.
    fn run(&mut self, command: &str, line: &str, limits: &Limits) -> Result<(), Failed> {
        let mut rules = Vec::new();
        let (args, now_us, none) = (bytes(line), self.now_us, &mut NoPolicies);
        match command {
            "CHECK" => {
                let request = parse::check(args, limits, none, &mut rules)?;
                let options = request.options_at(now_us);
                let check = Check::new(&rules, request.cost, now_us);
                let check = Check { options: options.as_ref(), ..check };
                self.check(&check, &rule_texts(line, &rules))?;
            }
            "THROTTLE" => {
                let request = parse::throttle(args)?;
                let rule = request.bucket.rule()?;
                let (rules, texts) = ([rule], [rule.to_string()]);
                let units = request.quantity.unsigned_abs();
                if request.quantity < 0 {
                    self.refund(units, &rules, &texts)?;
                } else {
                    self.check(&Check::new(&rules, units, now_us), &texts)?;
                }
            }
            "SYNC" => {
                let request = parse::sync(args, limits, none, &mut rules)?;
                self.lapse()?;
                while let Ok(units @ 1..) =
                    self.primary.sync(Bounds::ANY, &mut rules[0], request.remaining, now_us)
                {
                    let recorded = Recorded::Admitted;
                    let action = Action::Check { recorded, cost: units, meta: None };
                    self.propagate(action, &rule_texts(line, &rules))?;
                }
            }
            "REFUND" => {
                let request = parse::refund(args, limits, none, &mut rules)?;
                self.refund(request.units, &rules, &rule_texts(line, &rules))?;
            }
            "SETTLE" => {
                let request = parse::settle(args, limits)?;
                let (id, settled) = (request.id, request.settled);
                if self.primary.settle(id, settled.map(|costs| costs.with(&request.named)), now_us)
                {
                    let costs = line.split_whitespace().skip(1).map(String::from);
                    let costs: Vec<String> = costs.collect();
                    self.propagate(Action::Settle { id, settled }, &costs)?;
                }
            }
            "RENEW" => {
                let request = parse::renew(args, limits)?;
                let (id, end_us) = (request.id, hold_end_us(request.hold_us, now_us));
                if self.primary.renew(id, end_us, now_us) {
                    self.propagate(Action::Renew { id, end_us }, &[])?;
                }
            }
            "PAUSE" => {
                let request = parse::pause(args, limits)?;
                let (until_us, reason) = (request.until_us(now_us)?, request.reason);
                if self.primary.pause_until(until_us, now_us, reason) {
                    self.propagate(Action::Pause { until_us, reason }, &[])?;
                }
            }
            "BLOCK" | "EXEMPT" => {
                let kind = if command == "BLOCK" { Access::Block } else { Access::Exempt };
                let request = parse::access(args, limits)?;
                let until_us = request.ends.at(now_us)?;
                let mut entry = AccessEntry::new(kind, until_us, request.reason);
                entry.author = Some(Author::new(now_us, b"alice"));
                self.primary.set_access(Some(entry.clone()));
                self.propagate(Action::set(&entry, None), &[])?;
            }
            "PLAN" => {
                let request = parse::plan(args)?;
                let (name, until_us) = (request.name, request.ends.at(now_us)?);
                self.primary.set_plan(Some(Plan { name, until_us }));
                self.propagate(Action::Plan { until_us, name: name.as_bytes() }, &[])?;
            }
            "UNPLAN" => {
                self.primary.set_plan(None);
                self.propagate(Action::Unplan, &[])?;
            }
            "UNBLOCK" => {
                self.primary.unblock();
                self.propagate(Action::Unblock, &[])?;
            }
            "UNEXEMPT" => {
                self.primary.set_access(None);
                self.propagate(Action::Unexempt, &[])?;
            }
            "RESUME" => {
                self.primary.resume();
                self.propagate(Action::Resume, &[])?;
            }
            "RESET" => {
                if self.primary.reset(now_us) {
                    self.propagate(Action::Reset, &[])?;
                }
            }
            other => panic!("{other}"),
        }
        Ok(())
    }

    fn refund(&mut self, units: u32, rules: &[Rule], texts: &[String]) -> TestCaseResult {
        self.lapse()?;
        match self.primary.refund(units, self.now_us, rules) {
            0 => Ok(()),
            _ => self.propagate(Action::Refund { units }, texts),
        }
    }
}

/// Why a command did not run to its end.
enum Failed {
    /// Its arguments were refused, so it wrote no effect.
    Refused,
    Law(TestCaseError),
}

impl From<ParseError> for Failed {
    fn from(_: ParseError) -> Self {
        Self::Refused
    }
}

impl From<TestCaseError> for Failed {
    fn from(error: TestCaseError) -> Self {
        Self::Law(error)
    }
}

/// A number at its bounds, or anywhere between.
fn within(least: u64, most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(least), 3 => Just(most), 1 => Just(most - 1), 2 => least..=most]
}

fn units() -> impl Strategy<Value = u64> {
    within(0, MAX_UNITS.into())
}

fn rule() -> impl Strategy<Value = String> {
    let period = prop::sample::select(vec!["1ms", "1s", "7d", "366d"]);
    let shape = prop::sample::select(vec![
        "log:L/P",
        "window:L/P,res=60",
        "window:L/P",
        "fixed:L/P,align=first",
        "fixed:L/P,tz=+14:00,keep=366",
        "fixed:L/month,keep=1",
        "bucket:L/P,burst=B",
        "bucket:L/P,burst=B,refill=interval",
        "leaky:L/P",
        "leaky:L/P,queue=Q",
        "slots:L",
    ]);
    let option = prop::sample::select(vec![
        "",
        ",count=all",
        ",count=all,ban=366d",
        ",cost=C",
        ",name=a",
        ",name=b,ban=1ms:366d",
        ",shadow",
    ]);
    let most = || within(1, MAX_UNITS.into());
    (shape, option, period, (most(), most(), units(), units())).prop_map(
        |(shape, option, period, (limit, burst, queue, cost))| {
            let number =
                |text: String, letter: &str, number: u64| text.replace(letter, &number.to_string());
            let text = format!("{shape}{option}").replace('P', period);
            let text = number(number(text, "L", limit), "B", burst);
            number(number(text, "Q", queue), "C", cost)
        },
    )
}

fn rules() -> impl Strategy<Value = String> {
    prop::collection::vec(rule(), 1..3).prop_map(|rules| rules.join(" "))
}

fn hold_length() -> impl Strategy<Value = String> {
    let most = MAX_PERIOD_US;
    prop_oneof![
        within(1, most / SECOND_US).prop_map(|s| format!("EX {s}")),
        within(1, most / MS_US).prop_map(|ms| format!("PX {ms}")),
    ]
}

fn cost() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        3 => units().prop_map(|n| format!("COST {n}")),
        1 => within(1, MAX_UNITS.into()).prop_map(|n| format!("COST {n}..{MAX_UNITS}")),
        1 => units().prop_map(|n| format!("COST a={n}")),
    ]
}

fn command() -> impl Strategy<Value = (&'static str, String)> {
    let most = MAX_UNITS;
    let refund = prop::sample::select(vec!["", "REFUND"]);
    let hold =
        (hold_length(), refund).prop_map(|(length, refund)| format!("HOLD r {length} {refund}"));
    let hold = prop_oneof![1 => Just(String::new()), 2 => hold];
    let meta = prop::sample::select(vec!["", "META who"]);
    let check = (cost(), hold, meta, rules())
        .prop_map(|(cost, hold, meta, rules)| format!("{cost} {hold} {meta} {rules}"));
    let throttle = (within(0, (most - 1).into()), units(), within(1, 366 * 86_400), units())
        .prop_flat_map(|(burst, count, period, quantity)| {
            let sign = prop::sample::select(vec!["", "-"]);
            sign.prop_map(move |sign| format!("{burst} {count} {period} {sign}{quantity}"))
        });
    let ends = prop_oneof![
        Just(String::new()),
        within(1, MAX_TIME_US / SECOND_US).prop_map(|s| format!("EX {s}")),
        within(1, MAX_TIME_US / MS_US).prop_map(|ms| format!("PX {ms}")),
        within(1, MAX_TIME_US / SECOND_US).prop_map(|s| format!("EXAT {s}")),
        within(1, MAX_TIME_US / MS_US).prop_map(|ms| format!("PXAT {ms}")),
        Just("FOR 366d REASON why".to_string()),
    ];
    let ends = ends.boxed();
    let settlement = prop_oneof![
        Just("REFUND".to_string()),
        units().prop_map(|n| format!("COST {n}")),
        (units(), units()).prop_map(|(a, n)| format!("COST a={a} COST {n}")),
    ];
    let none = || Just(String::new());
    prop_oneof![
        8 => check.prop_map(|line| ("CHECK", line)),
        2 => throttle.prop_map(|line| ("THROTTLE", line)),
        3 => (units(), rule()).prop_map(|(n, rule)| ("SYNC", format!("REMAINING {n} {rule}"))),
        2 => (units(), rules()).prop_map(|(n, rules)| ("REFUND", format!("{n} {rules}"))),
        1 => units().prop_map(|n| ("REFUND", n.to_string())),
        2 => settlement.prop_map(|how| ("SETTLE", format!("r {how}"))),
        2 => hold_length().prop_map(|length| ("RENEW", format!("r {length}"))),
        2 => prop_oneof![
            hold_length(),
            ends.clone(),
        ].prop_map(|ends| ("PAUSE", ends)),
        1 => ends.clone().prop_map(|ends| ("BLOCK", ends)),
        1 => ends.clone().prop_map(|ends| ("EXEMPT", ends)),
        2 => ends.prop_map(|ends| ("PLAN", format!("pro {}", ends.replace("REASON why", "")))),
        1 => none().prop_map(|line| ("UNPLAN", line)),
        1 => none().prop_map(|line| ("UNBLOCK", line)),
        2 => none().prop_map(|line| ("UNEXEMPT", line)),
        1 => none().prop_map(|line| ("RESUME", line)),
        1 => none().prop_map(|line| ("RESET", line)),
    ]
}

/// The time of a command, and the server's clock. Each is often the latest valid time, or lies in one
/// span of nine days, so that the two are often close.
fn time() -> impl Strategy<Value = (u64, u64)> {
    let time = || {
        prop_oneof![
            3 => Just(MAX_TIME_US),
            1 => Just(0),
            3 => 1_700_000_000_000_000..1_700_000_000_000_000 + 9 * 86_400 * SECOND_US,
            1 => 0..=MAX_TIME_US,
        ]
    };
    (time(), time())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn every_effect_of_a_command_is_read_back(
        (now_us, server_us) in time(),
        log_entries in prop::sample::select(vec![1, 128, 1_000_000]),
        commands in prop::collection::vec((command(), prop_oneof![4 => Just(None), 1 => time().prop_map(Some)]), 1..12),
    ) {
        let limits = Limits { log_entries, ..Limits::ANY_CHECK };
        let mut key = Key { now_us, server_us, ..Key::default() };
        for ((command, line), then) in commands {
            (key.now_us, key.server_us) = then.unwrap_or((key.now_us, key.server_us));
            if let Err(Failed::Law(error)) = key.run(command, &line, &limits) {
                return Err(TestCaseError::fail(format!("RL.{command} {line}: {error}")));
            }
            prop_assert_eq!(&key.primary, &key.replica, "RL.{} {}", command, line);
            if !key.primary.is_empty() {
                let loaded = decode(&encode(&key.primary));
                prop_assert_eq!(loaded.as_ref(), Ok(&key.primary), "RL.{} {}", command, line);
            }
        }
    }
}

/// A `leaky` rule with the largest queue admits one unit more at once than an effect can record. No
/// other rule admits that many.
#[test]
fn a_sync_that_takes_two_effects_is_read_back() {
    let mut key = Key { now_us: 5, ..Key::default() };
    let line = format!("REMAINING 0 leaky:1/1h,queue={MAX_UNITS}");
    assert!(key.run("SYNC", &line, &Limits::ANY_CHECK).is_ok());
    assert_eq!(key.primary, key.replica);
    let rules = rules_of_line(&format!("leaky:1/1h,queue={MAX_UNITS}"));
    let seen = key.replica.peek(&Check::new(&rules, 0, 5), &mut Vec::new()).summary;
    assert_eq!(seen.remaining, 0);
}
