//! Forged payloads, whose numbers claim more data than there is.
//!
//! ```text
//! payload | version: 1 byte | length of the states | states | block or exemption | history | tail |
//! history | how many entries to keep | until when it is kept | length of the entries | entries |
//! tail    | length of the holds | holds | count of bans |
//! ```
//!
//! A byte before the block, one before the history and one before the count of bans say whether
//! these are present.

/// A number as in payloads: one byte below 251, else a tag and 2, 4 or 8 bytes.
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
    let (tag, rest) = bytes.split_first().expect("a number");
    let (len, number) = match tag {
        251 => (2, 0),
        252 => (4, 0),
        253 => (8, 0),
        _ => (0, u64::from(*tag)),
    };
    let (bytes, rest) = rest.split_at(len);
    (bytes.iter().rev().fold(number, |number, &byte| number << 8 | u64::from(byte)), rest)
}

/// Encoded numbers that claim more data than there is.
fn forged_numbers() -> Vec<Vec<u8>> {
    // The fifth could be a time some thousands of years ahead.
    let numbers = [0xffff, 1 << 20, u32::MAX.into(), 1 << 40, 1 << 57, i64::MAX as u64, u64::MAX];
    let mut forged: Vec<_> = numbers.map(varint).into();
    // A number of 16 bytes, a tag without a meaning, and a byte that is not allowed in names.
    forged.extend([[&[254], &[0xff; 16][..]].concat(), vec![255], vec![b'!']]);
    forged
}

/// The parts of a payload that are preceded by their length, and what is between them.
struct Parts<'a> {
    version: u8,
    states: &'a [u8],
    /// The bytes after the states, up to the length of the entries if there are any.
    middle: &'a [u8],
    entries: Option<&'a [u8]>,
    /// The bytes after the entries, or after the middle.
    tail: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(payload: &'a [u8]) -> Self {
        let (&version, rest) = payload.split_first().expect("a version");
        let (len, rest) = take_varint(rest);
        let (states, rest) = rest.split_at(usize::try_from(len).expect("a length"));
        let (has_history, history) = take_varint(skip_access(rest));
        if has_history == 0 {
            let (middle, tail) = rest.split_at(rest.len() - history.len());
            return Self { version, states, middle, entries: None, tail };
        }
        let (_, after) = take_varint(history);
        let (_, after) = take_varint(after);
        let (middle, _) = rest.split_at(rest.len() - after.len());
        let (len, after) = take_varint(after);
        let (entries, tail) = after.split_at(usize::try_from(len).expect("a length"));
        Self { version, states, middle, entries: Some(entries), tail }
    }

    /// The payload with these lengths.
    fn with_lengths(&self, of_states: &[u8], of_entries: &[u8]) -> Vec<u8> {
        let entries =
            self.entries.map(|entries| [of_entries, entries].concat()).unwrap_or_default();
        [&[self.version], of_states, self.states, self.middle, &entries, self.tail].concat()
    }

    /// The payload with its true lengths.
    fn whole(&self) -> Vec<u8> {
        let len = |part: &[u8]| varint(part.len() as u64);
        self.with_lengths(&len(self.states), &len(self.entries.unwrap_or_default()))
    }
}

/// The bytes after a block or an exemption, which may be absent.
fn skip_access(bytes: &[u8]) -> &[u8] {
    let (is_some, rest) = take_varint(bytes);
    if is_some == 0 {
        return rest;
    }
    let (_is_exempt, rest) = take_varint(rest);
    let (len, rest) = take_varint(skip_number_if_any(skip_number_if_any(rest)));
    &rest[usize::try_from(len).expect("a length")..]
}

/// The bytes after a number, which may be absent.
fn skip_number_if_any(bytes: &[u8]) -> &[u8] {
    let (is_some, rest) = take_varint(bytes);
    if is_some == 0 { rest } else { take_varint(rest).1 }
}

/// Payloads in which a forged number replaces the length of a part, or a byte inside a part.
pub fn payloads(payload: &[u8]) -> Vec<Vec<u8>> {
    let parts = Parts::of(payload);
    assert_eq!(parts.whole(), payload);
    let forged = |bytes: &[u8], number: &[u8]| -> Vec<Vec<u8>> {
        (0..bytes.len()).map(|at| [&bytes[..at], number, &bytes[at + 1..]].concat()).collect()
    };
    let [of_states, of_entries] =
        [parts.states, parts.entries.unwrap_or_default()].map(|part| varint(part.len() as u64));
    let mut payloads = Vec::new();
    for number in forged_numbers() {
        payloads.push(parts.with_lengths(&number, &of_entries));
        for states in forged(parts.states, &number) {
            payloads.push(Parts { states: &states, ..parts }.whole());
        }
        for middle in forged(parts.middle, &number) {
            payloads.push(Parts { middle: &middle, ..parts }.whole());
        }
        for tail in forged(parts.tail, &number) {
            payloads.push(Parts { tail: &tail, ..parts }.whole());
        }
        if let Some(entries) = parts.entries {
            payloads.push(parts.with_lengths(&of_states, &number));
            for entries in forged(entries, &number) {
                payloads.push(Parts { entries: Some(&entries), ..parts }.whole());
            }
        }
    }
    payloads
}
