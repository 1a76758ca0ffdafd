//! What replicas and clusters hold and answer.

mod cluster;
mod failover;
mod joining;
mod replicas;
mod stream;
