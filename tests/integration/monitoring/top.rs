//! `scripts/rl-top`, on every server, with the rights of SECURITY.md's monitor.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use redis::cmd;

use crate::support::client::{ask, verdict};
use crate::support::server::{self, Builder, Server, eventually};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A name that would clear the screen, change the title, and reverse the rest of the line.
const HOSTILE: &str = "evil\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\r\n";
const HARMLESS: &str = r"evil\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\n";

/// Adds the recipe for a monitor to the configuration, so that a restart keeps it.
fn with_monitor(builder: Builder) -> Builder {
    let security = include_str!("../../../SECURITY.md");
    let recipe = security.lines().find_map(|line| line.strip_prefix("ACL SETUSER monitor "));
    builder.config("user monitor", recipe.expect("a recipe"))
}

/// The options of a monitor of this server.
fn options(server: &Server) -> Vec<String> {
    ["-p", &server.port().to_string(), "--user", "monitor", "--interval", "0.2"]
        .map(ToString::to_string)
        .to_vec()
}

/// Runs `rl-top` with the option `--once`.
fn once(server: &Server, password: &str) -> Output {
    Command::new("python3")
        .args(["-B", &format!("{ROOT}/scripts/rl-top"), "--once"])
        .args(options(server))
        .env("REDISCLI_AUTH", password)
        .output()
        .expect("python3 starts")
}

#[test]
fn the_option_once_shows_denials_blocks_and_waiting_clients_to_a_monitor() {
    server::on_all_with(
        |builder| with_monitor(builder).config("maxmemory", "1gb"),
        |server| {
            let mut c = server.connect();
            for (key, denials) in
                [(HOSTILE.as_bytes(), 12), (b"[red]x[/red]:smile:", 3), (b"\xff\\", 2)]
            {
                for _ in 0..denials {
                    let () = cmd("RL.CHECK").arg(key).arg("0/m").query(&mut c).expect("a reply");
                }
            }
            let () = cmd("RL.BLOCK")
                .arg("ip:203.0.113.7")
                .arg(&["EX", "3599", "REASON", HOSTILE])
                .query(&mut c)
                .expect("a reply");
            let () = ask(&mut c, "RL.EXEMPT probe");
            let output = once(server, "secret");
            let printed = String::from_utf8(output.stdout).expect("text");
            assert!(
                output.status.success(),
                "{printed}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let rows: Vec<Vec<_>> =
                printed.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
            let row = |first: &str| -> Vec<&str> {
                let row = rows
                    .iter()
                    .find(|row| row.iter().find(|cell| !cell.is_empty()) == Some(&first));
                let row = row.unwrap_or_else(|| panic!("no row of {first}:\n{printed}"));
                row.iter().copied().filter(|cell| !cell.is_empty()).collect()
            };
            assert_eq!(row("12")[2], HARMLESS);
            assert_eq!(row("3")[2], "[red]x[/red]:smile:");
            assert_eq!(row("2")[2], r"\xff\\");
            assert_eq!(row("blocked")[1..], ["59m", "ip:203.0.113.7", HARMLESS]);
            assert_eq!(row("exempt")[1..], ["no end", "probe"]);
            assert_eq!(row("checks/s 0")[1..4], ["allowed 0", "limited 0", "blocked 0"]);
            assert_eq!(row("waiting 0 of 10,000")[1], "admitted/s 0");
            assert!(printed.lines().next().expect("a line").contains(" of 1.0 GB, "), "{printed}");
            assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{printed:?}");
        },
    );
}

#[test]
fn the_option_once_fails_without_a_server_a_password_or_the_module() {
    let mut server = with_monitor(server::one().builder()).start();
    let fails = |server: &Server, password: &str, why: &str| {
        let output = once(server, password);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).expect("text");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && !said.contains("Traceback"), "{said}");
    };
    fails(&server, "wrong", "invalid username-password pair");
    let () = ask(&mut server.connect(), "ACL SETUSER monitor -info");
    fails(&server, "secret", "no permissions to run the 'info' command");
    server.kill9();
    fails(&server, "secret", "Connection refused");
    server.remove_module();
    server.edit_config(|lines| lines.retain(|line| !line.starts_with("user ")));
    server.resume();
    // A server without the module does not know the module's commands, so no ACL can name them.
    let () = ask(&mut server.connect(), "ACL SETUSER monitor on >secret +ping +info");
    fails(&server, "secret", "the server has not loaded the module ratelimit");
}

/// The program in a terminal.
struct Top {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Top {
    fn start(server: &Server, rows: usize, columns: usize) -> Self {
        let screen = format!("{ROOT}/tests/integration/monitoring/screen.py");
        let program = format!("{ROOT}/scripts/rl-top");
        let mut process = Command::new("python3")
            .args([
                "-B",
                &screen,
                &rows.to_string(),
                &columns.to_string(),
                "python3",
                "-B",
                &program,
            ])
            .args(options(server))
            .env("REDISCLI_AUTH", "secret")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let input = process.stdin.take();
        Self { process, input, output }
    }

    /// The text on the screen now.
    fn screen(&mut self) -> Vec<String> {
        writeln!(self.input.as_mut().expect("it is open")).expect("it reads");
        let lines = self.output.by_ref().lines().map(|line| line.expect("text"));
        lines.take_while(|line| line != "\u{c}").collect()
    }

    fn eventually_shows(&mut self, text: &str) {
        let mut screen = Vec::new();
        eventually(&format!("{text} on the screen"), || {
            screen = self.screen();
            screen.iter().any(|row| row.contains(text))
        });
    }

    /// Types Ctrl-C, and returns how the program ended.
    fn end(mut self) -> String {
        drop(self.input.take());
        let mut said = String::new();
        self.output.read_line(&mut said).expect("text");
        said.trim().to_string()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error means that the process has ended already.
        let _ = self.process.wait();
    }
}

#[test]
fn a_terminal_shows_what_happens_across_a_restart() {
    let mut server = with_monitor(server::one().builder()).start();
    let mut c = server.connect();
    let mut top = Top::start(&server, 10, 60);
    top.eventually_shows("denied keys");
    for _ in 0..7 {
        let () = cmd("RL.CHECK").arg(HOSTILE).arg("0/m").query(&mut c).expect("a reply");
    }
    top.eventually_shows(&format!("      7     0s  {}", &HARMLESS[..20]));
    for key in 0..30 {
        verdict(&mut c, &format!("RL.CHECK other{key} 0/m"));
        let () = ask(&mut c, &format!("RL.BLOCK blocked{key}"));
    }
    // A small screen shows some rows of each list.
    top.eventually_shows("blocks (30)");
    let screen = top.screen();
    assert!(
        screen.iter().any(|row| row.ends_with("other0") || row.contains("other0 ")),
        "{screen:?}"
    );
    assert!(screen.iter().any(|row| row.contains("no end  blocked")), "{screen:?}");
    server.kill9();
    top.eventually_shows("trying again");
    server.resume();
    top.eventually_shows("restarted");
    top.eventually_shows("blocks (0)");
    assert!(!top.screen().iter().any(|row| row.contains("trying again")));
    assert_eq!(top.end(), "status 0, screen given back: True");
}
