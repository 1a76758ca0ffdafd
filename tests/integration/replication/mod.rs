//! Replicas, promotion, clusters, failover.

mod cluster;
mod failover;
mod joining;
mod replicas;
mod stream;
