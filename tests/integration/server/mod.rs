//! The server's features on the module and its keys.

mod acl;
mod alignment;
mod audit;
mod bounds;
mod clock;
mod clock_steps;
mod co_loading;
mod configuration;
mod counters;
mod defrag;
mod ends;
mod enforcement;
mod events;
mod eviction;
mod expiry;
mod install;
mod keyspace;
mod loading;
mod max_states;
mod memory;
mod metadata;
mod security;
mod transactions;
mod watching;
