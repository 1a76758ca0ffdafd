//! Panics in callbacks and keys that are not opened, in the build for tests (`make faulty`): that build
//! looks for files that request them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::client::{ask, info};
use crate::support::server::{Server, eventually};

/// The moment at which a callback panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    BeforeItsBody,
    AfterItsBody,
}

pub const MOMENTS: [Moment; 2] = [Moment::BeforeItsBody, Moment::AfterItsBody];

/// A fault in the server of a folder, while this value lives: each call of a callback panics.
pub struct Fault {
    file: PathBuf,
}

impl Fault {
    /// Names the callback by the path of its function, such as `datatype::saved::save`. Several
    /// are named one per line.
    pub fn begin(dir: &Path, moment: Moment, callback: &str) -> Self {
        let file = match moment {
            Moment::BeforeItsBody => "panic-before",
            Moment::AfterItsBody => "panic-after",
        };
        Self::write(dir, file, callback)
    }

    fn write(dir: &Path, file: &str, content: &str) -> Self {
        let file = dir.join(file);
        // Renamed, because the server may read it at any time.
        let unfinished = dir.join("fault-unfinished");
        fs::write(&unfinished, content).expect("a file");
        fs::rename(&unfinished, &file).expect("a file");
        Self { file }
    }
}

/// While the value lives, the server of a folder refuses this percentage of the keys that commands open
/// for writing when the module calls them.
pub fn refuse_opens(dir: &Path, percent: u8) -> Fault {
    Fault::write(dir, "refuse-opens", &percent.to_string())
}

impl Drop for Fault {
    fn drop(&mut self) {
        // The folder may be gone already.
        let _ = fs::remove_file(&self.file);
    }
}

/// How many panics in this callback the server has logged, including those in child processes.
pub fn logged(server: &Server, callback: &str) -> usize {
    let of_callback = format!("the panic that a test asked for, in {callback}");
    let is_logged = |line: &&str| line.contains("internal error, please report it");
    server.log().lines().filter(is_logged).filter(|line| line.ends_with(&of_callback)).count()
}

/// Runs a body while a callback panics. The server must log the panic.
pub fn while_panicking<T>(
    server: &Server,
    moment: Moment,
    callback: &str,
    body: impl FnOnce() -> T,
) -> T {
    let _fault = Fault::begin(server.dir(), moment, callback);
    until_panic(server, callback, body)
}

/// Runs a body, and waits until a callback has panicked because of it.
pub fn until_panic<T>(server: &Server, callback: &str, body: impl FnOnce() -> T) -> T {
    let before = logged(server, callback);
    let result = body();
    eventually(&format!("a panic in {callback}"), || logged(server, callback) > before);
    result
}

/// How many panics the server has counted. Those in child processes are only logged.
pub fn counted(server: &Server) -> usize {
    let mut c = server.connect();
    let () = ask(&mut c, "PING");
    info(&mut c, "ratelimit", "ratelimit_internal_errors") as usize
}
