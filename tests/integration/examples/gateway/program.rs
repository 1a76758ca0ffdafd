//! The programs of `examples/gateway/`, as processes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A running program. Its drop kills it, as a crash does.
pub struct Program {
    process: Child,
    pub port: u16,
}

impl Program {
    /// Starts a stand-in for a model, which writes down each call.
    pub fn model(pause_ms: u64, log: &Path) -> Self {
        let pause_ms = pause_ms.to_string();
        let log = log.as_os_str();
        Self::start("model.py", &["--pause-ms".as_ref(), pause_ms.as_ref(), "--log".as_ref(), log])
    }

    /// Starts a gateway, which the model's log names.
    pub fn gateway(name: &str, redis: u16, model: u16, lease_ms: u64, rules: &[&str]) -> Self {
        let redis = format!("redis://127.0.0.1:{redis}");
        let (model, lease_ms) = (model.to_string(), lease_ms.to_string());
        let options = ["--redis", &redis, "--model", &model, "--lease-ms", &lease_ms];
        let named = ["--name", name];
        let words: Vec<&OsStr> =
            options.iter().chain(&named).chain(rules).map(OsStr::new).collect();
        Self::start("gateway.py", &words)
    }

    /// A program prints its port when it is ready.
    fn start(program: &str, options: &[&OsStr]) -> Self {
        let mut process = Command::new("python3")
            .arg("-B")
            .arg(format!("{ROOT}/examples/gateway/{program}"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut line = String::new();
        let mut printed = BufReader::new(process.stdout.take().expect("its output is a pipe"));
        printed.read_line(&mut line).expect("text");
        let port = line.trim().parse().unwrap_or_else(|_| panic!("{program} did not start"));
        Self { process, port }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
