//! Watches connections to a server. If one gets no answer for five seconds, the watchdog saves
//! the server's state in a folder, so that the cause can be found.
//!
//! ```ignore
//! let watchdog = Watchdog::over(&server);
//! let line = watchdog.line("client 3");
//! let reply: Value = line.during(b"RL.CHECK k 5/m", || attempt(&mut c, "RL.CHECK k 5/m"))?;
//! watchdog.assert_quiet();
//! ```
//!
//! A run continues after a report, because the answer may still come;
//! [`Watchdog::assert_quiet`] fails the run at its end. The five seconds include only time in
//! which the server ran or slept: no time in which its main thread waited for a processor or,
//! in the kernel, for a disk, or in which the machine itself paused.

mod evidence;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use evidence::Suspect;

use crate::support::server::Server;

const TICK: Duration = Duration::from_millis(100);
/// How long a server may take to answer a client.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How many commands, or batches of commands, are kept for each connection, and how many bytes
/// of each.
const RECENT: usize = 8;
const RECENT_BYTES: usize = 1 << 20;
/// The most reports about one server. More would show nothing new.
const MOST_REPORTS: usize = 4;

/// Watches the connections to one server.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    suspect: Suspect,
    patience: Duration,
    lines: Mutex<Vec<Arc<Mutex<Watched>>>>,
    reports: Mutex<Vec<String>>,
    over: AtomicBool,
}

/// A connection as the watchdog sees it.
struct Watched {
    name: String,
    patience: Duration,
    /// What was sent recently, oldest first.
    recent: VecDeque<Vec<u8>>,
    /// The wait for an answer, while one is due.
    waits: Option<Wait>,
}

struct Wait {
    since: Instant,
    /// The time in which the server could have answered, since it last did something.
    taken: Duration,
    most: Duration,
    reported: bool,
}

/// A watched connection, for the thread that uses it. Dropping it ends the watch.
pub struct Line(Arc<Mutex<Watched>>);

impl Watchdog {
    /// Watches a server. Panics if there is no gdb: a report without stacks would explain
    /// nothing.
    pub fn over(server: &Server) -> Self {
        Self::with_patience(server, PATIENCE)
    }

    fn with_patience(server: &Server, patience: Duration) -> Self {
        let shared = Arc::new(Shared {
            suspect: Suspect::new(server),
            patience,
            lines: Mutex::default(),
            reports: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.watch()
        });
        Self { shared, thread: Some(thread) }
    }

    /// Watches another connection.
    pub fn line(&self, name: impl Into<String>) -> Line {
        let (name, recent) = (name.into(), VecDeque::new());
        let patience = self.shared.patience;
        let watched = Arc::new(Mutex::new(Watched { name, patience, recent, waits: None }));
        lock(&self.shared.lines).push(Arc::clone(&watched));
        Line(watched)
    }

    /// What has stalled, and the folder of each report.
    pub fn reports(&self) -> Vec<String> {
        lock(&self.shared.reports).clone()
    }

    /// Panics if any connection was reported.
    pub fn assert_quiet(&self) {
        assert_eq!(self.reports(), [""; 0], "a server left its clients without an answer");
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's panic was printed, and must not hide another that is under way.
            let _ = thread.join();
        }
    }
}

impl Line {
    /// Call this before sending these bytes. The server must answer in [`PATIENCE`].
    pub fn asks(&self, sent: impl Into<Vec<u8>>) {
        self.asks_for(sent, Duration::ZERO);
    }

    /// Call this before sending a command that waits. The server may take this much longer.
    pub fn asks_for(&self, sent: impl Into<Vec<u8>>, in_addition: Duration) {
        let mut sent = sent.into();
        sent.truncate(RECENT_BYTES);
        let mut watched = lock(&self.0);
        if watched.recent.len() == RECENT {
            watched.recent.pop_front();
        }
        watched.recent.push_back(sent);
        let most = watched.patience + in_addition;
        watched.waits =
            Some(Wait { since: Instant::now(), taken: Duration::ZERO, most, reported: false });
    }

    /// Call this when the server took a part of what is sent, or when a part of the answer
    /// came.
    pub fn advances(&self) {
        if let Some(wait) = &mut lock(&self.0).waits {
            wait.taken = Duration::ZERO;
        }
    }

    /// Call this when the answer came, or is no longer expected.
    pub fn is_answered(&self) {
        let mut watched = lock(&self.0);
        if let Some(wait) = watched.waits.take()
            && wait.reported
        {
            eprintln!("watchdog: {} was answered after {:?}", watched.name, wait.since.elapsed());
        }
    }

    /// Watches while `ask` sends these bytes and receives the answer.
    pub fn during<T>(&self, sent: impl Into<Vec<u8>>, ask: impl FnOnce() -> T) -> T {
        self.asks(sent);
        let answer = ask();
        self.is_answered();
        answer
    }
}

impl Shared {
    fn watch(&self) {
        let mut ran = self.suspect.ran();
        while !self.over.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            let before = std::mem::replace(&mut ran, self.suspect.ran());
            let own = match self.suspect.runs_or_waits_for_the_machine() {
                true => ran.saturating_sub(before).min(TICK),
                false => TICK,
            };
            // Drops the lines that their threads have dropped: only the watchdog still has
            // them.
            let lines = {
                let mut lines = lock(&self.lines);
                lines.retain(|line| Arc::strong_count(line) > 1);
                lines.clone()
            };
            let stalled: Vec<_> = lines.iter().filter_map(|line| lock(line).stall(own)).collect();
            if !stalled.is_empty() && self.reports().len() < MOST_REPORTS {
                self.report(&stalled, &lines);
            }
        }
    }

    fn reports(&self) -> MutexGuard<'_, Vec<String>> {
        lock(&self.reports)
    }

    fn report(&self, stalled: &[String], lines: &[Arc<Mutex<Watched>>]) {
        let sent = lines.iter().map(|line| lock(line).sent());
        let folder = self.suspect.keep(&sent.collect::<Vec<_>>());
        let (name, who) = (&self.suspect.name, stalled.join(", "));
        let (patience, folder) = (self.patience, folder.display());
        let report = format!("{name} gave {who} no answer for {patience:?}: {folder}");
        eprintln!("watchdog: {report}");
        self.reports().push(report);
    }
}

impl Watched {
    /// Counts the time in which the server could have answered. Returns the connection's name
    /// if it has waited too long, once per wait.
    fn stall(&mut self, own: Duration) -> Option<String> {
        let wait = self.waits.as_mut()?;
        wait.taken += own;
        if wait.reported || wait.taken <= wait.most {
            return None;
        }
        wait.reported = true;
        Some(self.name.clone())
    }

    /// The name of the connection, and what it sent recently.
    fn sent(&self) -> (String, Vec<u8>) {
        let state = match &self.waits {
            Some(wait) => format!("no answer for {:?}", wait.since.elapsed()),
            None => "answered".into(),
        };
        let head = format!("# {}: {state}\n", self.name).into_bytes();
        let sent = self.recent.iter().flat_map(|sent| [b"# sent\n", &sent[..], b"\n"].concat());
        (self.name.clone(), head.into_iter().chain(sent).collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder that a report names.
#[cfg(test)]
fn folder(report: &str) -> std::path::PathBuf {
    report.rsplit_once(": ").expect("a folder").1.into()
}

#[test]
fn a_server_that_does_not_answer_is_reported() {
    use crate::support::client::{ask, attempt};
    use crate::support::server;

    server::on_each_at_once(|flavor| {
        let server = &flavor.start();
        let watchdog = Watchdog::with_patience(server, Duration::from_secs(1));
        let (mut c, line) = (server.connect(), watchdog.line("client 1"));
        let quick = watchdog.line("client 2");
        quick.during("PING", || ask::<String>(&mut c, "PING"));
        c.set_read_timeout(None).expect("an option");
        let asking = server.while_frozen(|| {
            let asking = thread::spawn(move || {
                let sent = "RL.CHECK k 5/m";
                line.during(sent, || attempt(&mut c, sent))
            });
            let start = Instant::now();
            while watchdog.reports().is_empty() && start.elapsed() < Duration::from_secs(120) {
                thread::sleep(TICK);
            }
            asking
        });
        asking.join().expect("no panic").expect("an answer, though late");
        let reports = watchdog.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(reports[0].contains("client 1") && !reports[0].contains("client 2"), "{reports:?}");
        let folder = folder(&reports[0]);
        let kept = |name| std::fs::read_to_string(folder.join(name)).expect("a file");
        assert!(kept("threads.txt").contains("state T"), "{}", kept("threads.txt"));
        // The kernel may forbid gdb to trace a process that is not its child; gdb then says so.
        let stacks = kept("stacks.txt");
        assert!(["Thread 1", "ptrace"].iter().any(|text| stacks.contains(text)), "{stacks}");
        assert!(kept("server.txt").contains("no answer"), "{}", kept("server.txt"));
        assert!(kept("client-1.sent").contains("RL.CHECK k 5/m"));
        assert!(kept("log.txt").contains("eady to accept connections"));
        std::fs::remove_dir_all(folder).expect("removed");
    });
}
