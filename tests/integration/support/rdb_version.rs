//! The RDB version at the end of a `DUMP` and at the start of a file. It decides which servers
//! load the dump or the file.
//!
//! ```text
//! DUMP       | value | RDB version: 2 bytes | CRC64 of all before: 8 bytes |
//! RDB file   | "REDIS0012" or "VALKEY080" | ... | CRC64 of all before |
//! ```

use crc::{CRC_64_REDIS, Crc};

use crate::support::server::Flavor;

const VERSION_LEN: usize = 2;
const CRC_LEN: usize = 8;
const MAGIC_LEN: usize = 9;

/// Whether a server with the RDB version `own` loads data of RDB version `version`.
pub fn takes(to: Flavor, own: u16, version: u16) -> bool {
    // Versions 12 to 79 belong to Redis alone: Valkey continues after 11 with 80.
    let foreign = to.is_valkey() && (12..80).contains(&version);
    version <= own && !foreign
}

/// The version in a dump.
pub fn of_dump(dump: &[u8]) -> u16 {
    let (_, version) = dump.split_at(value(dump).len());
    u16::from_le_bytes([version[0], version[1]])
}

/// The value in a dump, without version and checksum.
pub fn value(dump: &[u8]) -> &[u8] {
    &dump[..dump.len() - VERSION_LEN - CRC_LEN]
}

/// A dump with another version.
pub fn in_dump(dump: &[u8], version: u16) -> Vec<u8> {
    sealed([value(dump), &version.to_le_bytes()].concat())
}

/// The version in a file.
pub fn of_file(file: &[u8]) -> u16 {
    let magic = str::from_utf8(&file[..MAGIC_LEN]).expect("a magic word");
    magic.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().expect("a version")
}

/// A file with the version of another.
pub fn in_file(file: &[u8], other: &[u8]) -> Vec<u8> {
    sealed([&other[..MAGIC_LEN], &file[MAGIC_LEN..file.len() - CRC_LEN]].concat())
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = Crc::<u64>::new(&CRC_64_REDIS).checksum(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}
