//! Batches of commands for one connection. A seed and a connection always give the same
//! batches, whatever the server replies.
//!
//! ```text
//! junk.rs      words that no command expects
//! valid.rs     each RL.* command in its valid forms
//! mutate.rs    turns valid commands into invalid ones
//! server.rs    the server's own commands: keys, scripts, settings, saving
//! ```
//!
//! A batch leaves the connection as it found it: it ends transactions, turns replies on again,
//! and ends with an `ECHO`, whose reply shows that each command before it had exactly one
//! reply.

pub mod junk;
mod mutate;
mod server;
mod valid;

use std::ops::Range;

use fastrand::Rng;

use super::resp::{self, Protocol};
use crate::support::dump::Dump;
use crate::support::workload::rules::Pool;

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// What a generator draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// Every command, valid and invalid.
    Everything,
    /// `RL.CHECK AT`, `RL.PEEK`, `DEL` and `COPY`, in their valid forms, a few at a time.
    Stall,
}

/// The expected reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// One reply of any type.
    Any,
    /// An error, or a reply of this form, to a command outside of a transaction.
    Own(Form),
    /// No reply: `CLIENT REPLY` is off.
    Silence,
    /// The reply of the `ECHO` at the end.
    Echo,
}

/// The types of reply that a command may have, besides an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Five or six integers, or the reply to `FULL`.
    Decision,
    Integer,
    Ok,
    List,
    Report,
    Any,
}

/// A command inside a batch.
#[derive(Clone, Debug)]
pub struct Sent {
    pub bytes: Range<usize>,
    pub expect: Expect,
}

/// Commands that are sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The protocol of the replies, from the first one on.
    pub protocol: Protocol,
    pub bytes: Vec<u8>,
    pub sent: Vec<Sent>,
    /// The text that the last command echoes.
    pub nonce: Vec<u8>,
}

/// An endless sequence of batches.
pub struct Generator {
    rng: Rng,
    menu: Menu,
    pool: Pool,
    dump: Dump,
    connection: usize,
    batches: u64,
    protocol: Protocol,
    replies: Replies,
    in_multi: bool,
    batch: Batch,
}

/// The state of `CLIENT REPLY`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    On,
    SkipNext,
    Off,
}

impl Generator {
    /// `dump` is a dump from one of the servers, from which hostile ones are made.
    pub fn new(menu: Menu, seed: u64, connection: usize, dump: Dump) -> Self {
        let mut rng =
            Rng::with_seed(seed ^ (connection as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let pool = Pool::mixed(&mut rng);
        let protocol = Protocol::Resp2;
        let batch = Batch { protocol, bytes: Vec::new(), sent: Vec::new(), nonce: Vec::new() };
        let (batches, replies, in_multi) = (0, Replies::On, false);
        Self { rng, menu, pool, dump, connection, batches, protocol, replies, in_multi, batch }
    }

    pub fn next_batch(&mut self) -> Batch {
        let nonce = format!("{}:{}", self.connection, self.batches).into_bytes();
        self.batches += 1;
        if self.menu == Menu::Everything && self.one_in(8) {
            self.protocol = if self.rng.bool() { Protocol::Resp2 } else { Protocol::Resp3 };
            let version = if self.protocol == Protocol::Resp2 { "2" } else { "3" };
            self.add(words(["HELLO", version]), Form::Any);
        }
        let count = match self.menu {
            Menu::Everything => self.rng.usize(1..=120),
            Menu::Stall => self.rng.usize(1..=4),
        };
        while self.batch.sent.len() < count {
            match self.menu {
                Menu::Everything => self.add_any(),
                Menu::Stall => {
                    let command = self.of_the_stall();
                    self.add(command, Form::Any);
                }
            }
        }
        self.close(nonce)
    }

    fn close(&mut self, nonce: Vec<u8>) -> Batch {
        if self.in_multi {
            self.end_multi();
        }
        if self.replies != Replies::On {
            self.add(words(["CLIENT", "REPLY", "ON"]), Form::Any);
        }
        self.add(vec![b"ECHO".to_vec(), nonce.clone()], Form::Any);
        if let Some(last) = self.batch.sent.last_mut() {
            last.expect = Expect::Echo;
        }
        let empty = Batch {
            protocol: self.protocol,
            bytes: Vec::new(),
            sent: Vec::new(),
            nonce: Vec::new(),
        };
        Batch { protocol: self.protocol, nonce, ..std::mem::replace(&mut self.batch, empty) }
    }

    fn end_multi(&mut self) {
        let end = if self.one_in(6) { "DISCARD" } else { "EXEC" };
        self.add(words([end]), Form::Any);
        self.in_multi = false;
    }

    /// Adds a command, or something that surrounds commands.
    fn add_any(&mut self) {
        match self.rng.u32(0..1_000) {
            0..4 if !self.in_multi && self.replies == Replies::On => {
                self.add(words(["MULTI"]), Form::Any);
                self.in_multi = true;
            }
            0..60 if self.in_multi => self.end_multi(),
            4..8 if !self.in_multi => {
                let how = *self.rng.choice(["OFF", "SKIP", "ON"].iter()).expect("one");
                self.add(words(["CLIENT", "REPLY", how]), Form::Any);
            }
            8..200 => {
                let command = self.of_the_server();
                self.add(command, Form::Any);
            }
            200..500 => {
                let (command, form) = self.valid();
                self.add(command, form);
            }
            _ => {
                let (command, form) = self.mutated();
                self.add(command, form);
            }
        }
    }

    /// Adds a command and its expected reply.
    fn add(&mut self, command: Words, form: Form) {
        let start = self.batch.bytes.len();
        resp::write(&command, &mut self.batch.bytes);
        let bytes = start..self.batch.bytes.len();
        let expect = match self.replies {
            Replies::On if self.in_multi => Expect::Any,
            Replies::On => Expect::Own(form),
            Replies::SkipNext | Replies::Off => Expect::Silence,
        };
        if self.replies == Replies::SkipNext {
            self.replies = Replies::On;
        }
        let expect = match &command[..] {
            [client, reply, how] if client == b"CLIENT" && reply == b"REPLY" => {
                self.client_reply(how, expect)
            }
            _ => expect,
        };
        self.batch.sent.push(Sent { bytes, expect });
    }

    fn client_reply(&mut self, how: &[u8], expect: Expect) -> Expect {
        match how {
            b"OFF" => self.replies = Replies::Off,
            b"ON" => {
                self.replies = Replies::On;
                return Expect::Any;
            }
            // SKIP has no effect while replies are off.
            _ if self.replies == Replies::On => self.replies = Replies::SkipNext,
            _ => return expect,
        }
        Expect::Silence
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn pick(&mut self, words: &[&str]) -> Vec<u8> {
        self.rng.choice(words.iter()).expect("some").as_bytes().to_vec()
    }

    /// A command of the mix that once got no reply.
    fn of_the_stall(&mut self) -> Words {
        match self.rng.u32(0..10) {
            0..5 => {
                let mut command = vec![b"RL.CHECK".to_vec(), self.key()];
                command.extend([b"AT".to_vec(), self.time()]);
                command.extend(self.rules());
                command
            }
            5..8 => {
                let mut command = vec![b"RL.PEEK".to_vec(), self.key()];
                if self.rng.bool() {
                    command.extend([b"AT".to_vec(), self.time()]);
                }
                command.extend(self.rules());
                command
            }
            8 => vec![b"DEL".to_vec(), self.key()],
            _ => vec![b"COPY".to_vec(), self.key(), self.key(), b"REPLACE".to_vec()],
        }
    }
}

/// The words of a command.
pub fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(|word| word.as_bytes().to_vec()).into()
}
