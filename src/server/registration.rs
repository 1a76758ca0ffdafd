//! Registers commands: handlers on every server; documentation and ACL categories on servers that
//! support them.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::io;
use std::ptr;

use redis_module::{Context, raw};

use super::api::OK;
use super::commands::{Audience, Command, KeyUse, Keys, Param};
use super::log::{self, c_string};
use super::usage;

/// The server did not register a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(&'static CStr);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_string_lossy();
        write!(f, "the server does not take the command '{name}', another module may have it")
    }
}

impl std::error::Error for Refused {}

/// The ACL category of the commands for applications.
const CATEGORY: &str = "ratelimit";

/// The version of the module that introduced the commands.
const SINCE: &CStr = c"0.1.0";

/// Registers these commands. A parent must come before its subcommands.
///
/// # Errors
/// The first command that the server does not register.
pub fn register(
    ctx: &Context,
    mut commands: impl Iterator<Item = &'static Command> + Clone,
) -> Result<(), Refused> {
    usage::keep(commands.clone());
    let has_category = add_category(ctx);
    let parents: Vec<_> = commands.clone().filter_map(Command::parent).collect();
    commands.try_for_each(|command| {
        let is_parent = parents.iter().any(|parent| **parent == *command.name);
        create(ctx, command, is_parent)?;
        if let Some(created) = find(ctx, command.name) {
            document(created, command, arity(command, is_parent));
            categorize(created, command, has_category);
        }
        Ok(())
    })
}

fn create(ctx: &Context, command: &'static Command, is_parent: bool) -> Result<(), Refused> {
    let created = match command.parent() {
        None => create_command(ctx, command, is_parent),
        Some(parent) => create_subcommand(ctx, &parent, command),
    };
    if created == Some(OK) { Ok(()) } else { Err(Refused(command.name)) }
}

fn create_command(ctx: &Context, command: &'static Command, is_parent: bool) -> Option<c_int> {
    let key = c_int::from(matches!(command.keys, Keys::First(_)));
    // SAFETY: the pointer is only looked at.
    let is_7_or_later = unsafe { raw::RedisModule_CreateSubcommand }.is_some();
    let handler = if is_parent && is_7_or_later { None } else { command.handler };
    // Servers from 7.0 on also find counted keys by the key specification. But to redirect a client
    // to another node they only use the first and the last key, unless the command reports its keys
    // itself.
    let reports_keys = matches!(command.keys, Keys::Counted(_));
    let flags = command.flags.to_string_lossy();
    // Servers before 7.0 refuse a command with a flag that they do not know.
    let flags = if is_7_or_later { flags } else { flags.replace(" blocking", "").into() };
    let getkeys_api = if reports_keys { " getkeys-api" } else { "" };
    let flags = c_string(&format!("{flags}{getkeys_api}"));
    // SAFETY: the context is the one the module is being loaded with; the
    // handler came from `on_command`; the server copies the texts.
    unsafe {
        let create = raw::RedisModule_CreateCommand?;
        Some(create(ctx.ctx, command.name.as_ptr(), handler, flags.as_ptr(), key, key, key))
    }
}

/// Servers before 7.0 have no subcommands: there, the parent's handler serves them.
fn create_subcommand(ctx: &Context, parent: &CStr, command: &'static Command) -> Option<c_int> {
    // SAFETY: the parent was created before; the handler came from `on_command`; the
    // server copies the texts.
    unsafe {
        let Some(create) = raw::RedisModule_CreateSubcommand else { return Some(OK) };
        let (sub, flags) = (CString::new(command.words().1?).ok()?, command.flags.as_ptr());
        Some(create(find(ctx, parent)?, sub.as_ptr(), command.handler, flags, 0, 0, 0))
    }
}

fn find(ctx: &Context, name: &CStr) -> Option<*mut raw::RedisModuleCommand> {
    // SAFETY: the context is the one the module is being loaded with.
    let found = unsafe { raw::RedisModule_GetCommand?(ctx.ctx, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The arity that the server checks: `-n` for at least n words, including the name. The parsers
/// check the rest, on all versions, and reply with the usage.
fn arity(command: &Command, is_parent: bool) -> c_int {
    // Servers from 7.0 on read the number of keys without checking that it is there (redis#15659),
    // and look up subcommands themselves.
    let needs_a_second = matches!(command.keys, Keys::Counted(_)) || is_parent;
    if needs_a_second || command.words().1.is_some() { -2 } else { -1 }
}

/// Describes arity, keys and arguments of a command, from 7.0 on.
fn document(created: *mut raw::RedisModuleCommand, command: &Command, arity: c_int) {
    let spec = key_spec(command.keys);
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

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Arguments in the server's form, with the end of the list. Pushes the lists of their parts to
/// `lists`, which must live until the server has read them.
fn raw_list(
    params: &[Param],
    lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
) -> Box<[raw::RedisModuleCommandArg]> {
    let args = params.iter().map(|param| raw_arg(param, lists));
    args.chain([NO_MORE_ARGS]).collect()
}

fn raw_arg(
    param: &Param,
    lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
) -> raw::RedisModuleCommandArg {
    let mut subargs = ptr::null_mut();
    if !param.parts.is_empty() {
        let mut list = raw_list(param.parts, lists);
        subargs = list.as_mut_ptr();
        lists.push(list);
    }
    raw::RedisModuleCommandArg {
        name: param.name.as_ptr(),
        type_: param.kind,
        key_spec_index: if param.is_key() { 0 } else { -1 },
        token: param.token.map_or(ptr::null(), CStr::as_ptr),
        flags: c_int::try_from(param.flags).unwrap_or(0),
        subargs,
        ..NO_MORE_ARGS
    }
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

/// The key specification of a command that has keys.
const fn key_spec(keys: Keys) -> Option<raw::RedisModuleCommandKeySpec> {
    match keys {
        Keys::None => None,
        Keys::First(key) => Some(first_argument(key)),
        Keys::Counted(key) => Some(counted_arguments(key)),
    }
}

const fn key_flags(key: KeyUse) -> u32 {
    match key {
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Delete => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_DELETE
        }
        KeyUse::Overwrite => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
    }
}

/// One key, the first argument.
const fn first_argument(key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        flags: key_flags(key) as u64,
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

/// The first argument is the number of keys, and the keys follow.
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

/// Adds `@ratelimit`, from Redis 7.4 and Valkey 8.0 on. Returns true if the server has it.
fn add_category(ctx: &Context) -> bool {
    let category = c_string(CATEGORY);
    // SAFETY: the context is the one the module is being loaded with; the
    // server copies the name.
    let status =
        unsafe { raw::RedisModule_AddACLCategory.map(|add| add(ctx.ctx, category.as_ptr())) };
    match status {
        Some(status) if status == OK => true,
        // The category remains from an earlier load that the server undid (8.2).
        Some(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY) => true,
        Some(_) => {
            log::warning("the server does not take the ACL category @ratelimit");
            false
        }
        None => false,
    }
}

/// The ACL categories that follow from flags and audience. No server derives them for modules.
fn categories(command: &Command, has_category: bool) -> String {
    let access = [("write", "write"), ("readonly", "read")];
    let access = access.into_iter().filter(|&(flag, _)| command.has_flag(flag));
    let mut categories: Vec<&str> = access.map(|(_, category)| category).collect();
    categories.push(if command.has_flag("fast") { "fast" } else { "slow" });
    match command.audience {
        Audience::Client if has_category => categories.push(CATEGORY),
        Audience::Client => {}
        Audience::Operator => categories.push("admin"),
        Audience::Administrator | Audience::Internal => {
            categories.extend(["admin", "dangerous"]);
        }
    }
    categories.join(" ")
}

/// Puts a command into its ACL categories, from 7.2 on.
fn categorize(created: *mut raw::RedisModuleCommand, command: &Command, has_category: bool) {
    let categories = categories(command, has_category);
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
