//! What a server writes to its folder, and a restart from it.

use std::fs;
use std::path::PathBuf;

use redis::Connection;

use crate::support::client::{ask, info, is_saving};
use crate::support::server::{Builder, Server, eventually};

/// With an AOF; rewritten with an RDB file in front, or as commands alone.
pub fn with_aof(builder: Builder, preamble: bool) -> Builder {
    let preamble = if preamble { "yes" } else { "no" };
    builder.config("appendonly", "yes").config("aof-use-rdb-preamble", preamble)
}

/// Restarts, with nothing to load but the AOF.
pub fn restart_from_aof(server: &mut Server) {
    server.stop();
    fs::remove_file(server.dir().join("dump.rdb")).expect("what SHUTDOWN SAVE wrote");
    server.resume();
}

/// Ends the server as a crash would, and starts it again.
pub fn crash(server: &mut Server) {
    server.kill9();
    server.resume();
}

/// The files of the AOF: one in 6.2, some in a folder from 7.0 on.
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

/// All of the AOF, in capital letters.
pub fn aof(server: &Server) -> String {
    let read = |file: PathBuf| fs::read(file).expect("a file of the AOF");
    let bytes: Vec<u8> = aof_files(server).into_iter().flat_map(read).collect();
    String::from_utf8_lossy(&bytes).to_uppercase()
}

/// Whether what a rewrite wrote begins as an RDB file does.
pub fn has_preamble(server: &Server) -> bool {
    let one_file = !server.flavor().is_7_or_later();
    let is_base = |path: &PathBuf| one_file || path.to_string_lossy().contains(".base.");
    let base = aof_files(server).into_iter().find(is_base).expect("a base");
    let bytes = fs::read(base).expect("a file");
    bytes.starts_with(b"REDIS") || bytes.starts_with(b"VALKEY")
}

/// Waits until nothing is being saved or rewritten, and nothing failed.
pub fn saved(c: &mut Connection) {
    eventually("the end of saving", || !is_saving(c));
    let told: String = ask(c, "INFO persistence");
    for status in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
        assert!(told.contains(&format!("{status}:ok")), "{told}");
    }
}

/// Saves in the background with a command, so slowly that `meanwhile` is over before its end.
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
    saved(c);
    let () = ask(c, "CONFIG SET rdb-key-save-delay 0");
}
