//! Loading the module: with arguments of `loadmodule` on every server, and with `MODULE LOAD` and
//! `MODULE LOADEX` into a running server. The module cannot be unloaded.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::client::{allowed, ask, attempt, refusal, remaining, verdict};
use crate::support::files::crash;
use crate::support::server::{self, Builder, Flavor, Server, eventually};
use crate::support::settings::{SETTINGS, config_get, defaults, with_values};
use crate::support::users::lists_ratelimit_category;
use crate::support::waiters::wait_in_line;

#[test]
fn arguments_of_loadmodule_take_effect() {
    for setting in &SETTINGS {
        for effect in setting.effects {
            server::on_all_with(
                |builder| builder.module_args(&[setting.name, effect.0]),
                |server| setting.assert_effect(&mut server.connect(), effect),
            );
        }
    }
}

#[test]
fn a_repeated_argument_overrides_the_earlier_in_any_letter_case() {
    server::on_all_with(
        |builder| builder.module_args(&["max-rules", "1", "MAX-Rules", "2", "Allow-At", "YES"]),
        |server| {
            let mut c = server.connect();
            attempt(&mut c, "RL.PEEK k AT 5 5/s 9/m").expect("two rules, at a time");
            assert!(attempt(&mut c, "RL.PEEK k AT 5 5/s 9/m 7/h").is_err(), "three rules");
        },
    );
}

#[test]
fn config_rewrite_keeps_the_arguments_of_loadmodule() {
    server::on_all_with(
        |builder| builder.module_args(&["max-rules", "2", "allow-at", "yes"]),
        |server| {
            for _ in 0..2 {
                let mut c = server.connect();
                attempt(&mut c, "RL.PEEK k AT 5 5/s 9/m").expect("two rules, at a time");
                assert!(attempt(&mut c, "RL.PEEK k AT 5 5/s 9/m 7/h").is_err(), "three rules");
                let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
                crash(server);
            }
        },
    );
}

#[test]
fn module_list_shows_the_version_of_the_package() {
    let (numbers, candidate) =
        env!("CARGO_PKG_VERSION").split_once("-rc.").unwrap_or((env!("CARGO_PKG_VERSION"), "99"));
    let numbers = numbers.split('.').chain([candidate]);
    let numbers: Vec<i64> = numbers.map(|number| number.parse().expect("a number")).collect();
    let [major, minor, patch, candidate] = numbers[..] else { panic!("{numbers:?}") };
    server::on_all(|server| {
        let list: Vec<HashMap<String, Value>> =
            cmd("MODULE").arg("LIST").query(&mut server.connect()).unwrap();
        let name = Value::BulkString("ratelimit".into());
        let version =
            &list.iter().find(|module| module["name"] == name).expect("the module")["ver"];
        let number = ((major * 100 + minor) * 100 + patch) * 100 + candidate;
        assert_eq!(*version, Value::Int(number));
    });
}

/// Runs a test on each server, started without the module, and gives it the module's path.
fn on_all_without_the_module(body: impl Fn(&mut Server, &str)) {
    server::on_all_with(Builder::allow_module_command, |server| {
        let path = server.remove_module();
        // Without a save: before 7.2, a server without the module cannot load a saved file.
        crash(server);
        assert!(attempt(&mut server.connect(), "RL.EXPLAIN 5/m").is_err(), "no module yet");
        body(server, &path);
    });
}

/// Checks that a call of `MODULE` fails, logs these texts, and leaves no command and no
/// setting.
fn assert_not_loaded(server: &Server, load: &[&str], says: &[&str]) {
    let mut c = server.connect();
    let before = server.log().len();
    let reply: RedisResult<()> = cmd("MODULE").arg(load).query(&mut c);
    assert!(reply.is_err(), "{load:?} was accepted");
    let log = server.log().split_off(before);
    for part in says {
        assert!(log.contains(part), "{load:?}: «{log}» does not say «{part}»");
    }
    let error = attempt(&mut c, "RL.EXPLAIN 5/m").expect_err("no module").to_string();
    assert!(error.contains("unknown command"), "{load:?}: {error}");
    assert_eq!(config_get(&mut c), BTreeMap::default(), "{load:?}");
}

#[test]
fn a_load_that_fails_logs_why_and_leaves_nothing() {
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

        // The arguments before the wrong one must not take effect either.
        let half = ["LOAD", path, "max-rules", "1", "allow-at", "perhaps"];
        assert_not_loaded(server, &half, &["allow-at"]);
        let mut c = server.connect();
        let () = cmd("MODULE").arg(&["LOAD", path]).query(&mut c).unwrap();
        attempt(&mut c, "RL.PEEK k 5/s 9/m").expect("more than one rule");
        if server.flavor().is_7_or_later() {
            assert_eq!(config_get(&mut c), defaults());
        }
    });
}

#[test]
fn module_load_takes_arguments_and_refuses_a_second_load() {
    on_all_without_the_module(|server, path| {
        let mut c = server.connect();
        let load = |c: &mut Connection, rules: &str| -> RedisResult<()> {
            cmd("MODULE").arg(&["LOAD", path, "max-rules", rules, "allow-at", "yes"]).query(c)
        };
        load(&mut c, "2").unwrap();
        let two = "RL.CHECK k AT 5 5/s 9/m";
        attempt(&mut c, two).expect("two rules, at a time");
        assert!(load(&mut c, "1").is_err(), "loaded twice");
        attempt(&mut c, two).expect("still two rules");
        if !server.flavor().is_7_or_later() {
            return; // CONFIG REWRITE of 6.2 leaves out modules loaded at run time.
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        server.restart();
        attempt(&mut server.connect(), two).expect("two rules after a restart");
    });
}

/// Whether the server survives `MODULE LOADEX` with a setting that the module does not have.
/// The server then unloads the module, which a module with a data type does not allow: Redis
/// before 8.0 leaves such a module loaded, and Valkey crashes (it reports the reason through a
/// null pointer).
fn survives_unknown_settings(flavor: Flavor) -> bool {
    !flavor.is_valkey() && flavor.version >= (8, 0)
}

#[test]
fn module_loadex_takes_settings() {
    on_all_without_the_module(|server, path| {
        if !server.flavor().is_7_or_later() {
            return; // MODULE LOADEX came with 7.0.
        }
        let loadex = |words: &[&'static str]| -> Vec<&str> { [&["LOADEX", path], words].concat() };
        let wrong = loadex(&["CONFIG", "ratelimit.max-rules", "0"]);
        assert_not_loaded(server, &wrong, &["max-rules", "between 1 and 1000"]);
        if survives_unknown_settings(server.flavor()) {
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
        assert_eq!(config_get(&mut c), expected);
        // After these failures the commands still have their ACL category, where the server has one.
        let category: RedisResult<Vec<String>> =
            cmd("ACL").arg("CAT").arg("ratelimit").query(&mut c);
        if let Ok(commands) = category
            && lists_ratelimit_category(server.flavor())
        {
            assert!(commands.iter().any(|name| name == "rl.check"), "{commands:?}");
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        server.restart();
        assert_eq!(config_get(&mut server.connect()), expected);
    });
}

#[test]
fn the_module_cannot_be_unloaded_or_loaded_again_under_traffic() {
    server::on_all_with(Builder::allow_module_command, |server| {
        let path = server.remove_module();
        // The same file under another name is another library to the system's loader.
        let copy = server.dir().join("copy.so");
        fs::copy(&path, &copy).expect("a copy");
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK line HOLD held EX 3000 slots:1"), 0);
        let waiter = wait_in_line(server, "RL.WAIT line 3600000 HOLD next EX 3000 slots:1");
        let module = |c: &mut Connection| -> Vec<Value> {
            let modules: Vec<Vec<Value>> = ask(c, "MODULE LIST");
            let name = Value::BulkString("ratelimit".into());
            let module: Vec<_> = modules.into_iter().filter(|m| m.contains(&name)).collect();
            assert_eq!(module.len(), 1, "{module:?}");
            module.concat()
        };
        let before = module(&mut c);
        let (ended, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
        let all: i64 = thread::scope(|scope| {
            let call = || {
                let mut c = server.connect();
                let mut mine = 0;
                while !ended.load(Relaxed) {
                    assert!(allowed(&mut c, "RL.CHECK k fixed:900000000/366d,align=first"));
                    mine += 1;
                    passed.fetch_add(1, Relaxed);
                }
                mine
            };
            let callers = [(); 3].map(|()| scope.spawn(call));
            for _ in 0..20 {
                let enough = passed.load(Relaxed) + 50;
                eventually("traffic", || passed.load(Relaxed) >= enough);
                let why = refusal(&mut c, "MODULE UNLOAD ratelimit");
                assert!(why.contains("data types"), "{why}");
                for file in [Path::new(&path), &copy] {
                    let load: RedisResult<()> = cmd("MODULE")
                        .arg("LOAD")
                        .arg(file.to_str())
                        .arg("max-rules")
                        .arg(1)
                        .query(&mut c);
                    assert!(load.is_err(), "{} was loaded again", file.display());
                }
            }
            ended.store(true, Relaxed);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).sum()
        });
        assert_eq!(module(&mut c), before);
        assert_eq!(
            900_000_000 - remaining(&mut c, "RL.PEEK k fixed:900000000/366d,align=first"),
            all
        );
        attempt(&mut c, "RL.PEEK k 5/s 9/m").expect("the settings of the first load");
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE line held"), 1);
        assert_eq!(waiter.verdict(), 0);
        // The data type prevents the unload, even without values.
        let () = ask(&mut c, "FLUSHALL");
        let why = refusal(&mut c, "MODULE UNLOAD ratelimit");
        assert!(why.contains("data types"), "{why}");
        assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 4);
    });
}
