//! Rules under a name: who may set them, where they are kept, how they reach replicas.

mod acl;
mod cluster;
mod config;
mod persistence;
mod rdb_file;
mod replication;
mod scale;
