//! Prometheus and `redis_exporter`, as processes.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::client::ask;
use crate::support::server::{Server, eventually, free_port, from_env};

/// The folder of the alerts, the dashboard and the exporter's script.
pub const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring");

/// A program of `.cache/prometheus`.
pub fn program(name: &str) -> PathBuf {
    let program = from_env("RATELIMIT_PROMETHEUS", ".cache/prometheus").join(name);
    assert!(program.exists(), "no {name} at {}: run `make fetch`", program.display());
    program
}

/// A process with a port. Its drop kills it.
struct Daemon {
    process: Child,
    port: u16,
}

impl Daemon {
    fn start(mut command: Command, port: u16) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let daemon = Self { process: process.expect("it starts"), port };
        eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        daemon
    }

    /// The head and the body of the answer to a request.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `redis_exporter` with the script, as a user with only the rights that docs/operate/run.md
/// gives.
pub struct Exporter(Daemon);

impl Exporter {
    pub fn start(server: &Server) -> Self {
        let () = ask(&mut server.connect(), "ACL SETUSER exporter on >secret +info +eval");
        let port = free_port();
        let mut command = Command::new(program("redis_exporter"));
        command
            .arg(format!("--redis.addr=redis://127.0.0.1:{}", server.port()))
            .args(["--redis.user=exporter", "--redis.password=secret"])
            .arg(format!("--script={MONITORING}/prometheus.lua"))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Self(Daemon::start(command, port))
    }
}

/// Prometheus with the rules of the alerts. It scrapes each second.
pub struct Prometheus {
    daemon: Daemon,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts Prometheus on these exporters. The name of each is its label `instance`.
    pub fn start(exporters: &[(&str, Exporter)]) -> Self {
        let dir = TempDir::with_prefix("prometheus-").expect("a temporary folder");
        let port = free_port();
        fs::write(dir.path().join("prometheus.yml"), configuration(exporters)).expect("a file");
        let mut command = Command::new(program("prometheus"));
        command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(&dir);
        let prometheus = Self { daemon: Daemon::start(command, port), _dir: dir };
        let is_ready = || prometheus.daemon.get("/-/ready").contains(" 200 ");
        eventually("Prometheus to be ready", is_ready);
        prometheus
    }

    /// The result of a query, as JSON; `"result":[]` means that nothing was found.
    pub fn query(&self, query: &str) -> String {
        let answer = self.daemon.get(&format!("/api/v1/query?query={}", encoded(query)));
        assert!(answer.contains(r#""status":"success""#), "{query}\n{answer}");
        answer
    }

    /// Whether a query finds anything.
    pub fn finds(&self, query: &str) -> bool {
        !self.query(query).contains(r#""result":[]"#)
    }

    /// The state of each rule: JSON.
    pub fn rules(&self) -> String {
        self.daemon.get("/api/v1/rules")
    }
}

fn configuration(exporters: &[(&str, Exporter)]) -> String {
    let rules = Path::new(MONITORING).join("ratelimit.rules.yml");
    let mut text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [{rules:?}]\n\
         scrape_configs:\n  - job_name: redis\n    static_configs:\n"
    );
    for (name, Exporter(daemon)) in exporters {
        let target = format!("127.0.0.1:{}", daemon.port);
        writeln!(text, "      - {{ targets: [\"{target}\"], labels: {{ instance: {name} }} }}")
            .expect("a string");
    }
    text
}

fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
