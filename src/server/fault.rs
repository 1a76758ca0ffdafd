//! Faults that a test requests, only in builds with the feature `fault-injection` (`make faulty`).
//!
//! ```text
//! panic-before   a file in the server's folder that names callbacks, one a line: they panic
//!                before their body has run
//! panic-after    likewise, after their body has run
//! refuse-opens   of the keys that commands open for writing when the module calls them, this
//!                percentage is refused, as by Valkey 9.2 while it saves without a fork
//! ```
//!
//! A callback is named by the path of its function, such as `datatype::saved::save`. A test may also
//! name `server::propagation`, to panic between a change and its propagation,
//! or after both. The server reads the file each time, so a test can start and end a fault at any
//! time, even in children and in code that runs before the first command.

use std::any::type_name;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use super::call::CommandError;

/// How many commands that the module called are running.
static CALLED: AtomicU32 = AtomicU32::new(0);

/// A command that the module calls.
pub struct Called(());

impl Called {
    pub fn new() -> Self {
        CALLED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Refuses at random to open a key for writing, if a test requests it and the module called the command.
pub fn refuse_to_open() -> Result<(), CommandError> {
    if CALLED.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let percent = fs::read_to_string("refuse-opens").ok();
    let percent = percent.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    let random = RandomState::new().hash_one(0).checked_rem(100).unwrap_or(0);
    if random < percent { Err(CommandError::NOT_NOW) } else { Ok(()) }
}

/// Wraps a callback's body so that it panics if a test requests it.
pub fn around<T, F: FnOnce() -> T>(body: F) -> impl FnOnce() -> T {
    || {
        panic_if_asked::<F>("panic-before");
        let result = body();
        panic_if_asked::<F>("panic-after");
        result
    }
}

/// `F` is a callback's body or a command's handler. Panics if the file names it.
fn panic_if_asked<F>(file: &str) {
    let Ok(names) = fs::read_to_string(file) else { return };
    let is_in_word = |next: char| next.is_alphanumeric() || next == '_';
    for name in names.lines() {
        let mut ends = type_name::<F>().split(name).skip(1);
        let is_asked_for = !name.is_empty() && ends.any(|rest| !rest.starts_with(is_in_word));
        assert!(!is_asked_for, "the panic that a test asked for, in {name}");
    }
}
