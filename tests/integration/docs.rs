//! Replays the README and the guides: each transcript must show what a user at a terminal gets.

pub mod errors;
mod likeness;
mod pages;
mod replay;
mod shown;
mod steps;
mod transcript;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use likeness::difference;
use redis::cmd;
use replay::{client, flavor, plain, replay, replay_on};
use tempfile::TempDir;
use transcript::{Block, Typed, blocks, shown};

use crate::support::server::{self, Flavor};

const COMMANDS: &str = include_str!("../../docs/reference/commands.md");
const HOLDS: &str = include_str!("../../docs/guide/holds.md");
const HTTP: &str = include_str!("../../docs/guide/http.md");
const LLMS: &str = include_str!("../../llms.txt");
const MIGRATE: &str = include_str!("../../docs/migrate.md");
const README: &str = include_str!("../../README.md");
const OPERATIONS: &str = include_str!("../../docs/operate/run.md");
const POLICIES: &str = include_str!("../../docs/guide/policies.md");
const RULES: &str = include_str!("../../docs/guide/rules.md");
const SECURITY: &str = include_str!("../../SECURITY.md");
const WAITING: &str = include_str!("../../docs/guide/waiting.md");

#[test]
fn transcripts_of_the_readme_are_true() {
    replay(README);
}

#[test]
fn transcripts_of_the_guide_to_rules_are_true() {
    replay(RULES);
}

#[test]
fn transcripts_of_the_reference_of_commands_are_true() {
    replay(COMMANDS);
}

#[test]
fn transcripts_of_the_guides_to_http_and_migration_are_true() {
    replay(HTTP);
    replay(MIGRATE);
}

#[test]
fn transcripts_of_the_operations_guide_are_true() {
    replay(OPERATIONS);
    replay_on(*server::all().last().expect("a server"), OPERATIONS);
}

#[test]
fn transcripts_of_the_guide_to_policies_are_true() {
    replay(POLICIES);
}

#[test]
fn transcripts_of_the_guide_to_holds_are_true() {
    replay(HOLDS);
}

#[test]
fn transcripts_of_the_guide_to_waiting_are_true() {
    replay(WAITING);
}

#[test]
fn transcripts_of_the_page_for_language_models_are_true() {
    replay(LLMS);
}

/// Each package tests the programs in its README, so the page must show the lines of these programs.
#[test]
fn programs_of_the_page_for_language_models_are_those_of_the_packages() {
    let packages = [
        ("python", include_str!("../../clients/python/README.md")),
        ("js", include_str!("../../clients/node/README.md")),
        ("rust", include_str!("../../clients/rust/README.md")),
    ];
    for (language, document) in packages {
        let page = blocks(LLMS);
        let programs: Vec<_> = page.iter().filter(|block| block.language == language).collect();
        assert_eq!(programs.len(), 1, "{language}");
        let mut lines = document.lines();
        for line in &programs[0].text {
            assert!(lines.any(|tested| tested == line), "{language}, in this order: {line}");
        }
    }
    assert!(LLMS.split_whitespace().count() <= 900, "one page");
}

#[test]
fn every_transcript_is_replayed() {
    let is_transcript = |block: &&Block| block.typed().is_some();
    let plain = |block: &Block| block.language.is_empty();
    for guide in [COMMANDS, HOLDS, HTTP, LLMS, MIGRATE, POLICIES, RULES, WAITING] {
        assert!(blocks(guide).iter().all(|block| block.typed().is_some() == plain(block)));
    }
    let in_readme = blocks(README).iter().filter(is_transcript).count();
    assert_eq!(in_readme, README.matches("```\n> ").count());
    let mut listeners = 0;
    for block in blocks(OPERATIONS) {
        match block.typed() {
            Some(typed) => listeners += usize::from(matches!(typed, Typed::Listener(_))),
            None => assert!(!block.language.is_empty(), "line {}", block.line),
        }
    }
    assert_eq!(listeners, 1, "of events");
}

/// Only numbers that naturally vary may differ.
#[test]
fn a_document_that_differs_is_noticed() {
    let differs = |command: &str, documented: &str, replied: &str| {
        difference(command, &shown(documented), &shown(replied), Duration::ZERO).is_some()
    };
    let check = "RL.CHECK k 5/h 1/m";
    let five = |a, b, c, d, e| {
        let line = |(at, value)| format!("{}) (integer) {value}\n", at + 1);
        [a, b, c, d, e].into_iter().enumerate().map(line).collect::<String>()
    };
    let documented = five(1, 500, 100, 59_000, 60_000);
    assert!(!differs(check, &documented, &five(1, 500, 100, 57_900, 59_999)));
    for (other, what) in [
        (five(2, 500, 100, 59_000, 60_000), "verdict"),
        (five(1, 501, 100, 59_000, 60_000), "limit"),
        (five(1, 500, 101, 59_000, 60_000), "remaining"),
        (five(1, 500, 100, 49_000, 60_000), "wait"),
        (five(1, 500, 100, 59_000, -1), "reset"),
        (five(1, 500, 100, 59_000, 60_000) + "6) (integer) 0", "length"),
    ] {
        assert!(differs(check, &documented, &other), "{what}");
    }
    assert!(!differs(check, "1,5,0,990,1000\n0,5,4,0,1000", "1,5,0,999,1000\n0,5,4,0,998"));
    assert!(differs(check, "1,5,0,990,1000\n0,5,4,0,1000", "1,5,0,999,1000\n0,5,3,0,998"));
    assert!(!differs(check, "1) (integer) 0     allowed", "1) (integer) 0"));
    assert!(differs(check, "1) (integer) 0 allowed", "1) (integer) 0"));
    // With a time given, every number is known.
    let dated = "RL.CHECK k AT 4102444800000000 5/h 1/m";
    assert!(differs(dated, &documented, &five(1, 500, 100, 58_999, 60_000)));
    assert!(!differs(dated, &documented, &documented));
    // A slow machine shortens waits and changes nothing else.
    let slowly = |documented: &str, replied: &str| {
        let took = Duration::from_millis(60);
        difference(check, &shown(documented), &shown(replied), took).is_some()
    };
    assert!(!slowly("1,5,0,493,500", "1,5,0,440,470"));
    assert!(slowly("1,5,0,493,500", "1,5,0,420,470"));
    assert!(slowly("1,5,1,493,500", "1,5,0,440,470"));
    // The time left of a month depends on the day; what is left of a limit does not.
    let monthly = "RL.CHECK k fixed:5/month";
    assert!(!differs(monthly, "0,5,4,0,2000000000", "0,5,4,0,77"));
    assert!(differs(monthly, "0,5,4,0,2000000000", "0,5,3,0,77"));
    assert!(differs(monthly, "0,5,4,0,2000000000", "0,5,4,0,2678400001"));
    let info = |rule, consumed, reset_ms| {
        format!(r#"{{"rule":"log/{rule}m","consumed":{consumed},"reset_ms":{reset_ms}}}"#)
    };
    assert!(!differs("RL.INFO k", &info(10, 300, 599_000), &info(10, 300, 590_000)));
    assert!(differs("RL.INFO k", &info(10, 300, 599_000), &info(11, 300, 599_000)));
    assert!(differs("RL.INFO k", &info(10, 300, 599_000), &info(10, 301, 599_000)));
    // A Unix time other than the present counts as a difference.
    assert!(differs("RL.LOG k", "1763744291000", "1763744291000"));
    assert!(differs("INFO ratelimit", "ratelimit_checks:1000", "ratelimit_checks:1001"));
    assert!(differs(
        "RL.TOP",
        "1) 1) \"k\"\n   2) (integer) 1000",
        "1) 1) \"k\"\n   2) (integer) 1001"
    ));
}

#[test]
fn the_table_lists_the_counters_of_the_server() {
    let section: String =
        cmd("INFO").arg("ratelimit").query(&mut flavor().start().connect()).unwrap();
    let fields: Vec<_> = section.lines().filter_map(|line| line.split_once(':')).collect();
    let names: Vec<_> = fields.into_iter().map(|(name, _)| name).collect();
    let row = |line: &'static str| line.strip_prefix("| `ratelimit_")?.split_once('`');
    let rows = OPERATIONS.lines().filter_map(row);
    assert_eq!(rows.map(|(name, _)| format!("ratelimit_{name}")).collect::<Vec<_>>(), names);
    // Alerts and queries name counters that exist.
    let named = OPERATIONS.split("key=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    for (name, _) in named {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_acl_recipe_names_the_commands_of_the_category_ratelimit() {
    let by_name = SECURITY.lines().rfind(|line| line.starts_with("ACL SETUSER app "));
    let words = by_name.expect("a recipe").split(' ');
    let mut named: Vec<_> = words.filter_map(|word| word.strip_prefix('+')).collect();
    named.retain(|name| *name != "ping");
    // On Redis 7.0, commands of modules are in no category.
    let newest = server::all().into_iter().find(|flavor| flavor.name == "redis-8.2").unwrap();
    let mut held: Vec<String> =
        cmd("ACL").arg("CAT").arg("ratelimit").query(&mut newest.start().connect()).unwrap();
    named.sort_unstable();
    held.sort_unstable();
    assert_eq!(named, held);
}

/// Whether a client shows hints from a server's `COMMAND DOCS`, which exists since Redis 7.0.
/// The client of 6.2 does not use it.
fn shows_hints(client: &str, server: Flavor) -> bool {
    client != "redis-6.2" && server.is_7_or_later()
}

/// What a terminal shows after the name of a command.
const HINTS: [&str; 2] = [
    "RL.BLOCK key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|FOR period] [REASON reason]",
    "RL.CHECK key [COST cost|a..b|name=cost [COST cost|a..b|name=cost ...]] [META text] [HOLD id EX seconds|PX milliseconds [REFUND]] [AT unix-time-microseconds] [FULL] rule [rule ...]",
];

#[test]
fn redis_cli_hints_at_the_arguments_of_a_command() {
    const CLIENTS: [&str; 3] = ["redis-6.2", "redis-7.0", "valkey-8.1"];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/docs/terminal.py");
    let expected = HINTS.map(|hint| format!("127.0.0.1:6379> {hint}"));
    let typed = |hint: &str| hint.split(' ').next().expect("a command").to_string() + " ";
    server::on_all(|server| {
        let home = TempDir::new().unwrap();
        let type_into = |name: &'static str| {
            let mut terminal = plain("python3", home.path());
            terminal.arg(&script).arg(client(name)).arg(server.port().to_string());
            terminal.args(HINTS.map(typed)).stdout(Stdio::piped());
            (name, terminal.spawn().expect("python3 starts"))
        };
        for (name, terminal) in CLIENTS.map(type_into) {
            let Output { stdout, status, .. } = terminal.wait_with_output().expect("it ends");
            assert!(status.success(), "{name}");
            let shown = String::from_utf8(stdout).unwrap();
            let shown: Vec<_> = shown
                .lines()
                .map(|line| line.replace(&server.port().to_string(), "6379"))
                .collect();
            if shows_hints(name, server.flavor()) {
                assert_eq!(shown, expected, "{name}");
            } else {
                assert!(
                    shown.iter().all(|line| line.ends_with("...options...")),
                    "{name}: {shown:?}"
                );
            }
        }
    });
}
