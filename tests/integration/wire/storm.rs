//! Several connections send what a generator makes to each server, in rounds.
//!
//! After each round everything is deleted, so that a round can be replayed from an empty
//! server, and so that memory can be compared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::RedisResult;

use super::generator::{Generator, Menu};
use super::memory::{SLACK, held};
use super::own_time::{OwnTime, Slow};
use super::replay;
use super::session::Session;
use super::{length, seed};
use crate::support::client::{ask, command};
use crate::support::dump::{Dump, assert_calm, uncompressed};
use crate::support::server::{self, Flavor, Server};
use crate::support::watchdog::Watchdog;

/// The number of connections to a server.
const CONNECTIONS: usize = 4;
/// The longest that a round takes.
const ROUND: Duration = Duration::from_secs(20);
/// Calls the command in its arguments, as the scripts do.
const FUNCTION: &str = "#!lua name=rl\n\
    redis.register_function('rl', function(keys, args) return redis.pcall(unpack(args)) end)";

#[test]
fn no_command_harms_a_server() {
    server::on_each_at_once(|flavor| run(flavor, Menu::Everything));
}

#[test]
fn the_mix_that_once_stalled_is_always_answered() {
    server::oldest_and_newest();
    server::on_each_at_once(|flavor| run(flavor, Menu::Stall));
}

/// A round, as its connections share it.
struct Round<'a> {
    server: &'a Server,
    watchdog: &'a Watchdog,
    menu: Menu,
    seed: u64,
    dump: &'a Dump,
    ends: Instant,
    failed: AtomicBool,
    faults: Mutex<Vec<String>>,
    /// The connection of each batch, in the order of sending.
    order: Mutex<Vec<usize>>,
    commands: AtomicU64,
    excused: AtomicU64,
}

pub fn start(flavor: Flavor) -> Server {
    let server = uncompressed(flavor.builder().allow_at())
        .config("slowlog-log-slower-than", "50000")
        .config("slowlog-max-len", "1024")
        .start();
    let mut c = server.connect();
    // Only some servers are built with defragmentation.
    let _: RedisResult<()> = command("CONFIG SET activedefrag yes").query(&mut c);
    if flavor.is_7_or_later() {
        let () = redis::cmd("FUNCTION").arg("LOAD").arg(FUNCTION).query(&mut c).expect("loaded");
    }
    server
}

fn run(flavor: Flavor, menu: Menu) {
    let mut server = start(flavor);
    let watchdog = Watchdog::over(&server);
    let mut control = server.connect();
    let () = ask(&mut control, "RL.BLOCK k");
    let dump = Dump::of(&mut control, "k");
    let (start, length, seed) = (Instant::now(), length(), seed());
    let round_length = (length / 2).min(ROUND);
    let (mut commands, mut excused, mut rounds) = (0, 0, 0);
    let (mut first, mut most) = (None, 0.0_f64);
    while rounds < 2 || start.elapsed() < length {
        let seed = seed.wrapping_add(rounds);
        let round = Round {
            server: &server,
            watchdog: &watchdog,
            menu,
            seed,
            dump: &dump,
            ends: Instant::now() + round_length,
            failed: AtomicBool::new(false),
            faults: Mutex::default(),
            order: Mutex::default(),
            commands: AtomicU64::new(0),
            excused: AtomicU64::new(0),
        };
        round.play();
        commands += round.commands.load(Ordering::Relaxed);
        excused += round.excused.load(Ordering::Relaxed);
        let mut faults = round.faults.lock().expect("no panic").clone();
        faults.extend(watchdog.reports());
        if catch_unwind(|| assert_calm(&server.log())).is_err() {
            faults.push("the log has an alarm".into());
        }
        if faults.is_empty() {
            // After the first round the server may take all its time to free memory.
            let enough = first.map_or(0.0, |first: f64| first + SLACK);
            let memory = held(&mut control, flavor, enough);
            let first = *first.get_or_insert(memory);
            most = most.max(memory - first);
            if memory > first + SLACK {
                faults.push(format!("{memory} bytes are held, {first} after round one"));
            }
        }
        if !faults.is_empty() {
            let log = replay::keep(flavor, menu, seed, &dump, &round.order);
            let (name, faults) = (flavor.name, faults.join("\n"));
            let has_ended = server.has_ended();
            panic!(
                "{name}, RATELIMIT_WIRE_SEED={seed}, {menu:?}, ended: {has_ended}\n{faults}\n\
                 RATELIMIT_WIRE_REPLAY={} sends it all again; the end of the log:\n{}",
                log.display(),
                server.log_tail()
            );
        }
        rounds += 1;
    }
    println!(
        "{}: {commands} commands of {menu:?} from RATELIMIT_WIRE_SEED={seed} in {rounds} rounds, \
         {:?}; {excused} slow ones excused; after the first round {first:?} bytes were held, then {most} more at most",
        flavor.name,
        start.elapsed()
    );
}

impl Round<'_> {
    fn play(&self) {
        thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                scope.spawn(move || {
                    let played = catch_unwind(AssertUnwindSafe(|| self.connection(connection)));
                    let why = match played {
                        Ok(Ok(())) => return,
                        Ok(Err(why)) => why,
                        Err(_) => "panicked".into(),
                    };
                    self.failed.store(true, Ordering::Relaxed);
                    let mut faults = self.faults.lock().expect("no panic");
                    faults.push(format!("connection {connection}, {why}"));
                });
            }
        });
    }

    /// Sends batches until the round ends or something fails.
    fn connection(&self, connection: usize) -> Result<(), String> {
        let line = self.watchdog.line(format!("connection {connection}"));
        let mut session = Session::open(self.server, line);
        let mut own_time = OwnTime::of(self.server, session.address());
        let mut generator = Generator::new(self.menu, self.seed, connection, self.dump.clone());
        let mut batches = 0_u64;
        while Instant::now() < self.ends && !self.failed.load(Ordering::Relaxed) {
            let batch = generator.next_batch();
            self.order.lock().expect("no panic").push(connection);
            own_time.begins();
            let exchanged = session.exchange(&batch);
            exchanged.map_err(|why| format!("batch {batches}: {why}"))?;
            let Slow { faults, excused } = own_time.ends();
            if !faults.is_empty() {
                return Err(format!("batch {batches}: {}", faults.join("; ")));
            }
            batches += 1;
            self.excused.fetch_add(excused, Ordering::Relaxed);
            self.commands.fetch_add(batch.sent.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}
