//! Which commands took the server too long.
//!
//! SLOWLOG gives the time that passed while a command ran. On a busy machine this includes the time
//! in which others ran, or in which the disk kept the server from writing its log. So the test reads
//! `/proc/PID/schedstat` of the server's main thread. From a command's time it subtracts what the
//! thread waited for a processor during the batch, and of the rest it counts no more than the thread
//! ran during the batch. 50 ms or more of that is too slow.

use std::fs;
use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd, from_redis_value};

use super::session::GIVING_UP;
use crate::support::server::Server;

/// The longest that a command may take.
pub const MOST: Duration = Duration::from_millis(50);

/// Commands of the server that naturally take long: they write, read or drop all keys, or list
/// everything that the server knows.
const EXCUSED: [&str; 9] = [
    "debug",
    "bgsave",
    "bgrewriteaof",
    "flushdb",
    "flushall",
    "memory",
    "info",
    "command",
    "function",
];

/// Looks at the commands of one connection.
pub struct OwnTime {
    pid: u32,
    control: Connection,
    address: String,
    last_id: i64,
    sent: Instant,
    before: MainThread,
}

/// The slow commands of a batch.
#[derive(Debug, Default)]
pub struct Slow {
    /// Surely too slow.
    pub faults: Vec<String>,
    /// How many commands are excused by their names, or are slow only if nothing is subtracted.
    pub excused: u64,
}

impl OwnTime {
    pub fn of(server: &Server, address: String) -> Self {
        let (pid, control) = (server.pid(), server.connect());
        control.set_read_timeout(Some(GIVING_UP)).expect("an option");
        let (sent, before) = (Instant::now(), MainThread::of(pid));
        Self { pid, control, address, last_id: -1, sent, before }
    }

    /// Call this before sending a batch.
    pub fn begins(&mut self) {
        self.before = MainThread::of(self.pid);
        self.sent = Instant::now();
    }

    /// Call this when the batch has been answered.
    pub fn ends(&mut self) -> Slow {
        let mut slow = Slow::default();
        if self.sent.elapsed() < MOST {
            return slow;
        }
        let MainThread { ran, waited } = MainThread::of(self.pid).since(&self.before);
        let mut ask = cmd("SLOWLOG");
        let entries: Vec<(i64, i64, u64, Vec<Value>, String, String)> =
            ask.arg("GET").arg(256).query(&mut self.control).expect("entries");
        let mut last_id = self.last_id;
        for (id, _, took_us, words, address, _) in entries {
            last_id = last_id.max(id);
            if address != self.address || id <= self.last_id {
                continue;
            }
            let took = Duration::from_micros(took_us);
            let words = words.into_iter().map(|word| {
                let word: Vec<u8> = from_redis_value(word).unwrap_or_default();
                word.escape_ascii().to_string()
            });
            let words: Vec<_> = words.collect();
            let is_excused = EXCUSED.contains(&&*words[0].to_ascii_lowercase());
            if is_excused || took.saturating_sub(waited).min(ran) < MOST {
                slow.excused += 1;
                continue;
            }
            let text = words.join(" ");
            slow.faults.push(format!(
                "{took:?}, of which it ran {ran:?} and waited {waited:?} at most: {text}"
            ));
        }
        self.last_id = last_id;
        slow
    }
}

/// The scheduler's statistics of a server's main thread.
struct MainThread {
    /// How long it ran on a processor.
    ran: Duration,
    /// How long it was ready to run and had no processor.
    waited: Duration,
}

impl MainThread {
    fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
        let text = text.unwrap_or_default();
        let mut times = text.split(' ').map(|ns| Duration::from_nanos(ns.parse().unwrap_or(0)));
        let mut next = || times.next().unwrap_or_default();
        Self { ran: next(), waited: next() }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
        }
    }
}
