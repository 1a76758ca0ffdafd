//! Writes and reads bytes in bincode's standard form (little endian, variable integers). Tests with
//! golden payloads notice a change of the form. An item is a number, a text, bytes or a tuple of
//! fields.
//!
//! Repeated parts (log entries, counters, past windows) are byte strings in the payload, borrowed
//! while reading. A first pass counts the items of such a part, and a second pass loads them into
//! memory reserved for that number.

use super::{DecodeError, within};
use alloc::{boxed::Box, vec::Vec};
use bincode::enc::write::Writer;
use bincode::error::{DecodeError as DecodingError, EncodeError};
use bincode::{BorrowDecode, Encode, config};

const CONFIG: config::Configuration = config::standard();

/// The part of a charge that only some algorithms have. In memory it is a `Detail`.
#[derive(Clone, Encode, BorrowDecode)]
pub enum SavedDetail {
    Plain,
    Log { window_us: u64 },
    Least { older: u32, owed: u128 },
    Turn { ms: u32, is_last: bool },
}

struct Appended<'a>(&'a mut Vec<u8>);

impl Writer for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Appends an item. Writing to memory cannot fail.
pub fn put(to: &mut Vec<u8>, item: &impl Encode) {
    let written = bincode::encode_into_writer(item, Appended(to), CONFIG);
    debug_assert!(written.is_ok(), "a type bincode cannot encode");
}

/// Appends bytes as an item: their length, then what `write` appends.
pub fn put_bytes(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.push(0);
    write(to);
    let length = to.len().saturating_sub(start).saturating_sub(1);
    // Most lengths take the one byte that was left for them.
    let mut head = [0; 9];
    let taken = bincode::encode_into_slice(length, &mut head, CONFIG).unwrap_or_default();
    to.splice(start..=start, head.into_iter().take(taken));
}

/// Concatenates items.
pub fn save_items<T: Encode>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    items.into_iter().for_each(|item| put(&mut bytes, &item));
    bytes
}

pub const UNKNOWN_KIND: DecodeError = DecodeError::Malformed("an unknown kind of state");

/// Takes an item from the front of the bytes.
pub fn take<'a, T: BorrowDecode<'a, ()>>(from: &mut &'a [u8]) -> Result<T, DecodeError> {
    let (item, read) =
        bincode::borrow_decode_from_slice(from, CONFIG).map_err(|error| in_words(&error))?;
    *from = from.get(read..).unwrap_or_default();
    Ok(item)
}

/// What was wrong, without the library's names for our types.
const fn in_words(error: &DecodingError) -> DecodeError {
    match error {
        DecodingError::UnexpectedEnd { .. } => DecodeError::Malformed("it ends too early"),
        DecodingError::UnexpectedVariant { .. } => UNKNOWN_KIND,
        DecodingError::Utf8 { .. } => DecodeError::Malformed("a name is no text"),
        _ => DecodeError::Malformed("a malformed number"),
    }
}

/// Passes each item to a function.
pub fn each_item<'a, T: BorrowDecode<'a, ()>>(
    mut bytes: &'a [u8],
    mut show: impl FnMut(T) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        show(take(&mut bytes)?)?;
    }
    Ok(())
}

/// Loads up to `most` items. A first pass counts them, so that a number too large for memory is
/// refused. `what` names the number in the error.
pub fn load_items<'a, T: BorrowDecode<'a, ()>, U>(
    bytes: &'a [u8],
    most: usize,
    what: &'static str,
    mut load: impl FnMut(T) -> Result<U, DecodeError>,
) -> Result<Vec<U>, DecodeError> {
    let mut count = 0_usize;
    each_item(bytes, |_: T| {
        count = count.saturating_add(1);
        within(count <= most, what)
    })?;
    let mut items = room_for(count)?;
    each_item(bytes, |item| {
        items.push(load(item)?);
        Ok(())
    })?;
    Ok(items)
}

fn room_for<T>(items: usize) -> Result<Vec<T>, DecodeError> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(items).map_err(|_| DecodeError::NoMemory(items))?;
    Ok(vec)
}

pub fn load_text(text: &[u8]) -> Result<Box<[u8]>, DecodeError> {
    let mut copy = room_for(text.len())?;
    copy.extend_from_slice(text);
    Ok(copy.into_boxed_slice())
}
