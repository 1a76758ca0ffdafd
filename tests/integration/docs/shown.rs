//! What the README and the guides show outside of transcripts: commands in sentences and tables.

use super::replay::flavor;
use super::{HTTP, MIGRATE, README};
use crate::support::client::attempt;

/// The complete commands in backquotes: not the forms with placeholders.
fn commands(document: &'static str) -> impl Iterator<Item = &'static str> {
    let spans = document.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("RL.") && span.contains(' ') && !span.contains("..."))
}

#[test]
fn commands_in_sentences_and_tables_work() {
    let server = flavor().start();
    let mut c = server.connect();
    for (document, least) in [(README, 7), (HTTP, 1), (MIGRATE, 2)] {
        let shown: Vec<_> = commands(document).collect();
        assert!(shown.len() >= least, "{shown:?}");
        for line in shown {
            let reply = attempt(&mut c, line);
            assert!(reply.is_ok(), "{line}: {reply:?}");
        }
    }
}
