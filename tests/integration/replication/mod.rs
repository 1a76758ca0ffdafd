//! Replicas, promotion, clusters, failover.

mod cluster;
mod failover;
mod holds;
mod joining;
mod pauses;
mod replicas;
mod stream;
mod waits;
