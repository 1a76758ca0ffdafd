//! What each command replies and changes, one file per command.

mod access;
mod bad_input;
mod blocks;
mod check;
mod costs;
mod failures;
mod grants;
mod holds;
mod info;
mod ladders;
mod log;
mod mcheck;
mod pause;
mod plan;
mod policy;
mod refund;
mod slots;
mod sync;
mod throttle;
mod top;
mod wait;
