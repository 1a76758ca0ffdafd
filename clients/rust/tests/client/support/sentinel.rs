//! A primary, its replica, and a sentinel that tells clients which server is the primary.

use redis::cmd;
use redis::sentinel::{SentinelClient, SentinelServerType};

use super::cluster::{info, wait_until};
use super::server::Server;

const GROUP: &str = "limits";

pub struct Watched {
    pub primary: Server,
    pub replica: Server,
    sentinel: Server,
}

impl Watched {
    /// The sentinel does not start a failover by itself: no primary is away for an hour.
    pub fn start(name: &'static str) -> Self {
        let options = &["--repl-diskless-sync-delay", "0"];
        let [primary, replica] = [(); 2].map(|()| Server::start_with(name, options));
        replica.send(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        wait_until("it has a copy", || info(&primary, "replication").contains("state=online"));
        let port = primary.port();
        let config = format!(
            "sentinel monitor {GROUP} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {GROUP} 3600000\n"
        );
        Self { primary, replica, sentinel: Server::sentinel(name, config.leak()) }
    }

    pub fn client(&self) -> SentinelClient {
        let address = format!("redis://127.0.0.1:{}", self.sentinel.port());
        let primary = SentinelServerType::Master;
        SentinelClient::build(vec![address], GROUP, None, primary).expect("an address")
    }

    /// Begins to promote the replica, once the sentinel knows enough of it.
    pub fn fail_over(&self) {
        let mut sentinel = self.sentinel.client().get_connection().expect("it runs");
        let mut begins = cmd("SENTINEL");
        begins.arg("FAILOVER").arg(GROUP);
        wait_until("it begins", || begins.exec(&mut sentinel).is_ok());
    }
}
