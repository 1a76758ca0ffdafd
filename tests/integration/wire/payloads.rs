//! Hostile values: the golden payloads of every version, mostly damaged.

use std::sync::LazyLock;

use fastrand::Rng;

use super::generator::junk;
use crate::durability::golden;
use crate::support::dump::{Dump, length};

static GOLDEN: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| golden::all().into_iter().map(|golden| golden.payload).collect());

/// A payload of any version, whole or damaged.
pub fn hostile(rng: &mut Rng) -> Vec<u8> {
    let mut payload = rng.choice(GOLDEN.iter()).expect("some").clone();
    match rng.u32(0..8) {
        0..2 => {}
        2 => {
            let other = rng.choice(GOLDEN.iter()).expect("some");
            payload.truncate(rng.usize(0..=payload.len()));
            payload.extend(&other[rng.usize(0..=other.len())..]);
        }
        3 => payload = junk::bytes(rng, 200),
        4 => {
            let at = rng.usize(0..=payload.len());
            let long = [&[253][..], &rng.u64(..).to_le_bytes()].concat();
            drop(payload.splice(at..at, long));
        }
        _ => junk::damage(rng, &mut payload),
    }
    payload
}

/// A dump of a hostile payload, usually with a correct checksum.
pub fn hostile_dump(rng: &mut Rng, like: &Dump) -> Vec<u8> {
    let payload = hostile(rng);
    let dump = like.with_payload(payload);
    match rng.u32(0..10) {
        0 => dump.sealed(&dump.value_of_length(&length(rng.u64(..)))),
        1 => dump.sealed(&junk::bytes(rng, 100)),
        2 => Dump { id: dump.id ^ (1 << rng.u32(0..64)), ..dump }.bytes(),
        3 => {
            let mut bytes = dump.bytes();
            junk::damage(rng, &mut bytes);
            bytes
        }
        _ => dump.bytes(),
    }
}
