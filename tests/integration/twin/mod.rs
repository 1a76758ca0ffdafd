//! Compares the script for servers without modules, `clients/script/ratelimit.lua`, with the module: for
//! random lives of keys, both reply the same integers. A thousand lives run in `make test`, any number in
//! `make twin`.
//!
//! ```text
//! lives.rs    rules, costs, and times on a clock that may step back
//! ```
//!
//! The module and the script answer each call one after the other, in one pipeline. Each key expires
//! when nothing in it matters any more, or later: by up to an eighth of the longest window, or up to a
//! second if that is longer. Another test checks the script's waits without the module.

mod lives;

use std::env;
use std::fs;
use std::path::Path;
use std::slice;
use std::time::Instant;

use fastrand::Rng;
use redis::{Cmd, Connection, ConnectionLike, RedisResult, Value, cmd, from_redis_value};

use self::lives::{Call, Life};
use crate::support::client::{attempt, exists, refusal};
use crate::support::seed;
use crate::support::server::{self, Builder, Flavor};

/// How many lives are in one pipeline.
const AT_ONCE: usize = 20;
/// What the script refuses because its numbers would not be exact.
const TOO_SLOW: &str = "a bucket that drains in more than 142 years needs the module";
/// How far the times of the two keys may differ only because one call came after the other.
const APART_MS: i64 = 2_000;

type Reply = [i64; 5];

/// The lives on each server: `RATELIMIT_TWIN_LIVES`, divided by the number of servers.
fn lives_on_each() -> usize {
    let lives = env::var("RATELIMIT_TWIN_LIVES").ok();
    let lives = lives.map_or(1_000_usize, |lives| lives.parse().expect("a number of lives"));
    lives.div_ceil(server::all().len())
}

fn source() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/script/ratelimit.lua");
    fs::read_to_string(path).expect("the script")
}

/// The script on a server.
struct Script {
    sha: String,
}

impl Script {
    fn load(c: &mut Connection) -> Self {
        Self { sha: cmd("SCRIPT").arg("LOAD").arg(source()).query(c).expect("its digest") }
    }

    fn command(&self, key: &str, name: &str, words: &[String]) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.sha).arg(1).arg(format!("{key}:script")).arg(name).arg(words);
        command
    }

    fn ask(&self, c: &mut Connection, line: &str) -> RedisResult<Value> {
        let mut words = line.split(' ').map(String::from);
        let (key, name) = (words.next().expect("a key"), words.next().expect("a word"));
        self.command(&key, &name, &words.collect::<Vec<_>>()).query(c)
    }

    fn refusal(&self, c: &mut Connection, line: &str) -> String {
        match self.ask(c, line) {
            Err(error) => error.to_string(),
            Ok(value) => panic!("{line}: answered with {value:?}"),
        }
    }
}

#[test]
fn the_script_answers_as_the_module_does() {
    let seed = seed("RATELIMIT_TWIN_SEED");
    server::on_each_at_once(|flavor| compare(flavor, seed));
}

fn compare(flavor: Flavor, seed: u64) {
    let start = Instant::now();
    let server = flavor.builder().allow_at().start();
    let mut c = server.connect();
    let script = Script::load(&mut c);
    let (lives, mut calls, mut refused) = (lives_on_each(), 0, 0);
    for first in (0..lives).step_by(AT_ONCE) {
        // Seeds differ from server to server.
        let (major, minor) = flavor.version;
        let of_server = u64::from(major) * 16 + u64::from(minor);
        let seeds = (first..lives.min(first + AT_ONCE))
            .map(|n| seed.wrapping_add(n as u64).wrapping_mul(256).wrapping_add(of_server));
        let batch: Vec<_> = seeds.map(|seed| Life::any(&mut Rng::with_seed(seed))).collect();
        let answers = answers(&mut c, &script, &batch, "k");
        for (n, (life, answers)) in batch.iter().zip(answers).enumerate() {
            calls += life.calls.len();
            match judge(life, &answers) {
                Verdict::Same => {}
                Verdict::Refused => refused += 1,
                // A busy machine may let a key expire between the two calls. What differs each
                // time is a fault.
                Verdict::Differs(why) => {
                    let mut differs = || {
                        let again = self::answers(&mut c, &script, slice::from_ref(life), "again");
                        matches!(judge(life, &again[0]), Verdict::Differs(_))
                    };
                    let always = (0..3).all(|_| differs());
                    assert!(!always, "RATELIMIT_TWIN_SEED={seed}, life {}: {why}", first + n);
                }
            }
        }
        let () = cmd("FLUSHALL").arg("SYNC").query(&mut c).expect("OK");
    }
    assert!(refused * 20 <= lives, "the script refused {refused} of {lives} lives");
    println!(
        "{}: {lives} lives of {calls} calls from RATELIMIT_TWIN_SEED={seed}, {refused} with numbers that the \
         script refuses, {:?}",
        flavor.name,
        start.elapsed()
    );
}

/// The replies of the module and of the script to a call, and how long their keys then live.
struct Answer {
    replies: [Value; 2],
    ttls_ms: [i64; 2],
}

fn answers(c: &mut Connection, script: &Script, lives: &[Life], key: &str) -> Vec<Vec<Answer>> {
    let mut packed = Vec::new();
    for (n, life) in lives.iter().enumerate() {
        let key = format!("{key}{n}");
        packed.extend(cmd("DEL").arg(&key).arg(format!("{key}:script")).get_packed_command());
        for call in &life.calls {
            let mut module = cmd(&format!("RL.{}", call.name));
            module.arg(&key).arg(call.words());
            let ttl = |key: &str| cmd("PTTL").arg(key).get_packed_command();
            let script = script.command(&key, call.name, &call.words());
            packed.extend(module.get_packed_command());
            packed.extend(script.get_packed_command());
            packed.extend(ttl(&key));
            packed.extend(ttl(&format!("{key}:script")));
        }
    }
    let sent = lives.iter().map(|life| 1 + 4 * life.calls.len()).sum();
    let replies = c.req_packed_commands(&packed, 0, sent).expect("replies");
    let mut replies = replies.into_iter();
    let mut next = || replies.next().expect("a reply");
    let of_life = |life: &Life| {
        next();
        let of_call = |_: &Call| {
            let replies = [next(), next()];
            let ttls_ms = [next(), next()].map(|ttl| from_redis_value(ttl).expect("a TTL"));
            Answer { replies, ttls_ms }
        };
        life.calls.iter().map(of_call).collect()
    };
    lives.iter().map(of_life).collect()
}

enum Verdict {
    Same,
    /// The script refused a call, and the rest of the life was not compared.
    Refused,
    Differs(String),
}

fn judge(life: &Life, answers: &[Answer]) -> Verdict {
    let late_ms = i64::try_from((life.longest_us / 8_000).max(1_000)).expect("milliseconds");
    for (n, Answer { replies: [module, script], ttls_ms }) in answers.iter().enumerate() {
        let same = match (module, script) {
            (Value::ServerError(_), Value::ServerError(_)) => true,
            (_, Value::ServerError(error))
                if error.details().is_some_and(|why| why == TOO_SLOW) =>
            {
                return Verdict::Refused;
            }
            (module, script) => module == script,
        };
        let [module_ms, script_ms] = *ttls_ms;
        let later_ms = script_ms - module_ms;
        let lives_alike = match (module_ms < 0, script_ms < 0) {
            (true, true) => module_ms == script_ms,
            // The module moves an expiry less often, so the script's is as late or later.
            (false, false) => (-APART_MS..=late_ms + APART_MS).contains(&later_ms),
            _ => false,
        };
        if !same || !lives_alike {
            let story = life.calls.iter().zip(answers).take(n + 1);
            let story = story.map(|(call, Answer { replies: [module, script], ttls_ms })| {
                format!(
                    "\n{call}\n    module {module:?}\n    script {script:?}\n    {ttls_ms:?} ms"
                )
            });
            return Verdict::Differs(story.collect());
        }
    }
    Verdict::Same
}

#[test]
fn a_check_by_the_script_passes_after_its_wait_and_not_before() {
    let seed = seed("RATELIMIT_TWIN_SEED");
    server::on_each_at_once(|flavor| {
        let server = flavor.start();
        let mut c = server.connect();
        let (script, mut rng, mut waits) = (Script::load(&mut c), Rng::with_seed(seed), 0);
        for n in 0..lives_on_each() {
            for call in Life::any(&mut rng).calls {
                let key = format!("k{n}");
                let mut ask = |name: &str, words: &[String]| -> RedisResult<Value> {
                    script.command(&key, name, words).query(&mut c)
                };
                let reply = ask(call.name, &call.words());
                let Ok(reply) = reply.and_then(|reply| Ok(from_redis_value::<Reply>(reply)?))
                else {
                    continue;
                };
                let [verdict, _, _, wait_ms, _] = reply;
                if verdict == 0 || wait_ms < 0 {
                    continue;
                }
                let after_us = u64::try_from(wait_ms).expect("a wait") * 1_000;
                for (at_us, expected) in
                    [(call.at_us + after_us, 0), (call.at_us + after_us - 1_000, 1)]
                {
                    if let Ok(reply) = ask("PEEK", &call.words_at(at_us)) {
                        let [then, ..]: Reply = from_redis_value(reply).expect("a reply");
                        assert_eq!(
                            then, expected,
                            "RATELIMIT_TWIN_SEED={seed}: {call} waits {wait_ms} ms"
                        );
                        waits += 1;
                    }
                }
            }
        }
        assert!(waits > 0, "no check was denied");
        println!(
            "{}: {waits} peeks around the ends of waits, from RATELIMIT_TWIN_SEED={seed}",
            flavor.name
        );
    });
}

#[test]
fn the_script_refuses_what_it_cannot_do_and_names_the_module() {
    server::on_all(|server| {
        let mut c = server.connect();
        let script = Script::load(&mut c);
        for line in [
            "k CHECK slots:5",
            "k CHECK 5/m,ban=1h",
            "k CHECK fixed:5/d,keep=3",
            "k CHECK @free",
            "k CHECK FULL 5/m",
            "k CHECK META text 5/m",
            "k CHECK HOLD id EX 5 5/m",
            "k CHECK COST 1..5 5/m",
            "k CHECK AT 9007199254740993 5/m",
            "k CHECK bucket:1/366d,burst=143",
            "k WAIT 5 5/m",
            "k SETTLE id",
        ] {
            let error = script.refusal(&mut c, line);
            assert!(error.contains("needs the module"), "{line}: {error}");
            assert!(!error.contains("user_script"), "{line}: {error}");
        }
        for line in [
            "k CHECK",
            "k CHECK 5/x",
            "k CHECK 5",
            "k CHECK 5/m 9/m",
            "k CHECK 5/m,name=",
            "k CHECK 5/m,res=2",
            "k CHECK 5/0s",
            "k CHECK 5/m,",
            "k CHECK 5/m,shadow=1",
            "k CHECK -5/m",
            "k CHECK 100001/m",
            "k CHECK COST 5/m",
            "k CHECK COST a=1 5/m",
            "k CHECK 5/month",
            "k CHECK fixed:5/d,tz=+14:01",
            "k REFUND x",
            "k RESET now",
        ] {
            let error = script.refusal(&mut c, line);
            assert!(error.contains("expected"), "{line}: {error}");
            assert!(!error.contains("user_script"), "{line}: {error}");
        }
        assert!(!exists(&mut c, "k:script"));
    });
}

#[test]
fn the_script_refuses_keys_of_other_types_or_without_its_suffix() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let script = Script::load(&mut c);
        let error = refusal(&mut c, &format!("EVALSHA {} 1 k CHECK 5/m", script.sha));
        assert!(error.contains(":script"), "{error}");
        for write in ["RL.CHECK k:script 5/m", "SET k:script 5", "RPUSH k:script 5"] {
            let () = attempt(&mut c, "DEL k:script").map(drop).expect("a reply");
            attempt(&mut c, write).expect("a reply");
            let error = script.refusal(&mut c, "k CHECK 5/m");
            assert!(error.contains("WRONGTYPE"), "{write}: {error}");
        }
    });
}
