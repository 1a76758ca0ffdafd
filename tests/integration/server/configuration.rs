//! The settings by `CONFIG` and in the server's file.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis::{Connection, cmd};

use crate::support::server::{self, Builder, Server};
use crate::support::settings::{
    SETTINGS, Setting, defaults, edit_config, run, set, told, with_values,
};

/// Runs a test on each server that has settings of modules; they came with 7.0.
fn on_configurable_with(configure: impl Fn(Builder) -> Builder, body: impl Fn(&mut Server)) {
    let only = |server: &mut Server| {
        if server.flavor().is_7_or_later() {
            body(server);
        }
    };
    server::on_all_with(
        |builder| if builder.flavor().is_7_or_later() { configure(builder) } else { builder },
        only,
    );
}

fn on_configurable(body: impl Fn(&mut Server)) {
    on_configurable_with(|builder| builder, body);
}

/// What the log says of a server that does not start.
fn refusal(builder: Builder) -> String {
    let started = catch_unwind(AssertUnwindSafe(|| builder.start()));
    let panic = started.err().expect("the server must not start");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn every_setting_is_told_and_no_other() {
    server::on_all(|server| {
        let told = told(&mut server.connect());
        // 6.2 knows no settings of modules: arguments are all there is.
        let expected =
            if server.flavor().is_7_or_later() { defaults() } else { BTreeMap::default() };
        assert_eq!(told, expected);
    });
}

#[test]
fn a_value_that_is_set_takes_effect_at_the_next_call() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            for effect in setting.effects.iter().chain(setting.effects) {
                set(&mut c, setting, effect.0).unwrap();
                setting.assert_felt(&mut c, effect);
                assert_eq!(told(&mut c)[&setting.full_name()], effect.0);
            }
            for value in setting.good() {
                set(&mut c, setting, &value).unwrap();
                assert_eq!(told(&mut c)[&setting.full_name()], value);
            }
            set(&mut c, setting, setting.default).unwrap();
        }
    });
}

#[test]
fn a_value_that_cannot_be_is_refused_with_a_reason_and_changes_nothing() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            for (value, why) in setting.bad() {
                let error = set(&mut c, setting, &value).expect_err(&value).to_string();
                for part in [&setting.full_name(), &why] {
                    assert!(error.contains(part), "{value}: «{error}» does not say «{part}»");
                }
            }
            // Of several at once, all are set or none.
            let mut several = cmd("CONFIG");
            several.arg("SET");
            for other in SETTINGS.iter().filter(|other| other.name != setting.name) {
                several.arg(other.full_name()).arg(other.another());
            }
            several.arg(setting.full_name()).arg("neither this nor that");
            assert!(several.query::<()>(&mut c).is_err());
        }
        assert_eq!(told(&mut c), defaults());
    });
}

#[test]
fn without_settings_of_modules_the_server_knows_none_to_set() {
    server::on_all(|server| {
        if server.flavor().is_7_or_later() {
            return; // The others have them.
        }
        let mut c = server.connect();
        for setting in &SETTINGS {
            let error = set(&mut c, setting, setting.default).expect_err("6.2 has none");
            assert!(error.to_string().contains("Unsupported CONFIG parameter"), "{error}");
        }
    });
}

#[test]
fn lines_of_the_file_win_over_arguments_wherever_they_stand() {
    let configure = |builder: Builder| {
        let builder = builder.module_args(&["max-rules", "3", "max-log-entries", "50"]);
        builder.config("ratelimit.max-rules", "7")
    };
    on_configurable_with(configure, |server| {
        let expected = with_values(|setting| match setting.name {
            "max-rules" => "7",
            "max-log-entries" => "50",
            _ => setting.default,
        });
        assert_eq!(told(&mut server.connect()), expected);
        edit_config(server, |mut lines| {
            let last = lines.pop().expect("the setting's line");
            assert!(last.starts_with("ratelimit."), "{last}");
            lines.insert(0, last);
            lines
        });
        assert_eq!(told(&mut server.connect()), expected);
    });
}

#[test]
fn a_wrong_line_of_the_file_keeps_the_server_from_starting() {
    for flavor in server::all().into_iter().filter(|flavor| flavor.is_7_or_later()) {
        for setting in &SETTINGS {
            let (value, why) = &setting.bad()[0];
            let log = refusal(flavor.builder().config(&setting.full_name(), value));
            for part in [setting.name, why] {
                assert!(log.contains(part), "{}: «{log}» does not say «{part}»", flavor.name);
            }
        }
        // No server says which line it is that no module wants.
        let log = refusal(flavor.builder().config("ratelimit.no-such-setting", "1"));
        assert!(log.contains("Module Configuration detected without"), "{}: {log}", flavor.name);
    }
}

#[test]
fn what_was_set_is_rewritten_and_kept_over_a_restart() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            set(&mut c, setting, &setting.another()).unwrap();
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        server.kill9();
        server.resume();
        assert_eq!(told(&mut server.connect()), with_values(Setting::another));
    });
}

#[test]
fn what_was_kept_under_a_larger_setting_is_cut_by_the_next_call_that_goes_by_it() {
    on_configurable(|server| {
        let mut c = server.connect();
        let answer = |c: &mut Connection, command: &str| match run(c, command) {
            Ok(value) => format!("{value:?}"),
            Err(error) => panic!("{command}: {error}"),
        };
        let marks = |c: &mut Connection| answer(c, "RL.LOG k COUNT 100").matches("who").count();
        let rows = |c: &mut Connection| answer(c, "RL.TOP COUNT 100").matches("array").count() - 1;
        for n in 0..9 {
            answer(&mut c, "RL.CHECK k META who 5/h");
            answer(&mut c, &format!("RL.CHECK denied:{n} 0/h"));
        }
        answer(&mut c, "RL.BLOCK k REASON abuse");
        assert_eq!((marks(&mut c), rows(&mut c)), (9, 10));
        for (name, value) in [("log-entries", "3"), ("max-meta", "3"), ("top-size", "4")] {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            set(&mut c, setting, value).unwrap();
        }
        // What is there stays, though it is more or longer than what may come from now on.
        assert_eq!(marks(&mut c), 9);
        assert!(answer(&mut c, "RL.BLOCKS 0 COUNT 100").contains("abuse"));
        assert_eq!(rows(&mut c), 4);
        // A check without META asks for no trail, and changes nothing behind a block.
        answer(&mut c, "RL.CHECK k 5/h");
        assert_eq!(marks(&mut c), 9);
        answer(&mut c, "RL.CHECK k META who 5/h");
        assert_eq!(marks(&mut c), 3);
    });
}

#[test]
fn resetting_statistics_forgets_neither_settings_nor_consumption() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            set(&mut c, setting, &setting.another()).unwrap();
        }
        let check = "RL.CHECK k 1/h";
        let first: [i64; 5] = redis::from_redis_value(run(&mut c, check).unwrap()).unwrap();
        let () = cmd("CONFIG").arg("RESETSTAT").query(&mut c).unwrap();
        let second: [i64; 5] = redis::from_redis_value(run(&mut c, check).unwrap()).unwrap();
        assert_eq!((first[0], second[0]), (0, 1));
        assert_eq!(told(&mut c), with_values(Setting::another));
    });
}
