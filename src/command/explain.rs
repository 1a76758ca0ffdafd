//! `RL.EXPLAIN`: rules in words.

use super::request::{self, Scratch};
use crate::config;
use crate::server::{Call, CommandError, Writer};
use ratelimit_engine::rule;
use ratelimit_protocol::parse;

/// Precedes the rules of a policy that decides only for keys without a plan.
const BY_PLAN: &str = "unless the key's plan names another policy: ";

/// `RL.EXPLAIN`
pub fn explain(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, mut resolver, .. }| {
        parse::explain(call.args().from(1).bytes(), &config::limits(), &mut resolver, rules)?;
        let mut explained = rules.iter().map(rule::explain);
        let mut texts = Vec::with_capacity(rules.len());
        for arg in call.args().from(1).bytes() {
            let name = arg.strip_prefix(b"@");
            let default = name.and_then(|name| name.strip_prefix(b"plan:"));
            let policy = default.or(name).and_then(|name| resolver.named(name, 0));
            let plan = if default.is_some() { BY_PLAN } else { "" };
            let rules = explained.by_ref().take(policy.map_or(1, |policy| policy.rules.len()));
            texts.extend(rules.map(|text| format!("{plan}{text}")));
        }
        call.reply(|to| to.list(texts, Writer::text));
        Ok(())
    })
}
