//! A panic while the server serves: if there is a caller, it gets an error. Nothing else is
//! affected.

use redis::{RedisResult, Value, cmd};

use crate::support::client::{
    ask, attempt, digest, exists, info, raw_reply, refusal, remaining, replica_of, replicated,
};
use crate::support::faults::{Fault, MOMENTS, Moment, counted, while_panicking};
use crate::support::files::crash;
use crate::support::policies::{known_by_replica, policies, set};
use crate::support::server::{self, Builder, eventually};
use crate::support::settings::config_get;

const ERROR: &str = "internal error, see the server's log";

#[test]
fn a_command_that_panics_replies_once_and_each_panic_is_counted() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        let callback = "command::check::check";
        while_panicking(server, Moment::BeforeItsBody, callback, || {
            for line in ["RL.CHECK k 5/h", "EVAL return(redis.call('RL.CHECK','k','5/h')) 0"] {
                let why = refusal(&mut c, line);
                assert!(why.contains(ERROR), "{line}: {why}");
            }
            assert!(!exists(&mut c, "k"));
        });
        while_panicking(server, Moment::AfterItsBody, callback, || {
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 4);
            assert_eq!(raw_reply(&mut c, "PING"), Value::SimpleString("PONG".into()));
        });
        assert_eq!(counted(server), 3);
        assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 3);
    });
}

#[test]
fn a_panic_before_propagation_loses_a_change_only_on_replicas() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        let replica = replica_of(server);
        let mut r = replica.connect();
        let propagate = "server::propagation";
        for (moment, on_replica) in [(Moment::BeforeItsBody, 3), (Moment::AfterItsBody, 2)] {
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 4);
            while_panicking(server, moment, propagate, || {
                let why = refusal(&mut c, "RL.CHECK k 5/h");
                assert!(why.contains(ERROR), "{why}");
            });
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 2, "{moment:?}");
            replicated(&mut c);
            assert_eq!(remaining(&mut r, "RL.PEEK k 5/h"), on_replica, "{moment:?}");
            for c in [&mut c, &mut r] {
                assert!((1..=2 * 3_600_000).contains(&ask(c, "PTTL k")), "{moment:?}");
            }
            let () = ask(&mut c, "RL.RESET k");
            replicated(&mut c);
            assert!(!exists(&mut r, "k"), "{moment:?}");
        }
    });
}

#[test]
fn a_command_whose_keys_cannot_be_found_is_refused_to_users_with_rights_to_some_keys() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        let () = ask(&mut c, "ACL SETUSER app on nopass ~app:* +rl.mcheck");
        let mut app = server.connect();
        let () = ask(&mut app, "AUTH app any");
        let [own, other] = ["app:a", "other"].map(|key| format!("RL.MCHECK 1 {key} 5/h"));
        let _: Value = ask(&mut app, &own);
        // Servers from 7.0 on find the keys without this callback.
        let fault = Fault::begin(server.dir(), Moment::BeforeItsBody, "command::mcheck::keys");
        assert!(attempt(&mut app, &other).is_err());
        drop(fault);
        assert!(!exists(&mut c, "other"));
        let _: Value = ask(&mut app, &own);
        assert!(attempt(&mut app, &other).is_err());
    });
}

#[test]
fn upkeep_that_panics_leaves_values_as_they_are() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        for moment in MOMENTS {
            let _: Value = ask(&mut c, "RL.CHECK k 5/h");
            let before = ask::<Value>(&mut c, "RL.INFO k");
            let during = |callback: &str, line: &str| {
                let mut c = server.connect();
                while_panicking(server, moment, callback, || raw_reply(&mut c, line))
            };
            let usage = during("datatype::upkeep::mem_usage", "MEMORY USAGE k");
            // Valkey 8.1.1, which Debian has, counts only the bytes that the module reports.
            let own: String = ask(&mut c, "INFO server");
            let least = i64::from(!own.contains("valkey_version:8.1.1\r"));
            assert!(matches!(usage, Value::Int(bytes) if bytes >= least), "{usage:?}");
            assert!(matches!(
                during("datatype::upkeep::digest", "DEBUG DIGEST-VALUE k"),
                Value::Array(_)
            ));
            let copied = during("datatype::upkeep::copy", "COPY k copy");
            assert!(matches!(copied, Value::ServerError(_)), "{copied:?}");
            assert!(!exists(&mut c, "copy"));
            let after = ask::<Value>(&mut c, "RL.INFO k");
            assert_eq!(without_times(&before), without_times(&after), "{moment:?}");
            // A value that is not freed is leaked, and nothing worse happens.
            for callback in ["unlink", "free_effort", "free"] {
                let _: Value = ask(&mut c, "RL.CHECK gone 5/h");
                let line = if callback == "free_effort" { "UNLINK gone" } else { "DEL gone" };
                let removed = during(&format!("datatype::upkeep::{callback}"), line);
                assert_eq!((removed, exists(&mut c, "gone")), (Value::Int(1), false), "{callback}");
            }
            assert_eq!(remaining(&mut c, "RL.CHECK gone 5/h"), 4);
            let () = ask(&mut c, "FLUSHALL");
        }
    });
}

/// A reply without its integers, which change with the clock.
fn without_times(reply: &Value) -> Value {
    match reply {
        Value::Array(parts) => Value::Array(parts.iter().map(without_times).collect()),
        Value::Int(_) => Value::Nil,
        other => other.clone(),
    }
}

#[test]
fn defragmentation_that_panics_changes_no_value() {
    server::on_all_with(
        |builder| builder.faulty().config("hz", "100"),
        |server| {
            if server.flavor().name != "redis-8.2" {
                return; // The other servers cannot defragment.
            }
            let mut c = server.connect();
            for setting in ["ignore-bytes 1", "threshold-lower 0", "threshold-upper 1"] {
                let () = ask(&mut c, &format!("CONFIG SET active-defrag-{setting}"));
            }
            let script = "for i = 1, 20000 do redis.call('RL.CHECK', i, '5/h') end
                for i = 1, 20000 do if i % 3 ~= 0 then redis.call('DEL', i) end end";
            let () = cmd("EVAL").arg(script).arg(0).query(&mut c).expect("keys");
            let before = digest(&mut c);
            for moment in MOMENTS {
                let callback = "datatype::upkeep::defrag";
                while_panicking(server, moment, callback, || {
                    let () = ask(&mut c, "CONFIG SET activedefrag yes");
                });
                let () = ask(&mut c, "CONFIG SET activedefrag no");
                assert_eq!(digest(&mut c), before, "{moment:?}");
            }
        },
    );
}

#[test]
fn info_that_panics_shows_the_other_sections() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        for moment in MOMENTS {
            while_panicking(server, moment, "server::info::write", || {
                let port = info(&mut c, "everything", "tcp_port");
                assert_eq!(port, f64::from(server.port()), "{moment:?}");
            });
        }
        assert_eq!(counted(server), 2);
    });
}

#[test]
fn a_setting_whose_change_panics_is_an_error() {
    server::on_all_with(Builder::faulty, |server| {
        if !server.flavor().is_7_or_later() {
            return; // 6.2 has no settings of modules.
        }
        let mut c = server.connect();
        for (callback, change, name) in [
            ("set", "max-rules 7", "max-rules"),
            ("set", "allow-at yes", "allow-at"),
            ("set", "policies config", "policies"),
            ("apply_change", "top-size 7", "top-size"),
        ] {
            let get = format!("CONFIG GET ratelimit.{name}");
            let before: Value = ask(&mut c, &get);
            let callback = format!("server::settings::{callback}");
            while_panicking(server, Moment::BeforeItsBody, &callback, || {
                let reply = attempt(&mut c, &format!("CONFIG SET ratelimit.{change}"));
                assert!(reply.is_err(), "{change}: {reply:?}");
            });
            assert_eq!(ask::<Value>(&mut c, &get), before, "{change}");
            let () = ask(&mut c, &format!("CONFIG SET ratelimit.{change}"));
            assert_ne!(ask::<Value>(&mut c, &get), before, "{change}");
        }
    });
}

#[test]
fn a_setting_whose_reading_panics_is_still_shown_and_written() {
    server::on_all_with(Builder::faulty, |server| {
        if !server.flavor().is_7_or_later() {
            return; // 6.2 has no settings of modules.
        }
        let mut c = server.connect();
        for change in ["max-rules 7", "allow-at yes", "policies config"] {
            let () = ask(&mut c, &format!("CONFIG SET ratelimit.{change}"));
        }
        let expected = config_get(&mut c);
        for moment in MOMENTS {
            let told = while_panicking(server, moment, "server::settings::get", || {
                let told = config_get(&mut c);
                let () = ask(&mut c, "CONFIG REWRITE");
                told
            });
            assert_eq!(told, expected, "{moment:?}");
            crash(server);
            c = server.connect();
            assert_eq!(config_get(&mut c), expected, "{moment:?}, after a restart");
        }
    });
}

#[test]
fn events_that_panic_stop_no_command() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, "RL.CHECK k 5/h");
        for moment in MOMENTS {
            while_panicking(server, moment, "server::events::on_event", || {
                let () = ask(&mut c, "SWAPDB 0 1");
                let () = ask(&mut c, "SWAPDB 0 1");
                assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 3);
                let () = ask(&mut c, "FLUSHALL");
            });
            let _: Value = ask(&mut c, "RL.CHECK k 5/h");
        }
    });
}

#[test]
fn configured_policies_reach_replicas_after_a_panic() {
    server::on_all_with(Builder::faulty, |server| {
        let replica = server.flavor().builder().replica_of(server).start();
        for moment in MOMENTS {
            let mut c = server.connect();
            set(&mut c, &["free 9/h"]);
            while_panicking(server, moment, "server::alarm::on_time", || {
                let reply: RedisResult<()> = cmd("DEBUG").arg("RELOAD").query(&mut c);
                reply.expect("reloaded");
            });
            eventually("the policies", || {
                known_by_replica(&replica) == policies(&["free log:9/1h"])
            });
        }
    });
}
