//! What a golden file asks of a limiter, in order: peeks, checks and settlements of holds.

use ratelimit_engine::check::Bounds;
use ratelimit_engine::key::{Check, Costs, Limiter, Settlement};
use ratelimit_engine::rule::{Name, NamedCost, Rule};
use redis::{Cmd, Connection, FromRedisValue, cmd};

/// A line of the file, and its answer.
pub struct Step {
    pub line: String,
    what: What,
    pub answer: Vec<i64>,
}

enum What {
    /// `consumes` is true for a check, false for a peek.
    Ask {
        consumes: bool,
        at_us: u64,
        cost: u32,
        rules: Vec<String>,
    },
    Settle {
        at_us: u64,
        id: String,
        words: Vec<String>,
    },
}

impl Step {
    /// Reads a line with an arrow; `None` for others.
    pub fn read(line: &str) -> Option<Self> {
        let (question, answer) = line.split_once(" -> ")?;
        let words: Vec<&str> = question.split(' ').collect();
        let texts = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let what = match words[..] {
            [word @ ("at" | "check"), at_us, "cost", cost, "rule", ref rules @ ..] => What::Ask {
                consumes: word == "check",
                at_us: at_us.parse().ok()?,
                cost: cost.parse().ok()?,
                rules: texts(rules),
            },
            ["settle", at_us, id, ref words @ ..] => {
                What::Settle { at_us: at_us.parse().ok()?, id: id.to_string(), words: texts(words) }
            }
            _ => return None,
        };
        let answer = answer.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { line: line.to_string(), what, answer })
    }

    /// The time of the question.
    pub fn at_us(&self) -> u64 {
        match self.what {
            What::Ask { at_us, .. } | What::Settle { at_us, .. } => at_us,
        }
    }

    /// The answer of a limiter.
    pub fn of(&self, limiter: &mut Limiter) -> Vec<i64> {
        match &self.what {
            What::Ask { consumes, at_us, cost, rules } => {
                let rule = |text: &String| Rule::from_text(text.as_bytes()).expect("a rule");
                let rules: Vec<Rule> = rules.iter().map(rule).collect();
                let check = Check::new(&rules, *cost, *at_us);
                let bounds = Bounds { max_states: 100, max_holds: 100 };
                let mut decisions = Vec::new();
                let outcome = match consumes {
                    true => limiter.check_within(bounds, &check, &mut decisions).expect("room"),
                    false => limiter.peek(&check, &mut decisions),
                };
                let summary = outcome.summary;
                let verdict = summary.verdict.code();
                vec![verdict, summary.limit, summary.remaining, summary.wait_ms, summary.reset_ms]
            }
            What::Settle { at_us, id, words } => {
                let (default, named) = costs(words);
                let settlement = match words.first().map(String::as_str) {
                    None => Settlement::AsCharged,
                    Some("REFUND") => Settlement::Refund,
                    Some(_) => Settlement::Cost(Costs { default, named: &named }),
                };
                vec![limiter.settle(id.as_bytes(), settlement, *at_us).into()]
            }
        }
    }

    /// The answer of a server that has the limiter in a key.
    pub fn of_key(&self, c: &mut Connection, key: &str) -> Vec<i64> {
        match &self.what {
            What::Ask { consumes, at_us, cost, rules } => {
                let mut ask = cmd(if *consumes { "RL.CHECK" } else { "RL.PEEK" });
                reply(c, ask.arg(key).arg("COST").arg(cost).arg("AT").arg(at_us).arg(rules))
            }
            What::Settle { at_us, id, words } => {
                let mut settle = cmd("RL.SETTLE");
                vec![reply(c, settle.arg(key).arg(id).arg(words).arg("AT").arg(at_us))]
            }
        }
    }
}

fn reply<T: FromRedisValue>(c: &mut Connection, command: &Cmd) -> T {
    command.query(c).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The default cost and the costs by name after each `COST`.
fn costs(words: &[String]) -> (Option<u32>, Vec<NamedCost>) {
    let (mut default, mut named) = (None, Vec::new());
    for cost in words.iter().filter(|word| *word != "COST" && *word != "REFUND") {
        match cost.split_once('=') {
            Some((name, cost)) => named.push(NamedCost {
                name: Name::new(name.as_bytes()).expect("a name"),
                cost: cost.parse().expect("a cost"),
            }),
            None => default = Some(cost.parse().expect("a cost")),
        }
    }
    (default, named)
}
