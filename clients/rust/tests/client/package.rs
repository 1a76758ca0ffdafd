//! The packages that `cargo package` makes, in an empty project with the README's programs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::server::{Server, free_port};
use crate::support::until;

/// The version of all four crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CLIENT: &str = env!("CARGO_MANIFEST_DIR");
const README: &str = include_str!("../../README.md");

#[tokio::test]
async fn the_programs_of_the_readme_work_with_the_packages() {
    let dir = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
    let packages = [
        ("ratelimit-engine", "../../engine"),
        ("ratelimit-core", "../../core"),
        ("ratelimit-protocol", "../../protocol"),
        ("tower-redis-ratelimit", "."),
    ];
    for (name, source) in packages {
        package(name, &Path::new(CLIENT).join(source), dir.path());
    }
    let folder = format!("tower-redis-ratelimit-{VERSION}");
    let script = dir.path().join(folder).join("src/ratelimit.lua");
    let script = fs::read_to_string(script).expect("the package has the script");
    assert_eq!(script, include_str!("../../../script/ratelimit.lua"));

    let server = Server::start("valkey-9.1");
    let (port, project) = (free_port(), dir.path().join("project"));
    fs::create_dir_all(project.join("src")).expect("a disk");
    let path = r#"path = "../redis-ratelimit/clients/rust""#;
    let manifest = block("toml").replace(path, &format!("version = \"{VERSION}\""));
    let mut manifest =
        format!("[package]\nname = \"fresh\"\nedition = \"2024\"\n{manifest}\n[patch.crates-io]\n");
    for (name, _) in packages {
        manifest += &format!("{name} = {{ path = \"../{name}-{VERSION}\" }}\n");
    }
    fs::write(project.join("Cargo.toml"), manifest + "[profile.dev]\ndebug = 0\n").expect("a disk");
    // The versions of dependencies that are downloaded already.
    fs::copy(format!("{CLIENT}/../Cargo.lock"), project.join("Cargo.lock")).expect("a disk");
    let program = block("rust,no_run\nuse std::net::SocketAddr;")
        .replace("127.0.0.1:3000", &format!("127.0.0.1:{port}"));
    let program =
        program.replace("redis://127.0.0.1", &format!("redis://127.0.0.1:{}", server.port()));
    fs::write(project.join("src/main.rs"), format!("use std::net::SocketAddr;\n{program}"))
        .expect("a disk");
    let used = "use tower_redis_ratelimit::{Check, Outage, RateLimiter, redis};";
    let first = block(&format!("rust,no_run\n{used}"));
    let engine = "tower_redis_ratelimit::Engine::Script";
    let first = first.replace("Outage::Local)", &format!("Outage::Local).engine({engine})"));
    let first = format!("{used}\n{first}\n");
    let plain = Server::without_module("redis-6.2", &[]);
    let first = first.replace("127.0.0.1", &format!("127.0.0.1:{}", plain.port()));
    fs::create_dir_all(project.join("src/bin")).expect("a disk");
    fs::write(project.join("src/bin/first.rs"), first).expect("a disk");
    // These tests are built there too, which saves a minute.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    run(cargo(&project).args(["build", "--target-dir"]).arg(target));
    let first = Command::new(target.join("debug/first")).output().expect("it is built");
    let printed = String::from_utf8_lossy(&first.stdout);
    assert_eq!(printed, "Allowed Some(4) Some(0ns)\ntrue\n", "{first:?}");
    let _app = App(Command::new(target.join("debug/fresh")).spawn().expect("it is built"));

    let ask = async || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_| answer)
    };
    until("it serves", async || ask().await.is_ok()).await;
    let answer = ask().await.expect("it serves");
    assert!(answer.ends_with("Hello") && answer.contains("ratelimit: \"second\";r=8;"), "{answer}");
    server.send("RL.BLOCK ip:127.0.0.1");
    let answer = ask().await.expect("it serves");
    assert!(answer.starts_with("HTTP/1.1 403"), "the server decides: {answer}");
}

/// Makes a package, and unpacks it.
fn package(name: &str, source: &Path, to: &Path) {
    let target = to.join("target");
    let packing = ["package", "--no-verify", "--exclude-lockfile", "--allow-dirty", "--target-dir"];
    run(cargo(source).args(packing).arg(&target));
    let archive = target.join(format!("package/{name}-{VERSION}.crate"));
    run(Command::new("tar").arg("-xzf").arg(archive).current_dir(to));
    let unpacked = to.join(format!("{name}-{VERSION}"));
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"] {
        assert!(unpacked.join(file).is_file(), "{name} has no {file}");
    }
    let manifest = fs::read_to_string(unpacked.join("Cargo.toml")).expect("text");
    assert!(!manifest.contains("publish = false"), "{name} can be published");
}

fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    // The lints of this repository are not those of the project.
    cargo.current_dir(dir).arg("--quiet").env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The README's block that begins with `start`.
fn block(start: &str) -> String {
    let (_, rest) = README.split_once(&format!("```{start}\n")).expect("it is there");
    rest.split_once("```").expect("it ends").0.to_string()
}

struct App(Child);

impl Drop for App {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
