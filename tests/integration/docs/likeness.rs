//! Compares what a server replied with what a document shows.
//!
//! Text and numbers must be equal. If the command does not give the time with `AT`, these numbers may
//! differ, since no document can know them:
//!
//! ```text
//! waits, TTLs, bytes     may differ by a tenth; times also by the time that the command took
//! Unix times             the document may have any; the server's must lie within the last minute
//! windows by the clock   the time left can be any that the window allows
//! spans, ports, numbers of SLOWLOG: anything
//! ```
//!
//! A comment in a document starts two spaces after the text of a line.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A message about the first line that differs from the document, if any. `took` is how long the
/// command took.
pub fn difference(
    command: &str,
    documented: &[String],
    replied: &[String],
    took: Duration,
) -> Option<String> {
    let mut reader = Reader::new(command, took);
    let lines = documented.len().max(replied.len());
    (0..lines).find_map(|index| {
        let said = |lines: &[String]| lines.get(index).map_or("(nothing)".into(), String::clone);
        let is_alike = match (documented.get(index), replied.get(index)) {
            (Some(documented), Some(replied)) => reader.is_alike(documented, replied),
            _ => false,
        };
        let message = || {
            let (documented, replied) = (said(documented), said(replied));
            format!("{command}\n  documented: {documented}\n  replied:    {replied}")
        };
        (!is_alike).then(message)
    })
}

/// Reads the document and the reply in parallel.
struct Reader<'a> {
    command: &'a str,
    /// How long the command took, in milliseconds.
    took_ms: u64,
    /// The last complete string: in a map, the name of the following number.
    name: String,
    /// The string that has started and not yet ended.
    quoted: Option<String>,
    /// How many of the numbers so far are values.
    values: usize,
}

impl<'a> Reader<'a> {
    fn new(command: &'a str, took: Duration) -> Self {
        let took_ms = took.as_millis().try_into().unwrap_or(u64::MAX);
        Self { command, took_ms, name: String::new(), quoted: None, values: 0 }
    }

    fn is_alike(&mut self, documented: &str, replied: &str) -> bool {
        let (mut at, mut rest) = (0, replied);
        while let Some(next) = rest.chars().next() {
            let ahead = &documented[at..];
            if next.is_ascii_digit() && ahead.starts_with(|c: char| c.is_ascii_digit()) {
                let (shown, replied) = (number(ahead), number(rest));
                if !self.takes(&documented[..at], shown, replied, &ahead[shown.len()..]) {
                    return false;
                }
                (at, rest) = (at + shown.len(), &rest[replied.len()..]);
            } else if ahead.starts_with(next) {
                self.pass(next);
                (at, rest) = (at + next.len_utf8(), &rest[next.len_utf8()..]);
            } else {
                return false;
            }
        }
        let comment = &documented[at..];
        comment.is_empty() || comment.starts_with("  ")
    }

    /// Notes where strings begin and end.
    fn pass(&mut self, next: char) {
        match (next, self.quoted.take()) {
            ('"', Some(string)) => self.name = string,
            ('"', None) => self.quoted = Some(String::new()),
            (_, Some(string)) => self.quoted = Some(string + &next.to_string()),
            (_, None) => {}
        }
    }

    /// Whether `replied` may stand in place of the documented number, between these texts.
    fn takes(&mut self, before: &str, shown: &str, replied: &str, after: &str) -> bool {
        if before.ends_with("127.0.0.1:") {
            return true;
        }
        let is_index = after.starts_with([')', '#']);
        if self.quoted.is_some() || is_index {
            if let Some(string) = &mut self.quoted {
                string.push_str(shown);
            }
            return shown == replied;
        }
        self.values += 1;
        if self.command.contains(" AT ") {
            return shown == replied;
        }
        let name = std::mem::take(&mut self.name);
        let is_fraction = before.strip_suffix('.').is_some_and(|time| unix_time(time).is_some());
        match (unix_time(shown), unix_time(replied)) {
            (Some(_), Some(replied_s)) => now_s().abs_diff(replied_s) <= 60,
            _ if is_fraction || name == "span_ms" || self.command.contains("SLOWLOG GET") => true,
            _ if self.is_time_or_size(&name) => self.is_close(as_u64(shown), as_u64(replied)),
            _ => shown == replied,
        }
    }

    fn is_time_or_size(&self, name: &str) -> bool {
        let has = |word: &str| self.command.contains(word);
        let is_check = ["RL.CHECK ", "RL.PEEK ", "RL.WAIT"].into_iter().any(has);
        let is_short = is_check && !has(" FULL ");
        // The wait and the reset are the last two of five integers.
        let is_wait = is_short && (self.values - 1) % 5 >= 3;
        let is_named = name.ends_with("_ms") || ["bytes", "blocked", "exempt"].contains(&name);
        is_named || is_wait || ["RL.PAUSE ", "TTL ", "MEMORY USAGE "].into_iter().any(has)
    }

    fn is_close(&self, shown: u64, replied: u64) -> bool {
        let by_the_clock = longest_window_ms(self.command);
        shown.abs_diff(replied) <= (shown.max(replied) / 10).max(self.took_ms)
            || by_the_clock.is_some_and(|most| (1..=most).contains(&replied))
    }
}

/// How long the command's windows that begin by the clock can count, at most: for one period, or for
/// two under a `window` rule.
fn longest_window_ms(command: &str) -> Option<u64> {
    let rules =
        command.split(' ').filter(|word| word.contains("fixed:") || word.contains("window:"));
    let needed_ms = |rule: &str| {
        let period = rule.split(['/', ',']).nth(1)?;
        let day = 86_400_000;
        let units =
            [("m", 60_000), ("h", day / 24), ("d", day), ("w", 7 * day), ("month", 31 * day)];
        let (_, ms) = units.into_iter().find(|(unit, _)| *unit == period)?;
        Some(if rule.contains("window:") { 2 * ms } else { ms })
    };
    rules.filter_map(needed_ms).max()
}

/// The leading digits of a text.
fn number(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

fn as_u64(digits: &str) -> u64 {
    digits.parse().unwrap_or(u64::MAX)
}

/// The Unix time in seconds or milliseconds at the end of a text, as seconds.
fn unix_time(text: &str) -> Option<u64> {
    let digits = &text[text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |last| last + 1)..];
    match digits.len() {
        10 => Some(as_u64(digits)),
        13 => Some(as_u64(digits) / 1_000),
        _ => None,
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
