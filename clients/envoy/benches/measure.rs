//! Measures requests a second and the time to an answer, at the service and through Envoy. At a
//! given rate each request is due at a fixed time, from which the time to its answer counts.
//!
//!     make bench-envoy

#![allow(clippy::cast_precision_loss, reason = "counts are small")]

#[path = "../../rust/tests/client/support/server.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod server;
#[path = "../tests/service/support/mod.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod support;

use std::env;
use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use server::Server;
use support::envoy::Envoy;
use support::service::Service;

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rules: ['bucket:1000000/s,burst=1000000']
  - key: leased
    rules: ['bucket:1000000/s,burst=1000000']
    lease: 1000
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: path
    rules: ['bucket:1000000/s,burst=1000000']
";
/// The number of callers. Each sends one request at a time.
const CALLERS: usize = 50;

/// Lets the callers send requests for `seconds`: together `rate` requests a second, or as many as
/// they can.
async fn measure<F: Future<Output = ()> + Send + 'static>(
    rate: Option<u32>,
    seconds: u64,
    callers: Vec<Box<dyn FnMut() -> F + Send>>,
) -> (f64, Histogram<u64>) {
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let (turns, next) = mpsc::unbounded_channel();
    let next = Arc::new(Mutex::new(next));
    // A thread keeps the times, since the runtime's own timers are a millisecond late.
    let pacer = rate.map(|rate| {
        thread::spawn(move || {
            let due = |place| start + Duration::from_secs(1) * place / rate;
            for due in (0..).map(due).take_while(|due| *due < end) {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                turns.send(due).expect("callers wait");
            }
        })
    });
    let mut tasks = JoinSet::new();
    for mut call in callers {
        let (next, is_paced) = (Arc::clone(&next), pacer.is_some());
        tasks.spawn(async move {
            let mut times = histogram();
            loop {
                let now = Instant::now();
                let turn = if is_paced { next.lock().await.recv().await } else { Some(now) };
                let Some(due) = turn.filter(|due| *due < end) else { return times };
                call().await;
                times.saturating_record(due.elapsed().as_micros().try_into().expect("short"));
            }
        });
    }
    let mut all = histogram();
    for times in tasks.join_all().await {
        all.add(times).expect("one kind");
    }
    (all.len() as f64 / start.elapsed().as_secs_f64(), all)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds")
}

fn show(what: &str, (rate, times): &(f64, Histogram<u64>)) {
    let [p50, p99] = [0.5, 0.99].map(|part| times.value_at_quantile(part));
    println!("| {what} | {rate:.0} | {p50} | {p99} |");
}

async fn at_the_service(
    service: &Service,
    descriptor: &'static str,
    rate: Option<u32>,
    seconds: u64,
) -> (f64, Histogram<u64>) {
    let mut callers: Vec<Box<dyn FnMut() -> _ + Send>> = Vec::new();
    let clients = [service.client().await, service.client().await];
    for at in 0..CALLERS {
        let client = clients[at % clients.len()].clone();
        callers.push(Box::new(move || {
            let mut client = client.clone();
            async move { drop(client.ask(&[descriptor]).await) }
        }));
    }
    measure(rate, seconds, callers).await
}

async fn through_envoy(
    port: u16,
    path: &'static str,
    rate: Option<u32>,
    seconds: u64,
) -> (f64, Histogram<u64>) {
    let mut callers: Vec<Box<dyn FnMut() -> _ + Send>> = Vec::new();
    for _ in 0..CALLERS {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens");
        stream.set_nodelay(true).expect("a socket");
        let stream = Arc::new(Mutex::new(stream));
        callers.push(Box::new(move || {
            let stream = Arc::clone(&stream);
            async move {
                let mut stream = stream.lock().await;
                let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n");
                stream.write_all(request.as_bytes()).await.expect("Envoy reads");
                let (mut answer, mut length) = ([0; 4096], 0);
                while !answer[..length].windows(4).any(|end| end == b"\r\n\r\n") {
                    length += stream.read(&mut answer[length..]).await.expect("Envoy answers");
                }
            }
        }));
    }
    measure(rate, seconds, callers).await
}

#[tokio::main]
async fn main() {
    let seconds = env::var("SECONDS_EACH").map_or(5, |seconds| seconds.parse().expect("a number"));
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[("REMEMBERED_DENIALS", "10000")]);
    let forgetful = Service::start(&server, CONFIG, &[]);
    let envoy = Envoy::start(&service, &[]).await;
    let config = (
        "- name: envoy.filters.http.ratelimit",
        "- name: envoy.filters.http.ratelimit\n                    disabled: true",
    );
    let bare = Envoy::start(&service, &[config]).await;
    for rate in [Some(1000), Some(4000), None] {
        let rate_shown =
            rate.map_or("as fast as answers come".to_string(), |rate| format!("{rate} a second"));
        println!(
            "\n{rate_shown}, {CALLERS} callers, {seconds} s each\n\n| | a second | p50 µs | p99 µs |\n|---|---|---|---|"
        );
        for (what, service, descriptor) in [
            ("service, allowed", &service, "user=ann"),
            ("service, allowed by a lease", &service, "leased=ann"),
            ("service, denied", &forgetful, "denied=ann"),
            ("service, denied and remembered", &service, "denied=ann"),
        ] {
            show(what, &at_the_service(service, descriptor, rate, seconds).await);
        }
        show("Envoy without the filter", &through_envoy(bare.port(), "/", rate, seconds).await);
        show("Envoy, allowed", &through_envoy(envoy.port(), "/", rate, seconds).await);
    }
}
