//! The settings, one a line: `CONFIG GET/SET ratelimit.*` and the arguments of
//! `loadmodule`.

use std::ffi::CStr;

use redis_module::{Context, RedisString};

use crate::server::settings::{self, Floor, OnChange, Setting, SettingError};
use ratelimit_engine::check::Bounds;
use ratelimit_engine::rule::MAX_UNITS;
use ratelimit_protocol::parse::{Limits, MOST_RULES};
use ratelimit_protocol::waiting::Room;

/// The settings, and the list of them.
macro_rules! settings {
    ($($(#[$about:meta])* $name:ident = $setting:expr;)+) => {
        $($(#[$about])* static $name: Setting = $setting;)+
        static ALL: [&Setting; [$(stringify!($name)),+].len()] = [$(&$name),+];
    };
}

settings! {
    /// Whether checks are enforced. [`Enforcement`] lists the words.
    ENFORCE = Setting::choice(c"enforce", &[c"yes", c"observe", c"off"]);
    /// How many rules a request may have for each key.
    MAX_RULES = Setting::number(c"max-rules", 32, 1, MOST_RULES as i64);
    /// The largest limit of a `log` rule.
    MAX_LOG_ENTRIES = Setting::number(c"max-log-entries", 100_000, 1, MAX_UNITS as i64);
    /// How many states a key may have.
    MAX_STATES = Setting::number(c"max-states", 256, 1, 10_000);
    /// How many holds a key may have.
    MAX_HOLDS = Setting::number(c"max-holds", 10_000, 1, 50_000);
    /// How many clients may wait. Further clients are answered at once.
    MAX_WAITERS = Setting::number(c"max-waiters", 10_000, 0, 1_000_000);
    /// How many flows the line of a key may have. Clients of further flows are answered at once.
    MAX_FLOWS = Setting::number(c"max-flows", 1_024, 1, 1_024);
    /// How many bytes the arguments and the rules of all waiting clients may take.
    MAX_WAITER_BYTES = Setting::number(c"max-waiter-bytes", 16_777_216, 0, 1_073_741_824);
    /// How many entries the history of a key may have; 0: no history.
    LOG_ENTRIES = Setting::number(c"log-entries", 128, 0, 1_000_000);
    /// How many bytes of a `META` are kept, and how many a `REASON` may have.
    MAX_META = Setting::number(c"max-meta", 256, 0, 65_536);
    /// How many keys `RL.TOP` follows at most; 0: none.
    TOP_SIZE = Setting::number(c"top-size", 128, 0, 100_000);
    /// Whether a request may give its time with `AT`.
    ALLOW_AT = Setting::switch(c"allow-at", false);
    /// Which of two policies with the same name is in effect after a restart: the saved or the
    /// configured one.
    POLICIES = Setting::choice(c"policies", &[c"saved", c"config"]);
    /// Whether Valkey may save without a fork.
    FORKLESS_SAVE = Setting::switch(c"forkless-save", false).set_at_load();
    /// Whether `RL.THROTTLE` is registered as `CL.THROTTLE` as well.
    THROTTLE_ALIAS = Setting::switch(c"throttle-alias", true).set_at_load();
}

/// What becomes of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// They are decided.
    Yes,
    /// All rules are evaluated and charged as shadows. Blocks and pauses are ignored.
    Observe,
    /// All checks are allowed and change nothing.
    Off,
}

impl Enforcement {
    /// Its word in the setting.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Yes => c"yes",
            Self::Observe => c"observe",
            Self::Off => c"off",
        }
    }
}

/// What becomes of checks now.
#[inline(always)]
pub fn enforcement() -> Enforcement {
    match ENFORCE.get() {
        0 => Enforcement::Yes,
        1 => Enforcement::Observe,
        _ => Enforcement::Off,
    }
}

/// The argument of `loadmodule` that sets a policy. It may be given more than once.
const POLICY: &CStr = c"policy";

/// Applies the arguments of `loadmodule`, then the lines of the server's file. Returns the
/// policies among the arguments as texts, because parsing them needs the settings. Later changes
/// call `on_change`. The two functions return what the policies need of `max-rules` and
/// `max-log-entries`, which no change may fall below.
///
/// # Errors
/// The first argument or setting that is wrong; the module must not load.
pub fn load<'a>(
    ctx: &Context,
    args: &'a [RedisString],
    on_change: OnChange,
    (rules, log_entries): (Floor, Floor),
) -> Result<Vec<&'a [u8]>, SettingError> {
    let policies = settings::apply(&ALL, POLICY, args.iter().map(RedisString::as_slice))?;
    settings::register(&ALL, ctx, on_change)?;
    MAX_RULES.keep_above(rules);
    MAX_LOG_ENTRIES.keep_above(log_entries);
    Ok(policies)
}

/// The bounds of requests, by the current settings.
#[inline]
pub fn limits() -> Limits {
    Limits {
        max_rules: size(&MAX_RULES),
        max_log_entries: MAX_LOG_ENTRIES.get().cast_unsigned(),
        same_identity: false,
        allow_at: ALLOW_AT.is_on(),
        max_meta: size(&MAX_META),
        log_entries: LOG_ENTRIES.get().cast_unsigned(),
        observe: enforcement() == Enforcement::Observe,
    }
}

/// Whether Valkey may save without a fork. Only valid after [`load`].
pub fn forkless_save() -> bool {
    FORKLESS_SAVE.is_on()
}

/// Whether to register `CL.THROTTLE`. Only valid after [`load`].
pub fn throttle_alias() -> bool {
    THROTTLE_ALIAS.is_on()
}

/// How many states and holds a key may have.
#[inline]
pub fn bounds() -> Bounds {
    Bounds { max_states: size(&MAX_STATES), max_holds: size(&MAX_HOLDS) }
}

/// How many clients and flows may wait, and how many bytes they may take.
pub fn room_for_waiters() -> Room {
    Room { waiters: size(&MAX_WAITERS), flows: size(&MAX_FLOWS), bytes: size(&MAX_WAITER_BYTES) }
}

/// Whether configured policies replace saved ones of the same name.
pub fn configured_policies_win() -> bool {
    POLICIES.is(c"config")
}

/// How many keys `RL.TOP` follows at most.
#[inline]
pub fn top_size() -> usize {
    size(&TOP_SIZE)
}

/// The value of a numeric setting, which is never negative.
fn size(setting: &Setting) -> usize {
    usize::try_from(setting.get().cast_unsigned()).unwrap_or(usize::MAX)
}
