//! What each command replies and changes, a file a command.

mod access;
mod bad_input;
mod blocks;
mod check;
mod hammer;
mod info;
mod log;
mod mcheck;
mod policy;
mod refund;
mod throttle;
mod top;
