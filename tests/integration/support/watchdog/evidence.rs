//! What is saved of a server that does not answer: a folder with its stacks, threads, clients,
//! log and latest commands.
//!
//! ```text
//! threads.txt    name, state, kernel function and processor time of each thread, twice, a second apart
//! stacks.txt     the stack of each thread, by gdb
//! server.txt     CLIENT LIST, SLOWLOG, LATENCY and INFO over another connection, if it answers
//! NAME.sent      what each connection sent last
//! log.txt        the end of the server's log
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult, Value};
use tempfile::TempDir;

use crate::support::client::attempt;
use crate::support::server::{Server, from_env};

/// How long the server may take to answer on another connection.
const ASKING: Duration = Duration::from_secs(2);
/// How long gdb may take.
const TRACING: Duration = Duration::from_secs(60);
const LOG_LINES: usize = 400;

const QUESTIONS: [&str; 5] =
    ["CLIENT LIST", "SLOWLOG GET 128", "LATENCY LATEST", "LATENCY DOCTOR", "INFO everything"];

/// A server that may have to be examined.
pub struct Suspect {
    pub name: String,
    pid: u32,
    port: u16,
    log: PathBuf,
    gdb: PathBuf,
}

impl Suspect {
    pub fn new(server: &Server) -> Self {
        let gdb = from_env("RATELIMIT_GDB", ".cache/gdb/gdb");
        assert!(gdb.exists(), "no gdb at {}: run `make fetch`", gdb.display());
        let (pid, port) = (server.pid(), server.port());
        Self { name: server.flavor().name.into(), pid, port, log: server.log_file(), gdb }
    }

    /// The time for which the main thread has run on a processor.
    pub fn ran(&self) -> Duration {
        let schedstat = self.of_main_thread("schedstat");
        let ran_ns = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
        Duration::from_nanos(ran_ns.unwrap_or_default())
    }

    /// Whether the main thread runs, or waits for the machine: for a processor, or in the
    /// kernel for the disk to which the server writes its log or its append-only file.
    pub fn runs_or_waits_for_the_machine(&self) -> bool {
        let stat = self.of_main_thread("stat");
        let state = stat.rsplit(')').next().unwrap_or_default();
        [" R", " D"].iter().any(|letter| state.starts_with(letter))
    }

    fn of_main_thread(&self, file: &str) -> String {
        let pid = self.pid;
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/{file}")).unwrap_or_default()
    }

    /// Saves all that it finds out about the server, in a folder that stays.
    pub fn keep(&self, sent: &[(String, Vec<u8>)]) -> PathBuf {
        let prefix = format!("ratelimit-stall-{}-", self.name);
        let folder = TempDir::with_prefix(prefix).expect("a temporary folder").keep();
        for (line, bytes) in sent {
            write(&folder, &format!("{}.sent", line.replace(['/', ' '], "-")), bytes);
        }
        // Before gdb stops the process.
        let before = self.threads();
        thread::sleep(Duration::from_secs(1));
        let threads = [before, self.threads()].join("\n---- a second later\n");
        write(&folder, "threads.txt", threads.as_bytes());
        write(&folder, "stacks.txt", self.stacks(&folder).as_bytes());
        write(&folder, "server.txt", self.answers().as_bytes());
        write(&folder, "log.txt", self.end_of_log().as_bytes());
        folder
    }

    /// One line per thread: name and state, user and system ticks, nanoseconds spent running
    /// and waiting for a processor, and the kernel function in which it sleeps.
    fn threads(&self) -> String {
        let tasks = format!("/proc/{}/task", self.pid);
        let Ok(tasks) = fs::read_dir(tasks) else { return "the process has ended".into() };
        let line = |task: PathBuf| {
            let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
            let stat = read("stat");
            let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
            let field = |at: usize| fields.get(at).copied().unwrap_or("?");
            format!(
                "{} {} state {} user {} system {} schedstat {} in {}",
                task.display(),
                read("comm").trim(),
                field(1),
                field(12),
                field(13),
                read("schedstat").trim(),
                read("wchan")
            )
        };
        let lines = tasks.flatten().map(|task| line(task.path()));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn stacks(&self, folder: &Path) -> String {
        let output = folder.join("gdb.out");
        let file = fs::File::create(&output).expect("a file");
        let mut gdb = Command::new(&self.gdb)
            .args(["--batch", "--nx", "-p", &self.pid.to_string(), "-ex", "thread apply all bt"])
            .stdin(Stdio::null())
            .stderr(file.try_clone().expect("a second handle"))
            .stdout(file)
            .spawn()
            .expect("gdb starts");
        let start = Instant::now();
        while matches!(gdb.try_wait(), Ok(None)) && start.elapsed() < TRACING {
            thread::sleep(Duration::from_millis(50));
        }
        // An error means that gdb has ended, as it should.
        let _ = gdb.kill();
        let _ = gdb.wait();
        let text = fs::read(&output).unwrap_or_default();
        let _ = fs::remove_file(output);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn answers(&self) -> String {
        let connect = || -> RedisResult<Connection> {
            let client = Client::open(("127.0.0.1", self.port))?;
            let connection = client.get_connection_with_timeout(ASKING)?;
            connection.set_read_timeout(Some(ASKING))?;
            Ok(connection)
        };
        let mut c = match connect() {
            Ok(c) => c,
            Err(error) => return format!("another connection got no answer: {error}"),
        };
        let mut text = String::new();
        for question in QUESTIONS {
            let reply = match attempt(&mut c, question) {
                Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
                Ok(reply) => format!("{reply:?}"),
                Err(error) if error.is_timeout() => return text + question + ": no answer either",
                Err(error) => error.to_string(),
            };
            text += &format!("---- {question}\n{reply}\n");
        }
        text
    }

    fn end_of_log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("the file is written");
}
