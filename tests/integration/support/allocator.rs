//! An allocator that a test preloads into servers whose allocator is a library. See
//! `malloc.c`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::{NamedTempFile, TempDir};

use crate::support::preloaded;
use crate::support::server::Builder;

/// The library, built on first use.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| preloaded::library("malloc.c"));
    path
}

/// Makes each allocation of a server begin 8 bytes after a multiple of 16.
pub fn with_blocks_at_8_mod_16(builder: Builder) -> Builder {
    builder.env("LD_PRELOAD", library()).env("MALLOC_OFFSET", "8")
}

/// Counts down a server's allocations until one fails.
pub struct Countdown {
    file: NamedTempFile,
}

impl Countdown {
    pub fn new() -> Self {
        let countdown = Self { file: NamedTempFile::new().expect("a file") };
        countdown.end();
        countdown
    }

    /// Makes a server count down its allocations.
    pub fn of(&self, builder: Builder) -> Builder {
        builder.env("LD_PRELOAD", library()).env("MALLOC_COUNTDOWN", self.file.path())
    }

    /// Makes the `failing`th allocation after this call fail.
    pub fn begin(&self, failing: i64) {
        let file = self.file.as_file();
        file.write_all_at(&failing.to_ne_bytes(), 0).expect("written");
    }

    /// Lets all allocations succeed again.
    pub fn end(&self) {
        self.begin(0);
    }

    /// The number given to `begin`, less the allocations since.
    pub fn left(&self) -> i64 {
        let (file, mut bytes): (&File, _) = (self.file.as_file(), [0; 8]);
        file.read_exact_at(&mut bytes, 0).expect("read");
        i64::from_ne_bytes(bytes)
    }
}
