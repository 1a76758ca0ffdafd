//! Replicas, promotion, clusters, failover.

mod cluster;
mod failover;
mod holds;
mod joining;
mod partition;
mod pauses;
mod replicas;
mod split_brain;
mod stream;
mod waits;
