//! Runs `benches/latency/` for a second at each rate.

use std::process::Command;

use crate::support::server;

#[test]
fn latencies_are_measured_beside_incr() {
    let root = env!("CARGO_MANIFEST_DIR");
    let name = "latency-of-a-test";
    let measured = Command::new("python3")
        .args(["-B", "-m", "benches.latency", "--server", server::one().name, "--name", name])
        .args(["--rounds", "1", "--seconds", "1", "--rates", "500,0"])
        .args(["--only", "^alone: RL.CHECK bucket, denied"])
        .env("PYTHONPATH", ".cache/python")
        .current_dir(root)
        .output()
        .expect("python3 starts");
    let errors = String::from_utf8_lossy(&measured.stderr);
    assert!(measured.status.success(), "{errors}");
    let printed = String::from_utf8(measured.stdout).expect("text");
    let rows: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("| ")).collect();
    for row in ["INCR", "RL.CHECK bucket, denied"] {
        let found = rows.iter().filter(|line| line.split(" |").next() == Some(row)).count();
        assert_eq!(found, 2, "{row}:\n{printed}\n{errors}");
    }
    let results = std::fs::read_to_string(format!("{root}/target/bench/{name}.json"));
    assert_eq!(results.expect("results").matches(r#""ratio""#).count(), 4);
}
