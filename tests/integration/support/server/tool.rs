//! How servers run, by the environment: directly, or under a tool such as valgrind, which makes
//! them slower.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// How long a test waits for anything. Generous, because only failures wait that long.
pub static DEADLINE: LazyLock<Duration> = LazyLock::new(|| {
    let patience = env::var("RATELIMIT_PATIENCE").map_or(1, |text| text.parse().expect("a number"));
    Duration::from_secs(20) * patience
});

/// The command that runs a program, under the tool that RATELIMIT_WRAPPER names.
pub(super) fn command(program: &Path) -> Command {
    let wrapper = env::var("RATELIMIT_WRAPPER").unwrap_or_default();
    let mut words = wrapper.split_whitespace();
    let Some(tool) = words.next() else { return Command::new(program) };
    let mut command = Command::new(tool);
    command.args(words).arg(program);
    command
}

/// Whether servers run under a tool, which reports at their end.
pub(super) fn is_there() -> bool {
    env::var_os("RATELIMIT_WRAPPER").is_some()
}

/// Whether tests run on this server: on all, or on those that RATELIMIT_ONLY names.
pub(super) fn is_wanted(server: &str) -> bool {
    env::var("RATELIMIT_ONLY")
        .map_or(true, |only| only.split_whitespace().any(|name| name == server))
}
