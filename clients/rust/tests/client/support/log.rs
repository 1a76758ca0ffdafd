//! What the client writes into the log.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    /// Each test has a thread, on which its tasks run too.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The lines that this thread logs after [`Log::start`].
pub struct Log;

impl Log {
    pub fn start() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Writer).expect("no other log"));
        LINES.with_borrow_mut(Vec::clear);
        Self
    }

    /// The lines with this text.
    pub fn with(&self, text: &str) -> Vec<String> {
        LINES
            .with_borrow(|lines| lines.iter().filter(|line| line.contains(text)).cloned().collect())
    }
}

struct Writer;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string");
    }
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_redis_ratelimit")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
