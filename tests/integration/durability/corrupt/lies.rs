//! Payloads whose numbers promise more than there is.
//!
//! ```text
//! payload | version: 1 byte | length of the states | states | block or exemption | trail |
//! trail   | how many are kept | until when it matters | length of the marks | marks |
//! ```
//!
//! Version 1 has no trail, version 2 has one. In version 3 the length of a ban follows the block,
//! and both it and the trail have a byte before them that says whether there is one.

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

/// A payload taken apart where a length says how far a part goes.
struct Parts<'a> {
    version: u8,
    states: &'a [u8],
    /// What follows, up to the length of the marks if there are any.
    middle: &'a [u8],
    marks: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(payload: &'a [u8]) -> Self {
        let (&version, rest) = payload.split_first().expect("a version");
        let (len, rest) = take_varint(rest);
        let (states, rest) = rest.split_at(usize::try_from(len).expect("a length"));
        let mut trail = skip_override(rest);
        let mut has_trail = u64::from(version == 2);
        if version == 3 {
            (has_trail, trail) = take_varint(skip_number_if_any(trail));
        }
        if has_trail == 0 {
            return Self { version, states, middle: rest, marks: None };
        }
        let (_, after) = take_varint(trail);
        let (_, after) = take_varint(after);
        let (middle, _) = rest.split_at(rest.len() - after.len());
        let (len, marks) = take_varint(after);
        assert_eq!(len, marks.len() as u64, "nothing follows the marks");
        Self { version, states, middle, marks: Some(marks) }
    }

    /// Put together again, with the lengths as given.
    fn with_lengths(&self, of_states: &[u8], of_marks: &[u8]) -> Vec<u8> {
        let marks = self.marks.map(|marks| [of_marks, marks].concat()).unwrap_or_default();
        [&[self.version], of_states, self.states, self.middle, &marks].concat()
    }

    /// With the lengths as they are.
    fn whole(&self) -> Vec<u8> {
        let len = |part: &[u8]| varint(part.len() as u64);
        self.with_lengths(&len(self.states), &len(self.marks.unwrap_or_default()))
    }
}

/// What follows a block or an exemption, or none.
fn skip_override(bytes: &[u8]) -> &[u8] {
    let (is_some, rest) = take_varint(bytes);
    if is_some == 0 {
        return rest;
    }
    let (_is_exempt, rest) = take_varint(rest);
    let (len, rest) = take_varint(skip_number_if_any(rest));
    &rest[usize::try_from(len).expect("a length")..]
}

/// What follows a number that may be there.
fn skip_number_if_any(bytes: &[u8]) -> &[u8] {
    let (is_some, rest) = take_varint(bytes);
    if is_some == 0 { rest } else { take_varint(rest).1 }
}

/// Payloads with a lie in place of each byte, and so of each length: of the parts, and, those being
/// right, of anything inside.
pub fn payloads(payload: &[u8]) -> Vec<Vec<u8>> {
    let parts = Parts::of(payload);
    assert_eq!(parts.whole(), payload);
    let lying = |bytes: &[u8], lie: &[u8]| -> Vec<Vec<u8>> {
        (0..bytes.len()).map(|at| [&bytes[..at], lie, &bytes[at + 1..]].concat()).collect()
    };
    let [of_states, of_marks] =
        [parts.states, parts.marks.unwrap_or_default()].map(|part| varint(part.len() as u64));
    let mut payloads = Vec::new();
    for lie in lies() {
        payloads.push(parts.with_lengths(&lie, &of_marks));
        for states in lying(parts.states, &lie) {
            payloads.push(Parts { states: &states, ..parts }.whole());
        }
        for middle in lying(parts.middle, &lie) {
            payloads.push(Parts { middle: &middle, ..parts }.whole());
        }
        if let Some(marks) = parts.marks {
            payloads.push(parts.with_lengths(&of_states, &lie));
            for marks in lying(marks, &lie) {
                payloads.push(Parts { marks: Some(&marks), ..parts }.whole());
            }
        }
    }
    payloads
}
