//! RDB and append-only files: restarts, crashes, old versions, damaged data.

mod corrupt;
mod corrupt_files;
mod crash;
mod effects;
pub mod golden;
mod holds;
mod out_of_memory;
mod persistence;
mod processors;
