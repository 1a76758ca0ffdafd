//! The tools for operators in `scripts/`.

use std::process::{Command, Output};

/// Runs a tool with these arguments. Returns its exit status and what it printed.
pub fn run(name: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let program = format!("{}/scripts/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("python3");
    let output = python.args(["-B", &program]).args(arguments).env_remove("REDISCLI_AUTH").output();
    let Output { status, stdout, stderr } = output.expect("python3 starts");
    (status.code(), String::from_utf8([stdout, stderr].concat()).expect("text"))
}
