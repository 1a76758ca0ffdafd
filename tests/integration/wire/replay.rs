//! The log of a failed round, and how to send it again.
//!
//! ```text
//! SERVER LF, then for each batch in the order of sending:
//! CONNECTION 2|3 REPLIES BYTES LF
//! the bytes LF
//! ```
//!
//! The batches are sent again one by one, each after all replies to the previous one.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::TempDir;

use super::generator::{Expect, Generator, Menu};
use super::resp::Protocol;
use super::session::Session;
use super::storm;
use crate::support::client::{ask, now_us};
use crate::support::dump::{Dump, assert_calm};
use crate::support::server::{self, Flavor};
use crate::support::watchdog::Watchdog;

/// Logs the commands of a round in a file that stays.
pub fn keep(
    flavor: Flavor,
    menu: Menu,
    seed: u64,
    dump: &Dump,
    order: &Mutex<Vec<usize>>,
) -> PathBuf {
    let folder = TempDir::with_prefix("ratelimit-wire-").expect("a temporary folder").keep();
    let path = folder.join("commands.log");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    writeln!(file, "{}", flavor.name).expect("written");
    let mut generators = BTreeMap::new();
    for &connection in &*order.lock().expect("no panic") {
        let generator = generators
            .entry(connection)
            .or_insert_with(|| Generator::new(menu, seed, connection, dump.clone()));
        let batch = generator.next_batch();
        let protocol = if batch.protocol == Protocol::Resp2 { 2 } else { 3 };
        let replies = batch.sent.iter().filter(|sent| sent.expect != Expect::Silence).count();
        let length = batch.bytes.len();
        writeln!(file, "{connection} {protocol} {replies} {length}").expect("written");
        file.write_all(&batch.bytes).expect("written");
        writeln!(file).expect("written");
    }
    path
}

/// Sends the batches of a log to the server that it names. Returns the number of batches.
fn replay(log: &Path) -> usize {
    let log = fs::read(log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let mut rest = &log[..];
    let name = line(&mut rest);
    let known = server::all().into_iter().find(|flavor| flavor.name == name);
    let server = storm::start(known.unwrap_or_else(|| panic!("no server '{name}'")));
    let watchdog = Watchdog::over(&server);
    let mut sessions = BTreeMap::new();
    let mut batches = 0;
    while !rest.is_empty() {
        let head = line(&mut rest);
        let numbers: Vec<usize> =
            head.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [connection, protocol, replies, length] = numbers[..] else { panic!("'{head}'") };
        let protocol = if protocol == 2 { Protocol::Resp2 } else { Protocol::Resp3 };
        let (bytes, after) = rest.split_at(length);
        rest = after.strip_prefix(b"\n").expect("a line end behind a batch");
        let session = sessions.entry(connection).or_insert_with(|| {
            Session::open(&server, watchdog.line(format!("connection {connection}")))
        });
        let result = session.converse(bytes, protocol, replies, |_| Ok(()));
        result.unwrap_or_else(|why| {
            panic!("batch {batches}, connection {connection}: {why}\n{}", server.log())
        });
        batches += 1;
    }
    assert_calm(&server.log());
    watchdog.assert_quiet();
    assert!(now_us(&mut server.connect()) > 0, "the server answers");
    batches
}

/// The next line of a log.
fn line(rest: &mut &[u8]) -> String {
    let end = rest.iter().position(|&byte| byte == b'\n').expect("a line");
    let (line, after) = rest.split_at(end);
    *rest = &after[1..];
    String::from_utf8_lossy(line).into_owned()
}

#[test]
fn a_kept_log_is_sent_again() {
    if let Some(log) = env::var_os("RATELIMIT_WIRE_REPLAY") {
        println!("{} batches were sent again", replay(Path::new(&log)));
        return;
    }
    let flavor = server::all()[0];
    let server = storm::start(flavor);
    let mut c = server.connect();
    let () = ask(&mut c, "RL.BLOCK k");
    let dump = Dump::of(&mut c, "k");
    let order = Mutex::new(vec![0, 1, 1, 0, 2]);
    let log = keep(flavor, Menu::Everything, super::seed(), &dump, &order);
    assert_eq!(replay(&log), 5);
    fs::remove_dir_all(log.parent().expect("a folder")).expect("removed");
}
