//! Payloads of every version stay readable, and decide as on the day they were saved.
//!
//! `fixtures/golden/vN.txt` has a paragraph for each limiter that version N saved: its name, the
//! module's payload (`key::encode`) in hexadecimal, what it holds, and how it decides:
//!
//! ```text
//! name NAME
//! # what was done to it
//! payload HEX                                                its next bytes
//! blocked|exempt until UNIX-US|for good [banned for US] [by "USER" since UNIX-US] [reason BYTES]
//!                                                            if it is either; escaped as in Rust
//! paused until UNIX-US for US [reason BYTES]                 its pause, if any: its end and its length
//! planned NAME until UNIX-US|for good                        its plan, if any
//! trail keep N until UNIX-US                                 its history, if any: oldest entry first
//! mark UNIX-US cost N allowed|limited|blocked [meta "BYTES"]
//! bans N until UNIX-US span US                               its count of bans, if any, and when it is forgotten
//! hold "ID" until UNIX-MS units N [refund]                   its holds at the time of the first line
//!                                                            with an arrow, the next to lapse first
//! at UNIX-US cost N rule RULE [RULE ...] -> VERDICT LIMIT REMAINING WAIT_MS RESET_MS
//! check UNIX-US cost N rule RULE [RULE ...] -> the five integers of a check, which consumes
//! settle UNIX-US ID [REFUND | COST N | COST NAME=N ...] -> 1 or 0
//! ```
//!
//! The lines with an arrow are executed in their order.
//!
//! FROM 0.1.0-rc.1 ON, A PARAGRAPH IS NEVER EDITED; NEW ONES ARE ADDED. A test that fails means
//! that the code misreads users' data, and the code has to change. A new version of the payload
//! gets a new file, and a line in `AT_LEAST`.
//!
//! A program outside of this repository writes the paragraphs. It depends on this crate, builds a
//! limiter with `Limiter::check_within`, `settle` and `set_access` at given times, and writes
//! the result of `encode` as the payload and the replies of `Limiter::peek`, `check` and `settle` after
//! the arrows. Each line was then checked by hand against the definition of its algorithm. No
//! program in the repository writes these files, because it would one day overwrite them.

mod step;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ratelimit_engine::key::{
    Access, AccessEntry, Author, BanCount, DecodeError, Entry, History, HoldReport, Limiter, Pause,
    Plan, Verdict, decode, encode,
};
use redis::{Connection, cmd};
use step::Step;

use crate::support::dump::{Dump, uncompressed};
use crate::support::server::{self, Builder};

/// The least number of payloads of each version, so that none gets lost unnoticed.
const AT_LEAST: [(u8, usize); 2] = [(1, 97), (2, 3)];

/// A payload and what its file expects.
pub struct Golden {
    name: String,
    /// The version, from the name of the file.
    version: u8,
    pub payload: Vec<u8>,
    /// The line about a block or an exemption.
    access: Option<String>,
    /// The line about a pause.
    pause: Option<String>,
    /// The line about a plan.
    plan: Option<String>,
    /// The line about a count of bans.
    bans: Option<String>,
    /// The lines about a history.
    history: Vec<String>,
    /// The lines about holds.
    holds: Vec<String>,
    steps: Vec<Step>,
}

impl Golden {
    /// Reads a paragraph, from its name on.
    fn read(paragraph: &str, version: u8) -> Self {
        let mut lines = paragraph.lines();
        let name = lines.next().expect("a name");
        let mut golden = Self {
            name: format!("v{version}/{name}"),
            version,
            payload: Vec::new(),
            access: None,
            pause: None,
            plan: None,
            bans: None,
            history: Vec::new(),
            holds: Vec::new(),
            steps: Vec::new(),
        };
        for line in lines.filter(|line| !line.starts_with('#')) {
            match Step::read(line) {
                Some(step) => golden.steps.push(step),
                None if line.starts_with("blocked ") || line.starts_with("exempt ") => {
                    golden.access = Some(line.to_string());
                }
                None if line.starts_with("paused ") => golden.pause = Some(line.to_string()),
                None if line.starts_with("planned ") => golden.plan = Some(line.to_string()),
                None if line.starts_with("bans ") => golden.bans = Some(line.to_string()),
                None if line.starts_with("trail ") || line.starts_with("mark ") => {
                    golden.history.push(line.to_string());
                }
                None if line.starts_with("hold ") => golden.holds.push(line.to_string()),
                None => match line.strip_prefix("payload ") {
                    Some(digits) => golden.payload.extend(bytes(digits)),
                    None => panic!("{}: cannot read the line '{line}'", golden.name),
                },
            }
        }
        assert!(!golden.payload.is_empty(), "{}: no payload", golden.name);
        assert!(!golden.steps.is_empty(), "{}: nothing is asked", golden.name);
        golden
    }

    fn decoded(&self) -> Limiter {
        decode(&self.payload).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The bytes of two hexadecimal digits each.
fn bytes(digits: &str) -> Vec<u8> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "'{digits}' ends with half a byte");
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let byte = |pair| byte(pair).unwrap_or_else(|| panic!("'{digits}' is not hexadecimal"));
    pairs.iter().map(byte).collect()
}

/// A block or an exemption, as in the files.
fn access_line(access: &AccessEntry) -> String {
    let kind = match access.kind {
        Access::Block => "blocked",
        Access::Exempt => "exempt",
    };
    let until = until(access.until_us);
    let ban = access.ban_us.map(|us| format!(" banned for {us}")).unwrap_or_default();
    let by = |Author { since_us, user }: &Author| {
        format!(" by \"{}\" since {since_us}", user.escape_ascii())
    };
    let author = access.author.as_ref().map(by).unwrap_or_default();
    with_reason(format!("{kind} {until}{ban}{author}"), &access.reason)
}

fn until(us: Option<u64>) -> String {
    us.map_or("for good".to_string(), |us| format!("until {us}"))
}

/// A plan, as in the files.
fn plan_line(plan: &Plan) -> String {
    format!("planned {} {}", plan.name.as_str(), until(plan.until_us))
}

/// A pause, as in the files.
fn pause_line(pause: &Pause) -> String {
    let Pause { until_us, length_us, reason } = pause;
    with_reason(format!("paused until {until_us} for {length_us}"), reason)
}

fn with_reason(line: String, reason: &[u8]) -> String {
    if reason.is_empty() { line } else { format!("{line} reason {}", reason.escape_ascii()) }
}

/// A count of bans, as in the files.
fn bans_line(count: &BanCount) -> String {
    let BanCount { bans, forgotten_us, span_us } = count;
    format!("bans {bans} until {forgotten_us} span {span_us}")
}

/// A history, as in the files.
fn history_lines(history: &History) -> Vec<String> {
    let entry_line = |entry: &Entry| {
        let verdict = match entry.verdict {
            Verdict::Allowed => "allowed",
            Verdict::Limited => "limited",
            Verdict::Blocked => "blocked",
        };
        let line = format!("mark {} cost {} {verdict}", entry.time_us, entry.cost);
        match &entry.meta {
            Some(meta) => format!("{line} meta \"{}\"", meta.escape_ascii()),
            None => line,
        }
    };
    let head = format!("trail keep {} until {}", history.keep, history.until_us);
    [head].into_iter().chain(history.entries.iter().map(entry_line)).collect()
}

/// The holds of a limiter at a time, as in the files.
fn hold_lines(limiter: &Limiter, now_us: u64) -> Vec<String> {
    let now_ms = i64::try_from(now_us / 1_000).expect("before the year 9999");
    let line = |hold: HoldReport| {
        let HoldReport { id, ttl_ms, units, refund } = hold;
        let refund = if refund { " refund" } else { "" };
        let end_ms = now_ms + ttl_ms;
        format!("hold \"{}\" until {end_ms} units {units}{refund}", id.escape_ascii())
    };
    limiter.next_holds(now_us, usize::MAX).into_iter().map(line).collect()
}

/// A row of `RL.LOG`: Unix milliseconds, cost, verdict, `META`.
type Row = (u64, u32, i64, Option<Vec<u8>>);

/// A history as `RL.LOG` shows it.
fn rows(history: &History) -> Vec<Row> {
    let row = |entry: &Entry| {
        (entry.time_us / 1_000, entry.cost, entry.verdict.code(), entry.meta.clone().map(Vec::from))
    };
    history.entries.iter().rev().map(row).collect()
}

/// Every payload of every version, in an order that is the same in every run.
pub fn all() -> Vec<Golden> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden");
    let entries = fs::read_dir(root).expect("the golden payloads");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let of_version = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        let digits = name.strip_prefix('v').and_then(|name| name.strip_suffix(".txt"));
        let version = digits.and_then(|digits| digits.parse().ok());
        let version = version.unwrap_or_else(|| panic!("{name} is not a version"));
        let text = fs::read_to_string(path).expect("a text");
        let paragraphs = text.split("\n\nname ").skip(1);
        paragraphs.map(|paragraph| Golden::read(paragraph, version)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_version).collect()
}

/// Restores every payload in a key of its name. Returns the payloads and their dumps.
pub fn restored(c: &mut Connection) -> Vec<(Golden, Dump)> {
    let () = cmd("RL.CHECK").arg("k").arg("5/m").query(c).unwrap();
    let ours = Dump::of(c, "k");
    let restore = |golden: Golden| {
        let (key, saved) = (&golden.name, ours.with_payload(&*golden.payload));
        let () = cmd("RESTORE")
            .arg(key)
            .arg(0)
            .arg(saved.bytes())
            .query(c)
            .unwrap_or_else(|error| panic!("{key}: {error}"));
        (golden, saved)
    };
    all().into_iter().map(restore).collect()
}

#[test]
fn every_version_has_its_payloads() {
    let mut found = BTreeMap::<u8, usize>::new();
    for golden in all() {
        assert_eq!(golden.payload[0], golden.version, "{} is of another version", golden.name);
        *found.entry(golden.version).or_default() += 1;
    }
    let versions: Vec<u8> = found.keys().copied().collect();
    assert_eq!(versions, AT_LEAST.map(|(version, _)| version), "AT_LEAST lacks a version");
    let next = u8::try_from(versions.len() + 1).expect("a version");
    assert_eq!(versions, (1..next).collect::<Vec<_>>(), "a version without payloads");
    assert_eq!(
        decode(&[next, 0, 0]),
        Err(DecodeError::Version(next)),
        "a version without payloads"
    );
    for (version, count) in AT_LEAST {
        assert!(found[&version] >= count, "v{version} has lost payloads");
    }
}

#[test]
fn every_payload_decides_as_it_did() {
    for golden in all() {
        let mut limiter = golden.decoded();
        assert_eq!(limiter.access().map(access_line), golden.access, "{}", golden.name);
        assert_eq!(limiter.pause().map(pause_line), golden.pause, "{}", golden.name);
        assert_eq!(limiter.plan().map(plan_line), golden.plan, "{}", golden.name);
        assert_eq!(limiter.bans().map(bans_line), golden.bans, "{}", golden.name);
        let history = limiter.history().map(history_lines).unwrap_or_default();
        assert_eq!(history, golden.history, "{}", golden.name);
        let first_us = golden.steps.first().map_or(0, Step::at_us);
        assert_eq!(hold_lines(&limiter, first_us), golden.holds, "{}", golden.name);
        for step in &golden.steps {
            assert_eq!(step.of(&mut limiter), step.answer, "{}: {}", golden.name, step.line);
        }
    }
}

/// The payloads of rc.1 in which an empty state has a time. It means nothing, and is written no more.
const TIMED_WHILE_EMPTY: [&str; 1] = ["v1/share-of-0"];

#[test]
fn a_payload_that_was_read_is_written_unchanged() {
    for golden in all() {
        let again = encode(&golden.decoded());
        if TIMED_WHILE_EMPTY.contains(&golden.name.as_str()) {
            assert_ne!(again, golden.payload, "{}", golden.name);
            assert_eq!(decode(&again).map(|limiter| encode(&limiter)), Ok(again));
        } else {
            assert_eq!(again, golden.payload, "{}", golden.name);
        }
    }
}

#[test]
fn every_payload_loads_into_every_server() {
    // A compressed payload could not be compared byte by byte.
    let configure = |builder: Builder| uncompressed(builder).allow_at();
    server::on_all_with(configure, |server| {
        let mut c = server.connect();
        for (golden, saved) in restored(&mut c) {
            let key = golden.name.as_str();
            if let Some(history) = golden.decoded().history() {
                let mut log = cmd("RL.LOG");
                let shown: Vec<Row> = log.arg(key).arg("COUNT").arg(1_000).query(&mut c).unwrap();
                assert_eq!(shown, rows(history), "{key}");
            }
            if !TIMED_WHILE_EMPTY.contains(&key) {
                assert_eq!(Dump::of(&mut c, key), saved, "{key}");
            }
            for step in &golden.steps {
                assert_eq!(step.of_key(&mut c, key), step.answer, "{key}: {}", step.line);
            }
        }
    });
}
