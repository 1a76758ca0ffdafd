//! Commands that took the server too long.
//!
//! SLOWLOG gives the time that passed while a command ran, on a busy machine also the time in which
//! others ran. So what the server's main thread waited for a processor during the batch, as
//! `/proc/PID/schedstat` has it, is taken off: what is left is less than the command's own time, and a
//! command of 50 ms or more after that is surely too slow. On an idle machine nothing is taken off.

use std::fs;
use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd, from_redis_value};

use super::session::GIVING_UP;
use crate::support::server::Server;

/// The longest that a command may take.
pub const MOST: Duration = Duration::from_millis(50);

/// Commands of the server that take long by their nature: they write, read or drop all keys, or list
/// what the server knows.
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
    waited: Duration,
}

/// What became of the slow commands of a batch.
#[derive(Debug, Default)]
pub struct Slow {
    /// Surely too slow.
    pub faults: Vec<String>,
    /// Slower than allowed, if nothing is taken off.
    pub excused: u64,
}

impl OwnTime {
    pub fn of(server: &Server, address: String) -> Self {
        let (pid, control) = (server.pid(), server.connect());
        control.set_read_timeout(Some(GIVING_UP)).expect("an option");
        let (sent, waited) = (Instant::now(), Duration::ZERO);
        Self { pid, control, address, last_id: -1, sent, waited }
    }

    /// A batch is about to be sent.
    pub fn begins(&mut self) {
        self.waited = waited(self.pid);
        self.sent = Instant::now();
    }

    /// The batch was answered.
    pub fn ends(&mut self) -> Slow {
        let mut slow = Slow::default();
        if self.sent.elapsed() < MOST {
            return slow;
        }
        let waited = waited(self.pid).saturating_sub(self.waited);
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
            if is_excused || took.saturating_sub(waited) < MOST {
                slow.excused += 1;
                continue;
            }
            let text = words.join(" ");
            slow.faults.push(format!("{took:?}, of which it waited {waited:?} at most: {text}"));
        }
        self.last_id = last_id;
        slow
    }
}

/// How long the main thread was ready to run and did not, so far.
fn waited(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap_or_default();
    let waited_ns = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited_ns.unwrap_or_default())
}
