//! A panic while a waiting client is served: the client gets an answer, and so do those behind
//! it.

use crate::support::client::{ask, remaining};
use crate::support::clock::on_all_with_clock_and;
use crate::support::faults::{Fault, MOMENTS, Moment, counted, until_panic, while_panicking};
use crate::support::server::{self, Builder, eventually};
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
        while_panicking(
            server,
            Moment::BeforeItsBody,
            "server::waiting_clients::unblocked",
            || {
                let () = ask(&mut c, &format!("CLIENT UNBLOCK {}", first.id));
                let why = first.refusal();
                assert!(why.contains(ERROR), "{why}");
            },
        );
        assert_eq!(waiting(&mut c), 1);
        // The first client took nothing, and the second client is now the first.
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
            while_panicking(server, moment, "server::waiting_clients::gone", || drop(first));
            assert_eq!(waiting(&mut c), 1, "{moment:?}");
            let () = ask(&mut c, "DEL k");
            assert_eq!(second.verdict(), 0, "{moment:?}");
            assert_eq!(waiting(&mut c), 0, "{moment:?}");
            let () = ask(&mut c, "DEL k");
        }
    });
}

/// The server calls `gone`, which calls `let_go` if its body panics.
#[test]
fn a_client_that_cannot_leave_the_line_delays_the_next_by_at_most_one_turn() {
    const GONE: [&str; 2] = ["server::waiting_clients::gone", "server::waiting_clients::let_go"];
    for moment in MOMENTS {
        on_all_with_clock_and(Builder::faulty, |server, clock| {
            let mut c = server.connect();
            assert_eq!(remaining(&mut c, "RL.CHECK k 1/1000s"), 0);
            let first = wait_unread(server, "RL.WAIT k 3600000 1/1000s");
            let second = wait_in_line(server, "RL.WAIT k 3600000 1/1000s");
            let fault = Fault::begin(server.dir(), moment, &GONE.join("\n"));
            until_panic(server, GONE[0], || until_panic(server, GONE[1], || drop(first)));
            drop(fault);
            // If neither could end the wait, the client stays in line, and its turn is charged.
            let is_in_line = moment == Moment::BeforeItsBody;
            assert_eq!(waiting(&mut c), 1 + usize::from(is_in_line), "{moment:?}");
            clock.advance_s(&mut c, 1_000);
            if is_in_line {
                eventually("the turn of the first", || waiting(&mut c) == 1);
                assert!(second.waits());
                clock.advance_s(&mut c, 1_000);
            }
            assert_eq!(second.verdict(), 0, "{moment:?}");
            assert_eq!(waiting(&mut c), 0, "{moment:?}");
            assert_eq!(remaining(&mut c, "RL.PEEK k 1/1000s"), 0);
            assert_eq!(counted(server), 2, "{moment:?}");
        });
    }
}

#[test]
fn a_client_whose_reply_cannot_be_passed_on_gets_an_error() {
    server::on_all_with(Builder::faulty, |server| {
        for callback in
            ["server::waiting_clients::answered", "server::waiting_clients::free_answer"]
        {
            for moment in MOMENTS {
                let mut c = server.connect();
                assert_eq!(remaining(&mut c, "RL.CHECK k 1/50s"), 0);
                let waiter = wait_in_line(server, "RL.WAIT k 60000 1/50s");
                let reply = while_panicking(server, moment, callback, || {
                    let () = ask(&mut c, "DEL k");
                    waiter.reply()
                });
                let is_lost = callback.ends_with("answered") && moment == Moment::BeforeItsBody;
                match reply {
                    Err(error) => assert!(is_lost && error.to_string().contains(ERROR), "{error}"),
                    Ok(_) => assert!(!is_lost, "{callback}, {moment:?}"),
                }
                let () = ask(&mut c, "DEL k");
            }
        }
    });
}
