//! Primaries and replicas with a link that carries only commands, and functions that wait until
//! they are in step.

use redis::Connection;

use super::data::Data;
use crate::support::client::{ask, info_text};
use crate::support::server::{Builder, Flavor, Server, eventually};

/// Configures a server that replicates. Its stream has no pings, which would count as bytes of
/// the stream; its backlog keeps what a replica misses while its link is cut; `AT` is allowed.
pub fn quiet(builder: Builder) -> Builder {
    builder
        .allow_at()
        .config("repl-ping-replica-period", "3600")
        .config("repl-timeout", "7200")
        .config("repl-backlog-size", "16mb")
}

pub fn primary(flavor: Flavor) -> Server {
    quiet(flavor.builder()).start()
}

/// A replica with the same server program as its primary, in step with it.
pub fn replica_of(primary: &Server) -> Server {
    let replica = quiet(primary.flavor().builder()).replica_of(primary).start();
    in_step(primary, &replica);
    replica
}

/// A number in a field of `INFO`.
pub fn number(c: &mut Connection, section: &str, field: &str) -> u64 {
    info_text(c, section, field).parse().expect("a number")
}

/// The length of the stream that a server sends, or would send to replicas.
pub fn offset(c: &mut Connection) -> u64 {
    number(c, "replication", "master_repl_offset")
}

/// Waits until a replica, or a replica of a replica, has executed the primary's whole stream.
pub fn in_step(primary: &Server, replica: &Server) {
    let (mut p, mut r) = (primary.connect(), replica.connect());
    eventually("the replica to catch up", || {
        let mut replication = |field: &str| info_text(&mut r, "replication", field);
        replication("role") == "slave"
            && replication("master_link_status") == "up"
            && replication("slave_repl_offset") == offset(&mut p).to_string()
    });
}

/// Checks that each replica holds what the primary holds, to the byte and to the millisecond.
///
/// Meanwhile the primary must not look for expired keys to delete: such a key could exist on
/// only one of the servers.
pub fn assert_alike(primary: &Server, replicas: &[&Server], when: &str) {
    let mut p = primary.connect();
    let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 0");
    replicas.iter().for_each(|replica| in_step(primary, replica));
    let servers: Vec<&Server> = std::iter::once(&primary).chain(replicas).copied().collect();
    let [expected, found @ ..] = &Data::of_all(&servers)[..] else { panic!("no primary") };
    for (replica, found) in replicas.iter().zip(found) {
        let differences = expected.differences(found);
        assert!(
            differences.is_empty(),
            "{when}, {} and its replica {} differ:\n{}",
            primary.flavor().name,
            replica.flavor().name,
            differences.join("\n")
        );
    }
    let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 1");
}
