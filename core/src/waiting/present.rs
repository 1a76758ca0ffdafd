//! Where the flows of one priority are: what was served last, and what those got that have left.

use super::request::Flow;
use super::turn::Start;
use std::sync::Arc;

/// How many flows that have left are remembered.
const REMEMBERED: usize = 16;

#[derive(Debug, Default)]
pub struct Present {
    /// The start of the flow that was served last.
    start: Start,
    /// The starts, later than that, with which flows left.
    left: Vec<(Arc<Flow>, Start)>,
    /// The latest start of a flow that had to be forgotten.
    forgotten: Start,
}

impl Present {
    pub const fn start(&self) -> Start {
        self.start
    }

    /// The least start of a flow that comes. What it was served before it left counts, or flows
    /// with one client each, who asks again after each answer, would starve those who stay.
    pub fn start_of(&self, flow: &Flow) -> Start {
        let remembered = self.left.iter().find(|(of, _)| **of == *flow);
        remembered.map_or(self.forgotten, |&(_, start)| start).max(self.start)
    }

    /// A flow with this start is served. Returns what its start grows from.
    pub fn serve(&mut self, start: Start) -> Start {
        self.start = self.start.max(start);
        self.start
    }

    /// A flow has left.
    pub fn leave(&mut self, flow: &Arc<Flow>, start: Start) {
        let present = self.start;
        self.left.retain(|&(ref of, start)| of != flow && start > present);
        if start > present {
            self.left.push((Arc::clone(flow), start));
        }
        if self.left.len() > REMEMBERED {
            let least = self.left.iter().enumerate().min_by_key(|(_, (_, start))| *start);
            if let Some(index) = least.map(|(index, _)| index) {
                self.forgotten = self.left.swap_remove(index).1.max(self.forgotten);
            }
        }
    }
}
