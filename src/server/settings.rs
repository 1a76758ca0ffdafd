//! Settings: each has a name, bounds, and an atomic that the server and the module share.
//!
//! Servers from 7.0 on know each as `ratelimit.NAME`: in `CONFIG GET`, `SET`, `REWRITE` and the
//! configuration file. The arguments of `loadmodule` set the defaults, so lines in the file
//! override them. 6.2 has no module configurations, so there these arguments are the only way to
//! change a setting.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::{Context, raw};
use thiserror::Error;

use super::api::{ERROR, OK, api};
use super::args::Args;
use super::call::Call;
use super::callback::guarded;
use super::log::c_string;

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
pub struct Setting {
    name: &'static CStr,
    kind: Kind,
    /// The server's flags for the setting.
    flags: u32,
    value: AtomicI64,
    /// The value before the last change, to which the server may return.
    before: AtomicI64,
    floor: OnceLock<Floor>,
}

/// Returns the least value that a numeric setting may be changed to.
pub type Floor = fn() -> i64;

/// A function that is called after `CONFIG SET` has changed a setting.
pub type OnChange = fn(&Call<'_>);

static ON_CHANGE: OnceLock<OnChange> = OnceLock::new();

impl Setting {
    pub const fn number(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self::new(name, Kind::Number { min, max }, default)
    }

    pub const fn switch(name: &'static CStr, default: bool) -> Self {
        Self::new(name, Kind::Switch, default as i64)
    }

    /// The first word is the default.
    pub const fn choice(name: &'static CStr, words: &'static [&'static CStr]) -> Self {
        Self::new(name, Kind::Choice(words), 0)
    }

    const fn new(name: &'static CStr, kind: Kind, default: i64) -> Self {
        let flags = raw::REDISMODULE_CONFIG_DEFAULT;
        Self {
            name,
            kind,
            flags,
            value: AtomicI64::new(default),
            before: AtomicI64::new(default),
            floor: OnceLock::new(),
        }
    }

    /// Forbids changes of the setting after the module is loaded.
    pub const fn set_at_load(mut self) -> Self {
        self.flags = raw::REDISMODULE_CONFIG_IMMUTABLE;
        self
    }

    /// Refuses changes of the setting to less than `floor` returns. Only the first call counts.
    pub fn keep_above(&self, floor: Floor) {
        self.floor.get_or_init(|| floor);
    }

    /// The value of a numeric setting.
    #[inline]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// The value of a switch.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    /// True if a choice is set to this word.
    pub fn is(&self, word: &CStr) -> bool {
        let index = usize::try_from(self.get()).ok();
        matches!(self.kind, Kind::Choice(words)
            if index.and_then(|index| words.get(index)).is_some_and(|chosen| **chosen == *word))
    }

    fn set(&self, value: i64) {
        let before = self.value.swap(value, Ordering::Relaxed);
        self.before.store(before, Ordering::Relaxed);
    }

    /// The floor, if a change to `value` would fall below it. The server may always return to the value
    /// before, when another setting of one `CONFIG SET` is wrong.
    fn floor_above(&self, value: i64) -> Option<i64> {
        let returns = value == self.before.load(Ordering::Relaxed);
        let floor = self.floor.get().filter(|_| value < self.get() && !returns)?();
        (value < floor).then_some(floor)
    }

    fn parse(&self, text: &[u8]) -> Option<i64> {
        let index_in = |words: &[&CStr]| {
            let mut words = words.iter();
            let index = words.position(|word| word.to_bytes().eq_ignore_ascii_case(text))?;
            i64::try_from(index).ok()
        };
        match self.kind {
            Kind::Number { min, max } => {
                let value = std::str::from_utf8(text).ok()?.parse().ok()?;
                (min..=max).contains(&value).then_some(value)
            }
            Kind::Switch => index_in(&[c"no", c"yes"]),
            Kind::Choice(words) => index_in(words),
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

    /// Registers the setting if the server has module configurations. The setting's present value
    /// becomes its default.
    fn register(&'static self, ctx: &Context) -> Result<(), SettingError> {
        let data = ptr::from_ref(self).cast_mut().cast::<c_void>();
        let (ctx, name, flags, default) = (ctx.ctx, self.name.as_ptr(), self.flags, self.get());
        let index = c_int::try_from(default).unwrap_or(0);
        let apply: raw::RedisModuleConfigApplyFunc = Some(apply_change);
        // SAFETY: the server copies the name and words; the setting lives forever and is only
        // accessed atomically.
        let status = unsafe {
            match self.kind {
                Kind::Number { min, max } => {
                    raw::RedisModule_RegisterNumericConfig.map(|register| {
                        let (get, set) = (Some(get::<i64> as _), Some(set::<i64> as _));
                        register(ctx, name, default, flags, min, max, get, set, apply, data)
                    })
                }
                Kind::Switch => raw::RedisModule_RegisterBoolConfig.map(|register| {
                    register(ctx, name, index, flags, Some(get), Some(set), apply, data)
                }),
                Kind::Choice(words) => raw::RedisModule_RegisterEnumConfig.map(|register| {
                    let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
                    let count = c_int::try_from(words.len()).unwrap_or(0);
                    let indices: Vec<c_int> = (0..count).collect();
                    let (words, indices) = (words.as_mut_ptr(), indices.as_ptr());
                    let (get, set) = (Some(get::<c_int> as _), Some(set::<c_int> as _));
                    register(ctx, name, index, flags, words, indices, count, get, set, apply, data)
                }),
            }
        };
        match status {
            None | Some(OK) => Ok(()),
            Some(_) => Err(SettingError::Refused(lossy(self.name.to_bytes()))),
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Why the settings cannot be registered or loaded. The module then refuses to load.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    #[error("unknown argument '{given}', expected one of {known}")]
    Unknown { given: String, known: String },
    #[error("argument '{0}' lacks its value")]
    NoValue(String),
    #[error("argument '{name}' is '{given}', expected {expected}")]
    BadValue { name: String, given: String, expected: String },
    #[error("the server does not take the setting '{0}'")]
    Refused(String),
    #[error("the server could not load the configuration")]
    NotLoaded,
}

/// Applies `NAME VALUE ...`, the arguments of `loadmodule`. `list` is one more name, which may be
/// given several times. Returns the values of `list`.
///
/// # Errors
/// An unknown name, or a value that is missing or out of bounds.
pub fn apply<'a>(
    settings: &[&'static Setting],
    list: &'static CStr,
    args: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<&'a [u8]>, SettingError> {
    let mut args = args.into_iter();
    let mut listed = Vec::new();
    while let Some(name) = args.next() {
        let is_given = |known: &CStr| known.to_bytes().eq_ignore_ascii_case(name);
        let mut value_of =
            |name: &CStr| args.next().ok_or_else(|| SettingError::NoValue(lossy(name.to_bytes())));
        if is_given(list) {
            listed.push(value_of(list)?);
        } else if let Some(setting) = settings.iter().find(|setting| is_given(setting.name)) {
            let value = value_of(setting.name)?;
            let parsed = setting.parse(value).ok_or_else(|| SettingError::BadValue {
                name: lossy(setting.name.to_bytes()),
                given: lossy(value),
                expected: setting.expected(),
            })?;
            setting.set(parsed);
        } else {
            let known = settings.iter().map(|setting| setting.name).chain([list]);
            let known: Vec<_> = known.map(CStr::to_string_lossy).collect();
            return Err(SettingError::Unknown { given: lossy(name), known: known.join(" ") });
        }
    }
    Ok(listed)
}

/// Registers the settings with a server that has module configurations, and applies the lines of
/// its configuration file. Later changes call `on_change`.
///
/// # Errors
/// If the server refuses a setting, or its file has a value out of bounds.
pub fn register(
    settings: &[&'static Setting],
    ctx: &Context,
    on_change: OnChange,
) -> Result<(), SettingError> {
    ON_CHANGE.get_or_init(|| on_change);
    settings.iter().try_for_each(|setting| setting.register(ctx))?;
    // SAFETY: the context is the one the module is being loaded with.
    let status = unsafe { raw::RedisModule_LoadConfigs.map(|load| load(ctx.ctx)) };
    match status {
        Some(status) if status != OK => Err(SettingError::NotLoaded),
        _ => Ok(()),
    }
}

/// # Safety
/// `data` is what [`Setting::register`] gave to the server.
const unsafe fn setting<'a>(data: *mut c_void) -> &'a Setting {
    // SAFETY: the caller's promise; settings live forever.
    unsafe { &*data.cast::<Setting>() }
}

unsafe extern "C" fn get<T: TryFrom<i64> + Default>(_name: *const c_char, data: *mut c_void) -> T {
    // SAFETY: `register` gave this `data`.
    let setting = unsafe { setting(data) };
    // Returns the value even after a panic, because CONFIG REWRITE writes what this returns.
    let value = guarded(setting.get(), || setting.get());
    T::try_from(value).unwrap_or_default()
}

unsafe extern "C" fn set<T: Into<i64>>(
    _name: *const c_char,
    value: T,
    data: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `register` gave this `data`.
        let (setting, value) = (unsafe { setting(data) }, value.into());
        if let Some(floor) = setting.floor_above(value) {
            let why = c_string(&format!("expected {floor} or more, which policies need"));
            // SAFETY: the server gave a place for an error, and frees the string.
            unsafe {
                let create = api(raw::RedisModule_CreateString);
                *error = create(ptr::null_mut(), why.as_ptr(), why.as_bytes().len());
            }
            return ERROR;
        }
        setting.set(value);
        OK
    })
}

/// The server calls this function after `CONFIG SET` has set all its values. If the function fails,
/// the server restores the old values and calls it again.
unsafe extern "C" fn apply_change(
    ctx: *mut raw::RedisModuleCtx,
    _data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: the server executes `CONFIG SET`, and the context is alive until we return.
        let call = unsafe { Call::new(ctx, Args::default()) };
        if let Some(on_change) = ON_CHANGE.get() {
            on_change(&call);
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
