//! The service, started as a process, and a client that sends Envoy's requests to it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::server::{Server, free_port};

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Service {
    process: Child,
    folder: TempDir,
    pub grpc: u16,
    pub http: u16,
}

impl Service {
    /// Starts the service on this server, with one configuration file and with options as
    /// environment variables.
    pub fn start(server: &Server, config: &str, options: &[(&str, &str)]) -> Self {
        Self::on(&format!("127.0.0.1:{}", server.port()), config, options)
    }

    pub fn on(url: &str, config: &str, options: &[(&str, &str)]) -> Self {
        let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
        fs::create_dir(folder.path().join("config")).expect("a folder");
        let (grpc, http) = (free_port(), free_port());
        configure(&folder, config);
        let process = command(&folder.path().display().to_string())
            .env("REDIS_URL", url)
            .env("GRPC_HOST", "127.0.0.1")
            .env("GRPC_PORT", grpc.to_string())
            .env("HOST", "127.0.0.1")
            .env("PORT", http.to_string())
            .env("REDIS_TIMEOUT", "10s")
            .envs(options.iter().copied())
            .stderr(Stdio::null())
            .spawn();
        let mut started = Self { process: process.expect("the service"), folder, grpc, http };
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", http)).is_err() {
            assert!(started.process.try_wait().expect("a child").is_none(), "the service ended");
            assert!(start.elapsed() < PATIENCE, "the service does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        started
    }

    /// Replaces the configuration file in one step.
    pub fn configure(&self, config: &str) {
        configure(&self.folder, config);
    }

    pub async fn channel(&self) -> Channel {
        let address = format!("http://127.0.0.1:{}", self.grpc);
        let endpoint = Channel::from_shared(address).expect("an address");
        endpoint.connect().await.expect("the service listens")
    }

    pub async fn client(&self) -> Client {
        Client::on(self.channel().await)
    }

    /// Asks the service to end, and waits until it has ended. Returns whether it succeeded.
    pub fn end(&mut self) -> bool {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("a child");
        self.process.wait().expect("a child").success()
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("a child");
        self.process.wait().expect("a child");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configure(folder: &TempDir, config: &str) {
    let [new, file] = ["new", "config/limits.yaml"].map(|name| folder.path().join(name));
    fs::write(&new, config).expect("a file");
    fs::rename(new, file).expect("a file");
}

/// The program, with this folder of the configuration.
pub fn command(root: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-ratelimit-envoy"));
    command.env_clear().env("RUNTIME_ROOT", root);
    command
}

#[derive(Clone)]
pub struct Client(RateLimitServiceClient<Channel>);

/// `user=ann region=eu` has two entries.
pub fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Entry { key: key.to_string(), value: value.to_string() }
    };
    RateLimitDescriptor { entries: text.split(' ').map(entry).collect(), ..Default::default() }
}

/// A descriptor that says how many hits it is.
pub fn hits(text: &str, value: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value }), ..descriptor(text) }
}

impl Client {
    pub fn on(channel: Channel) -> Self {
        Self(RateLimitServiceClient::new(channel))
    }

    pub async fn send(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, Status> {
        self.send_as("shop", descriptors, 0).await
    }

    pub async fn send_as(
        &mut self,
        domain: &str,
        descriptors: Vec<RateLimitDescriptor>,
        hits_addend: u32,
    ) -> Result<RateLimitResponse, Status> {
        let request = RateLimitRequest { domain: domain.to_string(), descriptors, hits_addend };
        self.0.should_rate_limit(Request::new(request)).await.map(tonic::Response::into_inner)
    }

    /// Asks for descriptors with hits of their own, such as `user=ann 3`, and returns the codes.
    pub async fn report(&mut self, reports: &[(&str, u64)]) -> String {
        let descriptors = reports.iter().map(|(text, number)| hits(text, *number)).collect();
        shown(&self.send(descriptors).await.expect("an answer"))
    }

    /// Asks for these descriptors.
    pub async fn ask(&mut self, descriptors: &[&str]) -> RateLimitResponse {
        let descriptors = descriptors.iter().map(|text| descriptor(text)).collect();
        self.send(descriptors).await.expect("an answer")
    }

    /// The overall code, and the code of each descriptor with its remaining units.
    pub async fn codes(&mut self, descriptors: &[&str]) -> String {
        shown(&self.ask(descriptors).await)
    }

    /// Whether a request passes.
    pub async fn passes(&mut self, descriptors: &[&str]) -> bool {
        self.ask(descriptors).await.overall_code == i32::from(Code::Ok)
    }
}

pub fn shown(response: &RateLimitResponse) -> String {
    let code = |code| match Code::try_from(code) {
        Ok(Code::Ok) => "ok",
        Ok(Code::OverLimit) => "over",
        _ => "unknown",
    };
    let status = response.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref();
        let limit = limit.map_or(String::new(), |limit| format!("/{}", limit.requests_per_unit));
        format!("{}:{}{limit}", code(status.code), status.limit_remaining)
    });
    let each = status.collect::<Vec<_>>().join(" ");
    format!("{} [{each}]", code(response.overall_code))
}
