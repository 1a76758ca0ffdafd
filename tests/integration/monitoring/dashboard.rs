//! The dashboard. `dashboard.py` makes it with Grafana's own builders.

use std::process::Command;

use super::prometheus::MONITORING;
use crate::support::server::from_env;

/// Runs `dashboard.py`.
fn made(arguments: &[&str]) -> String {
    let program = format!("{MONITORING}/dashboard.py");
    let output = Command::new("python3")
        .args(["-B", &program])
        .args(arguments)
        .env("PYTHONPATH", from_env("RATELIMIT_GRAFANA", ".cache/grafana"))
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Each query of the dashboard, with the title of its panel.
pub fn queries() -> Vec<(String, String)> {
    let printed = made(&["--queries"]);
    let lines = printed.lines().map(|line| line.split_once('\t').expect("a title and a query"));
    lines.map(|(title, query)| (title.to_string(), query.to_string())).collect()
}

#[test]
fn the_dashboard_is_what_its_program_makes() {
    let kept = include_str!("../../../monitoring/dashboard.json");
    assert!(kept == made(&[]), "run `make dashboard`");
}
