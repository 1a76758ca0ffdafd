//! `examples/replay.py`: requests of a log, at their times.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::client::ask;
use crate::support::server;

/// Three requests of `a` within a second, one a minute later, and two of `b`, one of them
/// expensive.
const REQUESTS: &str = "\
1700000000.0 a
1700000000.2 a
1700000000.4 a

1700000001 b 2
1700000002.5 b 9
1700000060 a
";

#[test]
fn a_log_is_replayed_at_its_times() {
    let [flavor, ..] = server::all()[..] else { panic!("no server") };
    let server = flavor.builder().allow_at().start();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/replay.py");
    let mut replay = Command::new("python3")
        .args([
            "-B",
            program,
            "--redis",
            &format!("redis://127.0.0.1:{}", server.port()),
            "2/m",
            "bucket:5/s",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    replay.stdin.take().expect("a pipe").write_all(REQUESTS.as_bytes()).expect("it reads");
    let printed = replay.wait_with_output().expect("it ends").stdout;
    let printed = String::from_utf8(printed).expect("text");
    assert_eq!(printed, "4 passed, 2 denied\n       1 a\n       1 b\n");
    assert_eq!(ask::<i64>(&mut server.connect(), "DBSIZE"), 0);
}
