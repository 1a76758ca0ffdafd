//! What only primaries and append-only files may send: effects, values and policies, mostly
//! damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fastrand::Rng;

use super::generator::{Words, junk, words};
use super::payloads;

/// The newest version of effects and of values.
const EFFECTS_VERSION: u64 = ratelimit_protocol::effect::VERSION;
const VALUES_VERSION: u8 = 1;
const POLICY_RULE: &str = "bucket:40/m,burst=9,ban=1m:1h,name=x";

/// The effects in the recordings of every version, in a fixed order.
static EFFECTS: LazyLock<Vec<Words>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/effects");
    let entries = |folder: PathBuf| fs::read_dir(folder).expect("a folder").flatten();
    let files = entries(folder).flat_map(|version| entries(version.path()));
    let mut files: Vec<_> = files.map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "aof" || kind == "stream"));
    files.sort();
    let effects = files.iter().flat_map(|file| commands(&fs::read(file).expect("a file")));
    let effects: Vec<_> = effects.filter(|words| words[0] == b"RL.APPLY").collect();
    assert!(effects.len() > 100, "there are recordings");
    effects
});

/// The commands in a recording, up to the first byte that belongs to none.
fn commands(mut bytes: &[u8]) -> Vec<Words> {
    let mut commands = Vec::new();
    while let Some(words) = command(&mut bytes) {
        commands.push(words);
    }
    commands
}

/// The first command in some bytes, if it is complete.
pub fn command(bytes: &mut &[u8]) -> Option<Words> {
    (0..number(bytes, b'*')?)
        .map(|_| {
            let length = number(bytes, b'$')?;
            let (word, rest) = bytes.split_at_checked(length)?;
            *bytes = rest.strip_prefix(b"\r\n")?;
            Some(word.to_vec())
        })
        .collect()
}

fn number(bytes: &mut &[u8], kind: u8) -> Option<usize> {
    let rest = bytes.strip_prefix(&[kind])?;
    let end = rest.iter().position(|&byte| byte == b'\r')?;
    let number = str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    *bytes = rest[end..].strip_prefix(b"\r\n")?;
    Some(number)
}

/// A record with at least as many arguments as its command requires: with fewer, a server may
/// end.
pub fn any(rng: &mut Rng) -> Words {
    match rng.u32(0..20) {
        0..12 => effect(rng),
        12..16 => vec![b"RL.LOAD".to_vec(), key(rng), payloads::hostile(rng)],
        16..18 => policy(rng),
        18 => vec![b"DEL".to_vec(), key(rng)],
        _ => vec![b"SELECT".to_vec(), rng.u32(0..2).to_string().into_bytes()],
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("k{}", rng.u32(0..30)).into_bytes()
}

fn effect(rng: &mut Rng) -> Words {
    let mut words = rng.choice(EFFECTS.iter()).expect("some").clone();
    words[1] = key(rng);
    for _ in 0..rng.usize(0..4) {
        let at = rng.usize(2..words.len());
        match rng.u32(0..8) {
            0 => words[at] = junk::word(rng),
            1 => words.insert(at, junk::word(rng)),
            2 if words.len() > 3 => drop(words.remove(at)),
            3 => words.extend(rng.choice(EFFECTS.iter()).expect("some")[2..].iter().cloned()),
            // Most of an effect is in its head, so damage one of the head's fields.
            4..6 => {
                let mut fields: Vec<_> =
                    words[2].split(|&byte| byte == b':').map(Vec::from).collect();
                let field = rng.usize(0..fields.len());
                fields[field] = junk::number(rng);
                words[2] = fields.join(&b':');
            }
            _ => junk::damage(rng, &mut words[at]),
        }
    }
    words
}

/// Whether a server may take a record for one of a newer version of the module, and so refuse
/// the whole file: the record has a later version, or a policy that cannot be read.
pub fn may_be_newer(record: &Words) -> bool {
    let is_known = |version: &[u8]| {
        let digits = version.split(|&byte| byte == b':').next().unwrap_or_default();
        let version = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        version.is_some_and(|version: u64| version <= EFFECTS_VERSION)
    };
    let is_whole = |rule: &[u8]| {
        rule.strip_prefix(POLICY_RULE.as_bytes())
            .is_some_and(|number| matches!(number, b"0" | b"1" | b"2"))
    };
    match &record[0][..] {
        b"RL.APPLY" => record[2].strip_prefix(b"v").is_some_and(|rest| !is_known(rest)),
        b"RL.LOAD" => record[2].first().is_some_and(|version| *version > VALUES_VERSION),
        b"RL.POLICY" => record[3..].iter().any(|rule| !is_whole(rule)),
        _ => false,
    }
}

fn policy(rng: &mut Rng) -> Words {
    let name = format!("p{}", rng.u32(0..5)).into_bytes();
    if rng.u32(0..6) == 0 {
        return [words(["RL.POLICY", "DEL"]), vec![name]].concat();
    }
    let mut command = [words(["RL.POLICY", "SET"]), vec![name]].concat();
    for number in 0..rng.usize(1..4) {
        let mut rule = format!("{POLICY_RULE}{number}").into_bytes();
        if rng.bool() {
            junk::damage(rng, &mut rule);
        }
        command.push(rule);
    }
    command
}
