//! `scripts/rl-left` and `scripts/rl-policies`.

use std::fs;

use redis::cmd;

use crate::support::client::{ask, replica_of, verdict};
use crate::support::policies::{known, policies, set};
use crate::support::server;
use crate::support::tools::run;

#[test]
fn each_thing_that_the_module_leaves_is_named() {
    server::on_all(|server| {
        let port = server.port().to_string();
        let left = |more: &[&str]| run("rl-left", &[&["-p", &port], more].concat());
        let (mut c, dir) = (server.connect(), server.dir());
        server.remove_module();
        let (status, said) = left(&[]);
        assert!(status == Some(0) && said.starts_with("nothing of the module is left"), "{said}");

        for line in ["SET s x", "SELECT 9", "SET s x", "ACL SETUSER app on >secret ~* +rl.check"] {
            let () = ask(&mut c, line);
        }
        let () = cmd("RL.BLOCK").arg(b"a\xff\nb").query(&mut c).unwrap();
        set(&mut c, &["free 5/h"]);
        let more = dir.join("more.conf");
        fs::write(&more, "# ratelimit.max-rules 1\nratelimit.max-rules 5\n").unwrap();
        fs::write(dir.join("users.acl"), "user a on +@all\nuser b on +rl.check\n").unwrap();
        let lines = ["include more.conf", "aclfile \"users.acl\"", "loadmodule /x/ratelimit.so"];
        server.edit_config(|file| file.extend(lines.map(ToString::to_string)));
        let (status, said) = left(&[]);
        let expected = [
            r"database 9: 1 limiters, such as b'a\xff\nb'",
            "policy: free",
            "user: app,",
            "more.conf:2: ratelimit.max-rules 5",
            "users.acl:2: user b on +rl.check",
            ": loadmodule /x/ratelimit.so",
        ];
        assert!(expected.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!((status, said.lines().count()), (Some(1), expected.len()), "{said}");

        let (status, said) = left(&["--delete", "--config", more.to_str().expect("text")]);
        assert_eq!((status, said.lines().count()), (Some(0), 2), "{said}");
        assert_eq!((ask::<i64>(&mut c, "DBSIZE"), known(&mut c)), (1, policies(&[])));
        let (status, said) = left(&["--config", "/nowhere"]);
        assert!(status == Some(2) && said.contains("/nowhere"), "{said}");
    });
}

#[test]
fn policies_that_differ_are_shown_and_copied_only_when_told() {
    server::on_all(|first| {
        let second = first.flavor().start();
        let replica = replica_of(&second);
        let all = [first, &second, &replica].map(|server| format!("127.0.0.1:{}", server.port()));
        let mut clients = [first, &second].map(server::Server::connect);
        let [first, second] = &mut clients;
        let tool = |more: &[&str]| {
            run("rl-policies", &[more, &all.each_ref().map(String::as_str)].concat())
        };
        set(first, &["free 20/m 800/d,name=day", "same 1/s", "new bucket:5/s,burst=9"]);
        set(second, &["free 3/m", "same 1/s", "old 5/h"]);
        let before = known(second);
        let (status, said) = tool(&[]);
        assert_eq!((status, known(second)), (Some(1), before), "{said}");
        for part in [
            "> RL.POLICY SET free log:20/1m log:800/1d,name=day  # has log:3/1m\n",
            "> RL.POLICY SET new bucket:5/1s,burst=9  # lacks it\n",
            "> RL.POLICY DEL old  # only this server has it",
            &format!("{} is a replica", all[2]),
        ] {
            assert!(said.contains(part) && !said.contains("same "), "{said}");
        }
        // A policy that the first server lacks stays.
        assert_eq!(tool(&["--apply"]).0, Some(1));
        let _: i64 = ask(second, "RL.POLICY DEL old");
        let (status, said) = tool(&[]);
        assert_eq!((status, known(second)), (Some(0), known(first)), "{said}");
        assert!(said.ends_with("2 servers have the same 3 policies\n"), "{said}");
        assert_eq!(verdict(second, "RL.CHECK k @new"), 0);
        let (status, said) = run("rl-policies", &[&all[2], &all[0]]);
        assert!(status == Some(2) && said.contains(&all[1]), "{said}");
    });
}
