//! Turns valid commands into invalid ones.

use super::{Form, Generator, Words, junk};

/// A number of rules, or of other words, that no setting allows.
const MANY: usize = 1_100;
/// The longest wait in line.
const WAIT_MS: u128 = 25;

impl Generator {
    /// An `RL.*` command that was valid before a few changes.
    pub(super) fn mutated(&mut self) -> (Words, Form) {
        let (mut command, form) = self.valid();
        for _ in 0..self.rng.usize(1..=3) {
            self.mutate(&mut command);
        }
        keep_waits_short(&mut command);
        (command, form)
    }

    /// Changes any word except the first, the command's name.
    fn mutate(&mut self, command: &mut Words) {
        let at = self.rng.usize(1..=command.len());
        let exists = at < command.len();
        match self.rng.u32(0..400) {
            0 => {
                // Not gigabytes, which would only test how fast a server reads.
                let mut word = junk::word(&mut self.rng);
                word.truncate(100);
                let many = self.rng.usize(2..MANY);
                command.extend(std::iter::repeat_n(word, many));
            }
            1..4 => {
                for _ in 0..self.rng.usize(2..MANY) {
                    let rule = self.rule();
                    command.push(rule);
                }
            }
            4..100 if exists => junk::damage(&mut self.rng, &mut command[at]),
            100..170 if exists => command[at] = junk::word(&mut self.rng),
            170..220 if exists => drop(command.remove(at)),
            220..260 if exists => {
                let word = command[at].clone();
                command.insert(at, word);
            }
            260..300 if exists => {
                let other = self.rng.usize(1..command.len());
                command.swap(at, other);
            }
            300..330 => {
                let (other, _) = self.valid();
                command.extend(other.into_iter().skip(1));
            }
            330..340 => command.truncate(at),
            _ => {
                let word = junk::word(&mut self.rng);
                command.insert(at, word);
            }
        }
    }
}

/// A connection that waited for an hour would be useless.
fn keep_waits_short(command: &mut Words) {
    let is_wait = command[0] == b"RL.WAIT";
    let Some(ms) = command.get_mut(2).filter(|_| is_wait) else { return };
    let number = str::from_utf8(ms).ok().and_then(|text| text.trim().parse::<u128>().ok());
    if number.is_some_and(|ms| ms > WAIT_MS && ms <= 3_600_000) {
        *ms = b"7".to_vec();
    }
}
