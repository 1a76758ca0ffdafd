//! Truncated and forged `DUMP` payloads are refused, and loads take no more memory than the value's size
//! justifies. `wire/` sends damaged payloads of every version.

use std::fs;

use ratelimit_engine::key::{Change, Check, Limiter, encode};
use ratelimit_engine::rule::Rule;
use redis::{Connection, RedisResult, Value, cmd, pipe};

use crate::support::client::{ask, exists, info};
use crate::support::dump::{Dump, assert_calm, length, uncompressed};
use crate::support::server::{self, Server};

/// Rules of every algorithm.
const EVERY_RULE: &str = "100/m window:100/m window:100/h,res=6 fixed:100/m,keep=3 \
                          fixed:100/month bucket:100/m,burst=7 \
                          bucket:100/m,refill=interval,name=lump leaky:100/m \
                          log:50/s,name=fast,count=all";

/// Runs a test on each server with a value that has states of every algorithm, a history and a block.
/// The server must still work afterwards.
fn on_all_with_a_value(body: impl Fn(&mut Server, &mut Connection, &Dump)) {
    server::on_all_with(uncompressed, |server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, &format!("RL.CHECK k META who {EVERY_RULE}"));
        let () = ask(&mut c, "RL.BLOCK k REASON abuse");
        let dump = Dump::of(&mut c, "k");
        body(server, &mut c, &dump);
        let reply: [i64; 5] = ask(&mut c, "RL.CHECK well 5/h");
        assert_eq!(reply[..3], [0, 5, 4]);
        assert_calm(&server.log());
    });
}

/// Restores each payload in one pipeline. The module must refuse all.
fn assert_refused(c: &mut Connection, dumps: &[Vec<u8>]) {
    let mut restores = pipe();
    restores.ignore_errors();
    for dump in dumps {
        restores.cmd("RESTORE").arg("copy").arg(0).arg(dump);
    }
    let replies: Vec<RedisResult<Value>> = restores.query(c).expect("the server answers");
    for (reply, dump) in replies.iter().zip(dumps) {
        // Any other error would come from the server, before the module reads the payload.
        let why = reply.as_ref().expect_err("refused").to_string();
        assert!(why.contains("Bad data format"), "{why} to {dump:02x?}");
    }
    assert!(!exists(c, "copy"));
}

#[test]
fn a_truncated_value_is_refused() {
    // A version and a checksum, 10 bytes in all, follow the value. If a cut removes no more than 10
    // bytes, the server reads these in place of the missing ones.
    const FOOTER: usize = 10;
    on_all_with_a_value(|server, c, dump| {
        let value = dump.value();
        let short = (0..value.len() - FOOTER).map(|len| dump.sealed(&value[..len]));
        assert_refused(c, &short.collect::<Vec<_>>());
        assert!(server.log().contains("payload ends too early"));
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
    on_all_with_a_value(|_, c, value| {
        let dump = value.with_payload(payload.clone()).bytes();
        let before = memory(c, "used_memory");
        let () = cmd("RESTORE").arg("large").arg(0).arg(&dump).query(c).unwrap();
        let value: u64 = cmd("MEMORY").arg("USAGE").arg("large").query(c).unwrap();
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
    on_all_with_a_value(|server, c, dump| {
        let before = process_memory(server, "VmHWM:");
        let lengths = [1 << 14, 1 << 20, 1 << 32, 1 << 40, i64::MAX as u64, u64::MAX];
        let lengths = lengths.map(length).into_iter();
        // In place of a length: integers of 1, 2 and 4 bytes, a compressed string, and an
        // invalid encoding.
        let lengths = lengths.chain([0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xff].map(|byte| vec![byte]));
        let forged = lengths.map(|length| dump.sealed(&dump.value_of_length(&length)));
        assert_refused(c, &forged.collect::<Vec<_>>());
        // The server may reserve memory of the claimed length, but must not touch its pages.
        let after = process_memory(server, "VmHWM:");
        assert!(after - before <= 4 * MB, "from {before} to {after} bytes");
    });
}

#[test]
fn refused_payloads_leak_no_memory() {
    on_all_with_a_value(|_, c, dump| {
        let cut = dump.with_payload(&dump.payload[..dump.payload.len() - 1]).bytes();
        let cut = vec![cut; 2_000];
        assert_refused(c, &cut);
        let before = memory(c, "used_memory");
        for _ in 0..5 {
            assert_refused(c, &cut);
        }
        // A leak of one byte per payload would add up to 10 kB, and an allocation to more than 100 kB.
        server::eventually("memory is as before", || {
            memory(c, "used_memory").saturating_sub(before) < 100_000
        });
    });
}
