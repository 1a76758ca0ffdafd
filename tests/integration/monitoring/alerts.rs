//! The alerts. `monitoring/` has a test for each.

use std::process::Command;

use super::prometheus::{MONITORING, program};

pub const RULES: &str = include_str!("../../../monitoring/ratelimit.rules.yml");
const TESTS: &str = include_str!("../../../monitoring/ratelimit.rules.test.yml");

fn promtool(arguments: &[&str]) {
    let mut tool = Command::new(program("promtool"));
    let output = tool.args(arguments).current_dir(MONITORING).output().expect("it starts");
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{}", printed.concat());
}

pub fn alerts() -> Vec<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn each_alert_fires_where_it_must_and_nowhere_else() {
    promtool(&["check", "rules", "ratelimit.rules.yml"]);
    promtool(&["test", "rules", "ratelimit.rules.test.yml"]);
    for alert in alerts() {
        assert!(TESTS.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
    }
}

#[test]
fn each_alert_says_what_to_do() {
    let guide = include_str!("../../../docs/operate/run.md");
    for alert in alerts() {
        assert!(guide.contains(&format!("`{alert}`")), "the guide does not list {alert}");
    }
    assert_eq!(alerts().len(), RULES.matches("          summary: ").count());
    assert_eq!(alerts().len(), RULES.matches("          description: ").count());
}
