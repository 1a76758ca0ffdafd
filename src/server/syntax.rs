//! The syntax of a command in one line, as the usage in errors shows it, and the parameters that
//! follow from it, for `COMMAND DOCS` and the hints of redis-cli.
//!
//! ```text
//! key                       an argument; its name tells its type
//! COST cost                 an argument after a word
//! EX seconds|PX ms          one of several
//! COST cost|name=cost       one of several, after one word
//! [FULL]                    optional
//! [FLOW flow [WEIGHT n]]    optional, all together
//! rule [rule ...]           at least once
//! ```

use std::ffi::CString;

use redis_module::raw::{
    REDISMODULE_CMD_ARG_MULTIPLE as MULTIPLE, REDISMODULE_CMD_ARG_MULTIPLE_TOKEN as MULTIPLE_TOKEN,
    REDISMODULE_CMD_ARG_OPTIONAL as OPTIONAL, RedisModuleCommandArgType as Kind,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as GROUP,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as INTEGER,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as CHOICE,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN as PATTERN,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as WORD,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as STRING,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME as UNIX_TIME,
};

use super::log::c_string;

/// A parameter as the server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Param {
    pub name: CString,
    pub kind: Kind,
    /// The word before the value.
    pub token: Option<CString>,
    pub flags: u32,
    /// The alternatives of a choice, or the members of a group.
    pub parts: Vec<Self>,
}

/// The parameters of a syntax.
pub(super) fn params(syntax: &str) -> Vec<Param> {
    let spaced = syntax.replace('[', "[ ").replace(']', " ]").replace('|', " | ");
    list(&mut spaced.split_whitespace().collect::<Vec<_>>().as_slice())
}

/// Takes the parameters up to the end of a bracket.
fn list(words: &mut &[&str]) -> Vec<Param> {
    let (first, mut params) = (words.first().copied(), Vec::new());
    while let Some((&word, rest)) = words.split_first() {
        match word {
            "[" => {
                *words = rest;
                let is_repetition = rest.first().copied() == first;
                let parts = list(words);
                if is_repetition {
                    params = vec![Param { flags: MULTIPLE, ..whole(GROUP, params) }];
                } else {
                    let optional = whole(GROUP, parts);
                    params.push(Param { flags: optional.flags | OPTIONAL, ..optional });
                }
            }
            "]" | "..." => *words = rest,
            _ => params.push(choice(words)),
        }
        if word == "]" {
            break;
        }
    }
    params
}

/// Takes a parameter or several alternatives. An alternative without a word belongs to the word of the
/// alternative before it.
fn choice(words: &mut &[&str]) -> Param {
    let mut by_word: Vec<Vec<Param>> = Vec::new();
    loop {
        let param = single(words);
        match by_word.last_mut() {
            Some(alternatives) if param.token.is_none() => alternatives.push(param),
            _ => by_word.push(vec![param]),
        }
        let ["|", rest @ ..] = words else { break };
        *words = rest;
    }
    let mut parts: Vec<_> = by_word.into_iter().map(|parts| whole(CHOICE, parts)).collect();
    if let (["[", again, rest @ ..], Some(last)) = (*words, parts.last_mut())
        && *again == last.token.as_ref().unwrap_or(&last.name).to_string_lossy()
    {
        last.flags = if last.token.is_some() { MULTIPLE | MULTIPLE_TOKEN } else { MULTIPLE };
        *words = rest;
        list(words);
    }
    whole(CHOICE, parts)
}

/// Takes a value, a word with its value, or a word alone. If the value repeats without the word, the
/// value is a parameter by itself.
fn single(words: &mut &[&str]) -> Param {
    let is_value = |word: &str| word.starts_with(|first: char| first.is_ascii_lowercase());
    let Some((&word, rest)) = words.split_first() else { return Param::default() };
    let (token, value, rest) = match rest {
        _ if is_value(word) => (None, Some(word), rest),
        [value, "[", again, ..] if value == again => (Some(word), None, rest),
        [value, rest @ ..] if is_value(value) => (Some(word), Some(*value), rest),
        _ => (Some(word), None, rest),
    };
    *words = rest;
    Param {
        name: c_string(&value.unwrap_or(word).to_lowercase()),
        kind: value.map_or(WORD, kind_of),
        token: token.map(c_string),
        ..Param::default()
    }
}

/// A choice or a group of several parameters. A single parameter stays unchanged.
fn whole(kind: Kind, mut parts: Vec<Param>) -> Param {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let name = name_of(&parts);
    let has_one_word = kind == CHOICE && parts.iter().skip(1).all(|part| part.token.is_none());
    let first = parts.first_mut().filter(|_| has_one_word);
    let token = first.and_then(|first| first.token.take());
    Param { name, kind, token, parts, ..Param::default() }
}

/// The name of a choice or a group: mostly its first word.
fn name_of(parts: &[Param]) -> CString {
    let words: Vec<_> =
        parts.iter().flat_map(|part| &part.token).map(|word| word.to_bytes()).collect();
    let name = match words.as_slice() {
        [b"EX", b"PX"] => "time".into(),
        [b"EX", ..] => "end".into(),
        [b"REFUND", ..] => "settlement".into(),
        [b"NEXT", ..] => "next-rules".into(),
        words => String::from_utf8_lossy(words.first().unwrap_or(&&b""[..])).to_lowercase(),
    };
    c_string(&name)
}

/// The type of a value with this name.
fn kind_of(name: &str) -> Kind {
    match name {
        "key" => KEY,
        "pattern" => PATTERN,
        "unix-time-seconds" | "unix-time-milliseconds" => UNIX_TIME,
        "rule" | "name" | "policy" | "a..b" | "name=cost" | "id" | "flow" | "text" | "reason"
        | "period" | "effect" | "detail" | "payload" => STRING,
        _ => INTEGER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A syntax made from its parameters, each value with its type.
    fn notation(params: &[Param], between: &str) -> String {
        params.iter().map(one).collect::<Vec<_>>().join(between)
    }

    fn one(param: &Param) -> String {
        let (name, parts) = (param.name.to_string_lossy(), &param.parts);
        let value = match param.kind {
            WORD => String::new(),
            CHOICE => format!(" {name}({})", notation(parts, "|")),
            GROUP => format!(" {name}({})", notation(parts, " ")),
            INTEGER => format!(" {name}:int"),
            UNIX_TIME => format!(" {name}:unix"),
            KEY | PATTERN | STRING => format!(" {name}"),
            other => format!(" {name}:{other}"),
        };
        let token = param.token.as_ref().map(|token| token.to_string_lossy().into_owned());
        let has = |flag, text| if param.flags & flag != 0 { text } else { "" };
        let flags = [has(MULTIPLE, "+"), has(MULTIPLE_TOKEN, "+"), has(OPTIONAL, "?")].concat();
        format!("{}{value}", token.unwrap_or_default()).trim_start().to_owned() + &flags
    }

    #[test]
    fn parameters_follow_from_the_syntax() {
        for (syntax, expected) in [
            ("", ""),
            ("key", "key"),
            ("numkeys key [key ...]", "numkeys:int key+"),
            ("key [COUNT count] [RESET]", "key COUNT count:int? RESET?"),
            ("[MATCH pattern]", "MATCH pattern?"),
            ("rule [rule ...]", "rule+"),
            ("key [rule [rule ...]]", "key rule+?"),
            ("id EX seconds|PX milliseconds", "id time(EX seconds:int|PX milliseconds:int)"),
            (
                "[EX seconds|PXAT unix-time-milliseconds|FOR period]",
                "end(EX seconds:int|PXAT unix-time-milliseconds:unix|FOR period)?",
            ),
            ("[FLOW flow [WEIGHT weight]] x", "flow(FLOW flow WEIGHT weight:int?)? x:int"),
            (
                "[COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] [FULL]",
                "COST cost(cost:int|a..b|name=cost)++? FULL?",
            ),
            (
                "[REFUND|COST cost|name=cost [COST cost|name=cost ...]]",
                "settlement(REFUND|COST cost(cost:int|name=cost)++)?",
            ),
            (
                "rule [rule ...] [NEXT rule [rule ...] [NEXT rule [rule ...] ...]]",
                "rule+ next-rules(NEXT rule+)+?",
            ),
        ] {
            assert_eq!(notation(&params(syntax), " "), expected, "{syntax}");
        }
    }
}
