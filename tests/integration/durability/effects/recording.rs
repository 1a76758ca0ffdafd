//! Recorded files and streams of effects, and what servers must answer after they read them.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{Connection, Value};

use crate::support::client::{ask, bans_of, blocks, expires_ms};
use crate::support::server::Flavor;

/// A recording of effects in one form.
pub struct Recording {
    /// The version and the form, such as `v1/head`.
    pub name: String,
    path: PathBuf,
    expected: String,
}

/// How many forms each version has, so that none gets lost unnoticed.
const FORMS: [(&str, usize); 2] = [("v1", 3), ("v2", 1)];

impl Recording {
    pub fn newest() -> Self {
        all().pop().expect("a version")
    }

    fn file(&self, kind: &str) -> Vec<u8> {
        let path = self.path.with_extension(kind);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// An append-only file without an RDB preamble.
    pub fn aof(&self) -> Vec<u8> {
        self.file("aof")
    }

    /// The snapshot that a replica received first.
    pub fn snapshot(&self) -> Vec<u8> {
        self.file("rdb")
    }

    /// The stream that a replica received after the snapshot.
    pub fn stream(&self) -> Vec<u8> {
        self.file("stream")
    }

    /// The commands of the recording.
    pub fn script(&self) -> String {
        String::from_utf8(self.file("script")).expect("text")
    }

    /// Checks that a server answers as the recording expects. `is_replica` skips writes.
    pub fn assert_held(&self, c: &mut Connection, flavor: Flavor, is_replica: bool) {
        let name = format!("{} on {}", self.name, flavor.name);
        for line in self.expected.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["expires", key, ms] => {
                    assert_eq!(expires_ms(c, flavor, key).to_string(), ms, "{name}: {line}");
                }
                ["bans", key, count] => {
                    let bans = bans_of(c, key).map_or("none".into(), |info| info.bans.to_string());
                    assert_eq!(bans, count, "{name}: {line}");
                }
                ["overruled", key, kind, reason] => {
                    assert_eq!(access(c, key), (kind.into(), reason.into()), "{name}: {line}");
                }
                ["author", key, user] => assert_eq!(author(c, key), user, "{name}: {line}"),
                // On 6.2, all of RL.POLICY is a write.
                ["RL.POLICY", ..] if is_replica && !flavor.is_7_or_later() => {}
                _ => {
                    let (command, reply) = line.split_once(" -> ").expect("a reply");
                    assert_eq!(shown(&ask(c, command)), reply, "{name}: {line}");
                }
            }
        }
    }
}

/// Every form of every version, oldest first.
pub fn all() -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/effects");
    let mut all = Vec::new();
    for (version, count) in FORMS {
        let entries = fs::read_dir(root.join(version)).expect("a folder per version");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "expected")).collect();
        paths.sort();
        assert_eq!(paths.len(), count, "{version}");
        all.extend(paths.into_iter().map(|path| {
            let form = path.file_stem().expect("a name").to_string_lossy();
            let expected = fs::read_to_string(&path).expect("text");
            Recording { name: format!("{version}/{form}"), path: path.clone(), expected }
        }));
    }
    all
}

/// A reply as recordings write it.
fn shown(reply: &Value) -> String {
    match reply {
        Value::Nil => "nil".to_string(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        other => panic!("{other:?}"),
    }
}

/// Who blocked or exempted a key.
fn author(c: &mut Connection, key: &str) -> String {
    let report: Vec<(String, Value)> = ask(c, &format!("RL.INFO {key}"));
    let access = report.into_iter().find(|(name, _)| name == "access").expect("a field").1;
    let fields: Vec<(String, Value)> = redis::from_redis_value(access).expect("a map");
    let user = fields.into_iter().find(|(name, _)| name == "by").expect("a field").1;
    redis::from_redis_value(user).unwrap_or_else(|_| "nobody".into())
}

/// The kind and the reason of a key's block or exemption.
fn access(c: &mut Connection, key: &str) -> (String, String) {
    let mut rows = blocks(c, "COUNT 1000").into_iter();
    let row = rows.find(|row| row.0 == key);
    let (_, kind, _, reason) = row.unwrap_or_else(|| panic!("{key} is neither blocked nor exempt"));
    (kind, reason)
}
