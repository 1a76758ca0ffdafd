//! Sends commands at times that are fixed ahead, and prints how late the replies came, as JSON.
//!
//! ```text
//! ratelimit-latency-load PORT CONNECTIONS RATE SECONDS KEYS EXPECTED COMMAND... [--then COMMAND...]
//! ```
//!
//! **Open loop.** Request n is due n/RATE seconds after the start, whether or not earlier requests have
//! their replies. Its latency counts from that time: a server that stalls for a second makes all
//! requests of this second late, not only the one that it was answering. A due request takes the
//! connection that has been idle longest. If all connections wait for replies, the request waits for the
//! first of them, and this time counts.
//!
//! **Closed loop**, with a RATE of 0: each connection sends its next request when it has its reply.
//!
//! The first half second does not count. One thread looks for replies and for due requests without ever
//! sleeping, because waking up takes longer than many replies. The program also prints how late it sent
//! requests although a connection was idle. If that is long, other processes had its core, and the
//! latencies say more about the machine than about the server.
//!
//! EXPECTED has a word for each command, separated by commas: what its reply must begin with. `-`
//! accepts any reply but an error.

mod command;
mod reply;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use command::Template;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use reply::Reply;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WARM_UP: Duration = Duration::from_millis(500);
/// How long after the last due time the load still sends requests that are overdue, to a server that is
/// slower than the rate.
const GRACE: Duration = Duration::from_secs(2);
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST_NS: u64 = 60_000_000_000;

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
    /// The index of the command that is sent next, or whose reply is awaited.
    step: usize,
    id: u64,
    due: Instant,
}

struct Load {
    poll: Poll,
    template: Template,
    expected: Vec<String>,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    /// Since when at least one connection was idle.
    idle_since: Instant,
    next_id: u64,
    scratch: Vec<u8>,
    recorded_from: Instant,
    latency: Histogram<u64>,
    late: Histogram<u64>,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, connections, rate, seconds, keys, expected, command @ ..] = &words[..] else {
        return Err("usage: PORT CONNECTIONS RATE SECONDS KEYS EXPECTED COMMAND...".into());
    };
    let template = Template::new(command, keys.parse()?);
    let expected: Vec<_> = expected.split(',').map(String::from).collect();
    if expected.len() != template.commands() {
        return Err("EXPECTED must have one word for each command".into());
    }
    let (rate, seconds): (f64, Duration) =
        (rate.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let mut load = Load::new(port.parse()?, connections.parse()?, template, expected)?;
    let lasts = WARM_UP + seconds;
    let (unsent, took) = if rate > 0.0 { load.open(rate, lasts)? } else { load.closed(lasts)? };
    load.print(unsent, took);
    Ok(())
}

fn connect(poll: &Poll, address: SocketAddr, number: usize) -> Result<Connection> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut stream = TcpStream::from_std(stream);
    poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
    Ok(Connection { stream, unread: Vec::new(), step: 0, id: 0, due: Instant::now() })
}

impl Load {
    /// Connects, and starts the clock.
    fn new(
        port: u16,
        connections: usize,
        template: Template,
        expected: Vec<String>,
    ) -> Result<Self> {
        let (poll, address) = (Poll::new()?, SocketAddr::from(([127, 0, 0, 1], port)));
        let connections = (0..connections)
            .map(|number| connect(&poll, address, number))
            .collect::<Result<Vec<_>>>()?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let start = Instant::now();
        Ok(Self {
            poll,
            template,
            expected,
            idle: (0..connections.len()).collect(),
            idle_since: start,
            connections,
            // So that a later run has other ids.
            next_id: u64::try_from(since_1970.as_micros())? % 1_000_000_000_000,
            scratch: Vec::new(),
            recorded_from: start + WARM_UP,
            latency: Histogram::new_with_bounds(1, LONGEST_NS, 3)?,
            late: Histogram::new_with_bounds(1, LONGEST_NS, 3)?,
        })
    }

    /// Returns how many requests were not sent in time, and how long the recorded part took.
    fn open(&mut self, rate: f64, lasts: Duration) -> Result<(u64, Duration)> {
        let start = self.recorded_from - WARM_UP;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of requests"
        )]
        let requests = (rate * lasts.as_secs_f64()) as u32;
        let due = |number: u32| start + Duration::from_secs_f64(f64::from(number) / rate);
        let mut sent = 0;
        while sent < requests {
            let now = Instant::now();
            if now > start + lasts + GRACE {
                break;
            }
            if due(sent) <= now
                && let Some(number) = self.idle.pop_front()
            {
                self.send(number, due(sent), now)?;
                sent += 1;
            }
            self.receive()?;
        }
        self.finish()?;
        let now = Instant::now();
        // Requests that were never sent are at least as late as this.
        for number in sent..requests {
            self.latency.saturating_record(nanoseconds(now.saturating_duration_since(due(number))));
        }
        Ok((u64::from(requests - sent), now - self.recorded_from))
    }

    fn closed(&mut self, lasts: Duration) -> Result<(u64, Duration)> {
        let end = self.recorded_from - WARM_UP + lasts;
        loop {
            let now = Instant::now();
            if now >= end {
                break;
            }
            while let Some(number) = self.idle.pop_front() {
                let now = Instant::now();
                self.send(number, now, now)?;
            }
            self.receive()?;
        }
        self.finish()?;
        Ok((0, Instant::now() - self.recorded_from))
    }

    /// Waits for the replies to all requests that were sent.
    fn finish(&mut self) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        while self.idle.len() < self.connections.len() {
            if Instant::now() > give_up {
                return Err(format!("a reply did not come within {} s", PATIENCE.as_secs()).into());
            }
            self.receive()?;
        }
        Ok(())
    }

    fn send(&mut self, number: usize, due: Instant, now: Instant) -> Result<()> {
        if due >= self.recorded_from {
            self.late.saturating_record(nanoseconds(
                now.saturating_duration_since(due.max(self.idle_since)),
            ));
        }
        let connection = &mut self.connections[number];
        if connection.step == 0 {
            connection.id = self.next_id;
            self.next_id += 1;
        }
        connection.due = due;
        self.scratch.clear();
        self.template.write(connection.step, connection.id, &mut self.scratch);
        // One request at a time always fits into the socket's buffer.
        connection.stream.write_all(&self.scratch)?;
        Ok(())
    }

    /// Takes the replies that have arrived.
    fn receive(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        if let Err(error) = self.poll.poll(&mut events, Some(Duration::ZERO))
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error.into());
        }
        for event in &events {
            self.read(event.token().0)?;
        }
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let mut bytes = [0; 4096];
        match connection.stream.read(&mut bytes) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(length) => connection.unread.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let Some(reply) = Reply::at(&connection.unread) else { return Ok(()) };
        let now = Instant::now();
        let expected = &self.expected[connection.step];
        if reply.is_error || (expected != "-" && reply.first != expected.as_bytes()) {
            let got = String::from_utf8_lossy(&connection.unread);
            return Err(format!(
                "command {} expected the reply {expected}, but got {got}",
                connection.step + 1
            )
            .into());
        }
        if connection.due >= self.recorded_from {
            self.latency.saturating_record(nanoseconds(now - connection.due));
        }
        connection.unread.clear();
        connection.step = (connection.step + 1) % self.expected.len();
        if self.idle.is_empty() {
            self.idle_since = now;
        }
        self.idle.push_back(number);
        Ok(())
    }

    fn print(&self, unsent: u64, took: Duration) {
        let requests = self.latency.len();
        let (latency, late) = (quantiles(&self.latency), quantiles(&self.late));
        let rate =
            f64::from(u32::try_from(requests - unsent).unwrap_or(u32::MAX)) / took.as_secs_f64();
        println!(
            r#"{{"requests": {requests}, "unsent": {unsent}, "rate": {rate:.1}, "us": {latency}, "late_us": {late}}}"#
        );
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds, as JSON.
fn quantiles(histogram: &Histogram<u64>) -> String {
    let us = |ns: u64| f64::from(u32::try_from(ns / 100).unwrap_or(u32::MAX)) / 10.0;
    let [p50, p99, p999] =
        [0.5, 0.99, 0.999].map(|quantile| us(histogram.value_at_quantile(quantile)));
    let worst = us(histogram.max());
    format!(r#"{{"p50": {p50}, "p99": {p99}, "p99.9": {p999}, "worst": {worst}}}"#)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use super::{Load, Template, WARM_UP};

    #[test]
    fn a_stall_delays_all_requests_that_are_due_in_it() {
        const CONNECTIONS: usize = 4;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stall = Arc::new(Mutex::new(()));
        let serving = Arc::clone(&stall);
        thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS) {
                let (mut stream, serving) = (stream.expect("a connection"), Arc::clone(&serving));
                thread::spawn(move || {
                    let mut bytes = [0; 256];
                    while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
                        drop(serving.lock());
                        let _ = stream.write_all(b"+PONG\r\n");
                    }
                });
            }
        });
        let template = Template::new(&["PING".to_string()], 1);
        let mut load =
            Load::new(port, CONNECTIONS, template, vec!["PONG".to_string()]).expect("a load");
        thread::spawn(move || {
            thread::sleep(WARM_UP + Duration::from_millis(100));
            let stalled = stall.lock();
            thread::sleep(Duration::from_millis(300));
            drop(stalled);
        });
        load.open(1000.0, WARM_UP + Duration::from_secs(1)).expect("replies");
        // 300 requests are due in the stall, 200 of them over 100 ms before its end. Only four are sent.
        let late = load.latency.count_between(100_000_000, u64::MAX);
        assert!(
            load.latency.len() == 1000 && late >= 180,
            "{late} of {} were late",
            load.latency.len()
        );
    }
}
