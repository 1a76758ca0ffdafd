//! A panic while something is loaded: a file is refused as a whole, and never loaded in part.

use redis::{RedisResult, cmd};

use crate::support::client::{ask, dump, eventually_linked, exists, refusal, remaining};
use crate::support::faults::{Fault, MOMENTS, Moment, logged, while_panicking};
use crate::support::files::crash;
use crate::support::policies::{known, policies, set};
use crate::support::server::{self, Builder, eventually};

#[test]
fn a_server_does_not_start_with_only_a_part_of_its_data() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
        set(&mut c, &["free 9/h"]);
        for callback in ["datatype::saved::load", "datatype::saved::load_aux"] {
            for moment in MOMENTS {
                server.stop();
                let fault = Fault::begin(server.dir(), moment, callback);
                assert!(server.try_resume().is_err(), "{callback}, {moment:?}");
                drop(fault);
                assert!(logged(server, callback) > 0, "{callback}, {moment:?}");
                server.resume();
                let mut c = server.connect();
                assert_eq!(remaining(&mut c, "RL.PEEK good 5/h"), 4);
                assert_eq!(known(&mut c), policies(&["free log:9/1h"]));
            }
        }
    });
}

#[test]
fn a_value_that_cannot_be_loaded_is_not_restored() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
        let payload = dump(&mut c, "good").expect("a payload");
        let mut restore = cmd("RESTORE");
        restore.arg("copy").arg(0).arg(payload);
        for moment in MOMENTS {
            let reply: RedisResult<()> =
                while_panicking(server, moment, "datatype::saved::load", || restore.query(&mut c));
            assert!(reply.is_err() && !exists(&mut c, "copy"), "{moment:?}: {reply:?}");
        }
        let () = restore.query(&mut c).expect("without a panic it is restored");
        assert_eq!(remaining(&mut c, "RL.PEEK copy 5/h"), 4);
    });
}

#[test]
fn a_replica_does_not_serve_a_part_of_a_snapshot() {
    server::on_all(|primary| {
        let mut c = primary.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
        set(&mut c, &["free 9/h"]);
        for callback in ["datatype::saved::load", "datatype::saved::load_aux"] {
            let mut replica = primary.flavor().builder().faulty().start();
            while_panicking(&replica, Moment::BeforeItsBody, callback, || {
                let mut r = replica.connect();
                let () = ask(&mut r, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            });
            // The replica ends, as with any snapshot that does not load.
            eventually("the replica's end", || replica.has_ended());
            replica
                .edit_config(|lines| lines.push(format!("replicaof 127.0.0.1 {}", primary.port())));
            crash(&mut replica);
            eventually_linked(&replica);
            let mut r = replica.connect();
            assert_eq!(remaining(&mut r, "RL.PEEK good 5/h"), 4, "{callback}");
        }
    });
}

#[test]
fn a_module_that_panics_while_it_is_loaded_is_refused() {
    server::on_all_with(Builder::faulty, |server| {
        server.stop();
        for moment in MOMENTS {
            let fault = Fault::begin(server.dir(), moment, "redis_ratelimit::init");
            let log = server.try_resume().expect_err("it does not start");
            assert!(log.contains("cannot be loaded: a panic"), "{moment:?}: {log}");
            drop(fault);
        }
        server.resume();
        assert_eq!(remaining(&mut server.connect(), "RL.CHECK k 5/h"), 4);
    });
}

#[test]
fn a_module_that_panicked_can_be_loaded_later() {
    server::on_all_with(
        |builder| builder.faulty().allow_module_command(),
        |server| {
            server.kill9();
            let module = server.remove_module();
            server.resume();
            let mut c = server.connect();
            let fault = Fault::begin(server.dir(), Moment::BeforeItsBody, "redis_ratelimit::init");
            let load = format!("MODULE LOAD {module}");
            let why = refusal(&mut c, &load);
            assert!(why.contains("Error loading the extension"), "{why}");
            drop(fault);
            let () = ask(&mut c, &load);
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 4);
        },
    );
}
