//! The safe face of the module API, and nothing else: this part knows no rules and no limiters.
//!
//! The module API is C: raw contexts, argument vectors, keys that must be closed, replies that must
//! be complete, callbacks that must not unwind. Only this part and `datatype/` call it. The types
//! that they hand out cannot be misused:
//!
//! ```text
//!  the server -> callback::on_command -> Call  a command being executed
//!                                        |- args       borrowed &[u8], never copied
//!                                        |- key        opened, type-checked, closed by Drop
//!                                        |- reply      integers, arrays, maps, errors
//!                                        |- propagation  to replicas and the AOF
//!                                        |- scan       one step of SCAN
//!                                        |- call_reply commands that the module calls
//!             -> callback::on_command_or_keys -> KeysRequest  where its keys are
//!             -> callback::guarded            every other callback
//!
//!  module  commands, registration, syntax  settings  info      what is registered at load
//!  events  propagation  changes                            what happens to the server
//!  waiting_clients  alarm                                  what is done later
//!  io      payloads in RDB files, the AOF and digests
//!  api  alloc  clock  log
//! ```
//!
//! Two rules hold everywhere. Every callback catches panics, because a panic that crosses into C
//! ends the server. And code tests that an API function exists before calling it, unless all servers
//! from 6.2 on have it (`api`).

pub mod alarm;
pub mod alloc;
pub(crate) mod api;
pub mod args;
pub mod call;
pub mod call_reply;
pub mod callback;
pub mod changes;
pub mod clock;
pub mod commands;
pub mod events;
#[cfg(feature = "fault-injection")]
mod fault;
pub mod info;
pub mod io;
pub mod key;
pub mod log;
mod module;
pub mod propagation;
mod registration;
pub mod reply;
pub mod scan;
pub mod settings;
mod syntax;
pub mod waiting_clients;

pub use args::{Arg, Args, Texts};
pub use call::{Call, CommandError, PerServer};
pub use callback::KeysRequest;
pub use events::{EventContext, ReplicateTo, ServerEvent};
pub use key::{KeyValue, NativeType, ReadKey, WriteKey};
pub use module::{declare_options, end_server, load, version};
pub use registration::register as register_commands;
pub use reply::Writer;
pub use waiting_clients::{ClientId, WaitingClient, WhileWaiting};
