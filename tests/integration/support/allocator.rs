//! An allocator that a test preloads into servers that use the system's allocator. See
//! `malloc.c`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use tempfile::NamedTempFile;

use crate::support::server::Builder;

/// The library. gcc compiles it once per run.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/support/malloc.c");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(folder).expect("a folder");
        let library = folder.join(format!("malloc-{}.so", process::id()));
        let status = Command::new("gcc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .args([library.as_os_str(), source.as_ref(), "-ldl".as_ref()])
            .status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "gcc: {status:?}");
        library
    })
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

    /// Makes the `failing`th allocation from now on fail.
    pub fn begin(&self, failing: i64) {
        let file = self.file.as_file();
        file.write_all_at(&failing.to_ne_bytes(), 0).expect("written");
    }

    /// Lets all allocations succeed again.
    pub fn end(&self) {
        self.begin(0);
    }

    /// What is left of the number given to `begin`.
    pub fn left(&self) -> i64 {
        let (file, mut bytes): (&File, _) = (self.file.as_file(), [0; 8]);
        file.read_exact_at(&mut bytes, 0).expect("read");
        i64::from_ne_bytes(bytes)
    }
}
