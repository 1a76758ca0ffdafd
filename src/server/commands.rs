//! Registering commands: the handler on every server, the documentation and
//! the ACL category where the server knows such things.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::io;
use std::ptr;

use redis_module::{Context, raw};

use super::OK;
use super::log::{self, c_string};
use super::usage;

/// Everything the server is told about a command.
#[derive(Debug)]
pub struct Command {
    /// In small letters; of a subcommand, what contains it, `|`, and its own.
    pub name: &'static CStr,
    /// Of a command that contains others, only for servers before 7.0, which
    /// know no such thing: there it does what all of them do.
    pub handler: raw::RedisModuleCmdFunc,
    /// The server's command flags.
    pub flags: &'static CStr,
    pub audience: Audience,
    pub keys: Keys,
    /// What clients and proxies are told about requests and replies, in the words
    /// of `COMMAND INFO`.
    pub tips: &'static CStr,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    pub args: &'static [Param],
}

impl Command {
    /// The name; of a subcommand that of what contains it, and its own.
    pub(super) fn words(&self) -> (&[u8], Option<&[u8]>) {
        let mut words = self.name.to_bytes().splitn(2, |&byte| byte == b'|');
        (words.next().unwrap_or_default(), words.next())
    }

    /// What contains a subcommand.
    fn parent(&self) -> Option<CString> {
        let (parent, own) = self.words();
        own.and_then(|_| CString::new(parent).ok())
    }

    /// The fewest words the server must see, the name included, as `-n`. The
    /// parsers count the others, on all versions, and answer with the usage.
    fn arity(&self, contains: bool) -> c_int {
        // Servers from 7.0 on read how many keys there are without asking whether
        // it was given (redis#15659), and look for the subcommand themselves.
        let needs_a_second = matches!(self.keys, Keys::Counted(_)) || contains;
        if needs_a_second || self.words().1.is_some() { -2 } else { -1 }
    }

    fn has_flag(&self, wanted: &str) -> bool {
        self.flags.to_bytes().split(|&byte| byte == b' ').any(|flag| flag == wanted.as_bytes())
    }

    /// The ACL categories that follow from flags and audience. Of its own accord
    /// no server derives them for modules.
    fn categories(&self, has_own_category: bool) -> String {
        let access = [("write", "write"), ("readonly", "read")];
        let access = access.into_iter().filter(|&(flag, _)| self.has_flag(flag));
        let mut categories: Vec<&str> = access.map(|(_, category)| category).collect();
        categories.push(if self.has_flag("fast") { "fast" } else { "slow" });
        match self.audience {
            Audience::Client if has_own_category => categories.push(CATEGORY),
            Audience::Client => {}
            Audience::Operator => categories.push("admin"),
            Audience::Administrator | Audience::Internal => {
                categories.extend(["admin", "dangerous"]);
            }
        }
        categories.join(" ")
    }
}

/// Whom a command is for, and so who gets it with which ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Applications that limit: theirs is `@ratelimit`, which nothing else is in.
    Client,
    /// People who look at the server's keys together: `@admin`. The server's flag
    /// of that name is another thing, and would hide from `MONITOR` what they do.
    Operator,
    /// People who decide over keys or over all clients: `@admin @dangerous`.
    Administrator,
    /// A primary's link and the loader; no one else is answered.
    Internal,
}

/// Where a command has its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    /// The first argument.
    First(KeyUse),
    /// The first argument says how many there are, and they follow.
    Counted(KeyUse),
}

impl Keys {
    /// As the server reads it, if there are any.
    const fn spec(self) -> Option<raw::RedisModuleCommandKeySpec> {
        match self {
            Self::None => None,
            Self::First(key) => Some(first_argument(key)),
            Self::Counted(key) => Some(counted_arguments(key)),
        }
    }
}

/// What a command does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Looks at the value.
    Read,
    /// Looks at it, changes it, may create it.
    Consume,
    /// Looks at it, changes it, may delete it.
    Refund,
    /// Replaces it.
    Replace,
}

impl KeyUse {
    const fn flags(self) -> u32 {
        match self {
            Self::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Consume => {
                raw::REDISMODULE_CMD_KEY_RW
                    | raw::REDISMODULE_CMD_KEY_ACCESS
                    | raw::REDISMODULE_CMD_KEY_UPDATE
            }
            Self::Refund => {
                raw::REDISMODULE_CMD_KEY_RW
                    | raw::REDISMODULE_CMD_KEY_ACCESS
                    | raw::REDISMODULE_CMD_KEY_DELETE
            }
            Self::Replace => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
        }
    }
}

/// An argument, for `COMMAND DOCS` and the hints of redis-cli.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub(super) name: &'static CStr,
    pub(super) kind: raw::RedisModuleCommandArgType,
    pub(super) token: Option<&'static CStr>,
    pub(super) flags: u32,
    /// What it is one of, or consists of.
    pub(super) parts: &'static [Self],
}

impl Param {
    const fn of(name: &'static CStr, kind: raw::RedisModuleCommandArgType) -> Self {
        Self { name, kind, token: None, flags: raw::REDISMODULE_CMD_ARG_NONE, parts: &[] }
    }

    #[must_use]
    pub const fn key() -> Self {
        Self::of(c"key", raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY)
    }

    #[must_use]
    pub const fn integer(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
    }

    #[must_use]
    pub const fn string(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING)
    }

    #[must_use]
    pub const fn pattern(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN)
    }

    #[must_use]
    pub const fn unix_time(name: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME)
    }

    /// One of several.
    #[must_use]
    pub const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
        Self { parts, ..Self::of(name, kind) }
    }

    /// A bare word.
    #[must_use]
    pub const fn word(name: &'static CStr, word: &'static CStr) -> Self {
        Self::of(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN).after(word)
    }

    /// Several, together.
    #[must_use]
    pub const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
        Self { parts, ..Self::of(name, kind) }
    }

    /// The same behind a word.
    #[must_use]
    pub const fn after(self, word: &'static CStr) -> Self {
        Self { token: Some(word), ..self }
    }

    #[must_use]
    pub const fn optional(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_OPTIONAL, ..self }
    }

    /// Once or more.
    #[must_use]
    pub const fn repeated(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_MULTIPLE, ..self }
    }

    const fn is_key(&self) -> bool {
        self.kind == raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
    }

    /// As the server reads it. What it is made of is written to `lists`, which
    /// has to outlive the reading.
    fn raw(
        &self,
        lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
    ) -> raw::RedisModuleCommandArg {
        let mut subargs = ptr::null_mut();
        if !self.parts.is_empty() {
            let mut list = raw_list(self.parts, lists);
            subargs = list.as_mut_ptr();
            lists.push(list);
        }
        raw::RedisModuleCommandArg {
            name: self.name.as_ptr(),
            type_: self.kind,
            key_spec_index: if self.is_key() { 0 } else { -1 },
            token: self.token.map_or(ptr::null(), CStr::as_ptr),
            summary: ptr::null(),
            since: ptr::null(),
            flags: c_int::try_from(self.flags).unwrap_or(0),
            deprecated_since: ptr::null(),
            subargs,
            display_text: ptr::null(),
        }
    }
}

/// Arguments as the server reads them, with the end of the list.
fn raw_list(
    params: &[Param],
    lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
) -> Box<[raw::RedisModuleCommandArg]> {
    let args = params.iter().map(|param| param.raw(lists));
    args.chain([NO_MORE_ARGS]).collect()
}

/// The end of a list of arguments.
const NO_MORE_ARGS: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: 0,
    key_spec_index: -1,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

/// The end of a list of keys.
const NO_MORE_KEYS: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
    notes: ptr::null(),
    flags: 0,
    begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
        index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
    },
    find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
    fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 0,
            limit: 0,
        },
    },
};

/// One key, the first argument.
const fn first_argument(key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        flags: key.flags() as u64,
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
        ..NO_MORE_KEYS
    }
}

/// As many keys as the first argument says, after it.
const fn counted_arguments(key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            keynum: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            },
        },
        ..first_argument(key)
    }
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// A command that the server does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(&'static CStr);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_string_lossy();
        write!(f, "the server does not take the command '{name}', another module may have it")
    }
}

impl std::error::Error for Refused {}

/// The ACL category of the commands for clients.
const CATEGORY: &str = "ratelimit";

/// Registers these commands; what contains subcommands comes before them.
///
/// # Errors
/// The name of the first that the server does not take.
pub fn register(
    ctx: &Context,
    mut commands: impl Iterator<Item = &'static Command> + Clone,
) -> Result<(), Refused> {
    usage::keep(commands.clone());
    let has_own_category = add_category(ctx);
    let parents: Vec<_> = commands.clone().filter_map(Command::parent).collect();
    commands.try_for_each(|command| {
        let contains = parents.iter().any(|parent| **parent == *command.name);
        create(ctx, command, contains)?;
        if let Some(created) = find(ctx, command.name) {
            document(created, command, command.arity(contains));
            categorize(created, command, has_own_category);
        }
        Ok(())
    })
}

fn create(ctx: &Context, command: &'static Command, contains: bool) -> Result<(), Refused> {
    let created = match command.parent() {
        None => create_command(ctx, command, contains),
        Some(parent) => create_subcommand(ctx, &parent, command),
    };
    if created == Some(OK) { Ok(()) } else { Err(Refused(command.name)) }
}

fn create_command(ctx: &Context, command: &'static Command, contains: bool) -> Option<c_int> {
    let key = c_int::from(matches!(command.keys, Keys::First(_)));
    // SAFETY: the pointer is only looked at.
    let is_7_or_later = unsafe { raw::RedisModule_CreateSubcommand }.is_some();
    let handler = if contains && is_7_or_later { None } else { command.handler };
    // Later servers have it in the description as well, but send a client to
    // another node by the first and last key alone, unless the command is asked.
    let asks = matches!(command.keys, Keys::Counted(_));
    let flags = command.flags.to_string_lossy();
    let flags = c_string(&if asks { format!("{flags} getkeys-api") } else { flags.into_owned() });
    // SAFETY: the context is the one the module is being loaded with; the
    // handler came from `on_command`; the server copies the texts.
    unsafe {
        let create = raw::RedisModule_CreateCommand?;
        Some(create(ctx.ctx, command.name.as_ptr(), handler, flags.as_ptr(), key, key, key))
    }
}

/// Subcommands came with 7.0: before, the command that contains them serves.
fn create_subcommand(ctx: &Context, parent: &CStr, command: &'static Command) -> Option<c_int> {
    // SAFETY: as for `create_command`; the parent was created before.
    unsafe {
        let Some(create) = raw::RedisModule_CreateSubcommand else { return Some(OK) };
        let (own, flags) = (CString::new(command.words().1?).ok()?, command.flags.as_ptr());
        Some(create(find(ctx, parent)?, own.as_ptr(), command.handler, flags, 0, 0, 0))
    }
}

fn find(ctx: &Context, name: &CStr) -> Option<*mut raw::RedisModuleCommand> {
    // SAFETY: the context is the one the module is being loaded with.
    let found = unsafe { raw::RedisModule_GetCommand?(ctx.ctx, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Arity, keys and words of a command, from 7.0 on.
fn document(created: *mut raw::RedisModuleCommand, command: &Command, arity: c_int) {
    let spec = command.keys.spec();
    let mut keys = [spec.unwrap_or(NO_MORE_KEYS), NO_MORE_KEYS];
    let mut lists = Vec::new();
    let mut args = raw_list(command.args, &mut lists);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        summary: command.summary.as_ptr(),
        complexity: command.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: ptr::null_mut(),
        tips: if command.tips.is_empty() { ptr::null() } else { command.tips.as_ptr() },
        arity,
        key_specs: if spec.is_some() { keys.as_mut_ptr() } else { ptr::null_mut() },
        args: args.as_mut_ptr(),
    };
    // SAFETY: the server copies what the structure points to.
    let status =
        unsafe { raw::RedisModule_SetCommandInfo.map(|set| set(created, &raw const info)) };
    if status.is_some_and(|status| status != OK) {
        let name = command.name.to_string_lossy();
        log::warning(&format!("the server does not take the documentation of {name}"));
    }
}

/// The version all commands came with.
const SINCE: &CStr = c"0.1.0";

/// Adds `@ratelimit`, from 7.4 on and on Valkey from 8.0. Whether it is there.
fn add_category(ctx: &Context) -> bool {
    let category = c_string(CATEGORY);
    // SAFETY: the context is the one the module is being loaded with; the
    // server copies the name.
    let status =
        unsafe { raw::RedisModule_AddACLCategory.map(|add| add(ctx.ctx, category.as_ptr())) };
    match status {
        Some(status) if status == OK => true,
        // It was left by a load before this one that the server undid (8.2).
        Some(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY) => true,
        Some(_) => {
            log::warning("the server does not take the ACL category @ratelimit");
            false
        }
        None => false,
    }
}

/// Puts a command into its ACL categories, from 7.2 on.
fn categorize(created: *mut raw::RedisModuleCommand, command: &Command, has_own_category: bool) {
    let categories = command.categories(has_own_category);
    let text = c_string(&categories);
    // SAFETY: the command was just created; the categories exist.
    let status =
        unsafe { raw::RedisModule_SetCommandACLCategories.map(|set| set(created, text.as_ptr())) };
    if status.is_some_and(|status| status != OK) {
        let name = command.name.to_string_lossy();
        log::warning(&format!(
            "the server does not take the ACL categories {categories} of {name}"
        ));
    }
}
