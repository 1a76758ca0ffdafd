//! The crate `redis`: blocking connections, which by default have no time-out, and asynchronous
//! ones, which wait half a second.

use std::future::Future;
use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, Client, RedisResult, cmd};
use tokio::runtime::Builder;

use super::{eventually_waiting, hold, is_forgotten, server};
use crate::support::client::{ask, attempt, command, verdict};
use crate::support::server::Server;
use crate::support::waiters::waiting;

const WAIT: &str = "RL.WAIT k 20000 HOLD k EX 100 slots:1";
const SHORT: Duration = Duration::from_millis(400);
const SOON: Duration = Duration::from_millis(5);

/// Runs an asynchronous test.
fn run<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test)
}

fn client(server: &Server) -> Client {
    Client::open(format!("redis://127.0.0.1:{}", server.port())).expect("an address")
}

#[test]
fn a_long_time_out_or_none_keeps_a_blocking_connection_waiting() {
    let server = server();
    let mut c = server.connect();
    for time_out in [None, Some(Duration::from_secs(25))] {
        let start = Instant::now();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held PX 1200 slots:1"), 0);
        let mut client = server.connect();
        client.set_read_timeout(time_out).unwrap();
        assert_eq!(verdict(&mut client, WAIT), 0);
        assert!(start.elapsed() > Duration::from_secs(1));
        assert_eq!(ask::<i64>(&mut client, "RL.SETTLE k k"), 1);
    }
}

#[test]
fn a_connection_that_gives_up_is_charged_nothing() {
    let server = server();
    let mut c = server.connect();
    hold(&mut c, "k");
    let mut client = server.connect();
    client.set_read_timeout(Some(SHORT)).unwrap();
    let error = attempt(&mut client, WAIT).expect_err("it takes too long");
    assert!(error.is_timeout(), "{error}");
    drop(client);
    is_forgotten(&mut c, "k");
}

#[test]
fn an_asynchronous_connection_waits_up_to_its_response_timeout() {
    let server = server();
    let mut c = server.connect();
    let start = Instant::now();
    assert_eq!(verdict(&mut c, "RL.CHECK k HOLD held PX 1200 slots:1"), 0);
    run(async {
        let time_out = Some(Duration::from_secs(25));
        let config = AsyncConnectionConfig::new().set_response_timeout(time_out);
        let mut line =
            client(&server).get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let mut other = line.clone();
        let waits = async {
            let admitted: RedisResult<[i64; 5]> = command(WAIT).query_async(&mut line).await;
            (admitted.unwrap()[0], start.elapsed())
        };
        let pings = async {
            tokio::task::yield_now().await;
            let () = cmd("PING").query_async(&mut other).await.unwrap();
            start.elapsed()
        };
        let ((admitted, waited), answered) = tokio::join!(waits, pings);
        assert_eq!(admitted, 0);
        assert!(waited > Duration::from_secs(1));
        // Other commands on the same connection are answered after the wait.
        assert!(answered > Duration::from_secs(1), "{answered:?}");
    });
}

#[test]
fn after_a_time_out_an_asynchronous_client_stays_in_line_until_its_connection_is_dropped() {
    let server = server();
    let mut c = server.connect();
    hold(&mut c, "k");
    run(async {
        let mut line = client(&server).get_multiplexed_async_connection().await.unwrap();
        let reply: RedisResult<[i64; 5]> = command(WAIT).query_async(&mut line).await;
        let error = reply.expect_err("the default is half a second");
        assert!(error.is_timeout(), "{error}");
        eventually_waiting(&mut c, 1);
        drop(line);
        // The connection's task ends only while the runtime runs.
        let ends = async {
            while waiting(&mut c) > 0 {
                tokio::time::sleep(SOON).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ends)
            .await
            .expect("the client left the line");
        is_forgotten(&mut c, "k");
    });
}
