//! Registers commands: handlers on every server; documentation and ACL categories on servers that
//! support them.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::mem::zeroed;
use std::ptr;

use redis_module::commands::{BeginSearch, FindKeys, KeySpec, KeySpecFlags, get_redis_key_spec};
use redis_module::{Context, raw};
use thiserror::Error;

use super::api::{OK, api};
use super::commands::{self, Audience, Command, KeyUse};
use super::log::{self, c_string};
use super::syntax::{self, Param};

/// The server did not register a command.
#[derive(Debug, Error)]
#[error("the server does not take the command '{}', another module may have it", .0.to_string_lossy())]
pub struct Refused(&'static CStr);

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
    commands::keep(commands.clone());
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
    let key = c_int::from(command.has_key_first());
    // SAFETY: the pointer is only looked at.
    let is_7_or_later = unsafe { raw::RedisModule_CreateSubcommand }.is_some();
    let handler = if is_parent && is_7_or_later { None } else { command.handler };
    let flags = command.flags.to_string_lossy();
    // Servers before 7.0 refuse a command with a flag that they do not know.
    let flags = if is_7_or_later { flags } else { flags.replace(" blocking", "").into() };
    // Servers from 7.0 on find counted keys by the key specification. But when they redirect a client
    // to another node, they only look at the first and the last key, unless the command reports its
    // keys itself.
    let getkeys_api = if command.counts_keys() { " getkeys-api" } else { "" };
    let flags = c_string(&format!("{flags}{getkeys_api}"));
    // SAFETY: the context is the one the module is being loaded with; the
    // handler came from `on_command`; the server copies the texts.
    unsafe {
        let create = api(raw::RedisModule_CreateCommand);
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
    let needs_a_second = command.counts_keys() || is_parent;
    if needs_a_second || command.words().1.is_some() { -2 } else { -1 }
}

/// Describes arity, keys and arguments of a command, from 7.0 on.
fn document(created: *mut raw::RedisModuleCommand, command: &Command, arity: c_int) {
    let mut keys = key_specs(command);
    let params = syntax::params(command.syntax);
    let mut lists = Vec::new();
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        summary: command.summary.as_ptr(),
        complexity: command.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: ptr::null_mut(),
        tips: if command.tips.is_empty() { ptr::null() } else { command.tips.as_ptr() },
        arity,
        key_specs: if keys.is_empty() { ptr::null_mut() } else { keys.as_mut_ptr() },
        args: raw_args(&params, &mut lists),
    };
    // SAFETY: the server copies what the structure points to.
    let status =
        unsafe { raw::RedisModule_SetCommandInfo.map(|set| set(created, &raw const info)) };
    log_if_refused(status, &format!("documentation of {}", command.name.to_string_lossy()));
}

/// Logs that the server refused something. `None`: the server lacks the function, which is not logged.
fn log_if_refused(status: Option<c_int>, what: &str) {
    if status.is_some_and(|status| status != OK) {
        log::warning(&format!("the server does not take the {what}"));
    }
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// The arguments in the server's form, as a list that an empty entry ends. Pushes this list and the
/// lists of the arguments' parts to `lists`, which must live until the server has read them.
fn raw_args(
    params: &[Param],
    lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
) -> *mut raw::RedisModuleCommandArg {
    // SAFETY: the structure has only numbers and pointers. Its name is null: it ends a list.
    let no_more = unsafe { zeroed::<raw::RedisModuleCommandArg>() };
    let raw_arg = |param: &Param| raw::RedisModuleCommandArg {
        name: param.name.as_ptr(),
        type_: param.kind,
        key_spec_index: if *param.name == *c"key" { 0 } else { -1 },
        token: param.token.as_ref().map_or(ptr::null(), |token| token.as_ptr()),
        flags: param.flags as c_int,
        subargs: match param.parts.as_slice() {
            [] => ptr::null_mut(),
            parts => raw_args(parts, lists),
        },
        ..no_more
    };
    let mut list: Box<[_]> = params.iter().map(raw_arg).chain([no_more]).collect();
    let start = list.as_mut_ptr();
    lists.push(list);
    start
}

/// The specification of a command's keys, with the entry that ends the list; empty without keys.
fn key_specs(command: &Command) -> Vec<raw::RedisModuleCommandKeySpec> {
    let flags = match command.key {
        KeyUse::None => return Vec::new(),
        KeyUse::Read => KeySpecFlags::READ_ONLY | KeySpecFlags::ACCESS,
        KeyUse::Update => KeySpecFlags::READ_WRITE | KeySpecFlags::ACCESS | KeySpecFlags::UPDATE,
        KeyUse::Delete => KeySpecFlags::READ_WRITE | KeySpecFlags::ACCESS | KeySpecFlags::DELETE,
        KeyUse::Overwrite => KeySpecFlags::OVERWRITE | KeySpecFlags::UPDATE,
    };
    let find = match command.counts_keys() {
        true => FindKeys::new_keys_num(0, 1, 1),
        false => FindKeys::new_range(0, 1, 0),
    };
    get_redis_key_spec(vec![KeySpec::new(None, flags, BeginSearch::new_index(1), find)])
}

/// Adds `@ratelimit`, from Redis 7.4 and Valkey 8.0 on. Returns true if the server has it.
fn add_category(ctx: &Context) -> bool {
    let category = c_string(CATEGORY);
    // SAFETY: the context is the one the module is being loaded with; the
    // server copies the name.
    let status =
        unsafe { raw::RedisModule_AddACLCategory.map(|add| add(ctx.ctx, category.as_ptr())) };
    // The category may remain from an earlier load that the server undid (8.2).
    let remains = || io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
    let exists = status.is_some_and(|status| status == OK || remains());
    if !exists {
        log_if_refused(status, "ACL category @ratelimit");
    }
    exists
}

/// The ACL categories that follow from flags and audience. No server derives them for modules.
fn categories(command: &Command, has_category: bool) -> String {
    let standing = [("write", "write"), ("readonly", "read")];
    let standing = standing.into_iter().filter(|&(flag, _)| command.has_flag(flag));
    let mut categories: Vec<&str> = standing.map(|(_, category)| category).collect();
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
    let name = command.name.to_string_lossy();
    log_if_refused(status, &format!("ACL categories {categories} of {name}"));
}
