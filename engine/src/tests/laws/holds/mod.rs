//! The laws of holds.
//!
//! ```text
//! examples     the worked examples of holds
//! shared_log   callers with different rules share a log while holds end
//! charges      a charge can still be corrected after other changes
//! traffic      calls that take, settle and renew holds
//! decisions    a hold changes no decision, and a repeat changes nothing but the end
//! as_if        a settled check equals a check that had the settled cost from the start
//! history      the naive model for `as_if`: what each check cost in the end
//! usage        the final costs of checks obey the rules
//! turns        the turns of a leaky bucket keep their distance
//! slots        the live units of slots never exceed their limit
//! grants       a grant from a range is the most that passes
//! returned     no unit is returned twice
//! emptied      a state from which nothing is consumed has no time
//! foreseen     the honest wait and the reset foresee lapses
//! later        waits that are longer because a denial starts later
//! replica      a replica that records what was decided stays equal
//! saved        decode(encode(x)) = x with holds, and decoding is total
//! memory       how much memory a hold takes
//! room         how many holds a key takes
//! expiry       a key does not expire before its holds end, and then nothing is left
//! ```

pub mod as_if;
mod charges;
mod decisions;
mod emptied;
mod examples;
mod expiry;
mod foreseen;
mod grants;
pub mod history;
mod later;
pub mod memory;
pub mod replica;
pub mod returned;
mod room;
mod saved;
mod shared_log;
mod slots;
pub mod traffic;
mod turns;
mod usage;
