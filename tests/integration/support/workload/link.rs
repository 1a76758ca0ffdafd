//! A primary and its replicas: set up so that nothing but commands passes between them, and waited
//! for until they are in step.

use redis::Connection;

use super::data::Data;
use crate::support::client::ask;
use crate::support::server::{Builder, Flavor, Server, eventually};

/// For servers that replicate: no pings in the stream, which would count as bytes of it, times may
/// be given, and what is sent while a link is cut is kept.
pub fn quiet(builder: Builder) -> Builder {
    builder
        .module_args(&["allow-at", "yes"])
        .config("repl-ping-replica-period", "3600")
        .config("repl-timeout", "7200")
        .config("repl-backlog-size", "16mb")
}

pub fn primary(flavor: Flavor) -> Server {
    quiet(flavor.builder()).start()
}

/// A replica of the same kind as its primary, in step with it.
pub fn replica_of(primary: &Server) -> Server {
    let replica = quiet(primary.flavor().builder()).replica_of(primary).start();
    in_step(primary, &replica);
    replica
}

/// A field of `INFO`; panics if there is none.
pub fn info(c: &mut Connection, field: &str) -> String {
    let text: String = ask(c, "INFO");
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| *name == field).unwrap_or_else(|| panic!("no {field}")).1.to_string()
}

pub fn number(c: &mut Connection, field: &str) -> u64 {
    info(c, field).parse().expect("a number")
}

/// How long the stream is that a server has sent, or would have.
pub fn offset(c: &mut Connection) -> u64 {
    number(c, "master_repl_offset")
}

/// Waits until a replica, or a replica's replica, has done all that the primary did.
pub fn in_step(primary: &Server, replica: &Server) {
    let (mut p, mut r) = (primary.connect(), replica.connect());
    eventually("the replica to catch up", || {
        info(&mut r, "role") == "slave"
            && info(&mut r, "master_link_status") == "up"
            && number(&mut r, "slave_repl_offset") == offset(&mut p)
    });
}

/// Panics unless each replica holds what the primary does, to the byte and to the millisecond.
///
/// Meanwhile the primary deletes no key of its own accord: one whose time has come would else be
/// there on the one and gone on the other.
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
