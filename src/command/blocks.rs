//! `RL.BLOCKS`: who is blocked, and who is exempt.

use super::look::kind_name;
use crate::datatype::LIMITER;
use crate::limit::Limiter;
use crate::server::scan::Step;
use crate::server::{Call, CommandError, clock};
use crate::{newer, parse};

/// A row of the reply.
struct Row {
    key: Box<[u8]>,
    kind: &'static str,
    ttl_ms: i64,
    reason: Box<[u8]>,
}

/// `RL.BLOCKS cursor [MATCH pattern] [COUNT n]`
pub fn blocks(call: &Call<'_>) -> Result<(), CommandError> {
    newer::require_nothing_skipped(call)?;
    let request = parse::blocks(call.args().from(1).bytes())?;
    let step = Step { cursor: request.cursor, pattern: request.pattern, count: request.count };
    let now_us = clock::now_us();

    let mut rows = Vec::new();
    let next = call.scan(&LIMITER, &step, |key: &[u8], limiter: &Limiter| {
        if let Some(access) = limiter.access_at(now_us) {
            let kind = kind_name(access.kind);
            let (ttl_ms, reason) = (access.left_ms(now_us), access.reason.clone());
            rows.push(Row { key: key.into(), kind, ttl_ms, reason });
        }
    })?;

    call.reply(|to| {
        to.array(2);
        to.text(next);
        to.array(rows.len());
        for Row { key, kind, ttl_ms, reason } in &rows {
            to.array(4);
            to.text(key);
            to.text(kind);
            to.integer(*ttl_ms);
            to.text(reason);
        }
    });
    Ok(())
}
