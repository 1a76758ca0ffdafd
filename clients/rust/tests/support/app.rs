//! An axum application behind the layer, and requests to it over TCP.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::{Extension, Router, routing::get};
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower_redis_ratelimit::{Check, Decision, RateLimitLayer};

use super::server::Server;

/// What to check: the key is in `x-key`, and the cost in `x-cost`.
pub type ByHeader = fn(&Request) -> Option<Check>;
pub type Limits<C = ConnectionManager> = RateLimitLayer<C, ByHeader>;

/// Limits by these rules.
pub fn limits(server: &Server, rules: &[&str]) -> Limits {
    // Longer than any test, so that only the layer's patience ends a wait.
    let forever = Some(Duration::from_secs(100));
    let config = ConnectionManagerConfig::new().set_number_of_retries(0);
    let config = config.set_response_timeout(forever).set_connection_timeout(forever);
    let redis = ConnectionManager::new_lazy_with_config(server.client(), config);
    limits_of(redis.expect("a configuration"), rules)
}

/// The same through any connection.
pub fn limits_of<C>(redis: C, rules: &[&str]) -> Limits<C> {
    RateLimitLayer::new(redis, rules.iter().copied(), by_header)
}

fn by_header(request: &Request) -> Option<Check> {
    let field = |name| request.headers().get(name)?.to_str().ok();
    let check = Check::new(field("x-key")?);
    let check = field("x-cost").map_or(check.clone(), |cost| check.cost(cost.parse().expect(cost)));
    Some(match field("x-rule") {
        Some(rule) => check.rules([rule]),
        None => check,
    })
}

/// The application, until it is dropped.
pub struct App {
    address: String,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: HashMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl App {
    pub async fn start<C>(limits: Limits<C>) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        let serve = move |decision: Option<Extension<Decision>>| async move {
            count.fetch_add(1, Ordering::Relaxed);
            match decision.as_ref().and_then(|decision| decision.rules.first()) {
                Some(rule) => format!("{} left", rule.remaining),
                None => "no limit".to_string(),
            }
        };
        let app = Router::new().route("/", get(serve)).layer(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let task = tokio::spawn(async { axum::serve(listener, app).await.expect("it serves") });
        Self { address, served, task }
    }

    /// How many requests reached the application.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Asks for `/` with these lines in the head, within a time that no test reaches.
    pub async fn ask(&self, head: &[&str]) -> Answer {
        let asking = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            let mut request = String::from("GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n");
            head.iter().for_each(|line| request += &format!("{line}\r\n"));
            stream.write_all((request + "\r\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = tokio::time::timeout(Duration::from_secs(20), asking).await;
        read(&answer.expect("an answer in time").expect("an answer"))
    }
}

fn read(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
    Answer { status: status.parse().expect("a number"), fields, body: body.to_string() }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}
