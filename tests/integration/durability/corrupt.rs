//! Damaged and forged `DUMP` payloads: each gives an error or a working value, never a crash,
//! and loads without more memory than its size justifies.

mod values;

use std::fs;

use ratelimit_engine::key::{Change, Check, Limiter, encode};
use ratelimit_engine::rule::Rule;
use redis::{Cmd, Connection, RedisResult, Value, cmd};
use values::{EVERY_RULE, values};

use crate::support::client::{command, info};
use crate::support::dump::{Dump, assert_calm, length, uncompressed};
use crate::support::server::{self, Builder, Server};

/// Runs a test on each server with values of every kind. The server must still work afterwards.
fn on_all_with_values(body: impl Fn(&mut Server, &mut Connection, &[Dump])) {
    let configure = |builder: Builder| uncompressed(builder).allow_at();
    server::on_all_with(configure, |server| {
        let mut c = server.connect();
        let values = values(&mut c);
        body(server, &mut c, &values);
        let reply: [i64; 5] = cmd("RL.CHECK").arg("well").arg("5/h").query(&mut c).unwrap();
        assert_eq!(reply[..3], [0, 5, 4]);
        assert_calm(&server.log());
    });
}

/// Sends commands in one pipeline. Errors are returned as replies.
fn run_all(c: &mut Connection, commands: impl IntoIterator<Item = Cmd>) -> Vec<RedisResult<Value>> {
    let mut pipe = redis::pipe();
    pipe.ignore_errors();
    for command in commands {
        pipe.add_command(command);
    }
    pipe.query(c).expect("the server answers")
}

/// Every command on the key `k`; the last one deletes it. A blocked check evaluates no rule, so
/// there are checks before and after the block is lifted.
fn every_command() -> Vec<Cmd> {
    [
        "RL.PEEK k RULES",
        "RL.PEEK k FULL RULES",
        "RL.PEEK k AT 0 RULES",
        "RL.PEEK k AT 253402300799999999 RULES",
        "RL.LOG k",
        "RL.LOG k COUNT 1000000000",
        "RL.INFO k",
        "RL.BLOCKS 0 COUNT 10",
        "RL.CHECK k RULES",
        "RL.CHECK k META who FULL RULES",
        "RL.UNBLOCK k",
        "RL.UNEXEMPT k",
        "RL.CHECK k RULES",
        "RL.CHECK k AT 1605916900000000 META who RULES",
        "RL.REFUND k 1 RULES",
        "RL.REFUND k 1",
        "RL.BLOCK k EX 1000 REASON abuse",
        "RL.EXEMPT k",
        "RL.CHECK k META who RULES",
        "RL.INFO k",
        "RL.LOG k COUNT 3",
        "MEMORY USAGE k",
        "DEBUG DIGEST-VALUE k",
        "OBJECT ENCODING k",
        "PTTL k",
        "COPY k other REPLACE",
        "RL.PAUSE k EX 9",
        "RL.RESUME k",
        "RL.SYNC k REMAINING 1 5/m",
        "RL.RESET k",
        "RL.UNEXEMPT k",
        "DUMP k",
        "DEL k",
    ]
    .map(|line| command(&line.replace("RULES", EVERY_RULE)))
    .to_vec()
}

fn restored(dump: &[u8]) -> Cmd {
    cmd("RESTORE").arg("k").arg(0).arg(dump).arg("REPLACE").to_owned()
}

fn on_key(name: &str) -> Cmd {
    cmd(name).arg("k").to_owned()
}

/// How many payloads were restored and how many refused.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    usable: usize,
    refused: usize,
}

/// Restores each payload, and tries every command on those that are accepted.
fn restore(c: &mut Connection, dumps: &[Vec<u8>]) -> Outcome {
    let mut outcome = Outcome::default();
    for batch in dumps.chunks(200) {
        let tries = |dump: &Vec<u8>| [restored(dump), on_key("DUMP"), on_key("DEL")];
        let replies = run_all(c, batch.iter().flat_map(tries));
        let mut usable = Vec::new();
        for (dump, replies) in batch.iter().zip(replies.chunks(3)) {
            match (&replies[0], &replies[1]) {
                (Ok(_), Ok(Value::BulkString(again))) => usable.push((dump, again)),
                // Any other error would come from the server, before the module reads the payload.
                (Err(error), Ok(Value::Nil)) if error.to_string().contains("Bad data format") => {
                    outcome.refused += 1;
                }
                replies => panic!("{replies:?} to {dump:02x?}"),
            }
        }
        outcome.usable += usable.len();
        if !usable.is_empty() {
            try_each(c, &usable);
        }
    }
    outcome
}

/// Tries every command on accepted payloads. Each comes with the server's dump of it, which must
/// restore to a value that the server dumps unchanged.
fn try_each(c: &mut Connection, dumps: &[(&Vec<u8>, &Vec<u8>)]) {
    let commands_on = |dump: &[u8], again: &[u8]| {
        let last = [restored(again), on_key("DUMP"), on_key("DEL")];
        [vec![restored(dump)], every_command(), last.to_vec()].concat()
    };
    let count = commands_on(&[], &[]).len();
    let replies = run_all(c, dumps.iter().flat_map(|(dump, again)| commands_on(dump, again)));
    for ((dump, again), replies) in dumps.iter().zip(replies.chunks(count)) {
        if let Some(index) = replies.iter().position(Result::is_err) {
            let command = commands_on(&[], &[]).swap_remove(index).get_packed_command();
            let command = String::from_utf8_lossy(&command).into_owned();
            panic!("{:?} to {command:?} after {dump:02x?}", replies[index]);
        }
        let dumped = &replies[count - 2];
        assert_eq!(dumped, &Ok(Value::BulkString((*again).clone())), "after {dump:02x?}");
    }
}

#[test]
fn a_truncated_value_is_refused() {
    // A version and a checksum, 10 bytes in all, follow the value. If a cut removes no more than 10
    // bytes, the server reads these in place of the missing ones.
    const FOOTER: usize = 10;
    on_all_with_values(|server, c, values| {
        let cut = |from: usize, to: usize, dump: &Dump| -> Vec<Vec<u8>> {
            let value = dump.value();
            (from..value.len() - to).map(|len| dump.sealed(&value[..len])).collect()
        };
        let short: Vec<_> = values.iter().flat_map(|dump| cut(0, FOOTER, dump)).collect();
        assert_eq!(restore(c, &short), Outcome { usable: 0, refused: short.len() });
        assert!(server.log().contains("payload ends too early"));
        let nearly_whole = |dump| cut(Dump::value(dump).len() - FOOTER, 0, dump);
        restore(c, &values.iter().flat_map(nearly_whole).collect::<Vec<_>>());
    });
}

#[test]
fn a_load_takes_no_more_memory_than_twice_the_value() {
    const ENTRIES: u64 = 1_000_000;
    let rules = [Rule::from_text(format!("{ENTRIES}/h").as_bytes()).unwrap()];
    let mut limiter = Limiter::default();
    for entry in 0..ENTRIES {
        let check = Check::new(&rules, 1, 1_700_000_000_000_000 + entry);
        limiter.record(&check, Change::Admitted);
    }
    let payload = encode(&limiter);
    on_all_with_values(|_, c, values| {
        let dump = values[0].with_payload(payload.clone()).bytes();
        let before = memory(c, "used_memory");
        let () = cmd("RESTORE").arg("k").arg(0).arg(&dump).query(c).unwrap();
        let value: u64 = cmd("MEMORY").arg("USAGE").arg("k").query(c).unwrap();
        let peak = memory(c, "used_memory_peak") - before;
        // The server's buffers hold the command, and the server makes one more copy of the
        // payload for the module.
        let allowed = 2 * value + 4 * dump.len() as u64;
        assert!(peak < allowed, "{peak} bytes for {value}, from a payload of {}", payload.len());
    });
}

/// A line of `/proc/PID/status` for the server's process, in bytes.
fn process_memory(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of it");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

/// A number in `INFO memory`, in bytes.
fn memory(c: &mut Connection, field: &str) -> u64 {
    info(c, "memory", field) as u64
}

const MB: u64 = 1 << 20;

#[test]
fn a_payload_with_a_forged_length_is_refused() {
    on_all_with_values(|server, c, values| {
        let before = process_memory(server, "VmHWM:");
        let lengths = [1 << 14, 1 << 20, 1 << 32, 1 << 40, i64::MAX as u64, u64::MAX];
        let lengths = lengths.map(length).into_iter();
        // In place of a length: integers of 1, 2 and 4 bytes, a compressed string, and an
        // invalid encoding.
        let lengths = lengths.chain([0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xff].map(|byte| vec![byte]));
        let lengths: Vec<_> = lengths.collect();
        let forged = values.iter().flat_map(|dump| {
            lengths.iter().map(|length| dump.sealed(&dump.value_of_length(length)))
        });
        let forged: Vec<_> = forged.collect();
        assert_eq!(restore(c, &forged), Outcome { usable: 0, refused: forged.len() });
        // The server may reserve memory of the claimed length, but must not touch its pages.
        let after = process_memory(server, "VmHWM:");
        assert!(after - before <= 4 * MB, "from {before} to {after} bytes");
    });
}

#[test]
fn refused_payloads_leak_no_memory() {
    on_all_with_values(|_, c, values| {
        let cut = |dump: &Dump| {
            let len = dump.payload.len();
            dump.with_payload(&dump.payload[..len - 1]).bytes()
        };
        let cut: Vec<_> = values.iter().map(cut).cycle().take(2_000).collect();
        restore(c, &cut);
        let before = memory(c, "used_memory");
        for _ in 0..5 {
            restore(c, &cut);
        }
        // A leak of one byte per payload would add up to 160 kB.
        server::eventually("memory is as before", || {
            memory(c, "used_memory").saturating_sub(before) < 100_000
        });
    });
}
