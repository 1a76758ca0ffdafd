//! Runs every target on the inputs in its archive of fuzz/corpus. An input with a name has failed
//! before, reaches much of the code, or is a plain example. `make fuzz-keep` chose the other inputs.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

/// Runs a target on each of its inputs.
fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let archive = corpus.join(target).with_extension("tar.gz");
    let unpacked = tempfile::tempdir().expect("a temporary folder");
    let tar = Command::new("tar").arg("-xzf").arg(&archive).current_dir(&unpacked).status();
    assert!(tar.expect("tar").success(), "{} cannot be unpacked", archive.display());
    let entries = fs::read_dir(&unpacked).expect("a folder of inputs");
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", archive.display());
    for file in files {
        let input = fs::read(&file).expect("an input");
        let name = file.file_name().unwrap().display();
        assert!(catch_unwind(|| run(&input)).is_ok(), "{name} of {} fails", archive.display());
    }
}

#[test]
fn rule_text_passes_its_corpus() {
    replay("rule_text", super::rule_text::run);
}

#[test]
fn arguments_pass_their_corpus() {
    replay("arguments", super::arguments::run);
}

#[test]
fn effects_pass_their_corpus() {
    replay("effects", super::effects::run);
}

#[test]
fn payloads_pass_their_corpus() {
    replay("payload", super::payload::run);
}

#[test]
fn parts_of_payloads_pass_their_corpus() {
    replay("parts", super::parts::run);
}

#[test]
fn operations_pass_their_corpus() {
    replay("operations", super::operations::run);
}

#[test]
fn holds_pass_their_corpus() {
    replay("holds", super::holds::run);
}
