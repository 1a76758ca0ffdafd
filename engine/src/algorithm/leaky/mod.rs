//! The words of `leaky`: a [debt], in which each unit has a turn.
//!
//! The worst burst within a period is `Q + 1 + L - ceil(L/W)`, that of a token bucket of capacity
//! `Q + 1`. Units count when they are admitted, not when their turn comes.

use super::{OptionValues, RuleText, debt};
use crate::rule::explain::{constant, requests, share};
use crate::rule::{
    MAX_UNITS, Number, OwnOption, Rule, RuleError, Unit, write_option, write_period,
};
use alloc::string::String;
use core::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyParams {
    /// How many requests can wait for their turn, 0 ..= [`MAX_UNITS`].
    pub queue: u32,
}

const QUEUE: OwnOption = OwnOption::number("queue", "an integer 0..1000000000");

impl RuleText for LeakyParams {
    fn options() -> &'static [OwnOption] {
        &[QUEUE]
    }

    fn read(words: &OptionValues) -> Result<Self, RuleError> {
        Ok(Self { queue: words.within((0, &QUEUE), words.limit, 0, MAX_UNITS)? })
    }

    fn capacity(&self, _limit: u32) -> u32 {
        self.queue.saturating_add(1)
    }

    fn divided(self, part: impl Fn(u32) -> u32) -> Self {
        Self { queue: part(self.queue) }
    }

    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = (self.queue != rule.limit()).then_some(Number(self.queue));
        write_period(f, rule, Unit::Week)?;
        write_option(f, QUEUE.name, queue)
    }

    fn worst_in_period(&self, rule: &Rule) -> u64 {
        debt::worst_in_period(rule)
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        Some(("algorithm and period", "limit and queue"))
    }

    fn explain(&self, rule: &Rule) -> String {
        let Self { queue } = *self;
        let every = share(rule.period_us().into(), rule.limit().into());
        let turns = match queue {
            0 => "nobody waits, and a request that comes sooner is denied".into(),
            _ => format!(
                "{queue} more can wait for their turn, and the reply's wait_ms says how long"
            ),
        };
        let burst = match queue {
            0 => format!("1 request at once, the next {every} later"),
            _ => format!(
                "{} admitted at once, but they proceed {every} apart if they wait their turn",
                requests(rule.capacity())
            ),
        };
        format!(
            "requests proceed one by one, one in {every}; {turns} (leaky bucket). \
         Worst burst: {burst}. Memory: {}.",
            constant()
        )
    }
}
