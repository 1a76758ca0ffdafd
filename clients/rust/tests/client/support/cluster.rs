//! A cluster of servers, each with its part of the slots.

use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::cmd;

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

    pub fn client(&self) -> ClusterClient {
        ClusterClient::new(self.addresses()).expect("addresses")
    }
}

impl Cluster<4> {
    /// Three primaries, and a replica of the last one, whose slots include that of `a`.
    pub fn with_a_replica(name: &'static str) -> Self {
        let cluster = Self::of(name, 3);
        let [.., primary, replica] = &cluster.nodes;
        replica.send(&format!("CLUSTER REPLICATE {}", id(primary)));
        wait_until("it has a copy", || info(primary, "replication").contains("state=online"));
        cluster
    }

    /// Stops the primary that has a replica, and waits until the replica has taken its place.
    pub fn fail_over(&self) {
        let [.., primary, replica] = &self.nodes;
        primary.freeze(true);
        wait_until("it is promoted", || info(replica, "replication").contains("role:master"));
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

    /// Begins to move the slot of `{a}1` and `{a}2`. Returns its node, which has only one of these
    /// keys.
    pub fn move_one_of_two_keys(&self) -> &Server {
        let [to, from] = &self.nodes;
        from.send("RL.CHECK {a}1 9/m");
        let mut node = from.client().get_connection().expect("it runs");
        let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg("a").query(&mut node).expect("a slot");
        for (node, state, other) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            node.send(&format!("CLUSTER SETSLOT {slot} {state} {}", id(other)));
        }
        from
    }

    /// Kills one node, so that the other serves no slot any more.
    pub fn lose_quorum(&mut self) {
        let [first, second] = &mut self.nodes;
        second.kill();
        wait_until("the other notices", || !is_whole::<2>(first));
    }
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn id(node: &Server) -> String {
    let mut node = node.client().get_connection().expect("it runs");
    cmd("CLUSTER").arg("MYID").query(&mut node).expect("an id")
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
