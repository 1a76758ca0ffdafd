//! Runs the steps of a page for operators: its fenced blocks of `sh`, on real servers with their configuration files.
//!
//! ```text
//! # On the primary:                       the servers of the next lines
//! redis-cli CONFIG REWRITE                each line runs in a shell, for each of these servers, and must succeed
//! systemctl restart redis-server          the test stops and starts the server
//! ```
//!
//! Paths and addresses of the page are replaced by those of the servers.

use std::process::Output;

use tempfile::TempDir;

use super::replay::{client, plain};
use super::transcript::blocks;
use crate::support::server::Server;

/// The tools that an operator has beside `redis-cli`.
const TOOLS: &str = r#"
redis-cli() { "$CLIENT" -e -p "$PORT" "$@"; }
rl-left() { python3 -B scripts/rl-left -p "$PORT" "$@"; }
set -o pipefail
"#;

/// The lines of the blocks of a page under a heading, without those of blocks that `wanted` does not choose.
pub fn of(page: &str, heading: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = rest.split("\n## ").next().expect("a section");
    let shown = blocks(section).into_iter().filter(|block| block.language == "sh");
    let text: Vec<_> = shown.map(|block| block.text.join("\n")).filter(|t| wanted(t)).collect();
    assert!(!text.is_empty(), "no steps under {heading}");
    text.join("\n").lines().map(ToString::to_string).collect()
}

/// Runs the lines on these servers. `whom` names the servers of a comment; `next` is the server at 10.0.0.2.
pub fn run(lines: &[String], servers: &mut [Server], next: usize, whom: fn(&str) -> Vec<usize>) {
    let mut chosen = Vec::new();
    for line in lines {
        if let Some(comment) = line.strip_prefix("# On ") {
            chosen = whom(comment);
            continue;
        }
        assert!(!chosen.is_empty(), "{line}: on which server?");
        let next = format!("127.0.0.1 {}", servers[next].port());
        for &server in &chosen {
            step(&line.replace("10.0.0.2 6379", &next), &mut servers[server]);
        }
    }
}

fn step(line: &str, server: &mut Server) {
    match line.strip_prefix("systemctl ") {
        Some("restart redis-server") => server.restart(),
        Some("stop redis-server") => server.stop(),
        Some("start redis-server") => server.resume(),
        Some(other) => panic!("systemctl {other}"),
        None => {
            let home = TempDir::new().expect("a temporary folder");
            let dir = server.dir().to_str().expect("text");
            let folders = [
                ("/backup", "/backup"),
                ("/var/lib/redis", ""),
                ("/etc/redis/redis.conf", "/server.conf"),
            ];
            let replace = |line: String, (page, here): (&str, &str)| {
                line.replace(page, &format!("{dir}{here}"))
            };
            let line = folders.into_iter().fold(line.to_string(), replace);
            let mut shell = plain("timeout", home.path());
            shell.args(["60", "bash", "-c", &format!("{TOOLS}\n{line}")]);
            shell.env("CLIENT", client("redis-7.0")).env("PORT", server.port().to_string());
            let Output { status, stdout, stderr } = shell.output().expect("bash starts");
            let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
            assert!(status.success(), "{line}: {status}: {said}");
        }
    }
}
