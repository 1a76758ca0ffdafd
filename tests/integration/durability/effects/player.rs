//! Plays a recorded replication stream to replicas: a snapshot, then commands. It speaks only
//! the part of the protocol that a replica needs.

use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Plays a recording to each replica that connects to its port, until the player is dropped.
pub struct Player {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Player {
    pub fn new(snapshot: Vec<u8>, stream: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = thread::spawn(move || {
            for connection in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (snapshot, stream) = (snapshot.clone(), stream.clone());
                // The replica may hang up at any time.
                thread::spawn(move || play(&connection?, &snapshot, &stream));
            }
        });
        Self { port, over, thread: Some(thread) }
    }

    /// The address, as `replicaof` takes it.
    pub fn address(&self) -> String {
        format!("127.0.0.1 {}", self.port)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the player does not panic");
        }
    }
}

fn play(connection: &TcpStream, snapshot: &[u8], stream: &[u8]) -> Result<()> {
    let (mut from, mut to) = (BufReader::new(connection), connection);
    while let Some(words) = command(&mut from)? {
        let is = |index: usize, word: &str| {
            words.get(index).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
        };
        if is(0, "PING") {
            to.write_all(b"+PONG\r\n")?;
        } else if is(0, "PSYNC") {
            write!(to, "+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), snapshot.len())?;
            to.write_all(snapshot)?;
            to.write_all(stream)?;
        } else if !is(1, "ACK") {
            to.write_all(b"+OK\r\n")?;
        }
    }
    Ok(())
}

/// Reads the next command of the replica.
fn command(from: &mut impl BufRead) -> Result<Option<Vec<Vec<u8>>>> {
    let Some(count) = number(from)? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(length) = number(from)? else { return Ok(None) };
        let mut word = vec![0; length + 2];
        from.read_exact(&mut word)?;
        word.truncate(length);
        words.push(word);
    }
    Ok(Some(words))
}

/// The number in a line such as `*3` or `$10`; `None` after the replica has hung up.
fn number(from: &mut impl BufRead) -> Result<Option<usize>> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().get(1..).and_then(|digits| digits.parse().ok()))
}
