//! What RDB and append-only files hold: after a restart, a crash, an upgrade, and when damaged.

mod corrupt;
mod corrupt_files;
mod crash;
mod effects;
mod golden;
mod persistence;
mod saving;
