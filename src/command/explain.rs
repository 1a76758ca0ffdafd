//! `RL.EXPLAIN`: rules in words.

use super::scratch::{self, Scratch};
use crate::config;
use crate::limit;
use crate::parse;
use crate::server::{Call, Failure};

/// `RL.EXPLAIN rule [rule ...]`
pub fn explain(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(call, |Scratch { rules, lexicon, .. }| {
        parse::explain(call.args().from(1).bytes(), &config::limits(), lexicon, rules)?;
        call.reply(|to| {
            to.array(rules.len());
            for rule in rules.iter() {
                to.text(limit::explain(rule));
            }
        });
        Ok(())
    })
}
