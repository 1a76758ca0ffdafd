//! An axum application behind the layer, and requests to it over TCP.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower_redis_ratelimit::{Check, RateLimitLayer, RateLimiter, Refuse, Report, Rules, Target};

/// Limits by these rules, or by the rule in `x-rule`. The key is in `x-key`, and the cost in
/// `x-cost`.
pub fn limits(
    limiter: RateLimiter,
    rules: &[&str],
) -> RateLimitLayer<impl Target<axum::body::Body> + Clone + use<>> {
    let rules = Rules::from(rules);
    RateLimitLayer::new(limiter, move |request: &Request| by_header(request, &rules))
}

fn by_header(request: &Request, rules: &Rules) -> Option<Check> {
    let field = |name| request.headers().get(name)?.to_str().ok();
    let rules = field("x-rule").map_or(rules.clone(), Rules::from);
    let cost = field("x-cost").map_or(1, |cost| cost.parse().expect(cost));
    Some(Check::new(field("x-key")?, rules).cost(cost))
}

/// The application, until it is dropped.
pub struct App {
    address: String,
    served: Arc<AtomicUsize>,
    /// A request with `x-slow` takes a permit before it ends.
    ends: Arc<Semaphore>,
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
    pub async fn start<T, F>(limits: RateLimitLayer<T, F>) -> Self
    where
        T: Target<axum::body::Body> + Clone + Send + Sync + 'static,
        F: Refuse<axum::body::Body> + Clone + Send + Sync + 'static,
    {
        let served = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(Semaphore::new(0));
        let (count, may_end) = (Arc::clone(&served), Arc::clone(&ends));
        let serve = move |request: Request| async move {
            count.fetch_add(1, Ordering::Relaxed);
            if request.headers().contains_key("x-slow") {
                may_end.acquire().await.expect("it is never closed").forget();
            }
            let report = request.extensions().get::<Report>();
            let body = match report.and_then(|report| report.rules.first()) {
                Some(rule) => format!("{} left", rule.remaining),
                None => "no limit".to_string(),
            };
            let fails = request.headers().contains_key("x-fail");
            (if fails { StatusCode::BAD_REQUEST } else { StatusCode::OK }, body)
        };
        let app = Router::new().route("/", get(serve)).layer(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let task = tokio::spawn(async { axum::serve(listener, app).await.expect("it serves") });
        Self { address, served, ends, task }
    }

    /// Lets this number of slow requests end.
    pub fn end(&self, requests: usize) {
        self.ends.add_permits(requests);
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
