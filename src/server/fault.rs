//! Panics that a test requests, only in builds with the feature `fault-injection` (`make faulty`).
//!
//! ```text
//! panic-before   a file in the server's folder that names callbacks, one a line: they panic
//!                before their body has run
//! panic-after    likewise, after their body has run
//! ```
//!
//! A callback is named by the path of its function, such as `datatype::saved::save`. A test may also
//! name `server::replicate`, to panic between a change and its propagation,
//! or after both. The server reads the file each time, so a test can start and end a fault at any
//! time, even in children and in code that runs before the first command.

use std::any::type_name;
use std::fs;

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
#[expect(clippy::panic, reason = "a test asks for it")]
fn panic_if_asked<F>(file: &str) {
    let Ok(names) = fs::read_to_string(file) else { return };
    let is_in_word = |next: char| next.is_alphanumeric() || next == '_';
    for name in names.lines() {
        let mut ends = type_name::<F>().split(name).skip(1);
        if !name.is_empty() && ends.any(|rest| !rest.starts_with(is_in_word)) {
            panic!("the panic that a test asked for, in {name}");
        }
    }
}
