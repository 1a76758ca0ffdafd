//! A primary that sends hostile files, effects and bytes to a replica. It is not a server: it
//! only knows the handshake of a primary. A file with a value that cannot be loaded may end the
//! replica, by the server's policy. Nothing else may end it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::generator::{Words, junk, words};
use super::{length, payloads, records, resp, seed};
use crate::support::client::{ask, attempt};
use crate::support::dump::{Dump, assert_calm, uncompressed};
use crate::support::files::saved_rdb;
use crate::support::server::{self, Flavor, Server, eventually};
use crate::support::watchdog::Watchdog;

const RECORDS: usize = 2_000;
/// How long a replica may take for the next step.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn no_primary_harms_its_replica() {
    server::on_each_at_once(run);
}

/// What the primary sends.
struct Attack {
    rng: Rng,
    /// A file with a key of ours, and the dump of the key.
    rdb: Vec<u8>,
    dump: Dump,
}

/// How the links ended.
#[derive(Debug, Default)]
struct Tally {
    links: u64,
    /// On how many links the replica read all records.
    whole: u64,
    /// How many files ended the replica.
    ended: u64,
}

fn run(flavor: Flavor) {
    let mut replica = uncompressed(flavor.builder())
        .config("repl-diskless-load", "swapdb")
        .config("repl-timeout", "60")
        .start();
    let mut c = replica.connect();
    let () = ask(&mut c, "RL.BLOCK k REASON abuse");
    let (dump, rdb) = (Dump::of(&mut c, "k"), saved_rdb(&replica));
    fs::remove_file(replica.dir().join("dump.rdb")).expect("it was saved");
    let mut attack = Attack { rng: Rng::with_seed(seed()), rdb, dump };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("an option");
    let (start, mut tally) = (Instant::now(), Tally::default());
    while tally.whole < 2 || start.elapsed() < length() {
        besiege(&mut replica, &listener, &mut attack, &mut tally);
        let log = replica.log();
        assert_calm(&log);
        if replica.has_ended() {
            // It is the server's policy to end if the module cannot load a value.
            assert!(log.contains("Terminating server after rdb file reading failure"), "{log}");
            tally.ended += 1;
            replica.kill9();
            replica.resume();
        }
        // The replica logs a complaint about each record.
        let log = File::options().write(true).open(replica.log_file()).expect("a log");
        log.set_len(0).expect("it is emptied");
    }
    println!(
        "{}: {tally:?}, {RECORDS} records each, from RATELIMIT_WIRE_SEED={}, {:?}",
        flavor.name,
        seed(),
        start.elapsed()
    );
}

/// Lets the replica connect to the primary 20 times, or until the replica ends.
fn besiege(replica: &mut Server, listener: &TcpListener, attack: &mut Attack, tally: &mut Tally) {
    let watchdog = Watchdog::over(replica);
    let (mut c, line) = (replica.connect(), watchdog.line("asking"));
    let port = listener.local_addr().expect("an address").port();
    for _ in 0..20 {
        // Drops connections that the replica began before the last REPLICAOF NO ONE.
        while listener.accept().is_ok() {}
        for question in [
            &format!("REPLICAOF 127.0.0.1 {port}")[..],
            "DEBUG DIGEST",
            "REPLICAOF NO ONE",
            "FLUSHALL",
        ] {
            let answer = line.during(question, || attempt(&mut c, question));
            if question.ends_with(&port.to_string()) {
                tally.links += 1;
                tally.whole += u64::from(attack.run(accept(listener)));
            }
            if let Err(error) = answer {
                let why = format!("{question}: {error}\n{}", replica.log_tail());
                assert!(error.is_io_error(), "{why}");
                eventually(&why, || replica.has_ended());
                return;
            }
        }
    }
    watchdog.assert_quiet();
}

fn accept(listener: &TcpListener) -> TcpStream {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((link, _)) => {
                link.set_nonblocking(false).expect("an option");
                link.set_read_timeout(Some(PATIENCE)).expect("an option");
                return link;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(start.elapsed() < PATIENCE, "the replica does not connect");
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Attack {
    /// Sends a replica something hostile, usually after the handshake. Returns whether the replica read
    /// all records. The replica closes the link if it cannot understand them.
    fn run(&mut self, mut link: TcpStream) -> bool {
        match self.rng.u32(0..10) {
            0 => {
                let _ = link.write_all(&junk::bytes(&mut self.rng, 500));
                false
            }
            1 => self.greet(&mut link, b"+CONTINUE\r\n") && self.stream(&mut link),
            2 => {
                let greeting = junk::bytes(&mut self.rng, 60);
                self.greet(&mut link, &[&greeting[..], b"\r\n"].concat());
                false
            }
            3..5 => {
                let value = self.dump.with_payload(payloads::hostile(&mut self.rng)).value();
                self.sync(&mut link, &value) && self.stream(&mut link)
            }
            _ => {
                let value = self.dump.value();
                self.sync(&mut link, &value) && self.stream(&mut link)
            }
        }
    }

    /// Sends a complete file whose key has this value.
    fn sync(&self, link: &mut TcpStream, value: &[u8]) -> bool {
        let own = self.dump.value();
        let at = self.rdb.windows(own.len()).position(|bytes| bytes == own).expect("it is saved");
        let rdb = [&self.rdb[..at], value, &self.rdb[at + own.len()..]].concat();
        let head = format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), rdb.len());
        self.greet(link, &[head.as_bytes(), &rdb].concat())
    }

    /// Answers a replica until it asks for data, then sends `answer`.
    fn greet(&self, link: &mut TcpStream, answer: &[u8]) -> bool {
        let mut commands = Commands::of(link);
        while let Some(command) = commands.next() {
            let reply = match &command[0].to_ascii_uppercase()[..] {
                b"PING" => &b"+PONG\r\n"[..],
                b"PSYNC" | b"SYNC" => answer,
                _ => b"+OK\r\n",
            };
            if commands.link.write_all(reply).is_err() {
                return false;
            }
            if reply == answer {
                return true;
            }
        }
        false
    }

    /// Sends records, and waits until the replica acknowledges them.
    fn stream(&mut self, link: &mut TcpStream) -> bool {
        let mut bytes = Vec::new();
        for _ in 0..RECORDS {
            resp::write(&records::any(&mut self.rng), &mut bytes);
        }
        let ends_in_junk = self.rng.u32(0..4) == 0;
        if ends_in_junk {
            bytes.extend(junk::bytes(&mut self.rng, 200));
        } else {
            resp::write(&words(["REPLCONF", "GETACK", "*"]), &mut bytes);
        }
        if link.write_all(&bytes).is_err() || ends_in_junk {
            return false;
        }
        let mut commands = Commands::of(link);
        let most = bytes.len() as u64;
        while let Some(command) = commands.next() {
            // The offset in an answer to GETACK does not include GETACK itself.
            let offset = command.get(2).and_then(|word| str::from_utf8(word).ok()?.parse().ok());
            if offset.is_some_and(|offset: u64| offset > 0 && offset + 100 > most) {
                return true;
            }
        }
        false
    }
}

/// The commands that a replica sends.
struct Commands<'a> {
    link: &'a mut TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Commands<'a> {
    fn of(link: &'a mut TcpStream) -> Self {
        Self { link, buffer: Vec::new() }
    }

    /// The next command; `None` if the link ended, or the replica was silent for too long.
    fn next(&mut self) -> Option<Words> {
        loop {
            let mut rest = &self.buffer[..];
            // A replica sends line feeds while it loads a file.
            if rest.starts_with(b"\n") {
                self.buffer.remove(0);
                continue;
            }
            if let Some(command) = records::command(&mut rest) {
                self.buffer = rest.to_vec();
                return Some(command);
            }
            let mut chunk = [0; 4_096];
            match self.link.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.buffer.extend(&chunk[..length]),
            }
        }
    }
}
