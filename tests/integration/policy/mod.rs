//! Policies: who may set them, where they are saved, how they reach replicas.

mod acl;
mod cluster;
mod config;
mod persistence;
mod rdb_file;
mod replication;
mod scale;
