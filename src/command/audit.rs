//! Who changed what, for the server's log: a line for each change that an administrator makes.
//!
//! A line shows the first bytes of each argument, escaped, and has a bounded length.

use crate::server::{Args, Call, log};
use ratelimit_engine::rule::Excerpt;
use std::fmt::Write;

/// The most bytes of a list of arguments. The server cuts a line at 1,024.
const MOST: usize = 340;

/// Logs a change of the policies at level `notice`. `before` are the rules that the change replaced.
pub fn policy_changed(call: &Call<'_>, before: Option<Args<'_>>) {
    let before =
        before.map_or_else(|| "there was none".into(), |rules| format!("was{}", list(rules)));
    log::notice(&format!("{}; {before}", line(call)));
}

/// Logs a change of a key at level `verbose`.
pub fn key_changed(call: &Call<'_>) {
    log::verbose(&format!("{}, database {}", line(call), call.db()));
}

/// The user and the command.
fn line(call: &Call<'_>) -> String {
    let user = call.user();
    let user =
        user.map_or_else(|| "a script or module".into(), |name| Excerpt::new(&name).to_string());
    format!("{user} called{}", list(call.args()))
}

/// The arguments, a blank before each.
fn list(args: Args<'_>) -> String {
    let mut list = String::new();
    for arg in args.bytes() {
        if list.len() > MOST {
            list.push_str(" ...");
            break;
        }
        // Writing to a string cannot fail.
        let _ = write!(list, " {}", Excerpt::new(arg));
    }
    list
}
