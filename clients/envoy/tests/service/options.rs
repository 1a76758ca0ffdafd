//! `--check-config`, and the options as the reference spells them.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use crate::server::Server;
use crate::support::service::{PATIENCE, command};

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 7}
  - key: trial
    rate_limit: {unit: day, requests_per_unit: 0}
    shadow_mode: true
";

/// Runs the program with this configuration and these variables until it ends, or for 20 seconds.
fn run(config: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(folder.path().join("config/shop.yaml"), config).expect("a file");
    let mut command = command(&folder.path().display().to_string());
    command.envs(variables.iter().copied()).args(arguments);
    let mut program =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let start = Instant::now();
    while program.try_wait().expect("a child").is_none() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    // An error means that the program has ended.
    let _ = program.kill();
    program.wait_with_output().expect("it runs")
}

/// What `--check-config` prints, or else its error.
fn check(rules: &str, url: &str, variables: &[(&str, &str)]) -> Result<String, String> {
    let config = format!("domain: shop\ndescriptors: [{{key: a, {rules}}}]");
    let variables = [variables, &[("REDIS_URL", url), ("REDIS_TIMEOUT", "10s")]].concat();
    let Output { status, stdout, stderr } = run(&config, &variables, &["--check-config"]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
}

#[test]
fn a_checked_configuration_is_accepted_by_the_server() {
    let server = Server::start("redis-7.0");
    let url = format!("127.0.0.1:{}", server.port());
    let many = (1..=33).map(|n| format!("'{n}/{n}m'")).collect::<Vec<_>>().join(", ");
    let many = format!("rules: [{many}]");
    for (rules, expected) in [
        (&*many, "expected at most 32"),
        ("rules: ['100001/h']", "100000"),
        ("policy: none", "unknown policy"),
        ("plan: none", "unknown policy"),
    ] {
        let error = check(rules, &url, &[]).expect_err(rules);
        assert!(error.contains("shop.a: ") && error.contains(expected), "{error}");
        if rules.starts_with("rules") {
            assert!(check(rules, "127.0.0.1:1", &[]).is_err(), "{rules}: by the default settings");
        }
    }
    server.send("CONFIG SET ratelimit.max-rules 33");
    server.send("CONFIG SET ratelimit.max-log-entries 200000");
    server.send("RL.POLICY SET none 5/m");
    for rules in [&*many, "rules: ['100001/h']", "policy: none", "plan: none"] {
        check(rules, &url, &[]).expect("the server's settings decide");
    }
    let plain = Server::without_module("redis-6.2", &[]);
    let url = format!("127.0.0.1:{}", plain.port());
    let by_script = [("ENGINE", "SCRIPT")];
    assert_eq!(check("rules: ['5/m']", &url, &by_script).as_deref(), Ok("shop.a: 5/m\n"));
}

#[test]
fn a_server_refuses_no_check_of_an_accepted_configuration_at_the_start() {
    let server = Server::start("redis-7.0");
    let url = format!("127.0.0.1:{}", server.port());
    let config = "{domain: shop, descriptors: [{key: a, rules: ['100001/h']}]}";
    let variables =
        [("REDIS_URL", &*url), ("REDIS_TIMEOUT", "10s"), ("PORT", "0"), ("GRPC_PORT", "0")];
    let ended = run(config, &variables, &[]);
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && error.contains("100000"), "{error}");
    assert!(!error.contains("serving"), "{error}");
}

#[test]
fn the_spellings_of_the_reference_are_read() {
    let cases = [
        ("REDIS_TYPE", "SINGLE"),
        ("REDIS_TYPE", "Cluster"),
        ("LOG_FORMAT", "JSON"),
        ("LOG_LEVEL", "WARN"),
        ("LOG_LEVEL", "warning"),
        ("LOG_LEVEL", "fatal"),
        ("LOG_LEVEL", "PANIC"),
        ("SHADOW_MODE", "TRUE"),
        ("SHADOW_MODE", "F"),
        ("REDIS_TLS", "T"),
        ("REDIS_TLS_CACERT", ""),
        ("GRPC_CLIENT_TLS_SAN", ""),
        ("GRPC_UDS", ""),
        ("QUOTA_MODE", "false"),
        ("BACKEND_TYPE", "redis"),
        ("CONFIG_TYPE", "FILE"),
        ("GRPC_MAX_CONNECTION_AGE", "24h"),
        ("USE_STATSD", "false"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("NEAR_LIMIT_RATIO", "0.9"),
    ];
    for (name, value) in cases {
        let options = [(name, value), ("REDIS_URL", "127.0.0.1:1")];
        let ended = run(CONFIG, &options, &["--check-config"]);
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{name}={value}: {error}");
    }
}

#[test]
fn a_configuration_is_checked_without_a_server() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let root = folder.path().display().to_string();
    let check = || command(&root).arg("--check-config").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    assert!(!check().status.success(), "no folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    assert!(text(check().stderr).contains("has no file *.yaml"));
    let file = folder.path().join("config/shop.yaml");
    fs::write(&file, CONFIG).expect("a file");
    let right = check();
    assert!(right.status.success());
    assert_eq!(text(right.stdout), "shop.trial: fixed:0/d,shadow\nshop.user: fixed:7/d\n");
    fs::write(&file, "domain: shop\ndescriptors: [{key: user, share_threshold: true}]")
        .expect("a file");
    let wrong = text(check().stderr);
    assert!(
        wrong.contains("shop.yaml")
            && wrong.contains("shop.user: share_threshold is not supported"),
        "{wrong}"
    );
}

#[test]
fn a_wrong_option_fails_at_the_start() {
    let cases = [
        ("REDIS_URL", "a:b:c", "REDIS_URL"),
        ("REDIS_TYPE", "sentinel", "sentinel"),
        ("REDIS_TIMEOUT", "0s", "timeout is 0"),
        ("REDIS_TIMEOUT", "fast", "fast"),
        ("REPLICAS", "0", "processes is 0"),
        ("OUTAGE", "maybe", "maybe"),
        ("GRPC_UDS", "/tmp/a", "GRPC_UDS is not supported"),
        ("GRPC_CLIENT_TLS_SAN", "shop", "GRPC_CLIENT_TLS_SAN is not supported"),
        ("QUOTA_MODE", "true", "QUOTA_MODE is not supported"),
        ("BACKEND_TYPE", "memcache", "BACKEND_TYPE is not supported"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_TYPE is not supported"),
        ("LOG_LEVEL", "loud", "loud"),
        ("GRPC_SERVER_USE_TLS", "1", "TLS needs a certificate"),
        ("REDIS_TLS_CACERT", "/none", "/none"),
    ];
    let folder = tempfile::TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(folder.path().join("config/shop.yaml"), CONFIG).expect("a file");
    for (name, value, expected) in cases {
        let ended = command(&folder.path().display().to_string()).env(name, value).output();
        let ended = ended.expect("it ends");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && error.contains(expected), "{name}: {error}");
    }
}
