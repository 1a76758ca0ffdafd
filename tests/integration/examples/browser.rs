//! The pages of `examples/gateway/` and `examples/pool/` in a real browser, on a real server.

use std::process::Command;

use super::program::Program;
use crate::support::server::{self, Server};

/// Runs steps for tests/browser/visit.py.
fn visit(program: &Program, steps: &[&[&str]]) {
    let visit = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/visit.py");
    let url = format!("http://127.0.0.1:{}/", program.port());
    let mut browser = Command::new("python3");
    browser.args(["-B", visit, &url]).args(steps.iter().copied().flatten());
    let output = browser.output().expect("python3 starts");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn newest() -> Server {
    server::all().into_iter().next_back().expect("a matrix").start()
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

const STREAMS: &str = "#streams td:nth-child(2)";
const REQUESTS: &str = "#requests td:nth-child(2)";
const TOKENS: &str = "#tokens td:nth-child(2)";

#[test]
fn the_gateways_page_streams_stops_and_shows_what_is_left() {
    let server = newest();
    let model = Program::start("gateway/model.py", &["--pause-ms", "40", "--log", "/dev/null"]);
    let (redis, port) = (url(&server), model.port().to_string());
    let rules =
        ["slots:1,cost=1,name=streams", "3/h,cost=1,name=requests", "fixed:2000/d,name=tokens"];
    let line = ["--redis", &redis, "--model", &port];
    let gateway = Program::start("gateway/gateway.py", &[&line[..], &rules].concat());
    visit(
        &gateway,
        &[
            &["see", STREAMS, "1 of 1", "see", REQUESTS, "3 of 3", "see", TOKENS, "2000 of 2000"],
            // A prompt of three words, and an answer of 3.4 seconds. Until the answer ends, the call
            // holds its slot and its largest cost.
            &["fill", "#prompt", "one two three", "fill", "#most", "85", "click", "#ask"],
            &["see", STREAMS, "0 of 1", "see", TOKENS, "1912 of 2000"],
            &["match", "#state", "^Done", "match", "#answer", "^token-1 .*token-85$"],
            &["see", STREAMS, "1 of 1", "see", REQUESTS, "2 of 3", "see", TOKENS, "1912 of 2000"],
            // When the client stops a stream, the tokens that were not made come back.
            &["fill", "#most", "1000", "click", "#ask", "see", TOKENS, "909 of 2000"],
            &["match", "#answer", "token-5", "click", "#stop", "see", "#state", "Stopped."],
            &["see", STREAMS, "1 of 1", "match", TOKENS, r"^1[89]\d\d of 2000$"],
            &["fill", "#most", "1", "click", "#ask", "see", "#state", "Done."],
            &["click", "#ask", "match", "#state"],
            &[r"^Too many requests: requests, ask again in \d+ s\.$"],
            // Another tenant has separate limits.
            &["fill", "#tenant", "t8", "see", REQUESTS, "3 of 3"],
        ],
    );
}

#[test]
fn the_pools_page_shows_its_slots_and_gives_it_jobs() {
    let server = newest();
    let stops = ["--stop-every", "30", "--stop-s", "2", "--log", "/dev/null"];
    let upstream = Program::start("pool/upstream.py", &stops);
    let (redis, port) = (url(&server), upstream.port().to_string());
    let rules = ["slots:2,name=slots", "20/1200ms,name=rate"];
    let line = ["--redis", &redis, "--upstream", &port, "--flow"];
    let flows = ["--flow", "big", "--flow", "small"];
    let board = Program::start("pool/board.py", &[&line[..2], &flows, &rules].concat());
    let pools = [["big", "--workers", "4"], ["small", "--workers", "2"]]
        .map(|flow| Program::start("pool/pool.py", &[&line[..], &flow, &rules].concat()));
    visit(
        &board,
        &[
            &["see", "#slots td:nth-child(2)", "2 of 2", "see", "#paused", "no", "click", "#more"],
            // Six workers for two slots: some wait, and the board shows who works.
            &["match", "#waiting", "^[1-4]$", "match", "#slots td:nth-child(2)", "^[01] of 2$"],
            &["match", "#holds", r"(big|small)-w[1-4]\.\d+\.\d+, for \d+\.\d s"],
            &["match", "#paused", r"^for \d\.\d s, 429$"],
            &["match", "#small td:nth-child(4)", r"^([5-9]|1\d)$", "see", "#paused", "no"],
            &["see", "#small td:nth-child(3)", "20", "see", "#big td:nth-child(2)", "0"],
            &["see", "#big td:nth-child(3)", "20", "see", "#waiting", "0"],
            &["see", "#slots td:nth-child(2)", "2 of 2", "see", "#holds", ""],
            &["click", "#more", "match", "#paused", "^for", "see", "#paused", "no"],
            &["see", "#small td:nth-child(3)", "40", "see", "#big td:nth-child(3)", "40"],
        ],
    );
    pools.into_iter().for_each(Program::stop);
}
