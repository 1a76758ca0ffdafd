//! A server with the module, in a temporary folder, for as long as the value lives.
//!
//! `RATELIMIT_SERVERS` and `RATELIMIT_MODULE` may say where servers and module are, as for the module's own tests.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use redis::{Client, RedisResult, cmd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tower_redis_ratelimit::{Builder, RateLimiter};

/// Every server that the module supports.
pub const ALL: [&str; 5] = ["redis-6.2", "redis-7.0", "redis-8.2", "valkey-8.1", "valkey-9.1"];

/// What to start.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    options: &'static [&'static str],
    /// The lines of its file.
    config: &'static str,
    has_module: bool,
}

pub struct Server {
    program: Program,
    port: u16,
    process: Child,
    dir: TempDir,
}

impl Server {
    pub fn start(name: &'static str) -> Self {
        Self::start_with(name, &[])
    }

    /// Starts a server with options of its command line.
    pub fn start_with(name: &'static str, options: &'static [&'static str]) -> Self {
        Self::of(Program { name, options, config: "", has_module: true })
    }

    /// Starts a server that does not load the module.
    pub fn without_module(name: &'static str, options: &'static [&'static str]) -> Self {
        Self::of(Program { name, options, config: "", has_module: false })
    }

    /// Starts a sentinel with these lines in its file.
    pub fn sentinel(name: &'static str, config: &'static str) -> Self {
        Self::of(Program { name, options: &["--sentinel"], config, has_module: false })
    }

    fn of(program: Program) -> Self {
        let port = free_port();
        let dir = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
        fs::write(dir.path().join("conf"), program.config).expect("a disk");
        Self { program, port, process: launch(program, port, &dir), dir }
    }

    /// Loads the module, which needs `--enable-module-command`.
    pub fn load_module(&self) {
        self.send(&format!("MODULE LOAD {}", module().display()));
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.process.kill().expect("a child");
        self.process.wait().expect("a child");
    }

    /// Starts the server again, empty.
    pub fn restart(&mut self) {
        self.process = launch(self.program, self.port, &self.dir);
    }

    /// Stops the process, or lets it go on.
    pub fn freeze(&self, stopped: bool) {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.process), signal).expect("a child");
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn client(&self) -> Client {
        client(self.port)
    }

    /// A limiter on this server, with a time-out that no test on a busy machine reaches.
    pub fn limiter(&self) -> RateLimiter {
        self.builder().build().expect("options")
    }

    /// The options of that limiter.
    pub fn builder(&self) -> Builder {
        RateLimiter::server(self.client()).timeout(Duration::from_secs(10))
    }

    /// Sends a command, its words separated by spaces.
    pub fn send(&self, line: &str) {
        let (name, words) = line.split_once(' ').expect("words");
        let mut command = cmd(name);
        command.arg(words.split(' ').collect::<Vec<_>>());
        let mut connection = self.client().get_connection().expect("it runs");
        let () = command.query(&mut connection).expect(line);
    }
}

impl Server {
    /// How often a command was called.
    pub fn calls(&self, command: &str) -> u64 {
        self.number("commandstats", &format!("cmdstat_{command}:calls="))
    }

    /// How many clients are connected, with the one that asks.
    pub fn clients(&self) -> u64 {
        self.number("clients", "connected_clients:")
    }

    /// The number after this text in a part of `INFO`, or zero.
    fn number(&self, part: &str, start: &str) -> u64 {
        let mut connection = self.client().get_connection().expect("it runs");
        let info: String = cmd("INFO").arg(part).query(&mut connection).expect("text");
        let found = info.lines().find_map(|line| line.strip_prefix(start)).unwrap_or("0");
        found.split(',').next().and_then(|text| text.parse().ok()).expect("a number")
    }

    /// The ids of the clients that wait in a line.
    pub fn waiting(&self) -> Vec<String> {
        let mut connection = self.client().get_connection().expect("it runs");
        let clients: String = cmd("CLIENT").arg("LIST").query(&mut connection).expect("text");
        let waits = clients.lines().filter(|line| line.contains(" cmd=rl.wait "));
        let id = |line: &str| line.split([' ', '=']).nth(1).expect("an id").to_string();
        waits.map(id).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A free port below the range of outgoing connections, one of which could take the port first.
/// The port of a cluster's bus, 10,000 higher, is free too.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(997);
    loop {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = u16::try_from(10_000 + step).expect("a port");
        if [port, port + 10_000].iter().all(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        {
            return port;
        }
    }
}

fn client(port: u16) -> Client {
    Client::open(format!("redis://127.0.0.1:{port}")).expect("an address")
}

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

fn launch(program: Program, port: u16, dir: &TempDir) -> Child {
    let (mut process, name) = (spawn(program, program.options, port, dir), program.name);
    let start = Instant::now();
    while answers(port).is_err() {
        let ended = process.try_wait().expect("a child");
        assert!(ended.is_none(), "{name} ended: is the module there? run `make faulty`");
        assert!(start.elapsed() < PATIENCE, "{name} does not answer");
        thread::sleep(Duration::from_millis(20));
    }
    process
}

fn spawn(program: Program, options: &[&str], port: u16, dir: &TempDir) -> Child {
    let server = from_env("RATELIMIT_SERVERS", ".cache/servers").join(program.name).join("server");
    let mut command = Command::new(&server);
    command.args(["conf", "--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    if program.has_module {
        command.arg("--loadmodule").arg(module());
    }
    command.args(options).current_dir(dir).stdout(Stdio::null());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}: run `make fetch`", server.display()))
}

fn module() -> PathBuf {
    from_env("RATELIMIT_MODULE", "target/faulty/libredis_ratelimit.so")
}

fn answers(port: u16) -> RedisResult<()> {
    cmd("PING").query(&mut client(port).get_connection()?)
}

/// A path from the environment, or its default inside the repository.
fn from_env(variable: &str, default: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    env::var_os(variable).map_or_else(|| PathBuf::from(root).join(default), PathBuf::from)
}
