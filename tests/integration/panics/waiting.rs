//! A panic on the way of a client that is answered later: it gets an answer, and those behind it as
//! well.

use crate::support::client::{ask, remaining};
use crate::support::faults::{MOMENTS, Moment, while_panicking};
use crate::support::server::{self, Builder};
use crate::support::waiters::{wait_in_line, wait_unread, waiting};

const ERROR: &str = "internal error, see the server's log";

#[test]
fn a_timer_that_panics_is_called_again() {
    server::on_all_with(Builder::faulty, |server| {
        for moment in MOMENTS {
            let mut c = server.connect();
            assert_eq!(remaining(&mut c, "RL.CHECK k 1/50s"), 0);
            let waiter = wait_in_line(server, "RL.WAIT k 60000 1/50s");
            while_panicking(server, moment, "server::alarm::on_time", || {
                let () = ask(&mut c, "DEL k");
            });
            assert_eq!(waiter.verdict(), 0, "{moment:?}");
            let () = ask(&mut c, "DEL k");
        }
    });
}

#[test]
fn an_unblocked_client_gets_an_error_and_leaves_the_line() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK k 1/50s"), 0);
        let [first, second] = [0, 1].map(|_| wait_in_line(server, "RL.WAIT k 60000 1/50s"));
        while_panicking(server, Moment::BeforeItsBody, "server::blocking::unblocked", || {
            let () = ask(&mut c, &format!("CLIENT UNBLOCK {}", first.id));
            let why = first.refusal();
            assert!(why.contains(ERROR), "{why}");
        });
        assert_eq!(waiting(&mut c), 1);
        // It took nothing, and the second is the first now.
        let () = ask(&mut c, "DEL k");
        assert_eq!(second.verdict(), 0);
        assert_eq!(remaining(&mut c, "RL.PEEK k 2/50s"), 1);
        assert_eq!(waiting(&mut c), 0);
    });
}

#[test]
fn a_client_that_hangs_up_leaves_the_line() {
    server::on_all_with(Builder::faulty, |server| {
        for moment in MOMENTS {
            let mut c = server.connect();
            assert_eq!(remaining(&mut c, "RL.CHECK k 1/50s"), 0);
            let first = wait_unread(server, "RL.WAIT k 60000 1/50s");
            let second = wait_in_line(server, "RL.WAIT k 60000 1/50s");
            while_panicking(server, moment, "server::blocking::gone", || drop(first));
            assert_eq!(waiting(&mut c), 1, "{moment:?}");
            let () = ask(&mut c, "DEL k");
            assert_eq!(second.verdict(), 0, "{moment:?}");
            assert_eq!(waiting(&mut c), 0, "{moment:?}");
            let () = ask(&mut c, "DEL k");
        }
    });
}

#[test]
fn a_client_whose_reply_cannot_be_passed_on_gets_an_error() {
    server::on_all_with(Builder::faulty, |server| {
        if server.flavor().is_7_or_later() {
            return; // Only before 7.0 a reply is read and passed on.
        }
        for callback in ["server::blocking::relayed", "server::blocking::free_relay"] {
            for moment in MOMENTS {
                let mut c = server.connect();
                assert_eq!(remaining(&mut c, "RL.CHECK k 1/50s"), 0);
                let waiter = wait_in_line(server, "RL.WAIT k 60000 1/50s");
                let reply = while_panicking(server, moment, callback, || {
                    let () = ask(&mut c, "DEL k");
                    waiter.reply()
                });
                let is_lost = callback.ends_with("relayed") && moment == Moment::BeforeItsBody;
                match reply {
                    Err(error) => assert!(is_lost && error.to_string().contains(ERROR), "{error}"),
                    Ok(_) => assert!(!is_lost, "{callback}, {moment:?}"),
                }
                let () = ask(&mut c, "DEL k");
            }
        }
    });
}
