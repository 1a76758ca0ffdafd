//! Settings: each has a name, bounds, and an atomic that the server and the module share.
//!
//! Servers from 7.0 on know each as `ratelimit.NAME`: in `CONFIG GET`, `SET`, `REWRITE` and the
//! configuration file. The arguments of `loadmodule` set the defaults, so lines in the file
//! override them. 6.2 has no module configurations, so there these arguments are the only way to
//! change a setting.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::{Context, raw};

use super::api::{ERROR, OK};
use super::args::Args;
use super::call::Call;
use super::callback::guarded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number {
        min: i64,
        max: i64,
    },
    Switch,
    /// One of these words; the value is the word's index.
    Choice(&'static [&'static CStr]),
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    name: &'static CStr,
    kind: Kind,
    /// The server's flags for the setting.
    flags: u32,
    value: AtomicI64,
    /// Called with the new value after `CONFIG SET` has changed it.
    changed: Option<ChangeHandler>,
}

type ChangeHandler = fn(&Call<'_>, i64);

impl Setting {
    #[must_use]
    pub const fn number(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self::new(name, Kind::Number { min, max }, default)
    }

    #[must_use]
    pub const fn switch(name: &'static CStr, default: bool) -> Self {
        Self::new(name, Kind::Switch, default as i64)
    }

    /// The first word is the default.
    #[must_use]
    pub const fn choice(name: &'static CStr, words: &'static [&'static CStr]) -> Self {
        Self::new(name, Kind::Choice(words), 0)
    }

    const fn new(name: &'static CStr, kind: Kind, default: i64) -> Self {
        let flags = raw::REDISMODULE_CONFIG_DEFAULT;
        Self { name, kind, flags, value: AtomicI64::new(default), changed: None }
    }

    /// Forbids changes of the setting once the module is loaded.
    #[must_use]
    pub const fn set_at_load(self) -> Self {
        Self { flags: raw::REDISMODULE_CONFIG_IMMUTABLE, ..self }
    }

    /// Calls a function after `CONFIG SET` has changed the setting.
    #[must_use]
    pub const fn when_changed(self, changed: ChangeHandler) -> Self {
        Self { changed: Some(changed), ..self }
    }

    /// The value of a number.
    #[inline]
    #[must_use]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// The value of a switch.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    /// True if a choice is set to this word.
    #[must_use]
    pub fn is(&self, word: &CStr) -> bool {
        let index = usize::try_from(self.get()).ok();
        matches!(self.kind, Kind::Choice(words)
            if index.and_then(|index| words.get(index)).is_some_and(|chosen| **chosen == *word))
    }

    fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.name.to_bytes().eq_ignore_ascii_case(name)
    }

    fn parse(&self, text: &[u8]) -> Option<i64> {
        match self.kind {
            Kind::Number { min, max } => {
                let value = std::str::from_utf8(text).ok()?.parse().ok()?;
                (min..=max).contains(&value).then_some(value)
            }
            Kind::Switch if text.eq_ignore_ascii_case(b"yes") => Some(1),
            Kind::Switch if text.eq_ignore_ascii_case(b"no") => Some(0),
            Kind::Switch => None,
            Kind::Choice(words) => {
                let is_given = |word: &&CStr| word.to_bytes().eq_ignore_ascii_case(text);
                words.iter().position(is_given).and_then(|index| i64::try_from(index).ok())
            }
        }
    }

    /// Describes the values that the setting can have.
    fn expected(&self) -> String {
        match self.kind {
            Kind::Number { min, max } => format!("{min}..{max}"),
            Kind::Switch => String::from("yes or no"),
            Kind::Choice(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" or ")
            }
        }
    }

    /// Registers the setting, with its present value as the default, with a server that has module
    /// configurations.
    fn register(&'static self, ctx: &Context) -> Result<(), SettingError> {
        let privdata = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        let (name, default) = (self.name.as_ptr(), self.get());
        let apply: raw::RedisModuleConfigApplyFunc = self.changed.is_some().then_some(apply_change);
        // SAFETY: the server copies the name and words; the setting lives forever and is only
        // accessed atomically.
        let status = unsafe {
            match (
                self.kind,
                raw::RedisModule_RegisterNumericConfig,
                raw::RedisModule_RegisterBoolConfig,
                raw::RedisModule_RegisterEnumConfig,
            ) {
                (Kind::Number { min, max }, Some(register), _, _) => register(
                    ctx.ctx,
                    name,
                    default,
                    self.flags,
                    min,
                    max,
                    Some(get_number),
                    Some(set_number),
                    apply,
                    privdata,
                ),
                (Kind::Switch, _, Some(register), _) => register(
                    ctx.ctx,
                    name,
                    c_int::from(self.is_on()),
                    self.flags,
                    Some(get_index),
                    Some(set_index),
                    apply,
                    privdata,
                ),
                (Kind::Choice(words), _, _, Some(register)) => {
                    let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
                    let count = c_int::try_from(words.len()).unwrap_or(0);
                    let indices: Vec<c_int> = (0..count).collect();
                    register(
                        ctx.ctx,
                        name,
                        c_int::try_from(default).unwrap_or(0),
                        self.flags,
                        words.as_mut_ptr(),
                        indices.as_ptr(),
                        count,
                        Some(get_index),
                        Some(set_index),
                        apply,
                        privdata,
                    )
                }
                _ => return Ok(()),
            }
        };
        if status == OK { Ok(()) } else { Err(SettingError::Refused(self.name)) }
    }
}

/// Why the settings cannot be registered or loaded. The module then refuses to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    Unknown { given: String, known: Vec<&'static CStr> },
    NoValue(&'static CStr),
    BadValue { name: &'static CStr, given: String, expected: String },
    Refused(&'static CStr),
    NotLoaded,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { given, known } => {
                write!(f, "unknown argument '{given}', expected one of")?;
                known.iter().try_for_each(|name| write!(f, " {}", name.to_string_lossy()))
            }
            Self::NoValue(name) => {
                write!(f, "argument '{}' lacks its value", name.to_string_lossy())
            }
            Self::BadValue { name, given, expected } => {
                let name = name.to_string_lossy();
                write!(f, "argument '{name}' is '{given}', expected {expected}")
            }
            Self::Refused(name) => {
                write!(f, "the server does not take the setting '{}'", name.to_string_lossy())
            }
            Self::NotLoaded => f.write_str("the server could not load the configuration"),
        }
    }
}

impl std::error::Error for SettingError {}

/// Applies `NAME VALUE ...`, the arguments of `loadmodule`. The name `list` is not a setting and
/// may be given several times; its values are returned.
///
/// # Errors
/// An unknown name, or a value that is missing or out of bounds.
pub fn apply<'a>(
    settings: &[&'static Setting],
    list: &'static CStr,
    args: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<&'a [u8]>, SettingError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut args = args.into_iter();
    let mut listed = Vec::new();
    while let Some(name) = args.next() {
        if list.to_bytes().eq_ignore_ascii_case(name) {
            listed.push(args.next().ok_or(SettingError::NoValue(list))?);
            continue;
        }
        let setting = settings.iter().find(|setting| setting.has_name(name)).ok_or_else(|| {
            SettingError::Unknown {
                given: text(name),
                known: settings.iter().map(|s| s.name).chain([list]).collect(),
            }
        })?;
        let value = args.next().ok_or(SettingError::NoValue(setting.name))?;
        let parsed = setting.parse(value).ok_or_else(|| {
            let (name, expected) = (setting.name, setting.expected());
            SettingError::BadValue { name, given: text(value), expected }
        })?;
        setting.set(parsed);
    }
    Ok(listed)
}

/// Registers the settings with a server that has module configurations, and applies the lines of
/// its configuration file.
///
/// # Errors
/// If the server refuses a setting, or its file has a value out of bounds.
pub fn register(settings: &[&'static Setting], ctx: &Context) -> Result<(), SettingError> {
    settings.iter().try_for_each(|setting| setting.register(ctx))?;
    // SAFETY: the context is the one the module is being loaded with.
    let status = unsafe { raw::RedisModule_LoadConfigs.map(|load| load(ctx.ctx)) };
    match status {
        Some(status) if status != OK => Err(SettingError::NotLoaded),
        _ => Ok(()),
    }
}

/// # Safety
/// `privdata` is what [`Setting::register`] gave to the server.
const unsafe fn setting<'a>(privdata: *mut c_void) -> &'a Setting {
    // SAFETY: the caller's promise; settings live forever.
    unsafe { &*privdata.cast::<Setting>() }
}

unsafe extern "C" fn get_number(_name: *const c_char, privdata: *mut c_void) -> c_longlong {
    // SAFETY: `register` gave this `privdata`.
    guarded(0, || unsafe { setting(privdata) }.get())
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    privdata: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `register` gave this `privdata`.
        unsafe { setting(privdata) }.set(value);
        OK
    })
}

unsafe extern "C" fn get_index(_name: *const c_char, privdata: *mut c_void) -> c_int {
    // SAFETY: `register` gave this `privdata`.
    guarded(0, || c_int::try_from(unsafe { setting(privdata) }.get()).unwrap_or(0))
}

unsafe extern "C" fn set_index(
    _name: *const c_char,
    value: c_int,
    privdata: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `register` gave this `privdata`.
        unsafe { setting(privdata) }.set(i64::from(value));
        OK
    })
}

/// Called by the server after `CONFIG SET` has set all its values. If it fails, the server restores
/// them and calls it again.
unsafe extern "C" fn apply_change(
    ctx: *mut raw::RedisModuleCtx,
    privdata: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `register` gave this `privdata`; the server executes `CONFIG SET`,
        // and the context is alive until we return.
        let (setting, call) = unsafe { (setting(privdata), Call::new(ctx, Args::default())) };
        if let Some(changed) = setting.changed {
            changed(&call, setting.get());
        }
        OK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static RULES: Setting = Setting::number(c"rules", 32, 1, 100);
    static OPEN: Setting = Setting::switch(c"open", false);
    static WINNER: Setting = Setting::choice(c"winner", &[c"saved", c"config"]);
    static ALL: [&Setting; 3] = [&RULES, &OPEN, &WINNER];

    fn refusal(args: &[&str]) -> String {
        apply(&ALL, c"rule", args.iter().map(|arg| arg.as_bytes())).unwrap_err().to_string()
    }

    #[test]
    fn arguments_set_values_and_errors_say_what_was_expected() {
        let args = [&b"open"[..], b"yes", b"rule", b"1/s", b"RULES", b"64", b"Rule", b"2/s"];
        assert_eq!(apply(&ALL, c"rule", args), Ok(vec![&b"1/s"[..], b"2/s"]));
        assert!(OPEN.is_on());
        assert_eq!(RULES.get(), 64);
        assert!(WINNER.is(c"saved") && !WINNER.is(c"config"));
        assert_eq!(apply(&ALL, c"rule", [&b"winner"[..], b"Config"]), Ok(vec![]));
        assert!(WINNER.is(c"config") && !WINNER.is(c"saved"));
        assert_eq!(
            refusal(&["shut", "no"]),
            "unknown argument 'shut', expected one of rules open winner rule"
        );
        assert_eq!(refusal(&["rule"]), "argument 'rule' lacks its value");
        assert_eq!(refusal(&["rules"]), "argument 'rules' lacks its value");
        assert_eq!(refusal(&["rules", "0"]), "argument 'rules' is '0', expected 1..100");
        let error = "argument 'winner' is 'both', expected saved or config";
        assert_eq!(refusal(&["winner", "both"]), error);
        assert_eq!(refusal(&["open", "1"]), "argument 'open' is '1', expected yes or no");
    }
}
