//! Settings: `CONFIG GET`, `SET` and `REWRITE`, and lines of the server's file.

use std::collections::BTreeMap;

use redis::{Connection, Value, cmd};

use crate::support::client::{allowed, ask};
use crate::support::files::crash;
use crate::support::server::{self, Builder, Server};
use crate::support::settings::{SETTINGS, Setting, config_get, config_set, defaults, with_values};

/// Runs a test on each server that has settings of modules, from 7.0 on.
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

#[test]
fn config_get_shows_every_setting() {
    server::on_all(|server| {
        let values = config_get(&mut server.connect());
        // 6.2 has arguments of loadmodule only.
        let expected =
            if server.flavor().is_7_or_later() { defaults() } else { BTreeMap::default() };
        assert_eq!(values, expected);
    });
}

#[test]
fn config_set_takes_effect_at_the_next_call() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            for effect in setting.effects.iter().chain(setting.effects) {
                config_set(&mut c, setting, effect.0).unwrap();
                setting.assert_effect(&mut c, effect);
                assert_eq!(config_get(&mut c)[&setting.full_name()], effect.0);
            }
            for value in setting.good() {
                config_set(&mut c, setting, &value).unwrap();
                assert_eq!(config_get(&mut c)[&setting.full_name()], value);
            }
            config_set(&mut c, setting, setting.default).unwrap();
        }
    });
}

#[test]
fn config_set_refuses_wrong_values_and_changes_nothing() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            for (value, why) in setting.bad() {
                let error = config_set(&mut c, setting, &value).expect_err(&value).to_string();
                for part in [&setting.full_name(), &why] {
                    assert!(error.contains(part), "{value}: «{error}» does not say «{part}»");
                }
            }
            // Of several settings at once, all are set or none.
            let mut several = cmd("CONFIG");
            several.arg("SET");
            for other in SETTINGS.iter().filter(|other| other.name != setting.name) {
                several.arg(other.full_name()).arg(other.another());
            }
            several.arg(setting.full_name()).arg("neither this nor that");
            assert!(several.query::<()>(&mut c).is_err());
        }
        assert_eq!(config_get(&mut c), defaults());
    });
}

#[test]
fn redis_6_2_has_no_settings_of_modules() {
    server::on_all(|server| {
        if server.flavor().is_7_or_later() {
            return; // They have settings of modules.
        }
        let mut c = server.connect();
        for setting in &SETTINGS {
            let error = config_set(&mut c, setting, setting.default).expect_err("6.2 has none");
            assert!(error.to_string().contains("Unsupported CONFIG parameter"), "{error}");
        }
    });
}

#[test]
fn lines_of_the_file_override_arguments_in_any_order() {
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
        assert_eq!(config_get(&mut server.connect()), expected);
        server.edit_config(|lines| {
            let last = lines.pop().expect("the setting's line");
            assert!(last.starts_with("ratelimit."), "{last}");
            lines.insert(0, last);
        });
        crash(server);
        assert_eq!(config_get(&mut server.connect()), expected);
    });
}

#[test]
fn a_wrong_line_of_the_file_keeps_the_server_from_starting() {
    for flavor in server::all().into_iter().filter(|flavor| flavor.is_7_or_later()) {
        for setting in &SETTINGS {
            let (value, why) = &setting.bad()[0];
            let log = flavor.builder().config(&setting.full_name(), value).refusal();
            for part in [setting.name, why] {
                assert!(log.contains(part), "{}: «{log}» does not say «{part}»", flavor.name);
            }
        }
        // Servers do not say which line belongs to no module.
        let log = flavor.builder().config("ratelimit.no-such-setting", "1").refusal();
        assert!(log.contains("Module Configuration detected without"), "{}: {log}", flavor.name);
    }
}

#[test]
fn config_rewrite_keeps_settings_over_a_restart() {
    on_configurable(|server| {
        let mut c = server.connect();
        for setting in &SETTINGS {
            config_set(&mut c, setting, &setting.another()).unwrap();
        }
        let () = cmd("CONFIG").arg("REWRITE").query(&mut c).unwrap();
        crash(server);
        assert_eq!(config_get(&mut server.connect()), with_values(Setting::another));
    });
}

#[test]
fn lowered_settings_trim_existing_data_on_next_use() {
    on_configurable(|server| {
        let mut c = server.connect();
        let reply = |c: &mut Connection, line: &str| format!("{:?}", ask::<Value>(c, line));
        let entries = |c: &mut Connection| reply(c, "RL.LOG k COUNT 100").matches("who").count();
        let rows = |c: &mut Connection| reply(c, "RL.TOP COUNT 100").matches("array").count() - 1;
        for n in 0..9 {
            reply(&mut c, "RL.CHECK k META who 5/h");
            reply(&mut c, &format!("RL.CHECK denied:{n} 0/h"));
        }
        reply(&mut c, "RL.BLOCK k REASON abuse");
        assert_eq!((entries(&mut c), rows(&mut c)), (9, 10));
        for (name, value) in [("log-entries", "3"), ("max-meta", "3"), ("top-size", "4")] {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            config_set(&mut c, setting, value).unwrap();
        }
        // Longer histories and reasons stay; the list of the most denied keys is cut at once.
        assert_eq!(entries(&mut c), 9);
        assert!(reply(&mut c, "RL.BLOCKS 0 COUNT 100").contains("abuse"));
        assert_eq!(rows(&mut c), 4);
        // A check without META changes nothing while the key is blocked.
        reply(&mut c, "RL.CHECK k 5/h");
        assert_eq!(entries(&mut c), 9);
        reply(&mut c, "RL.CHECK k META who 5/h");
        assert_eq!(entries(&mut c), 3);
    });
}

#[test]
fn config_resetstat_keeps_settings_and_consumption() {
    on_configurable(|server| {
        let mut c = server.connect();
        assert!(allowed(&mut c, "RL.CHECK k 1/h"));
        for setting in &SETTINGS {
            config_set(&mut c, setting, &setting.another()).unwrap();
        }
        let () = ask(&mut c, "CONFIG RESETSTAT");
        let report: Value = ask(&mut c, "RL.INFO k");
        assert!(format!("{report:?}").contains("log/1h"), "{report:?}");
        assert_eq!(config_get(&mut c), with_values(Setting::another));
    });
}
