//! Servers besides those of the test matrix, by RATELIMIT_MORE: `make integration-more`.

use std::env;
use std::path::PathBuf;
use std::sync::LazyLock;

use super::Flavor;

static MORE: LazyLock<Vec<(Flavor, PathBuf)>> = LazyLock::new(|| {
    let words = env::var("RATELIMIT_MORE").unwrap_or_default();
    words.split_whitespace().map(|word| parse(word.to_string().leak())).collect()
});

/// Reads a word such as `redis-7.4=/opt/redis-server`.
fn parse(word: &'static str) -> (Flavor, PathBuf) {
    let parsed = || {
        let (name, program) = word.split_once('=')?;
        let (_, version) =
            name.split_once('-').filter(|(of, _)| ["redis", "valkey"].contains(of))?;
        let (major, minor) = version.split_once('.')?;
        let version = (major.parse().ok()?, minor.parse().ok()?);
        Some((Flavor { name, version }, PathBuf::from(program)))
    };
    parsed().unwrap_or_else(|| panic!("RATELIMIT_MORE: not like redis-7.4=PROGRAM: {word}"))
}

pub(super) fn flavors() -> impl Iterator<Item = Flavor> {
    MORE.iter().map(|&(flavor, _)| flavor)
}

pub(super) fn has(flavor: Flavor) -> bool {
    program(flavor).is_some()
}

pub(super) fn program(flavor: Flavor) -> Option<PathBuf> {
    MORE.iter().find(|(more, _)| *more == flavor).map(|(_, program)| program.clone())
}
