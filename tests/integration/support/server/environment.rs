//! What the environment says of servers: which to test, what runs them, and how patiently to wait.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use super::Flavor;

/// How many times slower than usual servers may be: more than 1 under a tool such as valgrind.
pub static SLOWDOWN: LazyLock<u32> = LazyLock::new(|| {
    env::var("RATELIMIT_PATIENCE").map_or(1, |text| text.parse().expect("a number"))
});

/// How long a test waits for anything. Generous, because only failures wait that long.
pub static DEADLINE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(60) * *SLOWDOWN);

/// The command that runs a program: directly, or under the tool that `RATELIMIT_WRAPPER` names, such as
/// valgrind, which makes it slower.
pub(super) fn command(program: &Path) -> Command {
    let wrapper = env::var("RATELIMIT_WRAPPER").unwrap_or_default();
    let mut words = wrapper.split_whitespace();
    let Some(tool) = words.next() else { return Command::new(program) };
    let mut command = Command::new(tool);
    command.args(words).arg(program);
    command
}

/// Whether servers run under a tool, which reports at their end.
pub(super) fn has_tool() -> bool {
    env::var_os("RATELIMIT_WRAPPER").is_some()
}

/// Whether tests run on this server: on all, or on those that `RATELIMIT_ONLY` names.
pub(super) fn is_wanted(server: &str) -> bool {
    env::var("RATELIMIT_ONLY")
        .map_or(true, |only| only.split_whitespace().any(|name| name == server))
}

/// Servers outside the test matrix, which `RATELIMIT_MORE` names: see `make integration-more`.
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

pub(super) fn more_flavors() -> impl Iterator<Item = Flavor> {
    MORE.iter().map(|&(flavor, _)| flavor)
}

pub(super) fn more_program(flavor: Flavor) -> Option<PathBuf> {
    MORE.iter().find(|(more, _)| *more == flavor).map(|(_, program)| program.clone())
}
