//! The configuration of a server, and its port.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use std::{fs, process};

use super::process::{PORT_TAKEN, Server};
use super::{DEADLINE, Flavor, from_env};
use crate::support::machine;

/// A server to start: on loopback, without saving by itself, with `DEBUG` allowed.
pub struct Builder {
    flavor: Flavor,
    module_args: Vec<String>,
    directives: Vec<String>,
    dir: Option<PathBuf>,
    module: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    pick_port: fn() -> u16,
}

impl Builder {
    pub(super) fn new(flavor: Flavor) -> Self {
        machine::share();
        let (module_args, directives) = (Vec::new(), Vec::new());
        let (dir, environment) = (None, Vec::new());
        let module = module();
        Self { flavor, module_args, directives, dir, module, environment, pick_port: free_port }
    }

    /// The server to start, for settings that only some servers have.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Arguments of `loadmodule`, such as `["allow-at", "yes"]`.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module_args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Allows commands to give a time, with `AT`.
    pub fn allow_at(self) -> Self {
        self.module_args(&["allow-at", "yes"])
    }

    /// Allows the commands `MODULE LOAD` and `MODULE LOADEX`.
    pub fn allow_module_command(self) -> Self {
        match self.flavor.is_7_or_later() {
            true => self.config("enable-module-command", "yes"),
            false => self, // 6.2 always allows them.
        }
    }

    /// Adds a line to the configuration file, with the value as written in the file. Later
    /// lines win.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.directives.push(format!("{name} {value}"));
        self
    }

    /// A variable of the server's environment.
    pub fn env(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Loads a build of the module that panics on request: `support/faults.rs`. It differs from the module
    /// under test only if `RATELIMIT_MODULE` names a release.
    pub fn faulty(mut self) -> Self {
        self.module = checked_module("RATELIMIT_FAULTY_MODULE");
        self
    }

    pub fn replica_of(self, primary: &Server) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {}", primary.port()))
    }

    /// Makes the server a node that can join a cluster.
    pub(super) fn cluster_node(mut self) -> Self {
        self.pick_port = free_port_with_bus;
        self.config("cluster-enabled", "yes")
    }

    /// Runs in this folder, which is kept, instead of in a temporary one.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        let name = self.flavor.name;
        self.try_start().unwrap_or_else(|why| panic!("{name} did not start: {why}"))
    }

    /// Starts a server that must refuse to start and end by itself. Returns its log.
    pub fn refusal(self) -> String {
        let (name, start) = (self.flavor.name, Instant::now());
        let why = self.try_start().err();
        assert!(start.elapsed() < *DEADLINE, "{name} did not end by itself");
        why.unwrap_or_else(|| panic!("{name} started"))
    }

    /// Starts the server. On failure the error is the server's log.
    ///
    /// Another process may take the port between the search for it and the server's start; then
    /// the next port is tried.
    pub fn try_start(self) -> Result<Server, String> {
        let dir = self.dir.as_deref();
        let mut server = Server::new(self.flavor, dir, self.environment.clone());
        let mut tries = 5;
        loop {
            let port = (self.pick_port)();
            let text = self.config_text(port, server.dir());
            fs::write(server.config_file(), text).expect("the configuration file is written");
            match server.launch(port) {
                Ok(()) => return Ok(server),
                Err(why) if why.contains(PORT_TAKEN) && tries > 1 => tries -= 1,
                Err(why) => return Err(why),
            }
        }
    }

    fn config_text(&self, port: u16, dir: &Path) -> String {
        let module = &self.module;
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".to_string(),
            format!("dir {dir:?}"),
            "save \"\"".to_string(),
            // Otherwise the primary waits some seconds for more replicas before it synchronizes
            // the first.
            "repl-diskless-sync-delay 0".to_string(),
            format!("loadmodule {module:?} {}", self.module_args.join(" ")),
        ];
        if self.flavor.is_7_or_later() {
            lines.push("enable-debug-command local".to_string());
        }
        lines.extend(self.directives.iter().cloned());
        lines.join("\n")
    }
}

/// The module under test.
pub fn module() -> PathBuf {
    checked_module("RATELIMIT_MODULE")
}

fn checked_module(variable: &str) -> PathBuf {
    let module = from_env(variable, "target/faulty/libredis_ratelimit.so");
    assert!(module.exists(), "no module at {}: run `make faulty`", module.display());
    module
}

/// A port without a listener, below the ports of outgoing connections, so that it is still free
/// when its server restarts. Each process begins elsewhere, so two runs of the tests seldom try
/// the same port.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + process::id().wrapping_mul(997).wrapping_add(step) % COUNT) as u16;
        if is_free(port) {
            return port;
        }
    }
}

/// A free port whose cluster bus, 10000 higher, is free too and below the outgoing ports.
fn free_port_with_bus() -> u16 {
    const BUS: u16 = 10_000;
    loop {
        let port = free_port();
        if port < 20_000 && is_free(port + BUS) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
