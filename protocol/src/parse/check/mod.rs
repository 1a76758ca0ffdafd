//! `RL.CHECK` and `RL.PEEK`.
//!
//! Options stand before the rules, in any order. No option can be taken for a
//! rule, since a rule has a `/` or a `:`, or starts with `@` or a digit.

use super::costs::{Costs, DefaultCost, give_costs};
use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use super::resolver::RuleResolver;
use super::rules::{RULES_COME_LAST, require_rule, take_rules};
use ratelimit_engine::key::{CheckOptions, HoldOption, Meta};
use ratelimit_engine::rule::{NamedCost, Rule};

/// An `RL.CHECK`, `RL.PEEK` or `RL.MCHECK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRequest<'a> {
    /// The default cost, or the least of a range: 0 ..= [`MAX_UNITS`](ratelimit_engine::rule::MAX_UNITS).
    pub cost: u32,
    /// The time of the decision, 0 ..= [`MAX_TIME_US`](ratelimit_engine::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
    /// Whether the reply describes each rule.
    pub full: bool,
    /// The rare options; `None` if none is given.
    pub options: Option<Box<CheckOptions<'a, HoldOption<'a>>>>,
    /// How many of the last arguments are rules.
    pub rule_args: usize,
}

impl<'a> CheckRequest<'a> {
    /// A request without options.
    const fn plain() -> Self {
        Self { cost: 1, at_us: None, full: false, options: None, rule_args: 0 }
    }

    /// The options of a check at this time.
    #[inline(always)]
    pub fn options_at(&self, now_us: u64) -> Option<CheckOptions<'a>> {
        self.options.as_deref().map(|options| options.at(now_us))
    }

    /// The default cost, with the range if one was given.
    pub(super) fn default_cost(&self) -> DefaultCost {
        DefaultCost {
            least: self.cost,
            up_to: self.options.as_ref().and_then(|options| options.up_to),
        }
    }

    /// Whether the check takes a hold.
    pub(super) fn asks_for_hold(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.hold.is_some())
    }
}

/// The request of an `RL.CHECK`.
pub fn check<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<CheckRequest<'a>> {
    Reader { limits, resolver, rules, may_change: true, options: CHECK }.read(args)
}

/// A function that reads an option of one command. It returns false if no such option comes next.
pub(super) type MoreOptions<'f, 'a, I> = &'f mut dyn FnMut(&mut Cursor<'a, I>) -> Parsed<bool>;

/// The request of an `RL.WAIT`. `more` reads the options that only `RL.WAIT` has.
pub(super) fn check_with<'a, I: Iterator<Item = &'a [u8]>>(
    args: I,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
    more: MoreOptions<'_, 'a, I>,
) -> Parsed<CheckRequest<'a>> {
    Reader { limits, resolver, rules, may_change: true, options: WAIT }
        .options_then_rules(Cursor::new(args), Some(more))
}

/// The request of an `RL.PEEK`, which has no `META` and no `HOLD`: it changes nothing.
pub fn peek<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<CheckRequest<'a>> {
    Reader { limits, resolver, rules, may_change: false, options: PEEK }.read(args)
}

/// Reads a request, which may or may not change its key. `options` is what errors say after 'expected'
/// before the first rule.
struct Reader<'r, R> {
    limits: &'r Limits,
    resolver: &'r mut R,
    rules: &'r mut Vec<Rule>,
    may_change: bool,
    options: &'static str,
}

const CHECK: &str = "COST, META, HOLD, AT, FULL or a rule such as 20/1m";
const PEEK: &str = "COST, AT, FULL or a rule such as 20/1m";
const WAIT: &str = "FLOW, PRIORITY, COST, META, HOLD, FULL or a rule such as 20/1m";

impl<R: RuleResolver> Reader<'_, R> {
    /// Reads a request. Most have no options and skip the code that reads them.
    #[inline(always)]
    fn read<'a>(mut self, args: impl Iterator<Item = &'a [u8]>) -> Parsed<CheckRequest<'a>> {
        let args = Cursor::new(args);
        if may_have_options(&args, self.limits) {
            return self.options_then_rules(args, None);
        }
        self.rules(args, CheckRequest::plain(), &[])
    }

    #[inline(never)]
    fn options_then_rules<'a, I: Iterator<Item = &'a [u8]>>(
        mut self,
        mut args: Cursor<'a, I>,
        more: Option<MoreOptions<'_, 'a, I>>,
    ) -> Parsed<CheckRequest<'a>> {
        let Limits { observe, .. } = *self.limits;
        let (request, named_costs) = some_options(&mut args, self.limits, self.may_change, more)?;
        let request = self.rules(args, request, &named_costs)?;
        if observe {
            self.rules.iter_mut().for_each(Rule::observe);
        }
        Ok(request)
    }

    /// Reads the rules of a request after its options.
    #[inline(always)]
    fn rules<'a>(
        &mut self,
        mut args: Cursor<'a, impl Iterator<Item = &'a [u8]>>,
        request: CheckRequest<'a>,
        named_costs: &[NamedCost],
    ) -> Parsed<CheckRequest<'a>> {
        let Self { limits, resolver, rules, may_change, options } = self;
        let rule_args = take_rules(request.at_us, &mut args, limits, *resolver, rules)?;
        args.finish(expected(rules, options))?;
        require_rule(rules)?;
        if !named_costs.is_empty() {
            give_costs(named_costs, rules, resolver.named_a_policy())?;
        }
        // A peek can ask about slots without a hold.
        request.default_cost().test(rules, request.asks_for_hold() || !*may_change)?;
        Ok(CheckRequest { rule_args, ..request })
    }
}

/// An option of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckOption {
    Cost,
    Meta,
    Hold,
    At,
    Full,
    /// Of a check of several keys.
    OfKeys,
}

impl CheckOption {
    const ALL: [(&str, Self); 7] = [
        ("COST", Self::Cost),
        ("META", Self::Meta),
        ("HOLD", Self::Hold),
        ("AT", Self::At),
        ("FULL", Self::Full),
        ("ANY", Self::OfKeys),
        ("MOST", Self::OfKeys),
    ];

    /// The length of the longest name.
    const LONGEST: usize = {
        let (mut longest, mut rest) = (0, Self::ALL.as_slice());
        while let [(name, _), more @ ..] = rest {
            longest = if name.len() > longest { name.len() } else { longest };
            rest = more;
        }
        longest
    };

    /// The option with this name, in upper or lower case.
    fn of_name(text: &[u8]) -> Option<(&'static str, Self)> {
        let mut all = Self::ALL.iter();
        all.find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes())).copied()
    }
}

/// Whether a request may have options. Most have none, so this test is quick. Some rules begin with a
/// letter, and a rule that is no longer than an option is only found a little later.
#[inline(always)]
fn may_have_options<'a>(
    args: &Cursor<'a, impl Iterator<Item = &'a [u8]>>,
    limits: &Limits,
) -> bool {
    let may_be_option = |text: &[u8]| {
        text.len() <= CheckOption::LONGEST && text.first().is_some_and(u8::is_ascii_alphabetic)
    };
    args.peek().is_some_and(may_be_option) || limits.observe
}

/// Reads the options of an `RL.MCHECK`, if it has any. `more` reads those that no other check has.
#[inline(always)]
pub(super) fn options_of_keys<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    more: MoreOptions<'_, 'a, I>,
) -> Parsed<(CheckRequest<'a>, Vec<NamedCost>)> {
    match may_have_options(args, limits) {
        true => some_options(args, limits, true, Some(more)),
        false => Ok((CheckRequest::plain(), Vec::new())),
    }
}

/// Reads the options up to the rules. The rules get the costs by name later. `more` reads options that
/// only one command has.
#[inline(never)]
fn some_options<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    may_change: bool,
    mut more: Option<MoreOptions<'_, 'a, I>>,
) -> Parsed<(CheckRequest<'a>, Vec<NamedCost>)> {
    let mut costs = Costs::default();
    let (mut at_us, mut full, mut meta, mut hold) = (None, None, None, None);
    while let Some(text) = args.peek() {
        let found = match CheckOption::of_name(text) {
            Some((_, CheckOption::Cost)) => costs.take(args, limits.max_rules, true)?,
            Some((name, CheckOption::Meta)) if may_change => {
                args.option(name, &mut meta, |args| args.text(name))?
            }
            Some((_, CheckOption::Hold)) if !may_change => return Err(ParseError::HoldInPeek),
            Some((name, CheckOption::Hold)) => args.option(name, &mut hold, Cursor::hold)?,
            Some((name, CheckOption::At)) => {
                args.option(name, &mut at_us, |args| args.at(limits))?
            }
            Some((name, CheckOption::Full)) => args.option(name, &mut full, |_| Ok(()))?,
            Some((_, CheckOption::Meta | CheckOption::OfKeys)) | None => {
                more.as_mut().map_or(Ok(false), |more| more(args))?
            }
        };
        if !found {
            break;
        }
    }
    let keep = u32::try_from(limits.log_entries).unwrap_or(u32::MAX);
    let text = meta.filter(|_| keep > 0).map(|text| cut(text, limits.max_meta));
    let (up_to, observes) = (costs.up_to, limits.observe);
    let meta = text.map(|text| Meta { text, keep });
    let any = up_to.is_some() || meta.is_some() || hold.is_some() || observes;
    let options = any.then(|| Box::new(CheckOptions { up_to, meta, hold, observes }));
    let cost = costs.default.unwrap_or(1);
    let request = CheckRequest { cost, at_us, full: full.is_some(), options, rule_args: 0 };
    Ok((request, costs.named))
}

/// What errors say after 'expected': `options` before the first rule, then that rules come last.
pub(super) const fn expected(rules: &[Rule], options: &'static str) -> &'static str {
    if rules.is_empty() { options } else { RULES_COME_LAST }
}

/// The first `max` bytes of a text. If the text is UTF-8, up to three bytes fewer, so
/// that no character is split.
fn cut(text: &[u8], max: usize) -> &[u8] {
    if text.len() <= max {
        return text;
    }
    // A character that begins before the cut ends within three bytes of it.
    let near = text.get(..max.saturating_add(3)).unwrap_or(text);
    let readable = near.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let whole = (0..=max).rev().find(|&end| readable.is_char_boundary(end));
    let end = whole.filter(|_| readable.len() >= max).unwrap_or(max);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests;
