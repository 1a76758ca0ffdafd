//! A connection that sends batches and judges each reply.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::generator::{Batch, Expect, Form};
use super::resp::{self, Protocol, Reply};
use crate::support::server::Server;
use crate::support::watchdog::Line;

/// How long a batch may take before the connection gives up. The watchdog reports it long
/// before.
pub const GIVING_UP: Duration = Duration::from_secs(240);
const CHUNK: usize = 1 << 16;

pub struct Session {
    stream: TcpStream,
    /// The bytes that were received and not yet read.
    buffer: Vec<u8>,
    protocol: Protocol,
    /// Whether modules of this server can reply with maps: 6.2 has flat arrays even in RESP3.
    has_maps: bool,
    line: Line,
}

impl Session {
    pub fn open(server: &Server, line: Line) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(GIVING_UP)).expect("an option");
        let has_maps = server.flavor().is_7_or_later();
        Self { stream, buffer: Vec::new(), protocol: Protocol::Resp2, has_maps, line }
    }

    /// The server's name for this connection.
    pub fn address(&self) -> String {
        self.stream.local_addr().expect("it is connected").to_string()
    }

    /// Sends a batch and reads its replies.
    ///
    /// # Errors
    /// The first reply that is wrong, or missing.
    pub fn exchange(&mut self, batch: &Batch) -> Result<(), String> {
        let maps = if self.has_maps { batch.protocol } else { Protocol::Resp2 };
        let mut expected = batch.sent.iter().filter(|sent| sent.expect != Expect::Silence);
        let replies = expected.clone().count();
        self.converse(&batch.bytes, batch.protocol, replies, |reply| {
            let sent = expected.next().ok_or("one reply too many")?;
            judge(&reply, sent.expect, &batch.nonce, maps).map_err(|why| {
                let command = &batch.bytes[sent.bytes.clone()];
                let command = &command[..command.len().min(4_000)];
                format!("{why}: {reply:?} to «{}»", command.escape_ascii())
            })
        })
    }

    /// Sends bytes and reads this many replies in this protocol.
    pub fn converse(
        &mut self,
        bytes: &[u8],
        protocol: Protocol,
        replies: usize,
        mut judge: impl FnMut(Reply) -> Result<(), String>,
    ) -> Result<(), String> {
        self.line.asks(&bytes[..bytes.len().min(CHUNK)]);
        for chunk in bytes.chunks(CHUNK) {
            self.stream.write_all(chunk).map_err(|error| format!("cannot send: {error}"))?;
            self.line.advances();
        }
        let before = std::mem::replace(&mut self.protocol, protocol);
        let (mut at, mut left) = (0, replies);
        while left > 0 {
            // A push from before the change of protocol is still in the old protocol.
            let is_first_push = left == replies && self.buffer.get(at) == Some(&b'>');
            let protocol = if is_first_push { before } else { protocol };
            match resp::read(&self.buffer[at..], protocol)? {
                Some((reply, length)) => {
                    at += length;
                    if !matches!(reply, Reply::Push(_)) {
                        judge(reply)?;
                        left -= 1;
                    }
                }
                None => {
                    self.buffer.drain(..at);
                    at = 0;
                    self.receive()?;
                }
            }
        }
        self.buffer.drain(..at);
        self.line.is_answered();
        Ok(())
    }

    #[allow(clippy::large_stack_arrays, reason = "the stack of a test has room")]
    fn receive(&mut self) -> Result<(), String> {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(length) => {
                self.buffer.extend(&chunk[..length]);
                self.line.advances();
                Ok(())
            }
            Err(error) => Err(format!("no reply: {error}")),
        }
    }
}

/// Whether this reply is allowed for a command. Maps must have the form of the protocol `maps`.
fn judge(reply: &Reply, expect: Expect, nonce: &[u8], maps: Protocol) -> Result<(), String> {
    if let Reply::Error(text) = reply
        && text.windows(14).any(|part| part == b"internal error")
    {
        return Err("an internal error of the module".into());
    }
    let is_right = match expect {
        Expect::Echo => *reply == Reply::Bulk(nonce.into()),
        Expect::Own(form) => matches!(reply, Reply::Error(_)) || has_form(reply, form, maps),
        Expect::Any => true,
        Expect::Silence => false,
    };
    if is_right { Ok(()) } else { Err(format!("the reply is not {expect:?}")) }
}

fn has_form(reply: &Reply, form: Form, maps: Protocol) -> bool {
    let is_map = match maps {
        Protocol::Resp2 => matches!(reply, Reply::Array(words) if words % 2 == 0 && *words > 0),
        Protocol::Resp3 => matches!(reply, Reply::Map(_)),
    };
    match form {
        Form::Decision => is_map || matches!(reply, Reply::Array(5 | 6)),
        Form::Integer => matches!(reply, Reply::Integer(_)),
        Form::Ok => *reply == Reply::Status(b"OK".into()),
        Form::List => matches!(reply, Reply::Array(_)),
        Form::Report => is_map || *reply == Reply::Nil,
        Form::Any => true,
    }
}
