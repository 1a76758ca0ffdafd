//! Libraries in C that are preloaded into servers.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Compiles a source beside this file with gcc or, for servers of another processor, with the
/// compiler that `RATELIMIT_CC` names. The library is deleted with its folder.
pub fn library(source: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
    let path = folder.path().join("preloaded.so");
    let compiler = env::var("RATELIMIT_CC").unwrap_or_else(|_| "gcc".into());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().expect("the name of a compiler"));
    command.args(words).args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    let source = format!("{}/tests/integration/support/{source}", env!("CARGO_MANIFEST_DIR"));
    command.arg(&path).arg(&source).arg("-ldl");
    assert!(command.status().expect("the compiler starts").success(), "{compiler}: {source}");
    (folder, path)
}
