//! Primary, replica and clients on separate hosts, and links between them that are cut or slow.
//!
//! These tests need network namespaces: `make test-partitions`.

mod clients;
mod counts;
mod servers;

use redis::{Client, Connection, RedisResult};

use crate::support::client::eventually_linked;
use crate::support::network::Host;
use crate::support::server::{Builder, DEADLINE, Flavor, Server};

/// A server on a host.
struct Hosted<'a> {
    host: &'a Host,
    server: Server,
}

impl<'a> Hosted<'a> {
    fn start(flavor: Flavor, host: &'a Host, more: impl FnOnce(Builder) -> Builder) -> Self {
        let addresses = format!("127.0.0.1 {}", host.address());
        let builder = flavor.builder().config("bind", &addresses).config("protected-mode", "no");
        let builder = more(builder);
        Self { host, server: host.within(|| builder.start()) }
    }

    /// A replica that follows the primary.
    fn start_replica(primary: &Self, host: &'a Host) -> Self {
        let of = primary.address().replace(':', " ");
        let replica =
            Self::start(primary.server.flavor(), host, |builder| builder.config("replicaof", &of));
        host.within(|| eventually_linked(&replica.server));
        replica
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host.address(), self.server.port())
    }

    /// A connection over the host's loopback, which no cut affects.
    fn connect(&self) -> Connection {
        self.host.within(|| self.server.connect())
    }

    /// A connection from another host.
    fn connect_from(&self, host: &Host) -> Connection {
        self.try_connect_from(host).expect("the server is reached")
    }

    fn try_connect_from(&self, host: &Host) -> RedisResult<Connection> {
        let client = Client::open(format!("redis://{}", self.address()))?;
        let connection = host.within(|| client.get_connection_with_timeout(*DEADLINE))?;
        connection.set_read_timeout(Some(*DEADLINE))?;
        Ok(connection)
    }
}
