//! Runs every target on the inputs in fuzz/corpus, which fuzzing found.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// Runs a target on each of its inputs.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("a folder of inputs");
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let input = fs::read(&file).expect("an input");
        assert!(catch_unwind(|| run(&input)).is_ok(), "{} fails", file.display());
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
