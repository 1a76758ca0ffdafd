//! Payloads whose numbers promise more than there is.
//!
//! ```text
//! payload | version: 1 byte | length of the states | states | block or exemption |
//! ```

/// A number as the payload writes it: itself below 251, else a mark and 2, 4 or 8 bytes.
fn varint(number: u64) -> Vec<u8> {
    let bytes = number.to_le_bytes();
    match number {
        0..251 => vec![bytes[0]],
        251..=0xffff => [&[251], &bytes[..2]].concat(),
        0x1_0000..=0xffff_ffff => [&[252], &bytes[..4]].concat(),
        _ => [&[253], &bytes[..]].concat(),
    }
}

fn take_varint(bytes: &[u8]) -> (u64, &[u8]) {
    let (mark, rest) = bytes.split_first().expect("a number");
    let (len, number) = match mark {
        251 => (2, 0),
        252 => (4, 0),
        253 => (8, 0),
        _ => (0, u64::from(*mark)),
    };
    let (bytes, rest) = rest.split_at(len);
    (bytes.iter().rev().fold(number, |number, &byte| number << 8 | u64::from(byte)), rest)
}

/// Numbers that promise more than there is.
fn lies() -> Vec<Vec<u8>> {
    // The fifth could be a time, thousands of years on.
    let numbers = [0xffff, 1 << 20, u32::MAX.into(), 1 << 40, 1 << 57, i64::MAX as u64, u64::MAX];
    let mut lies: Vec<_> = numbers.map(varint).into();
    // 16 bytes, a mark that means nothing, and a letter that no name has.
    lies.extend([[&[254], &[0xff; 16][..]].concat(), vec![255], vec![b'!']]);
    lies
}

/// Payloads with a lie in place of each byte, and so of each length: of the states together, with
/// which the payload begins, and, that one being right, of anything inside and after.
pub fn payloads(payload: &[u8]) -> Vec<Vec<u8>> {
    let (len, rest) = take_varint(&payload[1..]);
    let (states, after) = rest.split_at(usize::try_from(len).unwrap());
    let with = |states: &[u8], after: &[u8]| {
        [&payload[..1], &varint(states.len() as u64), states, after].concat()
    };
    assert_eq!(with(states, after), payload);
    let lying = |bytes: &[u8], lie: &[u8]| -> Vec<Vec<u8>> {
        (0..bytes.len()).map(|at| [&bytes[..at], lie, &bytes[at + 1..]].concat()).collect()
    };
    let mut payloads = Vec::new();
    for lie in lies() {
        payloads.push([&payload[..1], &lie, rest].concat());
        payloads.extend(lying(states, &lie).iter().map(|states| with(states, after)));
        payloads.extend(lying(after, &lie).iter().map(|after| with(states, after)));
    }
    payloads
}
