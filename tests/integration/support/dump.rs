//! Takes `DUMP` payloads of the module's values apart, and puts them together with a correct
//! checksum.
//!
//! ```text
//! DUMP    | 7: a module's value | value | RDB version: 2 bytes | CRC64 of it all: 8 bytes |
//! value   | type and encoding version | 5: a string | length | payload | 0: the end |
//! ```
//!
//! In an RDB file the value follows the key's name.

use redis::{Connection, cmd};

use crate::support::server::Builder;

/// `RDB_TYPE_MODULE_2`, the first byte of a `DUMP` of a module's value.
const MODULE_VALUE: u8 = 7;
const A_STRING: u64 = 5;
const THE_END: u64 = 0;

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_REDIS);

/// A server whose dumps and RDB files can be taken apart, because it compresses no strings.
pub fn uncompressed(builder: Builder) -> Builder {
    builder.config("rdbcompression", "no").config("rdbchecksum", "no")
}

/// Checks that damaged values caused no crash and no internal error.
pub fn assert_calm(log: &str) {
    for alarm in ["internal error, please report", "panicked", "crashed by signal", "BUG REPORT"] {
        assert!(!log.contains(alarm), "«{alarm}»: {log}");
    }
}

/// A `DUMP` payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The type's name and encoding version, as one number.
    pub id: u64,
    /// The module's payload.
    pub payload: Vec<u8>,
    pub rdb_version: [u8; 2],
}

impl Dump {
    pub fn of(c: &mut Connection, key: &str) -> Self {
        let dump: Vec<u8> = cmd("DUMP").arg(key).query(c).expect("the key can be dumped");
        Self::read(&dump)
    }

    pub fn read(dump: &[u8]) -> Self {
        let (sealed, checksum) = dump.split_last_chunk().expect("a checksum");
        assert_eq!(CRC64.checksum(sealed), u64::from_le_bytes(*checksum), "the checksum");
        let (body, rdb_version) = sealed.split_last_chunk().expect("a version");
        let mut rest = body.strip_prefix(&[MODULE_VALUE]).expect("a module's value");
        let id = take_length(&mut rest);
        assert_eq!(take_length(&mut rest), A_STRING, "a payload is one string");
        let len = usize::try_from(take_length(&mut rest)).expect("a length");
        let (payload, mut rest) = rest.split_at(len);
        assert_eq!(take_length(&mut rest), THE_END, "nothing follows the payload");
        assert_eq!(rest, [], "nothing follows the value");
        Self { id, payload: payload.to_vec(), rdb_version: *rdb_version }
    }

    /// This dump with another payload.
    pub fn with_payload(&self, payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: payload.into(), ..*self }
    }

    /// The bytes for `RESTORE`.
    pub fn bytes(&self) -> Vec<u8> {
        self.sealed(&self.value())
    }

    /// The value, as in a `DUMP` and in an RDB file.
    pub fn value(&self) -> Vec<u8> {
        self.value_of_length(&length(self.payload.len() as u64))
    }

    /// The value, with these bytes in place of its payload's length.
    pub fn value_of_length(&self, length_bytes: &[u8]) -> Vec<u8> {
        let head = [length(self.id), length(A_STRING)].concat();
        [&head[..], length_bytes, &self.payload, &length(THE_END)].concat()
    }

    /// A dump with these bytes in place of the value, and a correct checksum.
    pub fn sealed(&self, value: &[u8]) -> Vec<u8> {
        let mut dump = [&[MODULE_VALUE], value, &self.rdb_version].concat();
        let checksum = CRC64.checksum(&dump);
        dump.extend(checksum.to_le_bytes());
        dump
    }
}

/// A length as RDB encodes it.
pub fn length(length: u64) -> Vec<u8> {
    match length {
        0..64 => vec![length as u8],
        64..16_384 => (length as u16 | 0x4000).to_be_bytes().to_vec(),
        16_384..=0xffff_ffff => [&[0x80], &(length as u32).to_be_bytes()[..]].concat(),
        _ => [&[0x81], &length.to_be_bytes()[..]].concat(),
    }
}

fn take_length(from: &mut &[u8]) -> u64 {
    let (&first, rest) = from.split_first().expect("a length");
    let more = match first {
        0..0x40 => 0,
        0x40..0x80 => 1,
        0x80 => 4,
        0x81 => 8,
        _ => panic!("a compressed string: start the server with `uncompressed`"),
    };
    let (bytes, rest) = rest.split_at(more);
    *from = rest;
    let high = if first < 0x80 { u64::from(first & 0x3f) } else { 0 };
    bytes.iter().fold(high, |length, &byte| length << 8 | u64::from(byte))
}
