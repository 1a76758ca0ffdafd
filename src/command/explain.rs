//! `RL.EXPLAIN`: rules in words.

use super::scratch::{self, Scratch};
use crate::config;
use crate::server::{Call, CommandError};
use ratelimit_core::rule;
use ratelimit_protocol::parse;

/// `RL.EXPLAIN`
pub fn explain(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, resolver, .. }| {
        parse::explain(call.args().from(1).bytes(), &config::limits(), resolver, rules)?;
        call.reply(|to| to.list(&*rules, |to, rule| to.text(rule::explain(rule))));
        Ok(())
    })
}
