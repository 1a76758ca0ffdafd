//! Clocks that tests move, for real servers: a library that is preloaded into a server adds the
//! offsets in a file to the wall clock and to monotonic clocks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::Connection;
use tempfile::TempDir;

use crate::support::client::{ask, now_us};
use crate::support::preloaded;
use crate::support::server::{self, Builder, Server, eventually};

/// How many bytes an offset has in the file.
const I64: usize = size_of::<i64>();
/// The positions in the file of the offset of the wall clock and of that of monotonic clocks.
const WALL: usize = 0;
const MONOTONIC: usize = I64;

/// The clock of one server.
pub struct Clock {
    folder: TempDir,
}

impl Clock {
    /// A clock that shows the time of the machine.
    pub fn new() -> Self {
        let clock =
            Self { folder: TempDir::with_prefix("ratelimit-").expect("a temporary folder") };
        fs::write(clock.file(), [0; 2 * I64]).expect("the file is written");
        clock
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("step")
    }

    /// Makes a server use this clock.
    pub fn of(&self, builder: Builder) -> Builder {
        builder.env("LD_PRELOAD", library()).env("RATELIMIT_CLOCK", self.file())
    }

    /// Sets the wall clock to a Unix time, from which it goes on.
    pub fn set_s(&self, unix_s: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let now_us = i64::try_from(now.as_micros()).expect("before 294247");
        self.write(WALL, unix_s * 1_000_000 - now_us);
    }

    /// Steps the wall clock alone, and returns once the server sees the new time. The step is much longer
    /// than a pause of the machine.
    pub fn step_wall_s(&self, c: &mut Connection, seconds: i64) {
        let then_us = now_us(c).saturating_add_signed(seconds * 1_000_000);
        self.write(WALL, self.read(WALL) + seconds * 1_000_000);
        let near_us = seconds.unsigned_abs() * 500_000;
        eventually("the server's clock to step", || now_us(c).abs_diff(then_us) < near_us);
    }

    /// Lets time pass, and does not wait for the server.
    pub fn step_s(&self, seconds: i64) {
        for clock in [WALL, MONOTONIC] {
            self.write(clock, self.read(clock) + seconds * 1_000_000);
        }
    }

    /// Lets time pass, and returns once the server has acted on it.
    pub fn advance_s(&self, c: &mut Connection, seconds: i64) {
        let then_us = now_us(c) + seconds.cast_unsigned() * 1_000_000;
        self.step_s(seconds);
        eventually("the server's time to pass", || now_us(c) >= then_us);
        let_server_act(c);
    }

    fn read(&self, clock: usize) -> i64 {
        let moved = fs::read(self.file()).expect("the file is read");
        i64::from_ne_bytes(moved[clock..clock + I64].try_into().expect("a number"))
    }

    fn write(&self, clock: usize, moved_us: i64) {
        let file = File::options().write(true).open(self.file()).expect("the file opens");
        // In one write, so that the server never sees half of it.
        file.write_at(&moved_us.to_ne_bytes(), clock as u64).expect("written");
    }
}

/// Runs a test on each server, one after the other, each with its clock.
pub fn on_all_with_clock(body: impl Fn(&mut Server, &Clock)) {
    on_all_with_clock_and(|builder| builder, body);
}

/// Runs a test as [`on_all_with_clock`] does, on servers that `configure` configures.
pub fn on_all_with_clock_and(
    configure: impl Fn(Builder) -> Builder,
    body: impl Fn(&mut Server, &Clock),
) {
    for flavor in server::all() {
        let clock = Clock::new();
        let mut server = clock.of(configure(flavor.builder())).start();
        body(&mut server, &clock);
        assert!(!server.has_ended(), "{} ended", flavor.name);
    }
}

/// Lets the server call every timer that is due: its event loop does so after each request.
pub fn let_server_act(c: &mut Connection) {
    for _ in 0..3 {
        let () = ask(c, "PING");
    }
}

/// The library, built on first use.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| preloaded::library("clock/stepping.c"));
    path
}
