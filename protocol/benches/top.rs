//! Benchmark of the sketch behind `RL.TOP`, without a server. Run by `make bench-core`.

use divan::{Bencher, Divan, black_box};
use ratelimit_protocol::top::Top;

const START_US: u64 = 1_700_000_000_000_000;
/// How denials are spread over many keys: evenly, by Zipf's law, all on one key.
const KEYS: [&str; 3] = ["random", "zipf", "one"];
/// The default of the setting `top-size`.
const TOP_SIZE: usize = 128;

fn main() {
    // By default divan derives the sample size from the first call, which is cold.
    Divan::default().sample_size(1_000).config_with_args().main();
}

/// The time to count a denial for `RL.TOP`, among 100,000 keys.
#[divan::bench(args = KEYS)]
fn follow_denials(bencher: Bencher<'_, '_>, keys: &str) {
    const MANY: u32 = 100_000;
    let mut random = fastrand::Rng::with_seed(1);
    let mut number = || match keys {
        "random" => random.u32(..MANY),
        "zipf" => f64::from(MANY).powf(random.f64()) as u32,
        _ => 0,
    };
    let denied: Vec<_> = (0..MANY).map(|_| format!("user:{:08}", number())).collect();
    let mut top = Top::default();
    top.resize(TOP_SIZE);
    let mut next = denied.iter().cycle();
    bencher.bench_local(|| {
        top.count(black_box(next.next().expect("a key")).as_bytes(), START_US);
    });
}
