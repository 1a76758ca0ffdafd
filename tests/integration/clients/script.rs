//! A client in another language: a script that sends one `RL.WAIT`, and prints the outcome.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::support::server::Server;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// How long the script may take to start, to wait and to print.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running script. It keeps its connection until [`Script::close`].
pub struct Script {
    process: Child,
    input: Option<ChildStdin>,
    printed: Receiver<String>,
}

impl Script {
    /// Starts `name`, which sends `RL.WAIT key 20000 HOLD id EX 100 slots:1` with the key as
    /// id. `options` are the options of the client library, as JSON.
    pub fn start(
        mut program: Command,
        name: &str,
        server: &Server,
        key: &str,
        options: &str,
    ) -> Self {
        let mut process = program
            .arg(format!("{ROOT}/tests/integration/clients/{name}"))
            .args([&server.port().to_string(), key, options])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let output = BufReader::new(process.stdout.take().expect("its output is a pipe"));
        let (tell, printed) = mpsc::channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|l| tell.send(l)));
        let input = process.stdin.take();
        Self { process, input, printed }
    }

    /// The verdict, or the error as the script prints it.
    pub fn outcome(&self) -> String {
        self.printed.recv_timeout(PATIENCE).expect("the script prints its outcome")
    }

    /// Whether nothing has been printed yet.
    pub fn waits(&self) -> bool {
        self.printed.try_recv().is_err()
    }

    /// Lets the script close its client, and end.
    pub fn close(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().expect("the script ends").success());
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
