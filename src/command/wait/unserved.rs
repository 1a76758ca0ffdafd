//! Answers clients whose slot this node no longer serves.
//!
//! When a cluster is down, most servers answer waiting clients, but Valkey 9.1 does not. When a
//! slot is taken from all nodes, no server answers the clients that wait for its keys. So the
//! module asks the server, for some clients at a time, whether it serves their keys.

use super::super::line::waiters;
use super::MOST_ANSWERS;
use crate::metrics;
use crate::server::EventContext;
use std::ffi::CStr;
use std::sync::Arc;

/// A command that changes nothing, and that the server refuses if it does not serve the key.
const EXISTS: &CStr = c"EXISTS";

/// A tick ends after it has found this number of clients whose keys are served.
const MOST_SERVED: usize = 16;

/// Answers some of the clients whose slots are not served: with the server's error, and without a
/// charge.
pub fn refuse_unserved(ctx: &EventContext) {
    let mut served = 0_usize;
    for _ in 0..MOST_ANSWERS {
        let (ticket, db, args) = {
            let mut waiters = waiters();
            let Some(ticket) = waiters.next_in_round() else { return };
            let Some(waiter) = waiters.queues.waiter(ticket) else { continue };
            (ticket, waiter.db, Arc::clone(&waiter.args))
        };
        match ctx.call(db, EXISTS, args.args().from(1).first(1)) {
            Err(error) if error.is_of_cluster() => {
                metrics::WAITS_REFUSED.add(1);
                let waiter = waiters().leave(ticket, None);
                if let Some(waiter) = waiter {
                    waiter.client.answer(move |_| Err(error.clone()));
                }
            }
            Ok(_) | Err(_) => served = served.saturating_add(1),
        }
        if served == MOST_SERVED {
            return;
        }
    }
}
