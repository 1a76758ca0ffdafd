//! What each command replies and changes, a file a command.

mod access;
mod bad_input;
mod callers;
mod check;
mod hammer;
mod log;
mod mcheck;
mod policy;
mod throttle;
