//! Panics in the functions that the server calls. The server survives each one, logs it and
//! counts it. A command that cannot be executed gets an error, and a file that would lack data
//! is not written.
//!
//! ```text
//! saving    RDB files, the append-only file, DUMP, full synchronizations
//! loading   the loading of all these, and of the module itself
//! serving   commands, INFO, settings, the server's upkeep of values
//! waiting   clients that are answered later
//! ```
//!
//! `refused_opens` has another fault: keys that the server does not open.
//!
//! A build for these tests panics on request: `support/faults.rs`.

mod loading;
mod refused_opens;
mod saving;
mod serving;
mod waiting;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The callbacks that these tests make panic, each named by its `extern "C"` function.
const TESTED: [&str; 25] = [
    "command::check::check",
    "command::mcheck::keys",
    "datatype::saved::rewrite",
    "datatype::saved::load_aux",
    "datatype::saved::save_aux",
    "datatype::saved::save_aux_if_any",
    "datatype::upkeep::defrag",
    "datatype::saved::load",
    "datatype::saved::save",
    "datatype::upkeep::copy",
    "datatype::upkeep::digest",
    "datatype::upkeep::free",
    "datatype::upkeep::free_effort",
    "datatype::upkeep::mem_usage",
    "datatype::upkeep::unlink",
    "server::alarm::on_time",
    "server::events::on_event",
    "server::info::write",
    "server::settings::apply_change",
    "server::settings::get",
    "server::settings::set",
    "server::waiting_clients::answered",
    "server::waiting_clients::free_answer",
    "server::waiting_clients::gone",
    "server::waiting_clients::unblocked",
];

/// The functions of the source that the server can call, as `folder::file::function`.
fn callbacks(folder: &Path, path: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let file = entry.expect("a file").path();
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        if file.is_dir() {
            callbacks(&file, &format!("{path}{name}::"), found);
            continue;
        }
        let text = fs::read_to_string(&file).expect("text");
        let shipped = text.split("#[cfg(test)]").next().expect("text");
        for rest in shipped.split("extern \"C\" fn ").skip(1) {
            let function = rest.split(['(', '<']).next().expect("a name");
            found.insert(format!("{path}{name}::{function}"));
        }
    }
}

#[test]
fn each_callback_of_the_source_is_tested() {
    let mut found = BTreeSet::new();
    callbacks(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut found);
    // These call a command's handler, and the function that finds its keys.
    for trampoline in ["trampoline", "trampoline_or_keys"] {
        assert!(found.remove(&format!("server::callback::{trampoline}")));
    }
    let tested = TESTED.iter().filter(|name| !name.starts_with("command::"));
    assert_eq!(found, tested.map(ToString::to_string).collect());
}
