//! `RL.BLOCKS`: the keys that are blocked or exempt.

use super::access::kind_name;
use crate::datatype::LIMITER;
use crate::newer_data;
use crate::server::reply::Value::{Integer, Nested, Text};
use crate::server::scan::Step;
use crate::server::{Call, CommandError, Writer, clock};
use ratelimit_core::limit::Limiter;
use ratelimit_core::parse;

/// A row of the reply.
struct Row {
    key: Box<[u8]>,
    kind: &'static str,
    ttl_ms: i64,
    reason: Box<[u8]>,
}

/// `RL.BLOCKS cursor [MATCH pattern] [COUNT n]`
pub fn blocks(call: &Call<'_>) -> Result<(), CommandError> {
    newer_data::require_nothing_skipped(call)?;
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

    let rows = |to: &Writer<'_>| {
        to.array(rows.len());
        for Row { key, kind, ttl_ms, reason } in &rows {
            to.row(&[Text(key), Text(kind.as_bytes()), Integer(*ttl_ms), Text(reason)]);
        }
    };
    call.reply(|to| to.row(&[Text(next.as_ref()), Nested(&rows)]));
    Ok(())
}
