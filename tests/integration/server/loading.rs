//! Loading the module: with arguments of `loadmodule`, which serve every server, and with `MODULE
//! LOAD` and `MODULE LOADEX` into a running one.

use std::collections::{BTreeMap, HashMap};

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::server::{self, Flavor, Server};
use crate::support::settings::{SETTINGS, defaults, edit_config, run, told, with_values};

#[test]
fn arguments_of_loadmodule_serve_every_server() {
    for setting in &SETTINGS {
        for effect in setting.effects {
            server::on_all_with(
                |builder| builder.module_args(&[setting.name, effect.0]),
                |server| setting.assert_felt(&mut server.connect(), effect),
            );
        }
    }
}

#[test]
fn the_last_of_two_arguments_counts_and_case_does_not() {
    server::on_all_with(
        |builder| builder.module_args(&["max-rules", "1", "MAX-Rules", "2", "Allow-At", "YES"]),
        |server| {
            let mut c = server.connect();
            run(&mut c, "RL.PEEK k AT 5 5/s 9/m").expect("two rules, at a time");
            assert!(run(&mut c, "RL.PEEK k AT 5 5/s 9/m 7/h").is_err(), "three rules");
        },
    );
}

#[test]
fn a_rewrite_keeps_the_arguments_of_loadmodule() {
    server::on_all_with(
        |builder| builder.module_args(&["max-rules", "2", "allow-at", "yes"]),
        |server| {
            for _ in 0..2 {
                let mut c = server.connect();
                run(&mut c, "RL.PEEK k AT 5 5/s 9/m").expect("two rules, at a time");
                assert!(run(&mut c, "RL.PEEK k AT 5 5/s 9/m 7/h").is_err(), "three rules");
                let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
                server.kill9();
                server.resume();
            }
        },
    );
}

#[test]
fn the_modules_version_is_that_of_the_package() {
    let numbers = env!("CARGO_PKG_VERSION").split('-').next().expect("numbers").split('.');
    let numbers: Vec<i64> = numbers.map(|number| number.parse().expect("a number")).collect();
    let [major, minor, patch] = numbers[..] else { panic!("three numbers: {numbers:?}") };
    server::on_all(|server| {
        let list: Vec<HashMap<String, Value>> =
            cmd("MODULE").arg("LIST").query(&mut server.connect()).unwrap();
        let ours = list.iter().find(|module| module["name"] == name("ratelimit"));
        let version = &ours.expect("the module is listed")["ver"];
        assert_eq!(*version, Value::Int(major * 10_000 + minor * 100 + patch));
    });
}

fn name(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// Runs a test on each server, which runs without the module; given is the module's path.
fn on_all_without_the_module(body: impl Fn(&mut Server, &str)) {
    server::on_all_with(
        |builder| {
            if builder.flavor().is_7_or_later() {
                builder.config("enable-module-command", "yes")
            } else {
                builder // 6.2 always allows it.
            }
        },
        |server| {
            let mut path = String::new();
            edit_config(server, |lines| {
                let (load, others): (Vec<_>, Vec<_>) =
                    lines.into_iter().partition(|line| line.starts_with("loadmodule "));
                path = load[0].split('"').nth(1).expect("a path in quotes").to_string();
                others
            });
            assert!(run(&mut server.connect(), "RL.EXPLAIN 5/m").is_err(), "no module yet");
            body(server, &path);
        },
    );
}

/// `MODULE LOAD` and the like must fail, say these parts in the log, and leave nothing behind.
fn assert_not_loaded(server: &Server, load: &[&str], says: &[&str]) {
    let mut c = server.connect();
    let before = server.log().len();
    let reply: RedisResult<()> = cmd("MODULE").arg(load).query(&mut c);
    assert!(reply.is_err(), "{load:?} was accepted");
    let log = server.log().split_off(before);
    for part in says {
        assert!(log.contains(part), "{load:?}: «{log}» does not say «{part}»");
    }
    let error = run(&mut c, "RL.EXPLAIN 5/m").expect_err("no module").to_string();
    assert!(error.contains("unknown command"), "{load:?}: {error}");
    assert_eq!(told(&mut c), BTreeMap::default(), "{load:?}");
}

#[test]
fn a_load_that_fails_says_why_and_leaves_nothing() {
    on_all_without_the_module(|server, path| {
        for setting in &SETTINGS {
            for (value, _) in setting.bad() {
                let says = [setting.name, &format!("'{value}'"), &setting.expected()];
                assert_not_loaded(server, &["LOAD", path, setting.name, &value], &says);
            }
            assert_not_loaded(server, &["LOAD", path, setting.name], &[setting.name, "lacks"]);
        }
        let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        let unknown = ["LOAD", path, "no-such-setting", "1"];
        assert_not_loaded(server, &unknown, &[&["'no-such-setting'"], &names[..]].concat());

        // What was right before the wrong one is forgotten with it.
        let half = ["LOAD", path, "max-rules", "1", "allow-at", "perhaps"];
        assert_not_loaded(server, &half, &["allow-at"]);
        let mut c = server.connect();
        let () = cmd("MODULE").arg(&["LOAD", path]).query(&mut c).unwrap();
        run(&mut c, "RL.PEEK k 5/s 9/m").expect("more than one rule");
        if server.flavor().is_7_or_later() {
            assert_eq!(told(&mut c), defaults());
        }
    });
}

#[test]
fn a_running_server_loads_it_with_arguments_once() {
    on_all_without_the_module(|server, path| {
        let mut c = server.connect();
        let load = |c: &mut Connection, rules: &str| -> RedisResult<()> {
            cmd("MODULE").arg(&["LOAD", path, "max-rules", rules, "allow-at", "yes"]).query(c)
        };
        load(&mut c, "2").unwrap();
        let two = "RL.CHECK k AT 5 5/s 9/m";
        run(&mut c, two).expect("two rules, at a time");
        assert!(load(&mut c, "1").is_err(), "loaded twice");
        run(&mut c, two).expect("still two rules");
        if !server.flavor().is_7_or_later() {
            return; // 6.2 does not rewrite its file to load what was loaded while it ran.
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        server.restart();
        run(&mut server.connect(), two).expect("two rules after a restart");
    });
}

/// Whether the server survives `MODULE LOADEX` with a setting that the module does not have. It
/// then wants to unload what it has loaded, which a module with a data type does not allow: Redis
/// before 8.0 leaves such a module loaded, Valkey crashes (it reports why through a null pointer).
fn forgives_unknown_settings(flavor: Flavor) -> bool {
    !flavor.is_valkey() && flavor.version >= (8, 0)
}

#[test]
fn a_running_server_loads_it_with_settings() {
    on_all_without_the_module(|server, path| {
        if !server.flavor().is_7_or_later() {
            return; // MODULE LOADEX came with 7.0.
        }
        let loadex = |words: &[&'static str]| -> Vec<&str> { [&["LOADEX", path], words].concat() };
        let wrong = loadex(&["CONFIG", "ratelimit.max-rules", "0"]);
        assert_not_loaded(server, &wrong, &["max-rules", "between 1 and 1000"]);
        if forgives_unknown_settings(server.flavor()) {
            let unknown = loadex(&["CONFIG", "ratelimit.no-such-setting", "1"]);
            assert_not_loaded(server, &unknown, &["configurations were not applied"]);
        }
        let wrong = loadex(&["ARGS", "max-rules", "0"]);
        assert_not_loaded(server, &wrong, &["max-rules", "expected 1..1000"]);

        let mut c = server.connect();
        let arguments = ["CONFIG", "ratelimit.max-rules", "7", "ARGS", "max-rules", "3"];
        let arguments = [&arguments[..], &["allow-at", "yes"]].concat();
        let () = cmd("MODULE").arg(loadex(&arguments)).query(&mut c).unwrap();
        let expected = with_values(|setting| match setting.name {
            "max-rules" => "7",
            "allow-at" => "yes",
            _ => setting.default,
        });
        assert_eq!(told(&mut c), expected);
        // The ACL category, on servers that have it, is that of these commands again.
        let category: RedisResult<Vec<String>> =
            cmd("ACL").arg("CAT").arg("ratelimit").query(&mut c);
        if let Ok(commands) = category {
            assert!(commands.iter().any(|name| name == "rl.check"), "{commands:?}");
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        server.restart();
        assert_eq!(told(&mut server.connect()), expected);
    });
}
