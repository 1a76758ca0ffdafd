//! Which servers of the test matrix a dear test needs. A test that declares nothing runs on all.
//!
//! A declaration is the first statement of a test. It has no effect with `RATELIMIT_LONG` or
//! `RATELIMIT_ONLY`.

use std::cell::Cell;
use std::env;

use super::{Flavor, preferred};

#[derive(Clone, Copy)]
enum Need {
    All,
    OldestAndNewest,
    One,
}

thread_local! {
    /// What the test of this thread needs.
    static NEED: Cell<Need> = const { Cell::new(Need::All) };
}

/// The module does the work, and the server only calls it.
pub fn one_is_enough() {
    declare(Need::One);
}

/// Files, streams, clusters and allocators differ most between the oldest server and the newest.
pub fn oldest_and_newest() {
    declare(Need::OldestAndNewest);
}

fn declare(need: Need) {
    if ["RATELIMIT_LONG", "RATELIMIT_ONLY"].iter().all(|name| env::var_os(name).is_none()) {
        NEED.set(need);
    }
}

/// Those of all servers that the test of this thread needs.
pub(super) fn needed(all: Vec<Flavor>) -> Vec<Flavor> {
    match (NEED.get(), &all[..]) {
        (Need::One, _) => vec![preferred(&all)],
        (Need::OldestAndNewest, &[oldest, .., newest]) => vec![oldest, newest],
        _ => all,
    }
}
