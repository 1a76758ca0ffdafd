//! `RL.POLICY`: rules under a name.

use super::audit;
use super::request::{self, Scratch};
use crate::config;
use crate::policy;
use crate::server::{Call, CommandError, Writer, clock};
use crate::unreadable;
use ratelimit_engine::rule::Name;
use ratelimit_protocol::parse::{self, Limits, PolicyRequest};

/// The help, in the form of the server's own `HELP` subcommands.
const HELP: [&str; 11] = [
    "RL.POLICY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "SET <name> <rule> [<rule> ...]",
    "    Set or replace a policy: checks name it as @name.",
    "GET <name>",
    "    Return the rules of a policy.",
    "DEL <name> [FORCE]",
    "    Delete a policy that no check used in the last minute; FORCE: or any.",
    "LIST",
    "    Return the names of all policies.",
    "HELP",
    "    Print this help.",
];

/// `RL.POLICY`
pub fn policy(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, .. }| {
        // The primary, or this server before a restart, checked the limits when the policy was set.
        let obeyed = call.must_be_obeyed();
        let limits = if obeyed { Limits::ANY } else { config::limits() };
        let request = parse::policy(call.args().from(1).bytes(), &limits, rules);
        let request = request.map_err(|error| {
            if obeyed && !is_help(call) {
                unreadable::refuse_policy(call, &error)
            } else {
                error.into()
            }
        })?;
        match request {
            PolicyRequest::Set(name) => {
                let before = policy::set(name, rules);
                if !obeyed {
                    audit::policy_changed(call, before.as_ref().map(|policy| policy.texts.args()));
                }
                call.replicate_verbatim();
                call.reply_ok();
            }
            PolicyRequest::Delete { name, force } => {
                if !obeyed && !force {
                    require_unused(name)?;
                }
                let before = policy::delete(&name);
                if let Some(before) = &before {
                    if !obeyed {
                        audit::policy_changed(call, Some(before.texts.args()));
                    }
                    // An older receiver does not know FORCE, and no receiver needs it.
                    call.replicate_first(c"RL.POLICY", 2);
                }
                call.reply_integer(before.is_some().into());
            }
            PolicyRequest::Get(name) => {
                let policy = policy::get(name.as_bytes());
                call.reply(|to| match policy {
                    Some(policy) => to.list(&policy.rules, |to, rule| to.text(rule.to_string())),
                    None => to.null(),
                });
            }
            PolicyRequest::List => {
                let all = policy::all();
                call.reply(|to| to.list(&all, |to, policy| to.text(policy.name.as_str())));
            }
            PolicyRequest::Help => call.reply(|to| to.list(HELP, Writer::status)),
        }
        Ok(())
    })
}

/// Refuses to delete a policy that checks use: each would be an error from then on.
fn require_unused(name: Name) -> Result<(), CommandError> {
    let policy = policy::get(name.as_bytes());
    let used = policy.and_then(|policy| policy.used_ms_ago(clock::now_us()));
    used.map_or(Ok(()), |ms| {
        let name = name.as_str();
        Err(CommandError::Because(
            format!(
                "policy '{name}' was used by a check {ms} ms ago, expected none for a minute: \
                 checks without their policy fail; RL.POLICY DEL {name} FORCE deletes it"
            )
            .into(),
        ))
    })
}

/// True for `RL.POLICY HELP`, which clients may send while the server loads.
fn is_help(call: &Call<'_>) -> bool {
    call.args().get(1).is_some_and(|word| word.bytes().eq_ignore_ascii_case(b"HELP"))
}
