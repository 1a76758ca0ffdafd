//! The programs of `examples/`, run as processes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A running program. Its drop kills it, as a crash does.
pub struct Program {
    process: Child,
    /// The line that it printed when it was ready, such as its port.
    first_line: String,
}

impl Program {
    /// Starts a program, such as `gateway/model.py`, and waits until it prints a line.
    pub fn start(program: &str, options: &[impl AsRef<OsStr>]) -> Self {
        let mut process = Command::new("python3")
            .arg("-B")
            .arg(format!("{ROOT}/examples/{program}"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut line = String::new();
        let mut printed = BufReader::new(process.stdout.take().expect("its output is a pipe"));
        printed.read_line(&mut line).expect("text");
        assert!(!line.is_empty(), "{program} did not start");
        Self { process, first_line: line.trim().to_string() }
    }

    /// The port that it printed.
    pub fn port(&self) -> u16 {
        self.first_line.parse().unwrap_or_else(|_| panic!("no port: {}", self.first_line))
    }

    /// Asks the program to end, and waits until it has.
    pub fn stop(mut self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("it lives");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
