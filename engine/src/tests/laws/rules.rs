//! Rules as input for the laws: every algorithm, every option.

use crate::algorithm::bucket::BucketParams;
use crate::algorithm::leaky::LeakyParams;
use crate::algorithm::meter::Params;
use crate::rule::{
    Align, Kind, Ladder, MAX_UNITS, Name, Period, Refill, Rule, RuleSpec, THROTTLE, Unit,
};
use proptest::option;
use proptest::prelude::*;

pub const NAMES: [&str; 3] = ["free", "x", THROTTLE];

pub fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        8 => 1..=6u64,
        5 => 7..=20u64,
        3 => 21..=1_000u64,
        1 => 0..=u64::from(MAX_UNITS),
        1 => Just(u64::from(MAX_UNITS)),
    ]
}

/// Typical periods, including the shortest and the longest.
pub const PERIODS: [(u64, Unit); 13] = [
    (1, Unit::Millisecond),
    (7, Unit::Millisecond),
    (1, Unit::Second),
    (2, Unit::Second),
    (13, Unit::Second),
    (1, Unit::Minute),
    (1, Unit::Hour),
    (1, Unit::Day),
    (7, Unit::Day),
    (1, Unit::Week),
    (2, Unit::Week),
    (366, Unit::Day),
    (1, Unit::Month),
];

fn period() -> impl Strategy<Value = Period> {
    let odd_ms = (1..=100_000u64).prop_map(|count| Period { count, unit: Unit::Millisecond });
    let plain = prop::sample::select(&PERIODS[..]);
    prop_oneof![
        1 => odd_ms,
        3 => plain.prop_map(|(count, unit)| Period { count, unit }),
    ]
}

pub fn cost() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => Just(1),
        1 => Just(0),
        4 => 2..=6u32,
        2 => 0..=30u32,
        1 => 0..=1_000u32,
        1 => 0..=MAX_UNITS,
        1 => Just(MAX_UNITS),
    ]
}

/// The cost in a rule's text, and the named cost. Boxed, because strategies of rule sets grow large on
/// the stack.
fn costs() -> BoxedStrategy<(Option<u32>, Option<u32>)> {
    (option::weighted(0.15, cost()), option::weighted(0.1, cost())).boxed()
}

fn name() -> impl Strategy<Value = Name> {
    prop::sample::select(&NAMES[..]).prop_map(|text| Name::new(text.as_bytes()).unwrap())
}

fn rarely(one_in: u32) -> impl Strategy<Value = bool> {
    prop::bool::weighted(1.0 / f64::from(one_in))
}

/// A rule of one algorithm, with a name or without.
fn of_kind(kind: Kind, name: impl Strategy<Value = Option<Name>>) -> impl Strategy<Value = Rule> {
    let ban = prop::collection::vec(1..=5_000u64, 1..=3).prop_map(|rungs| Ladder::of_ms(&rungs));
    let common =
        (limit(), period(), name, rarely(4), costs(), option::weighted(0.1, ban), rarely(6));
    let own = (
        option::of(prop_oneof![1..=4i64, 1..=60i64]),
        option::of(prop_oneof![Just(Align::Epoch), Just(Align::First)]),
        option::weighted(0.3, -840..=840i64),
        option::weighted(0.2, 0..=5i64),
        option::of(limit().prop_map(|burst| burst.max(1).cast_signed())),
        option::of(prop_oneof![Just(Refill::Even), Just(Refill::Interval)]),
        option::of(limit().prop_map(u64::cast_signed)),
    );
    (common, own).prop_map(move |(common, own)| {
        let (limit, period, name, count_all, (written, named), ban, shadow) = common;
        let (res, align, tz_min, keep, burst, refill, queue) = own;
        let (period, cost) = (Some(period), written.map(u64::from));
        let plain = RuleSpec { kind, limit, period, ..RuleSpec::default() };
        let common = RuleSpec { name, count_all, cost, ban, shadow, ..plain };
        let own = [
            ("res", res),
            ("align", align.map(|align| i64::from(align == Align::First))),
            ("tz", tz_min),
            ("keep", keep),
            ("burst", burst),
            ("refill", refill.map(|refill| i64::from(refill == Refill::Interval))),
            ("queue", queue),
        ];
        let of_kind = |name: &str| kind.options().iter().any(|option| option.name == name);
        let given = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let given = given.filter(|(name, _)| of_kind(name));
        let spec = given.fold(common, |spec, (name, value)| spec.with(name, value));
        suited(spec, named)
    })
}

/// The rule of a spec, with this named cost. Only for `fixed` can a period be a month: others get 30
/// days instead.
pub fn suited(mut spec: RuleSpec, named: Option<u32>) -> Rule {
    if spec.period.is_some_and(|period| period.unit == Unit::Month) {
        if spec.kind == Kind::Fixed {
            spec = spec.with("align", 0);
        } else {
            spec.period = Some(Period { count: 30, unit: Unit::Day });
        }
    }
    let mut rule = spec.validate().expect("a valid rule");
    if let Some(cost) = named {
        rule.set_named_cost(cost);
    }
    rule
}

pub fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&Kind::RATES[..])
}

/// Any rule.
pub fn any_rule() -> impl Strategy<Value = Rule> {
    kind().prop_flat_map(|kind| of_kind(kind, option::weighted(0.2, name())))
}

/// Rules of one algorithm under one name: they share one state, even with different shapes.
pub fn namesakes(kind: Kind, most: usize) -> impl Strategy<Value = Vec<Rule>> {
    shared_name()
        .prop_flat_map(move |name| prop::collection::vec(of_kind(kind, Just(Some(name))), 1..=most))
}

/// An ordinary name, or the name `throttle`, which a bucket stores as a mark.
fn shared_name() -> impl Strategy<Value = Name> {
    prop::sample::select(&["x", THROTTLE][..]).prop_map(|text| Name::new(text.as_bytes()).unwrap())
}

/// Rules of any algorithm under one name.
pub fn any_namesakes(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    shared_name().prop_flat_map(move |name| {
        let rule = kind().prop_flat_map(move |kind| of_kind(kind, Just(Some(name))));
        prop::collection::vec(rule, 1..=most)
    })
}

/// Rules with small limits and windows of 1 to 40 ms.
pub fn alike(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    let rule = (any_rule(), 1..=6u64, 1..=6u64, 1..=40u64).prop_map(|(rule, limit, room, ms)| {
        let mut spec = spec_of(&Limits { limit, room }.of(&rule));
        spec.period = Some(Period { count: ms, unit: Unit::Millisecond });
        spec.validate().expect("a valid rule")
    });
    prop::collection::vec(rule, 1..=most).prop_map(distinct)
}

/// Rules for one check: all identities differ.
pub fn rule_set(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(any_rule(), 1..=most).prop_map(distinct)
}

/// Log rules for one check.
pub fn any_logs(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    let rule = of_kind(Kind::Log, option::weighted(0.2, name()));
    prop::collection::vec(rule, 1..=most).prop_map(distinct)
}

/// Log rules that charge no denials and are not shadows.
pub fn plain_logs(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    logs(most, |spec| RuleSpec { count_all: false, shadow: false, ..spec })
}

/// Log rules that may charge denials, but neither ban nor are shadows.
pub fn charging_logs(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    logs(most, |spec| RuleSpec { ban: None, shadow: false, ..spec })
}

fn logs(most: usize, with: fn(RuleSpec) -> RuleSpec) -> impl Strategy<Value = Vec<Rule>> {
    let rule = of_kind(Kind::Log, Just(None))
        .prop_map(move |rule| with(spec_of(&rule)).validate().expect("a valid rule"));
    prop::collection::vec(rule, 1..=most).prop_map(distinct)
}

/// These rules with slots before them.
pub fn with_slots(
    rules: impl Strategy<Value = Vec<Rule>> + 'static,
) -> impl Strategy<Value = Vec<Rule>> {
    let name = option::weighted(0.3, Just(Name::new(b"pool").unwrap()));
    let slots = (1..12u64, name, option::weighted(0.3, 0..4u64), rarely(8));
    let slots = slots.prop_map(|(limit, name, cost, shadow)| {
        let spec = RuleSpec { name, cost, shadow, ..RuleSpec::slots(limit) };
        spec.validate().expect("a valid rule")
    });
    let rules = prop_oneof![1 => Just(Vec::new()).boxed(), 2 => rules.boxed()];
    (prop::collection::vec(slots, 1..3), rules)
        .prop_map(|(slots, rules)| distinct([slots, rules].concat()))
}

/// Rules that charge no denials and settle exactly: as if the check had cost the settled amount. None
/// of their windows opens with its first request.
pub fn settled_exactly(most: usize) -> impl Strategy<Value = Vec<Rule>> {
    let kind = prop::sample::select(&SETTLED_EXACTLY[..]);
    let rule = kind.prop_flat_map(|kind| of_kind(kind, option::weighted(0.3, name())));
    let rule = rule.prop_map(|rule| made_exact(&rule));
    prop::collection::vec(rule, 1..=most).prop_map(distinct)
}

/// The algorithms of [`settled_exactly`].
pub const SETTLED_EXACTLY: [Kind; 4] = [Kind::Log, Kind::Window, Kind::Fixed, Kind::Bucket];

/// Changes a rule of one of the [`SETTLED_EXACTLY`] algorithms so that it settles exactly.
pub fn made_exact(rule: &Rule) -> Rule {
    let mut spec = spec_of(&plain(rule));
    if spec.kind == Kind::Fixed {
        spec = spec.with("align", 0);
    }
    if spec.kind == Kind::Bucket {
        spec = spec.with("refill", 0);
    }
    if spec.kind == Kind::Log {
        // A log keeps at most `MAX_UNITS` units, so a full log of a rule with that limit has no room
        // for an excess.
        spec.limit = spec.limit.min(u64::from(MAX_UNITS / 2));
    }
    spec.validate().expect("a valid rule")
}

/// A leaky bucket that leaks and can deny.
pub fn leaky() -> impl Strategy<Value = Vec<Rule>> {
    of_kind(Kind::Leaky, Just(None)).prop_map(|rule| {
        let limit = u64::from(rule.limit().max(1));
        let spec = RuleSpec { limit, ..spec_of(&plain(&uncosted(&rule))) };
        vec![spec.validate().expect("a valid rule")]
    })
}

/// The first rule of each identity. All log rules get the cost of the first one.
pub fn distinct(rules: Vec<Rule>) -> Vec<Rule> {
    let is_log = |rule: &&Rule| rule.kind() == Kind::Log;
    let log_cost = rules.iter().find(is_log).and_then(|rule| rule.cost().own());
    let mut kept: Vec<Rule> = Vec::new();
    for rule in rules {
        if kept.iter().any(|other| other.same_identity(&rule)) {
            continue;
        }
        kept.push(match rule.kind() {
            Kind::Log => with_cost(&rule, log_cost),
            Kind::Window | Kind::Fixed | Kind::Bucket | Kind::Leaky | Kind::Slots => rule,
        });
    }
    kept
}

/// The rule with this cost in its text.
fn with_cost(rule: &Rule, cost: Option<u32>) -> Rule {
    let spec = RuleSpec { cost: cost.map(u64::from), ..spec_of(rule) };
    spec.validate().expect("a valid rule")
}

/// The rule without a cost in its text.
pub fn uncosted(rule: &Rule) -> Rule {
    with_cost(rule, None)
}

/// The rule without `count=all`, `ban=` and `shadow`.
pub fn plain(rule: &Rule) -> Rule {
    let spec = RuleSpec { count_all: false, ban: None, shadow: false, ..spec_of(rule) };
    spec.validate().expect("a valid rule")
}

/// New limits for a rule: a limit, and a burst or queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    limit: u64,
    room: u64,
}

pub fn any_limits() -> impl Strategy<Value = Limits> {
    (limit(), limit()).prop_map(|(limit, room)| Limits { limit, room })
}

impl Limits {
    fn within(self, change: Change, rule: &Rule) -> Rule {
        let limit = u64::from(rule.limit());
        match (rule.kind(), change) {
            (Kind::Log, _) => *rule,
            (Kind::Bucket, Change::Room) => Self { limit, ..self }.of(rule),
            (Kind::Window | Kind::Fixed | Kind::Leaky | Kind::Slots, _)
            | (Kind::Bucket, Change::Rates) => self.of(rule),
        }
    }

    /// The rule with these limits. It reads the same state.
    pub fn of(self, rule: &Rule) -> Rule {
        let mut spec = spec_of(rule);
        spec.limit = self.limit;
        match rule.kind() {
            Kind::Bucket => spec = spec.with("burst", self.room.max(1).cast_signed()),
            Kind::Leaky => spec = spec.with("queue", self.room.cast_signed()),
            Kind::Log | Kind::Window | Kind::Fixed | Kind::Slots => {}
        }
        spec.validate().expect("a valid rule")
    }
}

/// How much of a rule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the burst of a bucket, or the limit of a counter. The consumed units stay, and count as
    /// long as before.
    Room,
    /// Also the rate of a bucket. A log's limit stays, because a log keeps only what its limits need.
    Rates,
}

/// Sets of rules that settle exactly: as if the check had cost the settled amount. The limits differ
/// from set to set, but the identity in each place does not.
pub fn settled_exactly_relimited(
    most: usize,
    change: Change,
) -> impl Strategy<Value = Vec<Vec<Rule>>> {
    let limits = prop::collection::vec(any_limits(), 2 * most);
    (settled_exactly(most), limits).prop_map(move |(rules, limits)| {
        let relimited = |limits: &[Limits]| -> Vec<Rule> {
            rules.iter().zip(limits).map(|(rule, limits)| limits.within(change, rule)).collect()
        };
        vec![rules.clone(), relimited(&limits[..most]), relimited(&limits[most..])]
    })
}

/// The spec of a rule, with its named cost as its `cost=`, and with its burst or queue written out.
pub fn spec_of(rule: &Rule) -> RuleSpec {
    let spec = RuleSpec::from_text(format!("{rule:#}").as_bytes()).expect("a rule");
    match rule.params() {
        // A burst of 0 exists only under a limit of 0, and cannot be written.
        Params::Bucket(BucketParams { burst, .. }) => spec.with("burst", burst.max(1)),
        Params::Leaky(LeakyParams { queue }) => spec.with("queue", queue),
        Params::Log(_) | Params::Window(_) | Params::Fixed(_) | Params::Slots(_) => spec,
    }
}
