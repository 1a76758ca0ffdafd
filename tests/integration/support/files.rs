//! The files that a server writes, and restarts from them.

use std::fs;
use std::path::PathBuf;

use redis::Connection;
use tempfile::TempDir;

use crate::support::client::{ask, info, is_saving};
use crate::support::server::{Builder, Server, eventually};

/// Turns the AOF on. A rewritten AOF begins with an RDB preamble, or has only commands.
pub fn with_aof(builder: Builder, preamble: bool) -> Builder {
    let preamble = if preamble { "yes" } else { "no" };
    builder.config("appendonly", "yes").config("aof-use-rdb-preamble", preamble)
}

/// Turns on an AOF that is written before each reply, so that it has all acknowledged commands.
pub fn with_synced_aof(builder: Builder) -> Builder {
    builder.config("appendonly", "yes").config("appendfsync", "always")
}

/// A folder with one file, for a server to start in.
pub fn folder_with(name: &str, bytes: &[u8]) -> TempDir {
    let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
    fs::write(folder.path().join(name), bytes).expect("the file is written");
    folder
}

/// Saves, and returns the RDB file.
pub fn saved_rdb(server: &Server) -> Vec<u8> {
    let () = ask(&mut server.connect(), "SAVE");
    fs::read(server.dir().join("dump.rdb")).expect("the server has saved")
}

/// Stops the server and restarts it from the AOF alone.
pub fn restart_from_aof(server: &mut Server) {
    server.stop();
    fs::remove_file(server.dir().join("dump.rdb")).expect("SHUTDOWN SAVE wrote it");
    server.resume();
}

/// Kills the server and starts it again.
pub fn crash(server: &mut Server) {
    server.kill9();
    server.resume();
}

/// The files of the AOF, oldest first: one on 6.2, several in a folder from 7.0 on.
pub fn aof_files(server: &Server) -> Vec<PathBuf> {
    if !server.flavor().is_7_or_later() {
        return vec![server.dir().join("appendonly.aof")];
    }
    let entries = fs::read_dir(server.dir().join("appendonlydir")).expect("a folder");
    let files = entries.map(|entry| entry.expect("a file").path());
    let is_data = |file: &PathBuf| file.extension().is_none_or(|kind| kind != "manifest");
    let mut files: Vec<_> = files.filter(is_data).collect();
    files.sort();
    files
}

/// The file of the AOF to which the server appends.
pub fn appended_aof(server: &Server) -> PathBuf {
    aof_files(server).pop().expect("a file of the AOF")
}

/// The whole AOF in upper case.
pub fn aof(server: &Server) -> String {
    let read = |file: PathBuf| fs::read(file).expect("a file of the AOF");
    let bytes: Vec<u8> = aof_files(server).into_iter().flat_map(read).collect();
    String::from_utf8_lossy(&bytes).to_uppercase()
}

/// Whether the rewritten part of the AOF begins with an RDB preamble.
pub fn has_preamble(server: &Server) -> bool {
    let one_file = !server.flavor().is_7_or_later();
    let is_base = |path: &PathBuf| one_file || path.to_string_lossy().contains(".base.");
    let base = aof_files(server).into_iter().find(is_base).expect("a base");
    let bytes = fs::read(base).expect("a file");
    bytes.starts_with(b"REDIS") || bytes.starts_with(b"VALKEY")
}

/// Waits for the end of all saves and rewrites, which must succeed.
pub fn eventually_saved(c: &mut Connection) {
    eventually("the end of saving", || !is_saving(c));
    let info: String = ask(c, "INFO persistence");
    for status in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
        assert!(info.contains(&format!("{status}:ok")), "{info}");
    }
}

/// Starts a save in the background that is so slow that `meanwhile` ends first.
pub fn save_slowly(c: &mut Connection, command: &str, meanwhile: impl FnOnce(&mut Connection)) {
    for key in 0..20 {
        let () = ask(c, &format!("SET slow{key} x"));
    }
    let () = ask(c, "CONFIG SET rdb-key-save-delay 50000");
    let () = ask(c, command);
    let busy = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress"];
    let in_progress =
        |c: &mut Connection| busy.iter().any(|busy| info(c, "persistence", busy) == 1.0);
    eventually("the beginning of saving", || in_progress(c));
    meanwhile(c);
    assert!(in_progress(c), "{command} was over too early");
    eventually_saved(c);
    let () = ask(c, "CONFIG SET rdb-key-save-delay 0");
}
