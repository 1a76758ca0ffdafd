//! Clients that wait in line.

use std::io::Write;
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use redis::{Connection, ErrorKind, FromRedisValue, RedisResult, Value, from_redis_value};

use crate::support::client::{ask, attempt, info};
use crate::support::server::{Server, eventually};

/// A client that has sent a command and waits for the reply.
pub struct WaitingClient {
    pub id: i64,
    line: String,
    reply: JoinHandle<RedisResult<Value>>,
}

/// How many clients wait.
pub fn waiting(c: &mut Connection) -> usize {
    info(c, "ratelimit", "ratelimit_waiting_clients") as usize
}

/// Sends, from a new connection, a command that must wait. Returns once it waits.
pub fn wait_in_line(server: &Server, line: &str) -> WaitingClient {
    wait_on(server, server.connect(), line)
}

/// Sends, from this connection, a command that must wait. Returns once it waits.
pub fn wait_on(server: &Server, mut client: Connection, line: &str) -> WaitingClient {
    let mut c = server.connect();
    let before = waiting(&mut c);
    let id = ask(&mut client, "CLIENT ID");
    let sent = line.to_string();
    let reply = thread::spawn(move || attempt(&mut client, &sent));
    let waiter = WaitingClient { id, line: line.to_string(), reply };
    eventually(&format!("{line} to wait"), || waiting(&mut c) == before + 1);
    waiter
}

/// A client that only sends, and hangs up when it is dropped.
pub fn wait_unread(server: &Server, line: &str) -> TcpStream {
    let mut c = server.connect();
    let before = waiting(&mut c);
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    socket.write_all(format!("{line}\r\n").as_bytes()).expect("sent");
    eventually(&format!("{line} to wait"), || waiting(&mut c) == before + 1);
    socket
}

impl WaitingClient {
    /// Whether the client still waits.
    pub fn waits(&self) -> bool {
        !self.reply.is_finished()
    }

    /// The reply.
    pub fn reply(self) -> RedisResult<Value> {
        eventually(&format!("a reply to {}", self.line), || self.reply.is_finished());
        self.reply.join().expect("no panic")
    }

    /// The reply, which must not be an error.
    pub fn answer<T: FromRedisValue>(self) -> T {
        let line = self.line.clone();
        let value = self.reply().unwrap_or_else(|error| panic!("{line}: {error}"));
        from_redis_value(value).expect("of this type")
    }

    /// The verdict of a check.
    pub fn verdict(self) -> i64 {
        self.answer::<[i64; 5]>()[0]
    }

    /// The error that the client gets.
    pub fn refusal(self) -> String {
        let line = self.line.clone();
        match self.reply() {
            Err(error) => error.to_string(),
            Ok(value) => panic!("{line}: answered with {value:?}"),
        }
    }

    /// Whether the connection was closed without a reply.
    pub fn lost_its_connection(self) -> bool {
        self.reply().is_err_and(|error| error.kind() == ErrorKind::Io)
    }
}
