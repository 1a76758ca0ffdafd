//! `RL.BLOCKS`: the keys that are blocked or exempt.

use super::access::kind_name;
use crate::datatype::LIMITER;
use crate::server::reply::Value::{Integer, Nested, Text};
use crate::server::scan::Step;
use crate::server::{Call, CommandError, Writer, clock};
use crate::unreadable;
use ratelimit_engine::key::{AccessEntry, Limiter};
use ratelimit_protocol::parse;

/// `RL.BLOCKS`
pub fn blocks(call: &Call<'_>) -> Result<(), CommandError> {
    unreadable::require_nothing_skipped(call)?;
    let request = parse::blocks(call.args().from(1).bytes())?;
    let step = Step { cursor: request.cursor, pattern: request.pattern, count: request.count };
    let now_us = clock::now_us();

    let mut rows = Vec::<(Box<[u8]>, AccessEntry)>::new();
    let next = call.scan(&LIMITER, &step, |key: &[u8], limiter: &Limiter| {
        rows.extend(limiter.access_at(now_us).map(|access| (key.into(), access.clone())));
    })?;

    let show_rows = |to: &Writer<'_>| {
        to.list(&rows, |to, (key, access)| {
            let kind = Text(kind_name(access.kind).as_bytes());
            to.row(&[Text(key), kind, Integer(access.left_ms(now_us)), Text(&access.reason)]);
        });
    };
    call.reply(|to| to.row(&[Text(next.as_ref()), Nested(&show_rows)]));
    Ok(())
}
