//! A server process, in a folder with its configuration, data and log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult, cmd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use super::environment::{self, DEADLINE};
use super::processor::Processor;
use super::{Flavor, eventually};

/// What a server logs if its port is taken.
pub(super) const PORT_TAKEN: &str = "Address already in use";

/// A running server, or one between `stop` and `resume`. Its drop kills the process and waits for
/// the end.
pub struct Server {
    flavor: Flavor,
    dir: PathBuf,
    port: u16,
    environment: Vec<(&'static str, PathBuf)>,
    processor: Processor,
    process: Option<Child>,
    /// A temporary folder, removed after the process has ended.
    _temp_dir: Option<TempDir>,
}

impl Server {
    /// A server that does not run yet, with the folder for its files.
    pub(super) fn new(
        flavor: Flavor,
        dir: Option<&Path>,
        environment: Vec<(&'static str, PathBuf)>,
    ) -> Self {
        let temp_dir =
            dir.is_none().then(|| TempDir::with_prefix("ratelimit-").expect("a temporary folder"));
        let dir =
            dir.or(temp_dir.as_ref().map(TempDir::path)).expect("given or temporary").to_path_buf();
        let processor = Processor::Tested;
        Self { flavor, dir, port: 0, environment, processor, process: None, _temp_dir: temp_dir }
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

    /// The process id; panics if the server does not run.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    /// Whether the server was started, and has not been stopped or killed since.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// The whole log, including the time before a restart.
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

    /// Ends the server with `SHUTDOWN SAVE`.
    pub fn stop(&mut self) {
        // Redis 6.2 refuses to end while it writes its first AOF. A successful SHUTDOWN closes the connection, so only
        // the end of the process matters.
        let mut shutdown = cmd("SHUTDOWN");
        shutdown.arg("SAVE");
        eventually("SHUTDOWN to end the server", || {
            let _ = self.open("").and_then(|mut c| shutdown.query::<()>(&mut c));
            self.has_ended()
        });
        self.process = None;
    }

    /// Ends the server as a crash does: it writes nothing more.
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the process is a child");
            process.wait().expect("the process is a child");
        }
    }

    /// Stops the process with SIGSTOP while `meanwhile` runs.
    pub fn while_frozen<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("no process is 0");
        kill_process(pid, Signal::STOP).expect("the process is a child");
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("the process is a child");
        let result = meanwhile();
        kill_process(pid, Signal::CONT).expect("the process is a child");
        result
    }

    /// Starts the server again after `stop` or `kill9`, with its port, configuration and folder.
    pub fn resume(&mut self) {
        let name = self.flavor.name;
        self.try_resume().unwrap_or_else(|why| panic!("{name} did not start again: {why}"));
    }

    /// Starts the server like `resume`. On failure the error is the server's log.
    pub fn try_resume(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            match self.launch(self.port) {
                // A child forked just before the server was killed holds the port for a moment.
                Err(why) if why.contains(PORT_TAKEN) && start.elapsed() < *DEADLINE => {}
                result => return result,
            }
        }
    }

    /// Edits the lines of the configuration file, which the next start reads.
    pub fn edit_config(&self, edit: impl FnOnce(&mut Vec<String>)) {
        let text = fs::read_to_string(self.config_file()).expect("the configuration file");
        let mut lines = text.lines().map(ToString::to_string).collect();
        edit(&mut lines);
        fs::write(self.config_file(), lines.join("\n")).expect("the file is written");
    }

    /// Removes the module from the configuration of the next start. Returns the module's path.
    pub fn remove_module(&self) -> String {
        let mut path = None;
        self.edit_config(|lines| {
            let load = lines.extract_if(.., |line| line.starts_with("loadmodule ")).next();
            path = load.and_then(|load| load.split('"').nth(1).map(ToString::to_string));
        });
        path.expect("a line with the path in quotes")
    }

    /// Makes the next start use a server and a module for the other processor.
    pub fn change_processor(&mut self) {
        self.processor = self.processor.other();
        let module = format!("{:?}", self.processor.module());
        self.edit_config(|lines| {
            let load = lines.iter_mut().find(|line| line.starts_with("loadmodule "));
            let load = load.expect("a line with the path in quotes");
            let words: Vec<_> = load.split('"').collect();
            *load = [words[0], &module, words[2]].concat();
        });
    }

    /// Stops the server and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.resume();
    }

    /// Starts the process and waits until it answers. On failure the error is the server's log.
    pub(super) fn launch(&mut self, port: u16) -> Result<(), String> {
        assert!(self.process.is_none(), "{} runs already", self.flavor.name);
        let log =
            File::options().create(true).append(true).open(self.log_file()).expect("the log opens");
        let before = self.log().len();
        self.port = port;
        let process = environment::command(&self.processor.program(self.flavor))
            .envs(self.environment.iter().cloned())
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
            if self.has_ended() || start.elapsed() > *DEADLINE {
                self.kill9();
                let log = self.log();
                return Err(format!("its log:\n{}", log.get(before..).unwrap_or(&log)));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.join("server.conf")
    }

    /// Ends the process with SIGTERM, so that the tool it runs under (`RATELIMIT_WRAPPER`) can write its
    /// report.
    fn terminate(&mut self) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("no process is 0");
        let start = Instant::now();
        if kill_process(pid, Signal::TERM).is_ok() {
            while !self.has_ended() && start.elapsed() < *DEADLINE {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The last lines of the log, for the message of a failure.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Whether this process, and no other, answers on the port and has loaded its data.
    fn answers(&self) -> bool {
        let process_id = format!("process_id:{}\r\n", self.pid());
        let info = || -> RedisResult<String> {
            let mut connection = self.open("")?;
            let () = cmd("PING").query(&mut connection)?;
            cmd("INFO").arg("server").query(&mut connection)
        };
        info().is_ok_and(|info| info.contains(&process_id))
    }

    /// Whether the process has ended by itself; false after `stop` and `kill9`.
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
        let connection = client.get_connection_with_timeout(*DEADLINE)?;
        // A server that hangs must fail its test instead of hanging it.
        connection.set_read_timeout(Some(*DEADLINE))?;
        Ok(connection)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if environment::has_tool() && self.runs() && !self.has_ended() {
            self.terminate();
        }
        if let Some(process) = &mut self.process {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
