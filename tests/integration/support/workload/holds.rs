//! Random holds with a few recurring ids. They last about as long as a short or a long window.

use redis::Cmd;

use super::{HOUR_MS, Workload, on, rules};

const IDS: [&str; 4] = ["a", "b", "job-9", "\r\n\0id"];

impl Workload {
    /// `HOLD` with its time: always if the rules need it, otherwise by chance.
    pub(super) fn hold(&mut self, rules: &[String]) -> Vec<String> {
        if !rules.iter().any(|rule| rule.starts_with("slots:")) && !self.one_in(5) {
            return Vec::new();
        }
        let mut words = vec!["HOLD".into(), self.id().into()];
        words.extend(self.hold_time());
        if self.rng.bool() {
            words.push("REFUND".into());
        }
        words
    }

    /// Costs by name for some of the rules that have a name and may differ in cost.
    pub(super) fn named_costs(&mut self, rules: &[String]) -> Vec<String> {
        let mut words = Vec::new();
        for name in rules::NAMES {
            let has_name = |rule: &&String| rule.ends_with(&format!(",name={name}"));
            let mut named = rules.iter().filter(has_name).peekable();
            let may_differ = named.peek().is_some() && named.all(|rule| !rule.starts_with("log:"));
            if may_differ && self.one_in(3) {
                words.extend(["COST".into(), format!("{name}={}", self.units())]);
            }
        }
        words
    }

    /// Settles a hold that may be live, with or without a cost.
    pub(super) fn settle(&mut self, key: usize) -> Cmd {
        let mut command = on("RL.SETTLE", key);
        command.arg(self.id());
        match self.rng.u32(0..4) {
            0 => &mut command,
            1 => command.arg("REFUND"),
            _ => {
                command.arg("COST").arg(self.units());
                for name in rules::NAMES {
                    if self.one_in(3) {
                        command.arg("COST").arg(format!("{name}={}", self.units()));
                    }
                }
                &mut command
            }
        };
        self.at_some_time(command)
    }

    pub(super) fn renew(&mut self, key: usize) -> Cmd {
        let mut command = on("RL.RENEW", key);
        command.arg(self.id()).arg(&self.hold_time());
        self.at_some_time(command)
    }

    fn id(&mut self) -> &'static str {
        self.rng.choice(IDS).expect("some")
    }

    fn hold_time(&mut self) -> [String; 2] {
        if self.one_in(3) {
            ["EX".into(), (HOUR_MS / 1_000).to_string()]
        } else {
            ["PX".into(), (self.soonest_ms + self.rng.u64(1..400)).to_string()]
        }
    }

    fn at_some_time(&mut self, mut command: Cmd) -> Cmd {
        if self.with_at && self.one_in(4) {
            command.arg("AT").arg(self.time_us());
        }
        command
    }
}
