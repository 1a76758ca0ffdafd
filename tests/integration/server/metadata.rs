//! `COMMAND`: flags, arity, keys and documentation, on which proxies, cluster clients, ACLs and the
//! hints of redis-cli rely.

mod argument;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use argument::{Argument, read, ways_to_write};
use redis::{Cmd, Connection, RedisResult, Value, cmd};
use table::{Expected, commands};

use crate::support::server::{self, Builder};

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(ToString::to_string).collect()
}

/// `COMMAND INFO`, in its order: name, flags, arity, positions of keys, categories, tips, specs.
fn info(c: &mut Connection, name: &str) -> Vec<Value> {
    let [info]: [Vec<Value>; 1] = cmd("COMMAND").arg("INFO").arg(name).query(c).unwrap();
    info
}

fn docs(c: &mut Connection, name: &str) -> BTreeMap<String, Value> {
    let mut docs: HashMap<String, BTreeMap<String, Value>> =
        cmd("COMMAND").arg("DOCS").arg(name).query(c).unwrap();
    docs.remove(name).unwrap_or_else(|| panic!("no documentation of {name}"))
}

fn arguments(c: &mut Connection, name: &str) -> Vec<Argument> {
    Argument::list(docs(c, name).remove("arguments").expect("arguments are documented"))
}

/// Runs a test on each command and its documented arguments, on servers with `COMMAND DOCS`.
fn each_documented(body: impl Fn(&mut Connection, &Expected, &[Argument])) {
    server::on_all_with(Builder::allow_at, |server| {
        if !server.flavor().is_7_or_later() {
            return; // COMMAND DOCS and key specs came with 7.0.
        }
        let mut c = server.connect();
        for command in commands(server.flavor()) {
            let arguments = arguments(&mut c, command.name);
            body(&mut c, command, &arguments);
        }
    });
}

#[test]
fn command_list_shows_exactly_these_commands() {
    server::on_all(|server| {
        let mut c = server.connect();
        let listed: BTreeSet<String> = if server.flavor().is_7_or_later() {
            let mut list = cmd("COMMAND");
            list.arg("LIST").arg("FILTERBY").arg("MODULE").arg("ratelimit");
            list.query(&mut c).unwrap()
        } else {
            // 6.2 does not say which commands belong to a module, so these are found by their
            // prefixes.
            let all: Vec<Vec<Value>> = cmd("COMMAND").query(&mut c).unwrap();
            let names = all.into_iter().map(|mut info| read::<String>(info.swap_remove(0)));
            names.filter(|name| name.starts_with("rl.") || name.starts_with("cl.")).collect()
        };
        let known = commands(server.flavor()).map(|command| command.name.to_string());
        assert_eq!(listed, known.collect());
    });
}

#[test]
fn flags_arity_and_position_of_the_key_are_as_expected() {
    server::on_all(|server| {
        let mut c = server.connect();
        for command in commands(server.flavor()) {
            let Expected { name, flags, .. } = command;
            let info = info(&mut c, name);
            let mut flags = words(flags);
            if server.flavor().is_7_or_later() {
                flags.insert("module".to_string()); // 6.2 does not show this flag.
                assert_eq!(info[1], Value::Int(command.arity()), "{name}");
            } else {
                flags.remove("blocking"); // 6.2 does not know this flag.
            }
            assert_eq!(read::<BTreeSet<String>>(info[2].clone()), flags, "{name}");
            let position = i64::from(command.has_key() && !command.counts_keys());
            assert_eq!(info[3..6], [(); 3].map(|()| Value::Int(position)), "{name}");
        }
    });
}

#[test]
fn key_specs_say_how_a_command_uses_its_key() {
    each_documented(|c, command, _| {
        let Expected { name, key, .. } = command;
        let specs: Vec<HashMap<String, Value>> = read(info(c, name).swap_remove(8));
        let specs: Vec<_> = specs
            .into_iter()
            .map(|spec| {
                let search: HashMap<String, Value> = read(spec["begin_search"].clone());
                let keys: HashMap<String, Value> = read(spec["find_keys"].clone());
                assert_eq!(read::<String>(search["type"].clone()), "index", "{name}");
                let how = if command.counts_keys() { "keynum" } else { "range" };
                assert_eq!(read::<String>(keys["type"].clone()), how, "{name}");
                let flags: BTreeSet<String> = read(spec["flags"].clone());
                let first: BTreeMap<String, i64> = read(search["spec"].clone());
                let range: BTreeMap<String, i64> = read(keys["spec"].clone());
                (flags, first["index"], range)
            })
            .collect();
        let range = if command.counts_keys() {
            [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]
        } else {
            [("lastkey", 0), ("keystep", 1), ("limit", 0)]
        };
        let range = range.map(|(name, value)| (name.to_string(), value)).into();
        let expected = (words(key), 1, range);
        let expected = if command.has_key() { vec![expected] } else { vec![] };
        assert_eq!(specs, expected, "{name}");
    });
}

#[test]
fn tips_say_which_shards_to_send_to_and_which_replies_vary() {
    each_documented(|c, command, _| {
        let tips: BTreeSet<String> = read(info(c, command.name).swap_remove(7));
        assert_eq!(tips, words(command.tips), "{}", command.name);
    });
}

#[test]
fn a_wrong_number_of_arguments_gets_the_usage() {
    server::on_all(|server| {
        let mut c = server.connect();
        for command in commands(server.flavor()) {
            let least = command.least_arguments();
            let most = if command.is_exact() { least } else { usize::MAX };
            for count in (0..=least + 1).filter(|count| !(least..=most).contains(count)) {
                let reply: RedisResult<Value> =
                    command.call().arg(&["5"; 9][..count]).query(&mut c);
                let error = reply.expect_err(command.name).to_string();
                let usage = format!("wrong number of arguments, usage: {}", command.usage());
                // A server that knows subcommands refuses a call without one by itself.
                let by_server = server.flavor().is_7_or_later()
                    && count == 0
                    && (command.counts_keys() || command.is_container());
                let says = if command.is_internal() {
                    "is internal"
                } else if by_server {
                    "wrong number of arguments for"
                } else if command.is_container() {
                    "usage: RL.POLICY SET name rule [rule ...] | GET name | DEL name [FORCE] | LIST | HELP"
                } else {
                    &usage
                };
                assert!(
                    error.ends_with(says) || says != usage && error.contains(says),
                    "{} with {count}: «{error}» lacks «{says}»",
                    command.name
                );
            }
        }
    });
}

#[test]
fn scripts_and_transactions_without_a_key_get_the_usage() {
    server::on_all(|server| {
        let mut c = server.connect();
        for call in ["RL.CHECK", "RL.PEEK", "RL.RESET", "RL.BLOCK", "CL.THROTTLE"] {
            let usage = format!("usage: {call} key");
            let in_script = "return redis.call(ARGV[1])";
            let replies: [RedisResult<Value>; 3] = [
                cmd(call).query(&mut c),
                cmd("EVAL").arg(in_script).arg(0).arg(call).query(&mut c),
                redis::pipe().atomic().cmd(call).query(&mut c),
            ];
            for reply in replies {
                let error = reply.expect_err(call).to_string();
                assert!(error.contains(&usage), "{call}: {error}");
            }
        }
        // With too few arguments, COMMAND GETKEYS replies with an error or with the keys given.
        for call in ["RL.CHECK", "RL.MCHECK", "RL.MCHECK 5", "RL.MCHECK 5 a", "RL.MCHECK x a"] {
            let mut keys = cmd("COMMAND");
            keys.arg("GETKEYS").arg(call.split(' ').collect::<Vec<_>>());
            if let Ok(keys) = keys.query::<Vec<String>>(&mut c) {
                assert!(call.ends_with(" a") && keys == ["a"], "{call}: {keys:?}");
            }
        }
    });
}

#[test]
fn every_argument_is_documented() {
    each_documented(|_, Expected { name, syntax, .. }, arguments| {
        let documented: Vec<String> = arguments.iter().map(Argument::notation).collect();
        assert_eq!(documented.join(" "), *syntax, "{name}");
    });
}

#[test]
fn every_command_has_summary_complexity_and_version() {
    each_documented(|c, command, _| {
        let name = command.name;
        let mut docs = docs(c, name);
        let mut text = |field: &str| -> String {
            let text = docs.remove(field).unwrap_or_else(|| panic!("{name} has no {field}"));
            let text: String = read(text);
            assert!(text.len() > 2 && text.trim() == text, "{name}: {field} «{text}»");
            assert!(!text.contains(['\r', '\n']), "{name}: {field} «{text}»");
            text
        };
        let summary = text("summary");
        assert!(summary.ends_with('.') && summary.len() <= 80, "{name}: «{summary}»");
        // The cost of an internal command depends on the command that it propagates.
        let complexity = text("complexity");
        let depends = command.is_internal() || command.is_container();
        assert!(complexity.contains("O(") || depends, "{name}: «{complexity}»");
        let since = text("since");
        let numbers: Result<Vec<u32>, _> = since.split('.').map(str::parse).collect();
        assert_eq!(numbers.map(|numbers| numbers.len()), Ok(3), "{name} since {since}");
        assert_eq!(text("module"), "ratelimit");
    });
}

#[test]
fn every_documented_way_to_call_is_accepted() {
    each_documented(|c, command, arguments| {
        for way in ways_to_write(arguments) {
            if command.is_container() {
                continue;
            }
            let mut way = way;
            if way.contains(&"NEXT") {
                way.splice(..2, ["2", "k", "l"]); // each group of rules needs a key
            }
            let written = format!("{} {}", command.name, way.join(" "));
            let reply: RedisResult<Value> = command.call().arg(&way).query(c);
            match reply {
                Ok(_) => assert!(!command.is_internal(), "{written} was executed"),
                Err(error) => assert!(
                    command.is_internal() && error.to_string().contains("is internal"),
                    "{written}: {error}"
                ),
            }
        }
    });
}

/// A call of `COMMAND` about the shortest call of a command.
fn about_call(sub: &str, command: &Expected, key: &str) -> Cmd {
    let mut about = cmd("COMMAND");
    about.arg(sub).arg(command.name.split('|').collect::<Vec<_>>());
    let mut arguments = command.least_arguments();
    if command.counts_keys() {
        about.arg(1);
        arguments -= 1;
    }
    if command.has_key() {
        about.arg(key);
        arguments -= 1;
    }
    about.arg(&["5/m"; 9][..arguments]).to_owned()
}

#[test]
fn command_getkeys_finds_the_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        for command in commands(server.flavor()) {
            let name = command.name;
            let keys: RedisResult<Vec<String>> =
                about_call("GETKEYS", command, "some key").query(&mut c);
            match keys {
                Ok(keys) => assert!(command.has_key() && keys == ["some key"], "{name}: {keys:?}"),
                Err(error) => assert!(!command.has_key(), "{name}: {error}"),
            }
        }
    });
}

#[test]
fn command_getkeysandflags_returns_the_flags_of_the_key() {
    each_documented(|c, command, _| {
        if command.has_key() {
            let keys: Vec<(String, BTreeSet<String>)> =
                about_call("GETKEYSANDFLAGS", command, "some key").query(c).unwrap();
            assert_eq!(keys, [("some key".to_string(), words(command.key))], "{}", command.name);
        }
    });
}
