//! docs/reference/errors.md: real servers must give each reply that it lists.
//!
//! `src/command/documented_errors.rs` tests that each error of the module has a row.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use redis::cmd;

use crate::support::client::{ask, info};
use crate::support::server::{self, Server, eventually};
use crate::support::waiters::waiting;

/// Rows that other tests cover. Redirections need a cluster of several nodes
/// (`replication/cluster.rs`), a skipped effect needs a newer primary
/// (`durability/effects.rs`), holds on too many rules need more rules than this test allows
/// (`command/holds.rs`), and an internal error needs a build with a fault.
const ELSEWHERE: [&str; 6] = [
    "MOVED …",
    "ASK …",
    "TRYAGAIN …",
    "ERR this replica skipped …",
    "ERR holds on … rules or more in the key already (…)",
    "ERR internal error, see the server's log",
];

/// Commands that fail after the preparation in [`wrong_input`], at times of the caller's choice too.
pub const WRONG: &[&str] = &[
    "RL.NOSUCH k",
    "RL.CHECK string 5/m",
    "RL.RESET k 5/m",
    "RL.CHECK k FLUL 5/m",
    "RL.CHECK k META a META a 5/m",
    "RL.CHECK k META",
    "RL.CHECK k COST x 5/m",
    "RL.BLOCK k FOR x",
    "RL.BLOCK k FOR 5h5",
    "RL.WAIT k 0 AT 5 5/m",
    "RL.PEEK k HOLD a EX 5 5/m",
    "RL.CHECK k COST in=5 5/m",
    "RL.SETTLE k a COST a=1 COST b=1 COST c=1",
    "RL.SETTLE k a REFUND COST 1",
    "RL.MCHECK 3 a b c 5/m NEXT 5/m",
    "RL.BLOCK k EXAT 1",
    "RL.PAUSE k REASON x",
    "RL.PAUSE k EX 31622401",
    "RL.SYNC k REMAINING 1 5/m 5/h",
    "RL.SYNC k REMAINING 1 slots:5",
    "RL.CHECK k @nobody",
    "RL.POLICY SET p @q",
    "RL.CHECK k 1/s bucket:1/m fixed:1/h",
    "RL.CHECK k 200000/m",
    "RL.CHECK k 5/m 9/m",
    "RL.CHECK k 5/m,cost=1 9/h,cost=2",
    "RL.CHECK k slots:5",
    "RL.CHECK k 5/m,res=2",
    "RL.CHECK full window:5/h,name=c",
    "RL.CHECK holding HOLD b EX 99 slots:5",
    "RL.CHECK holding HOLD a EX 99 COST 2 slots:5",
    "RL.APPLY k v1:1:0:admit:1 5/m",
];

/// A connection that returns replies as received.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn to(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        Self(BufReader::new(socket))
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("sent");
    }

    /// The first line of a reply.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply");
        line.trim_end().to_string()
    }

    fn reply(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// An error, without its leading `-`.
    fn error(&mut self, line: &str) -> String {
        let reply = self.reply(line);
        reply.strip_prefix('-').unwrap_or_else(|| panic!("{line}: {reply}")).to_string()
    }

    fn must(&mut self, line: &str) {
        assert_eq!(self.reply(line), "+OK", "{line}");
    }
}

/// Waits until the reply to `RL.CHECK` is an error with this code.
fn eventually_refused(port: u16, code: &str) -> String {
    let mut error = None;
    eventually(code, || {
        let reply = Raw::to(port).reply("RL.CHECK k 5/m");
        error = reply.strip_prefix('-').map(ToString::to_string);
        error.as_ref().is_some_and(|error| error.starts_with(code))
    });
    error.expect("an error")
}

fn wrong_input(server: &Server) -> Vec<String> {
    let mut c = server.connect();
    let () = ask(&mut c, "SET string x");
    let _: redis::Value = ask(&mut c, "RL.CHECK full window:5/h,name=a window:5/h,name=b");
    let _: redis::Value = ask(&mut c, "RL.CHECK holding HOLD a EX 99 slots:5");
    let mut raw = Raw::to(server.port());
    let mut errors: Vec<_> = WRONG.iter().map(|line| raw.error(line)).collect();
    raw.must("MULTI");
    raw.error("RL.NOSUCH k");
    errors.push(raw.error("EXEC"));
    errors
}

fn no_rights(server: &Server) -> Vec<String> {
    let mut admin = Raw::to(server.port());
    admin.must("ACL SETUSER nobody on >secret");
    let mut nobody = Raw::to(server.port());
    let wrong = nobody.error("AUTH nobody wrong");
    nobody.must("AUTH nobody secret");
    let errors = vec![wrong, nobody.error("RL.CHECK k 5/m")];
    admin.must("CONFIG SET requirepass secret");
    let stranger = Raw::to(server.port()).error("RL.CHECK k 5/m");
    admin.must("CONFIG SET requirepass \"\"");
    [errors, vec![stranger]].concat()
}

/// Errors of a working server that cannot execute this command now.
fn busy(server: &Server) -> Vec<String> {
    let port = server.port();
    let (mut admin, mut c) = (Raw::to(port), server.connect());
    let mut with = |set: &str, reset: &str| {
        admin.must(set);
        let error = eventually_refused(port, "");
        admin.must(reset);
        error
    };
    let mut errors = vec![
        with("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        with("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ];

    let mut script = Raw::to(port);
    script.send("EVAL \"while true do end\" 0");
    errors.push(eventually_refused(port, "BUSY"));
    admin.must("SCRIPT KILL");
    script.line();

    // A folder in place of the file makes each save fail.
    fs::create_dir(server.dir().join("dump.rdb")).expect("a folder");
    admin.must("CONFIG SET save \"900 1\"");
    admin.reply("BGSAVE");
    errors.push(eventually_refused(port, "MISCONF"));
    admin.must("CONFIG SET save \"\"");
    fs::remove_dir(server.dir().join("dump.rdb")).expect("an empty folder");

    let _: redis::Value = ask(&mut c, "RL.CHECK line HOLD a EX 99 slots:1");
    let mut waiter = Raw::to(port);
    let id = waiter.reply("CLIENT ID");
    waiter.send("RL.WAIT line 60000 HOLD b EX 99 slots:1");
    eventually("a client to wait", || waiting(&mut c) == 1);
    admin.reply(&format!("CLIENT UNBLOCK {} ERROR", &id[1..]));
    errors.push(waiter.line()[1..].to_string());

    let clients = info(&mut c, "clients", "connected_clients");
    admin.must(&format!("CONFIG SET maxclients {clients}"));
    eventually("no room for a client", || {
        let mut late = Raw::to(port);
        // A server closes a client for which it has no room, perhaps before the command
        // arrives.
        let _ = late.0.get_mut().write_all(b"PING\r\n");
        let mut line = String::new();
        let refused = late.0.read_line(&mut line).is_ok() && line.starts_with('-');
        if refused {
            errors.push(line.trim_end()[1..].to_string());
        }
        refused
    });
    admin.must("CONFIG SET maxclients 10000");
    errors
}

fn on_a_replica(server: &Server) -> Vec<String> {
    let replica = server.flavor().start();
    let mut raw = Raw::to(replica.port());
    raw.must(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    let readonly = raw.error("RL.CHECK k 5/m");
    raw.must("CONFIG SET replica-serve-stale-data no");
    // No server listens on this port.
    raw.must("REPLICAOF 127.0.0.1 1");
    vec![readonly, raw.error("RL.PEEK k 5/m")]
}

fn while_loading(server: &Server) -> Vec<String> {
    // A loading server answers clients after every two megabytes of a file.
    let builder = server.flavor().builder().config("rdbcompression", "no");
    let mut server = builder.config("key-load-delay", "1000").start();
    let () = ask(&mut server.connect(), "DEBUG POPULATE 2000 k 5000");
    server.stop();
    let port = server.port();
    let asked = thread::spawn(move || {
        loop {
            // Nothing listens until the server has started.
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return eventually_refused(port, "LOADING");
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    server.resume();
    vec![asked.join().expect("LOADING was seen")]
}

fn in_a_cluster(server: &Server) -> Vec<String> {
    let node = server.flavor().builder().config("cluster-enabled", "yes").start();
    let mut c = node.connect();
    let down = eventually_refused(node.port(), "CLUSTERDOWN");
    let slots: Vec<u16> = (0..server::cluster::SLOTS).collect();
    let () = cmd("CLUSTER").arg("ADDSLOTS").arg(slots).query(&mut c).expect("OK");
    let crosses = || Raw::to(node.port()).reply("RL.MCHECK 2 a b 5/m");
    eventually("the slots to be served", || crosses().starts_with("-CROSSSLOT"));
    vec![down, crosses()[1..].to_string()]
}

/// The error texts in the first cells of the tables.
fn documented() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/errors.md");
    let text = fs::read_to_string(path).expect("the document");
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_string());
    text.lines().filter_map(cell).collect()
}

/// Whether a text matches a form, in which `…` stands for any text.
fn fits(form: &str, text: &str) -> bool {
    let Some((start, rest)) = form.split_once('…') else { return form == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| fits(rest, &text[at..]))
}

#[test]
fn each_documented_error_is_replied() {
    let forms = documented();
    assert!(forms.len() > 40, "{forms:?}");
    server::on_all_with(
        |builder| {
            let args = ["max-rules", "2", "max-states", "2", "max-holds", "1"];
            builder.module_args(&args).config("lua-time-limit", "5")
        },
        |server| {
            let errors = [
                wrong_input(server),
                no_rights(server),
                busy(server),
                on_a_replica(server),
                while_loading(server),
                in_a_cluster(server),
            ]
            .concat();
            // If several rows match, the longest one counts, which is the most precise.
            let mut replied = BTreeSet::from(ELSEWHERE);
            for error in &errors {
                let of = forms.iter().filter(|form| fits(form, error));
                let form = of.max_by_key(|form| form.len());
                replied.insert(form.unwrap_or_else(|| panic!("errors.md lacks «{error}»")));
            }
            for form in &forms {
                assert!(
                    replied.contains(form.as_str()),
                    "no reply matches the form «{form}»: {errors:#?}"
                );
            }
        },
    );
}
