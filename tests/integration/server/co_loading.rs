//! This module beside another in one server: both answer correctly under traffic of both, and the
//! server loads files with data of both. A server that lacks one module refuses that module's data
//! and loses nothing.

use std::path::{Path, PathBuf};
use std::thread;

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, dump};
use crate::support::files::{eventually_saved, with_aof};
use crate::support::server::{self, Builder, Flavor, Server, module};
use crate::support::server::{falkordb, redis_cell};

const CALLS: usize = 500;
const KEYS: usize = 10;
const LIMIT: usize = 1_000;

struct Neighbour {
    path: PathBuf,
    /// Makes the call of this number, and checks the answer.
    call: fn(&mut Connection, usize),
    /// All that its calls have stored.
    data: fn(&mut Connection) -> Vec<Value>,
    /// What a server without the neighbour logs about its data; `None` if these are plain strings.
    refusal: Option<&'static str>,
    /// The files that preserve the neighbour's data.
    files: [File; 3],
}

impl Neighbour {
    /// The calls of redis-cell in an AOF would count again when the server loads the AOF.
    fn redis_cell() -> Self {
        let files = [File::Rdb, File::Preamble, File::Rewritten];
        Self { path: redis_cell(), call: throttle, data: buckets, refusal: None, files }
    }

    /// `FalkorDB` cannot rewrite its data as commands: the server's rewrite fails.
    fn falkordb() -> Self {
        let files = [File::Rdb, File::Preamble, File::Appended];
        Self { path: falkordb(), call: grow, data: nodes, refusal: Some("graph"), files }
    }
}

fn throttle(c: &mut Connection, call: usize) {
    let key = format!("theirs{}", call % KEYS);
    let answer = first(c, cmd("CL.THROTTLE").arg(key).arg(&[LIMIT - 1, LIMIT, 86_400]));
    assert_eq!(answer, [0, LIMIT, LIMIT - 1 - call / KEYS]);
}

fn buckets(c: &mut Connection) -> Vec<Value> {
    (0..KEYS).map(|n| ask(c, &format!("GET theirs{n}"))).collect()
}

/// `FalkorDB`'s reply: the columns, the rows, the statistics.
type Answer = (Value, Vec<Vec<usize>>, Value);

fn grow(c: &mut Connection, call: usize) {
    let query = |text: String| cmd("GRAPH.QUERY").arg("theirs").arg(text).to_owned();
    let _: Vec<Value> = query(format!("CREATE (:Call {{n: {call}}})")).query(c).expect("a node");
    let count: Answer =
        query("MATCH (c:Call) RETURN count(c), sum(c.n)".into()).query(c).expect("a count");
    assert_eq!(count.1, [[call + 1, call * (call + 1) / 2]]);
}

fn nodes(c: &mut Connection) -> Vec<Value> {
    let query = "MATCH (c:Call) RETURN c.n ORDER BY c.n";
    let (_, rows, _): (Value, Vec<Value>, Value) =
        cmd("GRAPH.QUERY").arg("theirs").arg(query).query(c).expect("rows");
    assert_eq!(rows.len(), CALLS);
    rows
}

fn first(c: &mut Connection, command: &redis::Cmd) -> [usize; 3] {
    let answer: Vec<i64> = command.query(c).expect("an answer");
    [0, 1, 2].map(|n| usize::try_from(answer[n]).expect("not negative"))
}

fn check(c: &mut Connection, call: usize) {
    let (key, rule) = (format!("ours{}", call % KEYS), format!("{LIMIT}/d"));
    assert_eq!(first(c, cmd("RL.CHECK").arg(key).arg(rule)), [0, LIMIT, LIMIT - 1 - call / KEYS]);
}

fn our_data(server: &Server) -> Vec<Option<Vec<u8>>> {
    let mut c = server.connect();
    (0..KEYS).map(|n| dump(&mut c, &format!("ours{n}"))).collect()
}

/// Makes calls of these kinds at the same time.
fn traffic(server: &Server, kinds: &[fn(&mut Connection, usize)]) {
    thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(|| {
                let mut c = server.connect();
                (0..CALLS).for_each(|call| kind(&mut c, call));
            });
        }
    });
}

/// Swaps the order in which an empty server loads its modules.
fn load_theirs_first(server: &mut Server) {
    server.edit_config(|lines| {
        let is_load = |line: &&mut String| line.starts_with("loadmodule ");
        let mut loads = lines.iter_mut().filter(is_load);
        let (ours, theirs) = (loads.next().expect("ours"), loads.next().expect("theirs"));
        std::mem::swap(ours, theirs);
    });
    server.kill9();
    server.resume();
}

/// Starts a stopped server without a module, stops it again and gives it the module back.
/// Returns the log if the server refused to start.
fn start_without(
    server: &mut Server,
    module: &Path,
    meanwhile: impl FnOnce(&Server),
) -> Result<(), String> {
    let mut all = Vec::new();
    server.edit_config(|lines| {
        all.clone_from(lines);
        lines.retain(|line| !line.starts_with(&format!("loadmodule {module:?}")));
        assert_eq!(lines.len() + 1, all.len(), "one line for {}", module.display());
    });
    let started = server.try_resume();
    if started.is_ok() {
        meanwhile(server);
        server.kill9();
    }
    server.edit_config(|lines| *lines = all);
    started
}

#[derive(Clone, Copy, Debug)]
enum File {
    Rdb,
    /// Rewritten as an RDB preamble.
    Preamble,
    /// Rewritten as commands.
    Rewritten,
    /// The commands as they came.
    Appended,
}

impl File {
    fn of(self, builder: Builder) -> Builder {
        match self {
            Self::Rdb => builder,
            Self::Preamble => with_aof(builder, true),
            Self::Rewritten | Self::Appended => with_aof(builder, false),
        }
    }

    /// Writes all keys to the file, and ends the server as a crash does.
    fn save(self, server: &mut Server) {
        let mut c = server.connect();
        match self {
            Self::Rdb => {
                let () = ask(&mut c, "SAVE");
            }
            Self::Preamble | Self::Rewritten => {
                let _: String = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
            }
            Self::Appended => {}
        }
        server.kill9();
    }
}

/// A server with both modules, which writes this file.
fn with_both(flavor: Flavor, neighbour: &Neighbour, file: File) -> Server {
    let load = format!("{:?}", neighbour.path);
    file.of(flavor.builder())
        .module_args(&["throttle-alias", "no"])
        .config("loadmodule", &load)
        .start()
}

fn assert_both_work(flavor: Flavor, neighbour: &Neighbour, file: File, theirs_first: bool) {
    let mut server = with_both(flavor, neighbour, file);
    if theirs_first {
        load_theirs_first(&mut server);
    }
    let context = format!("{} {file:?}, theirs first: {theirs_first}", flavor.name);
    traffic(&server, &[check, neighbour.call]);
    let ours = our_data(&server);
    let theirs = (neighbour.data)(&mut server.connect());
    assert!(ours.iter().all(Option::is_some) && theirs.iter().all(|data| *data != Value::Nil));
    let assert_kept = |server: &Server| {
        assert_eq!(our_data(server), ours, "{context}");
        assert_eq!((neighbour.data)(&mut server.connect()), theirs, "{context}");
    };
    file.save(&mut server);
    server.resume();
    assert_kept(&server);

    server.kill9();
    let refused = start_without(&mut server, &module(), |_| {});
    let log = refused.expect_err("a server without the module must refuse its data").to_lowercase();
    assert!(
        ["'ratelimit'", "'rl.", "ratelimit-"].iter().any(|text| log.contains(text)),
        "{context}: {log}"
    );
    server.resume();
    assert_kept(&server);

    server.kill9();
    assert_without_theirs(&mut server, neighbour, neighbour.refusal, &ours);
    server.resume();
    assert_kept(&server);
}

/// Starts a stopped server without the neighbour. The server has all our data, or logs the refusal.
fn assert_without_theirs(
    server: &mut Server,
    neighbour: &Neighbour,
    refusal: Option<&str>,
    ours: &[Option<Vec<u8>>],
) {
    let started =
        start_without(server, &neighbour.path, |server| assert_eq!(our_data(server), ours));
    match (refusal, &started) {
        (None, Ok(())) => {}
        (Some(text), Err(log)) if log.to_lowercase().contains(text) => {}
        _ => panic!("expected {refusal:?}: {started:?}"),
    }
}

/// A server without the neighbour loads our data from a file that has no keys of the neighbour. But
/// `FalkorDB` writes into each RDB file, even without keys.
fn assert_ours_load_alone(flavor: Flavor, neighbour: &Neighbour, file: File) {
    let mut server = with_both(flavor, neighbour, file);
    traffic(&server, &[check]);
    let ours = our_data(&server);
    file.save(&mut server);
    let only_commands = matches!(file, File::Rewritten | File::Appended);
    let refusal = neighbour.refusal.filter(|_| !only_commands);
    assert_without_theirs(&mut server, neighbour, refusal, &ours);
    server.resume();
    assert_eq!(our_data(&server), ours);
}

fn assert_shares_a_server(flavor: Flavor, neighbour: &Neighbour) {
    for file in neighbour.files {
        for theirs_first in [false, true] {
            assert_both_work(flavor, neighbour, file, theirs_first);
        }
        assert_ours_load_alone(flavor, neighbour, file);
    }
}

#[test]
fn redis_cell_shares_servers_and_files() {
    server::one_is_enough();
    server::on_each_at_once(|flavor| assert_shares_a_server(flavor, &Neighbour::redis_cell()));
}

#[test]
fn falkordb_shares_its_server_and_files() {
    for flavor in server::all().into_iter().filter(|flavor| flavor.name == "redis-8.2") {
        assert_shares_a_server(flavor, &Neighbour::falkordb());
    }
}
