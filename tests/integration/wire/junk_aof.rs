//! Servers that start with an append-only file of hostile records.

use std::fs;
use std::time::Instant;

use fastrand::Rng;
use redis::Value;

use super::{length, records, resp, seed};
use crate::support::client::{ask, digest};
use crate::support::dump::{assert_calm, uncompressed};
use crate::support::files::folder_with;
use crate::support::server::{self, Flavor};
use crate::support::watchdog::Watchdog;

const RECORDS: usize = 3_000;

#[test]
fn no_append_only_file_harms_a_server() {
    server::on_each_at_once(run);
}

fn run(flavor: Flavor) {
    let (start, mut files, mut keys) = (Instant::now(), 0_u64, 0_u64);
    while files == 0 || start.elapsed() < length() {
        let seed = seed().wrapping_add(files);
        let mut rng = Rng::with_seed(seed);
        let mut aof = Vec::new();
        let mut left = RECORDS;
        while left > 0 {
            let record = records::any(&mut rng);
            // A server refuses to start with data of a newer version, which other tests cover.
            if !records::may_be_newer(&record) {
                resp::write(&record, &mut aof);
                left -= 1;
            }
        }
        if rng.bool() {
            aof.truncate(aof.len() - rng.usize(1..50));
        }
        // From 7.0 on, the server converts an AOF of a single file.
        let folder = folder_with("appendonly.aof", &aof);
        let builder = uncompressed(flavor.builder()).dir(folder.path());
        let server = builder.config("appendonly", "yes").try_start().unwrap_or_else(|log| {
            let kept = folder.path().with_extension("aof");
            fs::write(&kept, &aof).expect("the file is written");
            panic!("RATELIMIT_WIRE_SEED={seed}, {}: {log}", kept.display())
        });
        let watchdog = Watchdog::over(&server);
        let (mut c, line) = (server.connect(), watchdog.line("asking"));
        line.during("DEBUG DIGEST", || digest(&mut c));
        keys += line.during("DBSIZE", || ask::<u64>(&mut c, "DBSIZE"));
        let _: Value = line.during("SAVE", || ask(&mut c, "SAVE"));
        assert_calm(&server.log());
        watchdog.assert_quiet();
        files += 1;
    }
    assert!(keys > 0, "no record made a key");
    println!(
        "{}: {files} append-only files of {RECORDS} records from RATELIMIT_WIRE_SEED={}, {:?}",
        flavor.name,
        seed(),
        start.elapsed()
    );
}
