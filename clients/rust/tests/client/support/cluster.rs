//! A cluster of servers, each with its part of the slots.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, cmd};

use super::server::Server;

pub struct Cluster<const N: usize = 2> {
    nodes: [Server; N],
}

const OPTIONS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--repl-diskless-sync-delay",
    "0",
];

impl<const N: usize> Cluster<N> {
    /// Servers that know each other. The first `primaries` of them have the slots.
    fn of(name: &'static str, primaries: usize) -> Self {
        Self::made_of([(); N].map(|()| Server::start_with(name, &OPTIONS)), primaries)
    }

    fn made_of(nodes: [Server; N], primaries: usize) -> Self {
        for (place, node) in nodes.iter().enumerate() {
            if place < primaries {
                let [first, next] = [place, place + 1].map(|part| part * 16_384 / primaries);
                node.send(&format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1));
            }
            for other in &nodes[..place] {
                node.send(&format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
            }
        }
        let cluster = Self { nodes };
        wait_until("the nodes meet", || cluster.nodes.iter().all(is_whole::<N>));
        cluster
    }

    pub fn addresses(&self) -> [String; N] {
        self.nodes.each_ref().map(|node| format!("redis://127.0.0.1:{}", node.port()))
    }

    pub fn clients(&self) -> [Client; N] {
        self.addresses().map(|address| Client::open(address).expect("an address"))
    }
}

impl Cluster {
    pub fn start(name: &'static str) -> Self {
        Self::of(name, 2)
    }

    pub fn without_module(name: &'static str) -> Self {
        Self::made_of([(); 2].map(|()| Server::without_module(name, &OPTIONS)), 2)
    }

    /// Stops the node of `{a}`, or lets it go on; the node of `{b}` runs, and does not mark it failed.
    pub fn freeze_node_of_a(&self, stopped: bool) {
        self.nodes[0].send("CONFIG SET cluster-node-timeout 60000");
        self.nodes[1].freeze(stopped);
    }

    /// Stops both nodes, which do not mark each other failed, or lets them go on.
    pub fn freeze(&self, stopped: bool) {
        for node in &self.nodes {
            if stopped {
                node.send("CONFIG SET cluster-node-timeout 60000");
            }
        }
        self.nodes.iter().for_each(|node| node.freeze(stopped));
    }

    /// How many keys each node holds.
    pub fn keys(&self) -> [i64; 2] {
        [0, 1].map(|at| {
            let mut node = self.nodes[at].client().get_connection().expect("it runs");
            cmd("DBSIZE").query(&mut node).expect("a number")
        })
    }

    /// How many nodes have sent a client to another node.
    pub fn redirections(&self) -> usize {
        let count = |node: &Server| info(node, "errorstats").matches("errorstat_MOVED").count();
        self.nodes.iter().map(count).sum()
    }
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub fn info(node: &Server, part: &str) -> String {
    let mut node = node.client().get_connection().expect("it runs");
    cmd("INFO").arg(part).query(&mut node).expect("text")
}

/// Whether a node knows all `N` nodes, and who serves every slot.
fn is_whole<const N: usize>(node: &Server) -> bool {
    let mut node = node.client().get_connection().expect("it runs");
    let info: String = cmd("CLUSTER").arg("INFO").query(&mut node).expect("text");
    info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{N}"))
}
