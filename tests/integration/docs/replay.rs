//! Types a document's transcripts into redis-cli and a shell, and compares the replies.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{env, thread};

use tempfile::TempDir;

use super::likeness::difference;
use super::transcript::{Step, Typed, blocks, shown};
use crate::support::server::{self, Flavor};

/// A line that separates the replies of a session.
const MARK: &str = "--next--";
/// A block that takes longer ran on a busy machine.
const STALL: Duration = Duration::from_millis(300);
/// How long a listener waits for its messages.
const DEADLINE: Duration = Duration::from_secs(20);

/// The server that the documents describe.
pub fn flavor() -> Flavor {
    server::all().into_iter().find(|flavor| flavor.name == "redis-7.0").expect("in the matrix")
}

/// The command line client of a server.
pub fn client(name: &str) -> PathBuf {
    let client = server::from_env("RATELIMIT_SERVERS", ".cache/servers").join(name).join("cli");
    assert!(client.exists(), "no client at {}: run `make fetch`", client.display());
    client
}

/// A program that ignores the user's configuration of redis-cli.
pub fn plain(program: impl AsRef<Path>, home: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("REDISCLI_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Replays a whole document on a new server. If a block differs and took long, waits may have
/// ended meanwhile, so the document is replayed again.
pub fn replay(document: &str) {
    replay_on(flavor(), document);
}

/// Replays a whole document on a new server of another kind, which may need other numbers of bytes.
pub fn replay_on(flavor: Flavor, document: &str) {
    for _ in 0..10 {
        match Replay::of(document, flavor) {
            Ok(()) => return,
            Err(Difference { message, took }) if took > STALL => {
                eprintln!("replayed again after {took:?} in a block: {message}");
            }
            Err(Difference { message, .. }) => panic!("{message}"),
        }
    }
    panic!("the machine is too busy to replay the document");
}

struct Difference {
    message: String,
    took: Duration,
}

struct Replay {
    flavor: Flavor,
    client: PathBuf,
    port: u16,
    home: TempDir,
}

impl Replay {
    fn of(document: &str, kind: Flavor) -> Result<(), Difference> {
        let server = kind.start();
        let home = TempDir::new().expect("a temporary folder");
        let client = client(flavor().name);
        let replay = Self { flavor: kind, client, port: server.port(), home };
        let mut listener: Option<Listener> = None;
        for block in blocks(document) {
            let Some(typed) = block.typed() else { continue };
            let start = Instant::now();
            let previous = listener.take();
            let found = match typed {
                Typed::Shell(steps) => replay.shell(&steps),
                Typed::Session { options, steps } => replay.session(&options, &steps),
                Typed::Listener(step) => {
                    listener = Some(replay.listen(step));
                    None
                }
            };
            let took = start.elapsed();
            if let Some(message) = found.or_else(|| previous.and_then(Listener::difference)) {
                let message = format!("in the block at line {}: {message}", block.line);
                return Err(Difference { message, took });
            }
        }
        assert!(listener.is_none(), "no block follows the last listener");
        Ok(())
    }

    /// The client, with output formatted for a terminal.
    fn client(&self) -> Command {
        let mut command = plain(&self.client, self.home.path());
        command.args(["-p", &self.port.to_string()]).env("FAKETTY", "1");
        command
    }

    /// Runs each step in a new shell.
    fn shell(&self, steps: &[Step]) -> Option<String> {
        steps.iter().find_map(|step| {
            let line = &step.command;
            let mut shell = plain("bash", self.home.path());
            let redis_cli = r#"redis-cli() { "$CLIENT" -p "$PORT" "$@"; }"#;
            shell.arg("-c").arg(format!("{redis_cli}\n{line}"));
            shell.env("CLIENT", &self.client).env("PORT", self.port.to_string());
            // Output into a pipe or a variable is not formatted for a terminal.
            if !line.contains('|') && !line.contains("$(") {
                shell.env("FAKETTY", "1");
            }
            let start = Instant::now();
            let Output { stdout, stderr, .. } = shell.output().expect("bash starts");
            let output = [stdout, stderr].concat();
            let [expected, replied] =
                [step.output.clone(), shown(&String::from_utf8_lossy(&output))].map(|lines| {
                    if self.flavor == flavor() { lines } else { without_bytes(lines) }
                });
            difference(line, &expected, &replied, start.elapsed())
        })
    }

    /// Types all steps into one session, so that nothing but the server takes time between
    /// them.
    fn session(&self, options: &[String], steps: &[Step]) -> Option<String> {
        let input: Vec<_> =
            steps.iter().map(|step| format!("{}\nECHO {MARK}\n", step.command)).collect();
        let mut client = self.client();
        client.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut client = client.spawn().expect("redis-cli starts");
        let mut to = client.stdin.take().expect("its input is a pipe");
        to.write_all(input.concat().as_bytes()).expect("redis-cli reads");
        drop(to);
        let output = client.wait_with_output().expect("redis-cli ends").stdout;
        let took = start.elapsed();
        let mut replies = vec![String::new()];
        for line in String::from_utf8_lossy(&output).lines() {
            if line.contains(MARK) {
                replies.push(String::new());
            } else if let Some(reply) = replies.last_mut() {
                *reply += line;
                reply.push('\n');
            }
        }
        assert_eq!(replies.len(), steps.len() + 1, "each reply ends with {MARK}: {replies:?}");
        steps.iter().zip(replies).find_map(|(step, reply)| {
            difference(&step.command, &step.output, &untimed(&reply), took)
        })
    }

    fn listen(&self, step: Step) -> Listener {
        let mut client = self.client();
        let mut client =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("redis-cli starts");
        let to = client.stdin.as_mut().expect("its input is a pipe");
        writeln!(to, "{}", step.command).expect("redis-cli reads");
        let from = BufReader::new(client.stdout.take().expect("its output is a pipe"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|l| tell.send(l)));
        let mut listener = Listener { client, lines, received: Vec::new(), step };
        // After the first reply the listener gets every message.
        listener.receive(1);
        listener
    }
}

/// Lines of JSON that end before a number of bytes.
fn without_bytes(lines: Vec<String>) -> Vec<String> {
    lines
        .into_iter()
        .map(|line| line.split("\"bytes\":").next().unwrap_or("").to_string())
        .collect()
}

/// A reply without the time that redis-cli prints after a slow one.
fn untimed(reply: &str) -> Vec<String> {
    let mut lines = shown(reply);
    let is_time = |line: &String| line.starts_with('(') && line.ends_with("s)");
    lines.retain(|line| !is_time(line));
    lines
}

/// A client that prints messages as they come.
struct Listener {
    client: Child,
    lines: Receiver<String>,
    received: Vec<String>,
    step: Step,
}

impl Listener {
    /// Waits for this many lines in all.
    fn receive(&mut self, lines: usize) {
        while self.received.len() < lines
            && let Ok(line) = self.lines.recv_timeout(DEADLINE)
        {
            self.received.push(line);
        }
    }

    /// How the messages differ from the document.
    fn difference(mut self) -> Option<String> {
        self.receive(self.step.output.len());
        self.received.extend(self.lines.try_iter());
        let received = shown(&self.received.join("\n"));
        difference(&self.step.command, &self.step.output, &received, Duration::ZERO)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // An error means that the client has ended already.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
