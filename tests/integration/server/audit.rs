//! The server's log says who changed a policy, and at level `verbose` who changed a key.

use redis::{Value, cmd};

use crate::support::client::{ask, command, replicated};
use crate::support::server::{self, Server};

/// The lines of the log that contain `text`.
fn logged(server: &Server, text: &str) -> Vec<String> {
    server.log().lines().filter(|line| line.contains(text)).map(ToString::to_string).collect()
}

#[test]
fn changes_of_policies_are_logged_with_their_user_and_old_rules() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "ACL SETUSER alice on nopass ~* +@all");
        let () = ask(&mut c, "AUTH alice x");
        let () = ask(&mut c, "RL.POLICY SET free 20/m");
        let () = ask(&mut c, "RL.POLICY SET free 30/m 800/d");
        let _: i64 = ask(&mut c, "RL.POLICY DEL free");
        let _: i64 = ask(&mut c, "RL.POLICY DEL free");
        let () = ask(&mut c, "EVAL return(redis.call('RL.POLICY','SET','p','1/s')) 0");
        for line in [
            "ratelimit: 'alice' called 'RL.POLICY' 'SET' 'free' '20/m'; there was none",
            "ratelimit: 'alice' called 'RL.POLICY' 'SET' 'free' '30/m' '800/d'; was 'log:20/1m'",
            "ratelimit: 'alice' called 'RL.POLICY' 'DEL' 'free'; was 'log:30/1m' 'log:800/1d'",
            "called 'RL.POLICY' 'SET' 'p' '1/s'; there was none",
        ] {
            assert_eq!(logged(server, line).len(), 1, "{line}: {}", server.log());
        }
        assert_eq!(logged(server, "called 'RL.POLICY'").len(), 4, "a change that did nothing");
        // A restart and a replica repeat no line.
        let replica = server.flavor().builder().replica_of(server).start();
        replicated(&mut c);
        assert!(logged(&replica, "called").is_empty());
    });
}

#[test]
fn changes_of_keys_are_logged_at_verbose_and_in_few_printable_bytes() {
    server::on_all_with(
        |builder| builder.config("loglevel", "verbose"),
        |server| {
            let mut c = server.connect();
            let () = ask(&mut c, "SELECT 3");
            let key = [b"a\r\nb\0".as_slice(), &[b'x'; 9_000]].concat();
            for name in ["BLOCK", "UNBLOCK", "EXEMPT", "UNEXEMPT", "PLAN", "UNPLAN", "RESET"] {
                let _: Value = cmd("RL.CHECK").arg(&key).arg("5/m").query(&mut c).expect("five");
                let mut changed = cmd(&format!("RL.{name}"));
                changed.arg(&key).arg((name == "PLAN").then_some("pro"));
                let _: Value = changed.query(&mut c).expect("a change");
                let lines =
                    logged(server, &format!("'default' called 'RL.{name}' 'a\\r\\nb\\x00xx"));
                let [line] = &lines[..] else { panic!("{name}: {lines:?}") };
                assert!(line.ends_with("database 3") && line.len() < 500, "{line}");
            }
            // What changes nothing is not logged.
            for line in ["RL.UNBLOCK k", "RL.UNPLAN k", "RL.RESET k"] {
                let _: i64 = command(line).query(&mut c).expect("0");
            }
            assert!(logged(server, "'k'").is_empty());
            let many: Vec<_> = (0..30).map(|n| format!("fixed:9/h,name=n{n:030}")).collect();
            let () = cmd("RL.POLICY").arg("SET").arg("p").arg(&many).query(&mut c).expect("OK");
            let () = cmd("RL.POLICY").arg("SET").arg("p").arg(&many).query(&mut c).expect("OK");
            let lines = logged(server, "'RL.POLICY' 'SET' 'p'");
            assert!(lines.len() == 2 && lines.iter().all(|line| line.len() < 1_024), "{lines:?}");
            assert!(lines[1].ends_with(" ..."), "{lines:?}");
        },
    );
}
