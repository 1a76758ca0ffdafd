//! The settings, one a line: `CONFIG GET/SET ratelimit.*` and the arguments of
//! `loadmodule`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::ffi::CStr;

use redis_module::{Context, RedisString};

use crate::parse::{Limits, MOST_RULES};
use crate::policy;
use crate::rule::MAX_UNITS;
use crate::server::settings::{self, Setting};
use crate::top;

/// Rules of one key in a request.
static MAX_RULES: Setting = Setting::number(c"max-rules", 32, 1, MOST_RULES as i64);
/// The largest limit of a `log` rule.
static MAX_LOG_ENTRIES: Setting = Setting::number(c"max-log-entries", 100_000, 1, MAX_UNITS as i64);
/// States of a key, beyond which a check makes no more.
static MAX_STATES: Setting = Setting::number(c"max-states", 256, 1, 10_000);
/// Checks with `META` that a key keeps; 0: none.
static LOG_ENTRIES: Setting = Setting::number(c"log-entries", 128, 0, 1_000_000);
/// Bytes of a `META` or a `REASON`.
static MAX_META: Setting = Setting::number(c"max-meta", 256, 0, 65_536);
/// Keys in the sketch of those most often denied; 0: none is kept.
static TOP_SIZE: Setting =
    Setting::number(c"top-size", 128, 0, 100_000).when_changed(top::shared::resize);
/// Whether a request may say what time it is.
static ALLOW_AT: Setting = Setting::switch(c"allow-at", false);

/// Whose policies are in force after a restart, of those that have one name: those
/// saved, or those of the server's file.
static POLICIES: Setting = Setting::choice(c"policies", &[c"saved", c"config"]);

/// Whether `RL.THROTTLE` is called `CL.THROTTLE` too.
static THROTTLE_ALIAS: Setting = Setting::switch(c"throttle-alias", true).set_at_load();

static ALL: [&Setting; 9] = [
    &MAX_RULES,
    &MAX_LOG_ENTRIES,
    &MAX_STATES,
    &LOG_ENTRIES,
    &MAX_META,
    &TOP_SIZE,
    &ALLOW_AT,
    &POLICIES,
    &THROTTLE_ALIAS,
];

/// The argument of `loadmodule` that sets a policy, once or more.
const POLICY: &CStr = c"policy";

/// Takes the arguments of `loadmodule`, then what the server's file says, and
/// then sets the policies, whose rules depend on both.
///
/// # Errors
/// The first argument or setting that is wrong; the module must not load.
pub fn load(ctx: &Context, args: &[RedisString]) -> Result<(), Box<dyn Error>> {
    let policies = settings::apply(&ALL, POLICY, args.iter().map(RedisString::as_slice))?;
    settings::register(&ALL, ctx)?;
    for text in policies {
        let given = String::from_utf8_lossy(text);
        policy::configure(text, &limits())
            .map_err(|error| format!("argument 'policy {given}': {error}"))?;
    }
    Ok(())
}

/// What requests may ask for, as of now.
#[inline]
#[must_use]
pub fn limits() -> Limits {
    Limits {
        max_rules: number(&MAX_RULES).unwrap_or(usize::MAX),
        max_log_entries: number(&MAX_LOG_ENTRIES).unwrap_or(MAX_UNITS),
        allow_at: ALLOW_AT.is_on(),
        max_meta: number(&MAX_META).unwrap_or(usize::MAX),
        log_entries: number(&LOG_ENTRIES).unwrap_or(u32::MAX),
    }
}

/// Whether there is to be a `CL.THROTTLE`. RuleResolver once [`load`] has returned.
#[must_use]
pub fn throttle_alias() -> bool {
    THROTTLE_ALIAS.is_on()
}

/// How many states a key may hold.
#[inline]
#[must_use]
pub fn max_states() -> usize {
    number(&MAX_STATES).unwrap_or(usize::MAX)
}

/// Whether the policies of the server's file replace those that were saved.
#[must_use]
pub fn configured_policies_win() -> bool {
    POLICIES.is(c"config")
}

/// How many keys the sketch of those most often denied follows.
#[inline]
#[must_use]
pub fn top_size() -> usize {
    number(&TOP_SIZE).unwrap_or(0)
}

/// No number that can be set here is negative.
fn number<T: TryFrom<u64>>(setting: &Setting) -> Option<T> {
    T::try_from(setting.get().cast_unsigned()).ok()
}
