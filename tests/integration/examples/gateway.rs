//! `examples/gateway/`: two gateways share a tenant's limits and the model's keys, one gateway is
//! killed, and the model counts calls.
//!
//! Clients ask for whole answers and for streams, hang up, and ask again as soon as they are
//! denied. The model knows no limits; its log shows which calls passed. A call was charged at
//! some time between the client's request and the call's arrival at the model.

mod call;
mod ledger;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use call::{Answer, Asked};
use ledger::{Charge, Ledger, Served, within};
use redis::Connection;
use tempfile::TempDir;

use super::program::Program;
use crate::support::client::{ask, remaining, verdict};
use crate::support::machine;
use crate::support::server::{self, Server, eventually};

const SLOTS: usize = 4;
const REQUESTS: u64 = 16;
const REQUESTS_US: u64 = 2_000_000;
const TOKENS_PER_S: u64 = 600;
const BURST: u64 = 400;
const A_DAY: u64 = 1_000_000;

const STREAMS: &str = "slots:4,cost=1,name=streams";
const DAY: &str = "fixed:1000000/d,align=first,name=day";
const CALLS: &str = "fixed:1000000/d,align=first,cost=1,name=calls";
const REQUEST_RULE: &str = "16/2s,cost=1,name=requests";
const TOKEN_RULE: &str = "bucket:600/s,burst=400,name=tokens";
const RULES: [&str; 5] = [STREAMS, REQUEST_RULE, TOKEN_RULE, DAY, CALLS];

const LEASE_MS: u64 = 1_450;
/// How long the model takes for a token.
const PAUSE_MS: u64 = 5;
const RUSH: Duration = Duration::from_secs(2);
const CLIENTS: u64 = 10;
/// The number of words of a prompt.
const WORDS: u64 = 10;

/// A gateway under load, and what the clients know of their requests.
struct Trial<'a> {
    server: &'a Server,
    log: std::path::PathBuf,
    model: Program,
    /// When each request was first sent, Unix microseconds.
    sent_us: Mutex<HashMap<String, u64>>,
    /// Calls whose clients hung up, and how many tokens each had asked for.
    hung_up: Mutex<HashMap<String, u64>>,
    denied: AtomicU64,
    next: AtomicU64,
}

/// How a client reads its answer.
#[derive(Clone, Copy)]
enum Manner {
    Whole,
    Stream,
    HangUp,
}

#[test]
fn two_gateways_never_exceed_slots_requests_and_tokens() {
    // A gateway that the machine stops for as long as a lease loses its slots.
    machine::alone();
    let server = start();
    let dir = TempDir::new().expect("a temporary folder");
    let log = dir.path().join("model.log");
    let model = model(&log, &[]);
    let trial = Trial {
        server: &server,
        log,
        model,
        sent_us: Mutex::default(),
        hung_up: Mutex::default(),
        denied: AtomicU64::new(0),
        next: AtomicU64::new(0),
    };
    trial.run();
}

/// The model refuses all calls with one key, and allows three calls a minute with the other. The
/// tenant's plan changes meanwhile.
#[test]
fn a_refused_key_is_paused_for_all_gateways_and_a_tenant_has_its_plans_limits() {
    let server = start();
    let mut c = server.connect();
    for policy in ["free 2/h,cost=1,name=requests", "pro 9/h,cost=1,name=requests"] {
        let () = ask(&mut c, &format!("RL.POLICY SET {policy}"));
    }
    let dir = TempDir::new().expect("a temporary folder");
    let log = dir.path().join("model.log");
    let model = model(&log, &["--busy", "{model}:1"]);
    let start = || gateway(&server, &model, &["--key-rule", "3/m"], &["@plan:free"]);
    let gateways = [start(), start()];
    let call = |number: usize| {
        let id = format!("call-{number}");
        let asked = Asked { id, words: WORDS, max_tokens: 9, length: 5, streams: false };
        let answer = asked.send(gateways[number % 2].port()).expect("an answer");
        let policy = answer.header("RateLimit-Policy").map(String::from);
        let seconds = answer.header("Retry-After").map(|text| text.parse().expect("seconds"));
        let status = answer.status;
        answer.rest().expect("a whole answer");
        (status, policy, seconds)
    };
    let requests = |limit| Some(format!("\"requests\";q={limit};w=3600"));

    assert_eq!([call(1), call(2)], [(); 2].map(|()| (200, requests(2), None)));
    assert_eq!((call(3).0, call(3).1), (429, requests(2)));
    let () = ask(&mut c, "RL.PLAN llm:t7 pro");
    assert_eq!(call(4), (200, requests(9), None));
    let (status, policy, seconds) = call(5);
    assert_eq!((status, policy), (503, None), "a tenant learns nothing of the model's keys");
    assert!(seconds.is_some_and(|seconds: u64| (1..=30).contains(&seconds)), "{seconds:?}");
    assert_eq!(remaining(&mut c, "RL.PEEK llm:t7 @plan:free"), 6, "the tenant pays nothing");

    assert_eq!(verdict(&mut c, "RL.PEEK {model}:1 3/m"), 1, "the refused key is paused");
    assert_eq!(remaining(&mut c, "RL.PEEK {model}:2 3/m"), 0);
    let log = fs::read_to_string(log).expect("a log");
    let events = log.lines().filter_map(|line| line.split(' ').nth(1)).collect::<Vec<_>>();
    let served = ["begin", "end"].repeat(3);
    assert_eq!(events, [&["refuse"], &served[..]].concat(), "a paused key is not asked again");
}

fn start() -> Server {
    let flavor = server::all().into_iter().find(|flavor| flavor.name == "redis-7.0");
    flavor.expect("redis-7.0 is in the matrix").start()
}

fn model(log: &Path, more: &[&str]) -> Program {
    let (pause_ms, log) = (PAUSE_MS.to_string(), log.to_str().expect("text"));
    let line = ["--pause-ms", &pause_ms, "--log", log];
    Program::start("gateway/model.py", &[&line[..], more].concat())
}

fn gateway(server: &Server, model: &Program, more: &[&str], rules: &[&str]) -> Program {
    let redis = format!("redis://127.0.0.1:{}", server.port());
    let (model, lease_ms) = (model.port().to_string(), LEASE_MS.to_string());
    let line = ["--redis", &redis, "--model", &model, "--lease-ms", &lease_ms];
    Program::start("gateway/gateway.py", &[&line[..], more, rules].concat())
}

impl Trial<'_> {
    fn run(&self) {
        let [first, second] = ["first", "second"].map(|name| self.gateway(name));
        self.rush(&[first.port(), second.port()]);
        self.eventually_idle();
        let ledger = Ledger::read(&self.log);
        assert_eq!(ledger.most_at_once, SLOTS, "the clients took all slots");
        assert!(self.denied.load(Ordering::Relaxed) > 0, "no client was denied");
        self.settled_exactly(&ledger.served);
        self.stops_when_clients_hang_up(&ledger.served);
        self.keeps_a_long_stream(&first);

        let lost = self.kill(&first, second);
        self.rush(&[first.port()]);
        self.eventually_idle();
        let ledger = Ledger::read(&self.log);
        assert!(ledger.most_at_once <= SLOTS, "{} at once", ledger.most_at_once);
        let is_settled = |served: &&Served| served.gateway == "first" || !lost.contains(&served.id);
        let settled: Vec<_> = ledger.served.iter().filter(is_settled).cloned().collect();
        self.settled_exactly(&settled);
        self.keeps_to_the_rules(&settled);
    }

    fn gateway(&self, name: &str) -> Program {
        gateway(self.server, &self.model, &["--name", name], &RULES)
    }

    fn asked(&self, length: u64, streams: bool) -> Asked {
        let id = format!("call-{}", self.next.fetch_add(1, Ordering::Relaxed));
        Asked { id, words: WORDS, max_tokens: length + 20, length, streams }
    }

    fn send(&self, asked: &Asked, port: u16) -> std::io::Result<Answer> {
        self.sent_us.lock().expect("no panic").entry(asked.id.clone()).or_insert_with(now_us);
        asked.send(port)
    }

    /// Runs many clients at once for some time.
    fn rush(&self, ports: &[u16]) {
        let until = Instant::now() + RUSH;
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let port = ports[client as usize % ports.len()];
                scope.spawn(move || {
                    let manners = [Manner::Whole, Manner::Stream, Manner::HangUp];
                    let mut turn = client as usize;
                    while Instant::now() < until {
                        self.call(port, manners[turn % manners.len()], turn as u64);
                        turn += 1;
                    }
                });
            }
        });
    }

    fn call(&self, port: u16, manner: Manner, turn: u64) {
        let length = 5 + 17 * turn % 120;
        let asked = self.asked(length, !matches!(manner, Manner::Whole));
        let mut answer = self.send(&asked, port).expect("an answer");
        if answer.status == 429 {
            self.denied.fetch_add(1, Ordering::Relaxed);
            says_when_to_ask_again(&answer);
            thread::sleep(Duration::from_millis(15));
            return;
        }
        assert_eq!(answer.status, 200);
        assert!(answer.header("RateLimit").is_some_and(|field| field.contains("\"day\";r=")));
        match manner {
            Manner::HangUp => {
                self.hung_up.lock().expect("no panic").insert(asked.id, length);
                answer.tokens(length / 2).expect("tokens");
            }
            Manner::Whole => {
                let body = answer.rest().expect("a whole answer");
                assert_eq!(body, format!("{{\"input\": 10, \"output\": {length}}}"));
            }
            Manner::Stream => {
                let body = answer.rest().expect("a whole answer");
                assert_eq!(body.matches("data: ").count() as u64, length);
            }
        }
    }

    /// Kills the second gateway during two streams. One client then sends its call again to the
    /// first gateway, where the call repeats its hold. Returns the ids of both calls: the second gateway
    /// settled neither.
    fn kill(&self, first: &Program, second: Program) -> Vec<String> {
        let mut c = self.server.connect();
        eventually("all units but the day's to come back", || {
            let mut left = |rule| remaining(&mut c, &format!("RL.PEEK llm:t7 {rule}"));
            left(REQUEST_RULE) == REQUESTS as i64 && left(TOKEN_RULE) == BURST as i64
        });
        // These calls are far shorter than a lease, so the second lease has not ended when the
        // first call is sent again.
        let calls = [self.asked(90, true), self.asked(90, true)];
        let mut answers = calls.clone().map(|asked| self.stream(&asked, second.port()));
        assert_eq!(self.free_slots(&mut c), 2);
        drop(second);
        assert!(answers.iter_mut().any(|answer| answer.tokens(200).is_err()), "no cut stream");
        // The streams have ended, but their holds live until the leases end.
        eventually("the model notices", || Ledger::read(&self.log).running() == 0);
        assert_eq!(self.free_slots(&mut c), 2);
        let again = self.send(&calls[0], first.port()).expect("an answer");
        assert_eq!(again.status, 200);
        assert_eq!(self.free_slots(&mut c), 2, "the same call holds the same slot");
        again.rest().expect("a whole answer");
        assert_eq!(self.free_slots(&mut c), 3);
        eventually("the other lease ends", || self.free_slots(&mut c) == 4);
        calls.map(|asked| asked.id).to_vec()
    }

    /// Tests that renewals keep the hold of a stream that lasts longer than a lease.
    fn keeps_a_long_stream(&self, gateway: &Program) {
        let asked = self.asked(330, true);
        assert!(asked.length * PAUSE_MS > LEASE_MS);
        let rest = self.stream(&asked, gateway.port()).rest().expect("a whole answer");
        assert!(rest.contains("token-330"));
    }

    /// Tests that the model makes fewer tokens than requested if the client hangs up.
    fn stops_when_clients_hang_up(&self, served: &[Served]) {
        let hung_up = self.hung_up.lock().expect("no panic");
        let stopped = |served: &Served| {
            hung_up.get(&served.id).is_some_and(|length| served.tokens < WORDS + length)
        };
        assert!(served.iter().any(stopped), "no model stopped early");
    }

    /// A stream whose first tokens have arrived.
    fn stream(&self, asked: &Asked, port: u16) -> Answer {
        loop {
            let mut answer = self.send(asked, port).expect("an answer");
            if answer.status == 200 {
                answer.tokens(3).expect("tokens");
                return answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn free_slots(&self, c: &mut Connection) -> i64 {
        remaining(c, &format!("RL.PEEK llm:t7 {STREAMS}"))
    }

    fn eventually_idle(&self) {
        let mut c = self.server.connect();
        eventually("every hold is settled or has lapsed", || {
            self.free_slots(&mut c) == SLOTS as i64 && Ledger::read(&self.log).running() == 0
        });
    }

    /// Tests that the day's budget has lost exactly the units that the model logged for settled calls.
    fn settled_exactly(&self, settled: &[Served]) {
        let mut c = self.server.connect();
        let mut left = |rule| {
            let reply: [i64; 5] = ask(&mut c, &format!("RL.PEEK llm:t7 {rule}"));
            u64::try_from(reply[2]).expect("not negative")
        };
        assert_eq!(A_DAY - left(CALLS), settled.len() as u64);
        assert_eq!(A_DAY - left(DAY), settled.iter().map(|served| served.tokens).sum::<u64>());
    }

    /// Tests that the settled calls obey the rules in every interval.
    fn keeps_to_the_rules(&self, settled: &[Served]) {
        let sent_us = self.sent_us.lock().expect("no panic");
        let charges = |units: fn(&Served) -> u64| {
            let charge = |served: &Served| Charge {
                after_us: sent_us[&served.id],
                before_us: served.begin_us,
                units: units(served),
            };
            settled.iter().map(charge).collect::<Vec<_>>()
        };
        let requests = |length_us| if length_us < REQUESTS_US { REQUESTS } else { u64::MAX };
        within(charges(|_| 1), requests);
        within(charges(|served| served.tokens), |length_us| {
            BURST + (TOKENS_PER_S * length_us).div_ceil(1_000_000)
        });
    }
}

/// Tests that a denial names a rule, and the seconds after which its wait is over.
fn says_when_to_ask_again(answer: &Answer) {
    let seconds = answer.header("Retry-After").expect("a time");
    assert!(seconds.parse::<u64>().is_ok_and(|seconds| (1..=2).contains(&seconds)), "{seconds}");
    let policies = answer.header("RateLimit-Policy").expect("policies");
    assert_eq!(
        policies,
        "\"streams\";q=4;qu=\"concurrent-requests\", \"requests\";q=16;w=2, \"tokens\";q=600;w=1, \
         \"day\";q=1000000;w=86400, \"calls\";q=1000000;w=86400"
    );
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("a time")
}
