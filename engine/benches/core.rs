//! Benchmarks of the pure core, without a server: parsing rules, deciding, and the saved form.
//! Run by `make bench-core`.

use divan::{Bencher, Divan, black_box};
use ratelimit_engine::check::{Bounds, Decision};
use ratelimit_engine::key::{Check, Limiter, Verdict, decode, encode};
use ratelimit_engine::rule::Rule;

const START_US: u64 = 1_700_000_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// One rule of each algorithm.
const ALGORITHMS: [&str; 5] =
    ["log:LIMIT/h", "window:LIMIT/h", "fixed:LIMIT/h", "bucket:LIMIT/h", "leaky:LIMIT/h"];
const LIMIT: u32 = 100;
const TEXTS: [&str; 3] =
    ["20/m", "bucket:1000000/s,burst=40,name=api", "1/s 20/m 800/d fixed:10000/month"];
/// The number of entries of a full log.
const ENTRIES: [u32; 4] = [10, 100, 10_000, 100_000];
/// The defaults of `ratelimit.max-states` and `ratelimit.max-holds`.
const BOUNDS: Bounds = Bounds { max_states: 256, max_holds: 10_000 };

fn main() {
    // By default divan derives the sample size from the first call, but that call is cold.
    Divan::default().sample_size(1_000).config_with_args().main();
}

fn rules(texts: &str, limit: u32) -> Vec<Rule> {
    let texts = texts.replace("LIMIT", &limit.to_string());
    texts.split(' ').map(|text| Rule::from_text(text.as_bytes()).expect("a rule")).collect()
}

/// A limiter that is as full as an hour's limit allows, and the rules of its checks. On average one
/// unit comes back every `step_us`.
struct Full {
    limiter: Limiter,
    rules: Vec<Rule>,
    decisions: Vec<Decision>,
    now_us: u64,
    step_us: u64,
}

impl Full {
    fn new(texts: &str, limit: u32) -> Self {
        let mut full = Self {
            limiter: Limiter::default(),
            rules: rules(texts, limit),
            decisions: Vec::new(),
            now_us: START_US,
            step_us: HOUR_US / u64::from(limit),
        };
        for _ in 0..limit {
            full.check_after(full.step_us);
        }
        full
    }

    fn check_after(&mut self, us: u64) -> Verdict {
        self.now_us += us;
        let check = Check::new(black_box(&self.rules), 1, black_box(self.now_us));
        let outcome = self.limiter.check_within(BOUNDS, &check, &mut self.decisions);
        outcome.expect("room").summary.verdict
    }

    /// Checks, each `steps` steps after the previous one. All are allowed.
    fn bench_allowed(mut self, steps: u64, bencher: Bencher<'_, '_>) {
        let pause_us = steps * self.step_us;
        bencher.bench_local(|| assert_eq!(self.check_after(pause_us), Verdict::Allowed));
    }

    /// Checks at one time. All are denied.
    fn bench_denied(mut self, bencher: Bencher<'_, '_>) {
        while self.check_after(0) == Verdict::Allowed {}
        bencher.bench_local(|| assert_eq!(self.check_after(0), Verdict::Limited));
    }
}

/// The time to parse the rules among a command's arguments.
#[divan::bench(args = TEXTS)]
fn parse_rules(bencher: Bencher<'_, '_>, texts: &str) {
    let texts: Vec<&[u8]> = texts.split(' ').map(str::as_bytes).collect();
    let mut rules = Vec::with_capacity(texts.len());
    bencher.bench_local(|| {
        rules.clear();
        rules.extend(texts.iter().map(|text| Rule::from_text(black_box(text)).expect("a rule")));
    });
}

/// Checks at half the limit's rate. At the full rate `window` rules deny, because they also count
/// a part of the previous window.
#[divan::bench(args = ALGORITHMS)]
fn allowed(bencher: Bencher<'_, '_>, texts: &str) {
    Full::new(texts, LIMIT).bench_allowed(2, bencher);
}

#[divan::bench(args = ALGORITHMS)]
fn denied(bencher: Bencher<'_, '_>, texts: &str) {
    Full::new(texts, LIMIT).bench_denied(bencher);
}

/// Checks at exactly the limit's rate, so that the log stays full.
#[divan::bench(args = ENTRIES)]
fn allowed_by_log(bencher: Bencher<'_, '_>, entries: u32) {
    Full::new("log:LIMIT/h", entries).bench_allowed(1, bencher);
}

#[divan::bench(args = ENTRIES)]
fn denied_by_log(bencher: Bencher<'_, '_>, entries: u32) {
    Full::new("log:LIMIT/h", entries).bench_denied(bencher);
}

#[divan::bench(args = ENTRIES)]
fn allowed_by_four_log_rules(bencher: Bencher<'_, '_>, entries: u32) {
    Full::new("log:100/s log:LIMIT/h log:LIMIT/30m log:LIMIT/10m", entries)
        .bench_allowed(1, bencher);
}

#[divan::bench(args = ["bucket:LIMIT/h", "log:LIMIT/h"])]
fn encode_limiter(bencher: Bencher<'_, '_>, texts: &str) {
    let full = Full::new(texts, LIMIT);
    bencher.bench_local(|| encode(black_box(&full.limiter)));
}

#[divan::bench(args = ["bucket:LIMIT/h", "log:LIMIT/h"])]
fn decode_limiter(bencher: Bencher<'_, '_>, texts: &str) {
    let payload = encode(&Full::new(texts, LIMIT).limiter);
    bencher.bench_local(|| decode(black_box(&payload)).expect("a payload"));
}
