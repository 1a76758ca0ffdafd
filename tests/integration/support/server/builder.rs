//! How a server is configured, and on which port it ends up.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process};

use super::process::{PORT_TAKEN, Server};
use super::{Flavor, from_env};
use crate::support::machine;

/// A server about to be started: loopback only, nothing saved unless asked for, `DEBUG` allowed.
pub struct Builder {
    flavor: Flavor,
    module_args: Vec<String>,
    directives: Vec<String>,
    dir: Option<PathBuf>,
    module: PathBuf,
    pick_port: fn() -> u16,
}

impl Builder {
    pub(super) fn new(flavor: Flavor) -> Self {
        machine::share();
        let (module_args, directives) = (Vec::new(), Vec::new());
        let module = from_env("RATELIMIT_MODULE", "target/release/libredis_ratelimit.so");
        assert!(module.exists(), "no module at {}: run `make build`", module.display());
        Self { flavor, module_args, directives, dir: None, module, pick_port: free_port }
    }

    /// The server that is being built, for what differs between them.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Arguments of `loadmodule`, such as `["allow-at", "yes"]`.
    pub fn module_args(mut self, args: &[&str]) -> Self {
        self.module_args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// A line of the configuration file, its value as it would be written there; later lines win.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.directives.push(format!("{name} {value}"));
        self
    }

    /// With a build of the module in which a value whose block has the reason `panic-while-saved`
    /// cannot be saved.
    pub fn faulty(mut self) -> Self {
        self.module = from_env("RATELIMIT_FAULTY_MODULE", "target/faulty/libredis_ratelimit.so");
        assert!(self.module.exists(), "no {}: run `make faulty`", self.module.display());
        self
    }

    pub fn replica_of(self, primary: &Server) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {}", primary.port()))
    }

    /// A node of a cluster that is yet to be made.
    pub(super) fn cluster_node(mut self) -> Self {
        self.pick_port = free_port_with_bus;
        self.config("cluster-enabled", "yes")
    }

    /// Works in this folder and leaves it there, instead of in one that goes when the server goes.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// Starts the server and waits until it answers. Another test may take the port between our
    /// finding it free and the server's binding it: then the next one is tried.
    pub fn start(self) -> Server {
        let mut server = Server::new(self.flavor, self.dir.as_deref());
        let mut tries = 5;
        loop {
            let port = (self.pick_port)();
            let text = self.config_text(port, server.dir());
            fs::write(server.config_file(), text).expect("the configuration file is written");
            match server.launch(port) {
                Ok(()) => return server,
                Err(why) if why.contains(PORT_TAKEN) && tries > 1 => tries -= 1,
                Err(why) => panic!("{} did not start: {why}", self.flavor.name),
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
            // A replica's first synchronisation would otherwise wait seconds for others to join in.
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

/// A port that nobody listens on. Below those that the system gives to outgoing connections, so
/// that a restarted server finds its port still free; scattered by process, so that test binaries
/// running side by side seldom meet.
fn free_port() -> u16 {
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

/// A free port whose cluster bus, 10000 further up, is free too and below the outgoing ones.
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
