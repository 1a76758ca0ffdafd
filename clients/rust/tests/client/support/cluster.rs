//! A cluster of two servers, each with half of the slots.

use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::cmd;

use super::server::Server;

pub struct Cluster {
    nodes: [Server; 2],
}

impl Cluster {
    pub fn start(name: &'static str) -> Self {
        let nodes = [(); 2].map(|()| {
            Server::start_with(
                name,
                &["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"],
            )
        });
        let [first, second] = &nodes;
        first.send("CLUSTER ADDSLOTSRANGE 0 8191");
        second.send("CLUSTER ADDSLOTSRANGE 8192 16383");
        first.send(&format!("CLUSTER MEET 127.0.0.1 {}", second.port()));
        let cluster = Self { nodes };
        let start = Instant::now();
        while !cluster.nodes.iter().all(is_whole) {
            assert!(start.elapsed() < Duration::from_secs(20), "the nodes do not meet");
            thread::sleep(Duration::from_millis(50));
        }
        cluster
    }

    pub fn client(&self) -> ClusterClient {
        let urls = self.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port()));
        ClusterClient::new(urls).expect("addresses")
    }

    /// How many keys each node holds.
    pub fn keys(&self) -> [i64; 2] {
        [0, 1].map(|at| {
            let mut node = self.nodes[at].client().get_connection().expect("it runs");
            cmd("DBSIZE").query(&mut node).expect("a number")
        })
    }

    /// How often the nodes have sent a client to another node.
    pub fn redirections(&self) -> usize {
        let count = |node: &Server| {
            let mut node = node.client().get_connection().expect("it runs");
            let stats: String = cmd("INFO").arg("errorstats").query(&mut node).expect("text");
            stats.matches("errorstat_MOVED").count()
        };
        self.nodes.iter().map(count).sum()
    }

    /// Begins to move the slot of `{a}1` and `{a}2`, of which its node, which this returns, has one.
    pub fn move_one_of_two_keys(&self) -> &Server {
        let [to, from] = &self.nodes;
        from.send("RL.CHECK {a}1 9/m");
        let mut node = from.client().get_connection().expect("it runs");
        let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg("a").query(&mut node).expect("a slot");
        for (node, state, other) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let mut other = other.client().get_connection().expect("it runs");
            let id: String = cmd("CLUSTER").arg("MYID").query(&mut other).expect("an id");
            node.send(&format!("CLUSTER SETSLOT {slot} {state} {id}"));
        }
        from
    }

    /// Kills one node, so that the other serves no slot any more.
    pub fn lose_quorum(&mut self) {
        let [first, second] = &mut self.nodes;
        second.kill();
        let start = Instant::now();
        while is_whole(first) {
            assert!(start.elapsed() < Duration::from_secs(20), "the node does not notice");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether a node knows who serves every slot.
fn is_whole(node: &Server) -> bool {
    let mut node = node.client().get_connection().expect("it runs");
    let info: String = cmd("CLUSTER").arg("INFO").query(&mut node).expect("text");
    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
}
