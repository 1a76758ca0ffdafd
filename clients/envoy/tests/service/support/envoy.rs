//! Envoy, with the configuration of examples/envoy, in front of an application that always answers 200,
//! with the header `x-tokens` of the request.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::service::{PATIENCE, Service};
use crate::server::free_port;

const CONFIG: &str = include_str!("../../../../../examples/envoy/envoy.yaml");

pub struct Envoy {
    process: Child,
    port: u16,
    _folder: TempDir,
}

/// The answer to a client: the status, and the fields, with names in lower case.
pub struct Answer {
    pub status: u16,
    pub head: String,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Envoy {
    /// Starts Envoy in front of this service, with some texts of its configuration replaced.
    pub async fn start(service: &Service, changes: &[(&str, &str)]) -> Self {
        let application = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let behind = application.local_addr().expect("it is bound").port();
        tokio::spawn(serve(application));
        let (port, folder) = (free_port(), TempDir::with_prefix("envoy-").expect("a folder"));
        let ports = [(8888, port), (8081, service.grpc), (9000, behind)];
        let there = ports.into_iter().fold(CONFIG.to_string(), |text, (old, new)| {
            text.replace(&format!("port_value: {old}"), &format!("port_value: {new}"))
        });
        // A busy machine needs longer time-outs.
        let patient = there.replace("timeout: 0.02s", "timeout: 15s");
        let config = changes.iter().fold(patient, |text, (old, new)| text.replace(old, new));
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, config).expect("a file");
        let program = env::var_os("RATELIMIT_ENVOY").unwrap_or_else(|| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/envoy/envoy/_bin/envoy");
            Path::new(root).into()
        });
        let process = Command::new(&program)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "-c"])
            .arg(file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}: run `scripts/fetch.py envoy`", program.display())
            });
        let mut envoy = Self { process, port, _folder: folder };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(envoy.process.try_wait().expect("a child").is_none(), "Envoy ended");
            assert!(start.elapsed() < PATIENCE, "Envoy does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        envoy
    }

    /// Asks for a path, with lines in the head.
    pub async fn get(&self, path: &str, head: &[impl AsRef<[u8]>]) -> Answer {
        ask(self.port, path, head).await.expect("an answer")
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

pub async fn ask(port: u16, path: &str, head: &[impl AsRef<[u8]>]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let start = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close");
    let lines = head.iter().map(AsRef::as_ref);
    let lines = [start.as_bytes()].into_iter().chain(lines).chain([&b""[..], b""]);
    stream.write_all(&lines.collect::<Vec<_>>().join(&b"\r\n"[..])).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("no status"))?;
    Ok(Answer { status, head: answer })
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut head = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut head).await {
                let head = String::from_utf8_lossy(head.get(..read).unwrap_or_default());
                let tokens = head.lines().find_map(|line| line.strip_prefix("x-tokens: "));
                let tokens = tokens.unwrap_or("0");
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-tokens: {tokens}\r\n\r\n");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
