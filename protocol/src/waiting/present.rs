//! Where a flow that joins a line begins among the flows of its priority.

use super::request::{Flow, hash_of};
use super::turn::Start;

/// How many flows that have left are remembered.
const REMEMBERED: usize = 128;

/// The virtual time of a priority (`turn.rs`), and the flows that left with a later start.
#[derive(Debug, Default)]
pub struct Present {
    /// The virtual time: the latest start of a flow that was served.
    pub start: Start,
    /// Flows that left with a later start: their hashes and starts.
    left: Vec<(u64, Start)>,
    /// The latest start of a flow that had to be forgotten.
    forgotten: Start,
}

impl Present {
    /// The start of a flow that joins the line, if `next` is the start of the next flow in line. A
    /// flow that returns keeps its start. Otherwise clients that leave and return after each answer
    /// would starve those that stay. Forgotten flows are not recognised, so any unknown flow may
    /// begin one unit late.
    pub fn start_of(&self, flow: &Flow, weight: u16, next: Start) -> Start {
        let present = self.start.max(next);
        let hash = hash_of(flow);
        let own = self.left.iter().find(|&&(of, _)| of == hash);
        let guess = || self.forgotten.min(present.after(1, weight));
        own.map_or_else(guess, |&(_, start)| start).max(present)
    }

    /// Notes that a flow with this start is served. Returns the value from which its start grows.
    pub fn serve(&mut self, start: Start) -> Start {
        self.start = self.start.max(start);
        self.start
    }

    /// Notes that a flow has left.
    pub fn leave(&mut self, flow: &Flow, start: Start) {
        let (present, hash) = (self.start, hash_of(flow));
        self.left.retain(|&(of, start)| of != hash && start > present);
        if start > present {
            self.left.push((hash, start));
        }
        if self.left.len() > REMEMBERED {
            let least = self.left.iter().enumerate().min_by_key(|(_, (_, start))| *start);
            if let Some(index) = least.map(|(index, _)| index) {
                self.forgotten = self.left.swap_remove(index).1.max(self.forgotten);
            }
        }
    }
}
