//! `RL.WAIT`: replies when this request may pass, in the order of `ratelimit_protocol::waiting`.
//!
//! ```text
//!  a key or a policy changes  ->  the lines note the change         (line)
//!  time passes                ->  one timer, for what is due next   (alarm)
//!
//!  the timer   ->  evaluate the next waiter that is due: would it pass?
//!                  no    evaluate it again when its wait is over, or something lets it pass
//!                  yes   remove it from the line, and call RL.WAIT for it; this call cannot
//!                        wait, so it decides at once, and its reply goes to the client
//! ```
//!
//! The timer runs outside of commands, where the module may write. It calls `RL.WAIT` through the
//! server, which tests that this node still serves the key's slot (migrating the slot deletes the
//! key), and propagates, counts and reports what the command does.

mod prospect;
mod unserved;

use std::ffi::CStr;
use std::sync::Arc;

use super::check;
use super::line::{Waiter, Waiters, set_alarm, waiters};
use super::opened::Opened;
use super::request::Scratch;
use crate::config;
use crate::metrics::{self, Counter};
use crate::server::propagation::must_not_replicate;
use crate::server::{Call, ClientId, CommandError, EventContext, Texts, WhileWaiting, clock};
pub use prospect::with_request;
use prospect::{ParsedWait, Prospect};
use ratelimit_protocol::waiting::{Due, Flow, HoldId, Place, Request, Rules, Ticket};
pub use unserved::refuse_unserved;

/// The command that decides for a waiter. It cannot wait, because the module calls it.
const WAIT: &CStr = c"RL.WAIT";

/// For how many microseconds one run of the timer decides. Then the server serves other clients, even
/// if more waiters are due. A command waits for up to two runs: for one before the server reads it,
/// and for another before the server sends the reply.
const BUSY_US: u64 = 2_000;
/// How many clients one run of the timer answers at most: the server takes longer to send the
/// replies than the module takes to decide.
const MOST_ANSWERS: usize = 64;

/// `RL.WAIT`
pub fn wait(call: &Call<'_>) -> Result<(), CommandError> {
    prospect::with_request(call, |call, parsed, scratch| {
        if call.may_wait() && waits_or_is_denied(call, parsed, scratch)? {
            return Ok(());
        }
        let Scratch { rules, decisions, resolver, .. } = scratch;
        let opened = Opened::first(call, None)?;
        check::decide(call, opened, &parsed.request.check, rules, decisions, resolver)
    })
}

/// Queues a client if it has to wait, has time left, and the line has room. If the rules admit its
/// request but the client cannot wait for those in front, denies the request. Returns false if the
/// rules decide.
fn waits_or_is_denied(
    call: &Call<'_>,
    parsed: &ParsedWait<'_>,
    scratch: &mut Scratch<'_>,
) -> Result<bool, CommandError> {
    let ParsedWait { request, plan_end } = parsed;
    let denial = match prospect::of(call, parsed, scratch)? {
        Prospect::Passes { .. } if waiters().queues.waiting() == 0 => return Ok(false),
        Prospect::Passes { .. } => None,
        Prospect::Later { denial, in_time: true } => Some(denial),
        Prospect::Decided | Prospect::Free | Prospect::Later { in_time: false, .. } => {
            return Ok(false);
        }
    };
    let place = Place { key: call.key_name()?.bytes().into(), db: call.db() };
    let hold = request.check.options.as_ref().and_then(|options| options.hold);
    let wanted = Request {
        flow: Flow { priority: request.priority, name: request.flow.into() },
        weight: request.weight,
        rules: Rules::of(scratch.rules),
        plan_end: *plan_end,
        hold: hold.map(|hold| HoldId::of(hold.id)),
    };
    let lens = call.args().bytes().map(<[u8]>::len);
    let bytes = lens.chain([place.key.len()]).fold(0, usize::saturating_add);
    let (in_front_us, has_room) = {
        let Waiters { queues, .. } = &mut *waiters();
        let in_front_us = queues.in_front(&place, &wanted, clock::steady_us());
        (in_front_us, queues.has_room(config::room_for_waiters(), &place, &wanted, bytes))
    };
    let passes = denial.is_none();
    if passes && in_front_us.is_none() {
        return Ok(false);
    }
    if request.ms == 0 || !has_room {
        // If the rules deny, let them decide: the denial may be charged, and may ban.
        if passes {
            prospect::deny(call, parsed, scratch, until(in_front_us))?;
        }
        return Ok(passes);
    }
    scratch.resolver.note_use(clock::now_us());
    let client = call.let_wait::<Waiters>().ok_or(CommandError::Internal)?;
    let args = Arc::new(Texts::new(call.args().bytes()));
    let (id, waiter) = (client.id(), Waiter { client, db: call.db(), args });
    let mut waiters = waiters();
    let ticket =
        waiters.queues.join(place, wanted, clock::steady_us_after(request.ms), bytes, waiter);
    if let Some(denial) = denial {
        waiters.queues.deny(ticket, denial, clock::steady_us());
    }
    waiters.joined(id, ticket);
    drop(waiters);
    set_alarm();
    Ok(true)
}

/// Milliseconds until `at_us`, at least one.
fn until(at_us: Option<u64>) -> u64 {
    let left_us = at_us.map_or(0, |at_us| at_us.saturating_sub(clock::steady_us()));
    left_us.div_ceil(1_000).max(1)
}

/// After how many milliseconds to try again if a key cannot be written.
const NOT_NOW_MS: u64 = 1;

/// Decides for the waiters that are due.
pub fn serve(ctx: &EventContext) {
    let mut now_us = clock::steady_us();
    let busy_until_us = now_us.saturating_add(BUSY_US);
    let enough = waiters().queues.waiting().saturating_sub(MOST_ANSWERS);
    loop {
        let due = waiters().queues.due(now_us);
        match due {
            Some(Due::Try(ticket)) => attempt(ctx, ticket),
            Some(Due::Read(ticket)) => read(ctx, ticket),
            Some(Due::Deadline(ticket)) => expire(ctx, ticket),
            Some(Due::More) => {}
            None => break,
        }
        now_us = clock::steady_us();
        if now_us > busy_until_us || waiters().queues.waiting() <= enough {
            break;
        }
    }
    set_alarm();
}

/// How a wait ends.
enum Ending {
    /// `RL.WAIT`, called for the waiter, decides. `admitted` is the waiter's cost if its rules admit it.
    Decide { admitted: Option<u32>, ended: &'static Counter },
    /// The waiter is denied with this wait in milliseconds, although its rules may admit it.
    Deny { wait_ms: u64 },
}

impl Ending {
    const REFUSED: Self = Self::Decide { admitted: None, ended: &metrics::WAITS_REFUSED };
    const EXPIRED: Self = Self::Decide { admitted: None, ended: &metrics::WAITS_EXPIRED };

    const fn admitted(cost: Option<u32>) -> Self {
        Self::Decide { admitted: cost, ended: &metrics::WAITS_ADMITTED }
    }
}

/// Answers a waiter whose request would pass now or can never pass. Any other waiter is due again after
/// its wait, which may have become longer.
fn attempt(ctx: &EventContext, ticket: Ticket) {
    let ending = match of_waiter(ctx, ticket, prospect::of) {
        None => return,
        Some(Ok(Prospect::Later { denial, .. })) => {
            return waiters().queues.deny(ticket, denial, clock::steady_us());
        }
        Some(Ok(Prospect::Passes { cost })) => Ending::admitted(Some(cost)),
        Some(Ok(Prospect::Free)) => Ending::admitted(None),
        Some(Ok(Prospect::Decided) | Err(_)) => Ending::REFUSED,
    };
    answer(ctx, ticket, &ending);
}

/// Reads a waiter's rules again, after a change of a policy or of the key's plan.
fn read(ctx: &EventContext, ticket: Ticket) {
    let read = of_waiter(ctx, ticket, |_, parsed, scratch| {
        Ok((Rules::of(scratch.rules), parsed.plan_end))
    });
    match read {
        None => {}
        Some(Ok((rules, plan_end))) => waiters().queues.read(ticket, rules, plan_end),
        Some(Err(_)) => answer(ctx, ticket, &Ending::REFUSED),
    }
}

/// Answers a waiter whose deadline has passed.
fn expire(ctx: &EventContext, ticket: Ticket) {
    if let Some(prospect) = of_waiter(ctx, ticket, prospect::of) {
        answer(ctx, ticket, &at_deadline(ticket, &prospect));
    }
}

/// How the wait of a waiter ends whose time is over.
fn at_deadline(ticket: Ticket, prospect: &Result<Prospect, CommandError>) -> Ending {
    let in_front_us = waiters().queues.behind(ticket);
    let denied = Ending::Deny { wait_ms: until(in_front_us) };
    match prospect {
        // While clients are paused, nothing may be written, not even a charged denial.
        _ if must_not_replicate() => denied,
        Ok(Prospect::Passes { cost }) if in_front_us.is_none() => Ending::admitted(Some(*cost)),
        Ok(Prospect::Passes { .. }) => denied,
        Ok(Prospect::Free) => Ending::admitted(None),
        Ok(Prospect::Decided | Prospect::Later { .. }) | Err(_) => Ending::EXPIRED,
    }
}

/// The database and the arguments of a waiter's call.
fn call_of(ticket: Ticket) -> Option<(i32, Arc<Texts>)> {
    let waiters = waiters();
    let waiter = waiters.queues.waiter(ticket)?;
    Some((waiter.db, Arc::clone(&waiter.args)))
}

/// Runs a body with a waiter's request; `None` if nobody waits with this ticket.
fn of_waiter<T>(
    ctx: &EventContext,
    ticket: Ticket,
    body: impl FnOnce(&Call<'_>, &ParsedWait<'_>, &mut Scratch<'_>) -> Result<T, CommandError>,
) -> Option<Result<T, CommandError>> {
    let (db, args) = call_of(ticket)?;
    Some(ctx.with_call(db, args.args(), |call| prospect::with_request(call, body)))
}

/// Denies a waiter's request.
fn deny(call: &Call<'_>, wait_ms: u64) -> Result<(), CommandError> {
    prospect::with_request(call, |call, parsed, scratch| {
        prospect::deny(call, parsed, scratch, wait_ms)
    })
}

/// Removes a waiter from its line, and counts how its wait ended.
fn leave(ticket: Ticket, admitted: Option<u32>, ended: &Counter) -> Option<Waiter> {
    let waiter = waiters().leave(ticket, admitted)?;
    ended.add(1);
    Some(waiter)
}

/// Answers a waiter, which leaves the line. If its key cannot be written now, it stays and is due again
/// soon.
fn answer(ctx: &EventContext, ticket: Ticket, ending: &Ending) {
    match *ending {
        Ending::Decide { admitted, ended } => {
            let Some((db, args)) = call_of(ticket) else { return };
            let reply = ctx.call(db, WAIT, args.args().from(1));
            if reply.as_ref().is_err_and(CommandError::is_not_now) {
                let now_us = clock::steady_us();
                return waiters().queues.put_off(ticket, NOT_NOW_MS, now_us);
            }
            if let Some(waiter) = leave(ticket, admitted, ended) {
                waiter.client.answer(move |call| {
                    call.repeat(reply.as_ref().map_err(Clone::clone)?);
                    Ok(())
                });
            }
        }
        Ending::Deny { wait_ms } => {
            if let Some(waiter) = leave(ticket, None, &metrics::WAITS_EXPIRED) {
                waiter.client.answer(move |call| deny(call, wait_ms));
            }
        }
    }
}

impl WhileWaiting for Waiters {
    fn unblocked(call: &Call<'_>, id: ClientId) -> Result<(), CommandError> {
        let ticket = *waiters().tickets.get(&id).ok_or(CommandError::Internal)?;
        let prospect = prospect::with_request(call, prospect::of);
        let (mut admitted, mut counter) = (None, &metrics::WAITS_EXPIRED);
        let reply = match at_deadline(ticket, &prospect) {
            Ending::Decide { admitted: cost, ended } => match call.call(WAIT) {
                // The client must be answered now, and its key cannot be charged.
                Err(error) if error.is_not_now() => deny(call, NOT_NOW_MS),
                reply => {
                    (admitted, counter) = (cost, ended);
                    reply.map(|reply| call.repeat(&reply))
                }
            },
            Ending::Deny { wait_ms } => deny(call, wait_ms),
        };
        // The waiter is dropped after the reply.
        let waiter = leave(ticket, admitted, counter);
        set_alarm();
        drop(waiter);
        reply
    }

    fn gone(id: ClientId) {
        let waiter = {
            let mut waiters = waiters();
            let ticket = waiters.tickets.get(&id).copied();
            ticket.and_then(|ticket| waiters.leave(ticket, None))
        };
        set_alarm();
        drop(waiter);
    }
}
