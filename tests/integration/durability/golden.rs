//! Payloads of every version stay readable for good, and decide as they did when they were saved.
//!
//! `fixtures/golden/vN/NAME.payload` is a limiter as version N saved it: the module's own payload
//! (`limit::encode`), nothing around it. `NAME.expected` says what it holds and how it decides:
//!
//! ```text
//! # what was done to it
//! blocked|exempt until UNIX-US|for good [banned for US] [reason BYTES]    if it is; BYTES escaped as in Rust
//! trail keep N until UNIX-US                                 if it has one; the oldest mark first
//! mark UNIX-US cost N allowed|limited|blocked [meta "BYTES"]
//! at UNIX-US cost N rule RULE [RULE ...] -> VERDICT LIMIT REMAINING WAIT_MS RESET_MS
//! ```
//!
//! THESE FILES AND THIS TEST ARE NEVER EDITED, ONLY ADDED TO. When the test fails, what someone has
//! on disk is read wrong: then it is the code that has to change. A new version of the payload
//! gets a folder of its own, and a line in `AT_LEAST`.
//!
//! Version 1 has no trail. What has none is still saved as version 1, so that whoever knows no other
//! can read it, and what has one as version 2. Version 3 says what logs have to keep, and how long a
//! ban was to last: what has neither is saved as before.
//!
//! How the files are made: by a program outside of this repository that depends on this crate,
//! makes a limiter with `Limiter::check` and `set_override` at given times, writes `encode` of it
//! to the payload and what `Limiter::peek` answers behind the arrows. Each line was then worked
//! out from the definition of its algorithm. No program here can write these files, for it would
//! one day write over them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use redis::{Connection, cmd};
use redis_ratelimit::limit::{
    Change, Check, Limiter, Mark, Meta, Override, OverrideKind, Rule, Trail, Verdict, decode,
    encode,
};
use redis_ratelimit::parse;

use crate::support::dump::Dump;
use crate::support::server;

/// How many payloads there are of a version: none may get lost.
const AT_LEAST: [(u8, usize); 3] = [(1, 29), (2, 12), (3, 8)];

/// The versions that are still written, each for what it has a place for and no more.
const WRITTEN: RangeInclusive<u8> = 1..=3;

/// A payload and what is known of it.
struct Golden {
    name: String,
    /// Of the folder it lies in.
    version: u8,
    payload: Vec<u8>,
    /// The line about a block or an exemption.
    overrule: Option<String>,
    /// The lines about a trail.
    trail: Vec<String>,
    asks: Vec<Ask>,
}

/// A question and its answer.
struct Ask {
    line: String,
    at_us: u64,
    cost: u32,
    rules: Vec<String>,
    answer: [i64; 5],
}

impl Golden {
    fn read(payload: &Path, version: u8) -> Self {
        let name = payload.file_stem().expect("a name").to_string_lossy();
        let expected = payload.with_extension("expected");
        let text = fs::read_to_string(&expected)
            .unwrap_or_else(|error| panic!("{}: {error}", expected.display()));
        let mut golden = Self {
            name: format!("v{version}/{name}"),
            version,
            payload: fs::read(payload).expect("a payload"),
            overrule: None,
            trail: Vec::new(),
            asks: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match Ask::read(line) {
                Some(ask) => golden.asks.push(ask),
                None if line.starts_with("blocked ") || line.starts_with("exempt ") => {
                    golden.overrule = Some(line.to_string());
                }
                None if line.starts_with("trail ") || line.starts_with("mark ") => {
                    golden.trail.push(line.to_string());
                }
                None => panic!("{}: cannot read the line '{line}'", golden.name),
            }
        }
        assert!(!golden.asks.is_empty(), "{}: nothing is asked", golden.name);
        golden
    }

    fn decoded(&self) -> Limiter {
        decode(&self.payload).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

impl Ask {
    fn read(line: &str) -> Option<Self> {
        let (question, answer) = line.split_once(" -> ")?;
        let words: Vec<_> = question.split(' ').collect();
        let ["at", at_us, "cost", cost, "rule", rules @ ..] = words.as_slice() else { return None };
        let numbers: Result<Vec<i64>, _> = answer.split(' ').map(str::parse).collect();
        Some(Self {
            line: line.to_string(),
            at_us: at_us.parse().ok()?,
            cost: cost.parse().ok()?,
            rules: rules.iter().map(ToString::to_string).collect(),
            answer: numbers.ok()?.try_into().ok()?,
        })
    }

    fn of(&self, limiter: &Limiter) -> [i64; 5] {
        let rule = |text: &String| parse::rule(text.as_bytes()).expect("a rule");
        let rules: Vec<Rule> = self.rules.iter().map(rule).collect();
        let check = Check::new(&rules, self.cost, self.at_us);
        let summary = limiter.peek(&check, &mut Vec::new()).summary;
        let verdict = summary.verdict.code();
        [verdict, summary.limit, summary.remaining, summary.wait_ms, summary.reset_ms]
    }

    fn of_key(&self, c: &mut Connection, key: &str) -> [i64; 5] {
        let mut peek = cmd("RL.PEEK");
        peek.arg(key).arg("COST").arg(self.cost).arg("AT").arg(self.at_us).arg(&self.rules);
        peek.query(c).unwrap_or_else(|error| panic!("{key}: {error}"))
    }
}

/// A block or an exemption as the files say it.
fn in_words(overrule: &Override) -> String {
    let kind = match overrule.kind {
        OverrideKind::Block => "blocked",
        OverrideKind::Exempt => "exempt",
    };
    let until = overrule.until_us.map_or("for good".to_string(), |us| format!("until {us}"));
    let ban = overrule.ban_us.map(|us| format!(" banned for {us}")).unwrap_or_default();
    if overrule.reason.is_empty() {
        return format!("{kind} {until}{ban}");
    }
    format!("{kind} {until}{ban} reason {}", overrule.reason.escape_ascii())
}

/// A trail as the files say it.
fn trail_in_words(trail: &Trail) -> Vec<String> {
    let mark_in_words = |mark: &Mark| {
        let verdict = match mark.verdict {
            Verdict::Allowed => "allowed",
            Verdict::Limited => "limited",
            Verdict::Blocked => "blocked",
        };
        let line = format!("mark {} cost {} {verdict}", mark.time_us, mark.cost);
        match &mark.meta {
            Some(meta) => format!("{line} meta \"{}\"", meta.escape_ascii()),
            None => line,
        }
    };
    let head = format!("trail keep {} until {}", trail.keep, trail.until_us);
    [head].into_iter().chain(trail.marks.iter().map(mark_in_words)).collect()
}

/// A row of `RL.LOG`: Unix milliseconds, cost, verdict, and what the caller said.
type Row = (u64, u32, i64, Option<Vec<u8>>);

/// A trail as `RL.LOG` shows it.
fn rows(trail: &Trail) -> Vec<Row> {
    let row = |mark: &Mark| {
        (mark.time_us / 1_000, mark.cost, mark.verdict.code(), mark.meta.clone().map(Vec::from))
    };
    trail.marks.iter().rev().map(row).collect()
}

fn in_order(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the golden payloads");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Every payload of every version.
fn all() -> Vec<Golden> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden");
    let mut all = Vec::new();
    for folder in in_order(&root).iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().expect("a name").to_string_lossy();
        let version = name.strip_prefix('v').and_then(|digits| digits.parse().ok());
        let version = version.unwrap_or_else(|| panic!("{name} is no version"));
        let is_payload = |path: &&PathBuf| path.extension().is_some_and(|end| end == "payload");
        let files = in_order(folder);
        let payloads: Vec<_> = files.iter().filter(is_payload).collect();
        assert_eq!(files.len(), 2 * payloads.len(), "{name}: a file without its other half");
        all.extend(payloads.iter().map(|path| Golden::read(path, version)));
    }
    all
}

/// The newest version that is written: for it, a limiter must have everything one can have.
fn current() -> u8 {
    let rules = [parse::rule(b"5/m").expect("a rule")];
    let meta = Some(Meta { text: b"who", keep: 1 });
    let mut limiter = Limiter::default();
    limiter.record(&Check { meta, ..Check::new(&rules, 1, 0) }, Change::Admitted);
    encode(&limiter)[0]
}

#[test]
fn every_version_up_to_the_current_one_has_its_payloads() {
    let mut found = BTreeMap::<u8, usize>::new();
    for golden in all() {
        assert_eq!(golden.payload[0], golden.version, "{} is of another version", golden.name);
        *found.entry(golden.version).or_default() += 1;
    }
    let versions: Vec<u8> = found.keys().copied().collect();
    assert_eq!(versions, (1..=current()).collect::<Vec<_>>(), "a version without payloads");
    assert_eq!(versions, AT_LEAST.map(|(version, _)| version), "AT_LEAST lacks a version");
    for (version, count) in AT_LEAST {
        assert!(found[&version] >= count, "v{version} has lost payloads");
    }
}

#[test]
fn every_payload_is_read_and_decides_as_it_did() {
    for golden in all() {
        let limiter = golden.decoded();
        assert_eq!(limiter.overrule().map(in_words), golden.overrule, "{}", golden.name);
        let trail = limiter.trail().map(trail_in_words).unwrap_or_default();
        assert_eq!(trail, golden.trail, "{}", golden.name);
        for ask in &golden.asks {
            assert_eq!(ask.of(&limiter), ask.answer, "{}: {}", golden.name, ask.line);
        }
    }
}

#[test]
fn what_is_read_is_written_again_as_it_was() {
    assert_eq!(*WRITTEN.end(), current());
    for golden in all() {
        let again = encode(&golden.decoded());
        if WRITTEN.contains(&golden.version) {
            assert_eq!(again, golden.payload, "{}", golden.name);
        } else {
            assert!(WRITTEN.contains(&again[0]), "{} is saved as of now", golden.name);
        }
    }
}

#[test]
fn every_payload_loads_into_every_server() {
    let replaying = |builder: server::Builder| {
        // A packed payload cannot be compared byte by byte.
        builder.module_args(&["allow-at", "yes"]).config("rdbcompression", "no")
    };
    server::on_all_with(replaying, |server| {
        let mut c = server.connect();
        let () = cmd("RL.CHECK").arg("k").arg("5/m").query(&mut c).unwrap();
        let ours = Dump::of(&mut c, "k");
        for golden in all() {
            let key = golden.name.as_str();
            let saved = ours.with_payload(&*golden.payload);
            let () = cmd("RESTORE")
                .arg(key)
                .arg(0)
                .arg(saved.bytes())
                .query(&mut c)
                .unwrap_or_else(|error| panic!("{key}: {error}"));
            for ask in &golden.asks {
                assert_eq!(ask.of_key(&mut c, key), ask.answer, "{key}: {}", ask.line);
            }
            if let Some(trail) = golden.decoded().trail() {
                let mut log = cmd("RL.LOG");
                let shown: Vec<Row> = log.arg(key).arg("COUNT").arg(1_000).query(&mut c).unwrap();
                assert_eq!(shown, rows(trail), "{key}");
            }
            if WRITTEN.contains(&golden.version) {
                assert_eq!(Dump::of(&mut c, key), saved, "{key}");
            }
        }
    });
}
