//! A server process: held by its handle from start to end, in a folder with its configuration,
//! data and log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult, cmd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use super::{DEADLINE, Flavor, eventually};

/// What the log of a server says that cannot have its port.
pub(super) const PORT_TAKEN: &str = "Address already in use";

/// A running server, or one between `stop` and `resume`. Dropping it kills the process and waits
/// for its end.
pub struct Server {
    flavor: Flavor,
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
    /// The folder itself, where it is the server's own: removed after the process has ended.
    _own_dir: Option<TempDir>,
}

impl Server {
    /// A server that does not run yet, with the folder it will run in.
    pub(super) fn new(flavor: Flavor, dir: Option<&Path>) -> Self {
        let own_dir =
            dir.is_none().then(|| TempDir::with_prefix("ratelimit-").expect("a temporary folder"));
        let dir = dir.or(own_dir.as_ref().map(TempDir::path)).expect("given or own").to_path_buf();
        Self { flavor, dir, port: 0, process: None, _own_dir: own_dir }
    }

    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The working folder, with `dump.rdb` and the append-only file.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process id; panics when the server is stopped.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    /// Whether it was started, and neither stopped nor killed since.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Everything the server has written to its log, over restarts too.
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub fn client(&self) -> Client {
        self.client_with("")
    }

    /// A connection that speaks RESP2.
    pub fn connect(&self) -> Connection {
        self.connect_with("")
    }

    /// A connection that speaks RESP3.
    pub fn connect_resp3(&self) -> Connection {
        self.connect_with("?protocol=resp3")
    }

    /// Ends the server as an operator would, with its data saved.
    pub fn stop(&mut self) {
        // A SHUTDOWN that succeeds closes the connection: that the process ends is what counts.
        let reply: RedisResult<()> = cmd("SHUTDOWN").arg("SAVE").query(&mut self.connect());
        eventually(&format!("SHUTDOWN ends the server: {reply:?}"), || self.has_ended());
        self.process = None;
    }

    /// Ends the server as a crash would: nothing more is written.
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the process is ours");
            process.wait().expect("the process is ours");
        }
    }

    /// Has the process stand still meanwhile: it hears and does nothing.
    pub fn while_frozen<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("no process is 0");
        kill_process(pid, Signal::STOP).expect("the process is ours");
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("the process is ours");
        let result = meanwhile();
        kill_process(pid, Signal::CONT).expect("the process is ours");
        result
    }

    /// Starts the server again after `stop` or `kill9`: same port, same configuration, same folder.
    pub fn resume(&mut self) {
        let start = Instant::now();
        while let Err(why) = self.launch(self.port) {
            // A child that a killed server had just begun holds the port until it has closed it.
            let is_held = why.contains(PORT_TAKEN) && start.elapsed() < DEADLINE;
            assert!(is_held, "{} did not start again: {why}", self.flavor.name);
        }
    }

    /// `stop` and `resume`.
    pub fn restart(&mut self) {
        self.stop();
        self.resume();
    }

    /// Starts the process and waits until it answers, or says why it does not.
    pub(super) fn launch(&mut self, port: u16) -> Result<(), String> {
        assert!(self.process.is_none(), "{} runs already", self.flavor.name);
        let log =
            File::options().create(true).append(true).open(self.log_file()).expect("the log opens");
        let before = self.log().len();
        self.port = port;
        let process = Command::new(self.flavor.program())
            .arg(self.config_file())
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a second handle to the log"))
            .stdout(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        self.process = Some(process);

        let start = Instant::now();
        while !self.answers() {
            if self.has_ended() || start.elapsed() > DEADLINE {
                self.kill9();
                let log = self.log();
                return Err(format!("its log:\n{}", log.get(before..).unwrap_or(&log)));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.dir.join("server.conf")
    }

    /// The last lines of the log, for a failure's message.
    pub(super) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Whether it is this process that answers on the port, its data loaded: not another test's.
    fn answers(&self) -> bool {
        let own_id = format!("process_id:{}\r\n", self.pid());
        let info = || -> RedisResult<String> {
            let mut connection = self.open("")?;
            let () = cmd("PING").query(&mut connection)?;
            cmd("INFO").arg("server").query(&mut connection)
        };
        info().is_ok_and(|info| info.contains(&own_id))
    }

    /// Whether the process has ended by itself; one that was stopped or killed is no longer held.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)))
    }

    fn client_with(&self, options: &str) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/{options}", self.port))
            .expect("the address is well formed")
    }

    fn connect_with(&self, options: &str) -> Connection {
        self.open(options).unwrap_or_else(|error| {
            let (name, log) = (self.flavor.name, self.log_tail());
            panic!("{name} takes no connection: {error}; the end of its log:\n{log}")
        })
    }

    fn open(&self, options: &str) -> RedisResult<Connection> {
        let client = self.client_with(options);
        let connection = client.get_connection_with_timeout(DEADLINE)?;
        // A server that hangs fails its test instead of hanging it.
        connection.set_read_timeout(Some(DEADLINE))?;
        Ok(connection)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Failing here means it has ended already; there is nothing to do about it in any case.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
