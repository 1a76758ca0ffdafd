//! A wall clock that tests can step, for real servers. A preloaded library adds the number in a
//! file to the time of day.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::support::server::Builder;

/// The clock of one server.
pub struct Clock {
    folder: TempDir,
}

impl Clock {
    /// A clock that shows the time of the machine.
    pub fn new() -> Self {
        let clock =
            Self { folder: TempDir::with_prefix("ratelimit-").expect("a temporary folder") };
        fs::write(clock.file(), 0_i64.to_ne_bytes()).expect("the file is written");
        clock
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("step")
    }

    /// Makes a server use this clock.
    pub fn of(&self, builder: Builder) -> Builder {
        builder.env("LD_PRELOAD", library()).env("RATELIMIT_CLOCK", self.file())
    }

    /// Sets the clock to a Unix time, from which it continues.
    pub fn set_s(&self, unix_s: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let now_us = i64::try_from(now.as_micros()).expect("before 294247");
        let file = File::options().write(true).open(self.file()).expect("the file opens");
        // In one write, so that the server never sees a part of it.
        file.write_at(&(unix_s * 1_000_000 - now_us).to_ne_bytes(), 0).expect("written");
    }
}

/// The library, built on first use.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
        let path = folder.path().join("clock.so");
        let source =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/support/clock/stepping.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&path).arg(source);
        assert!(gcc.arg("-ldl").status().expect("gcc starts").success(), "{source}");
        (folder, path)
    });
    path
}
