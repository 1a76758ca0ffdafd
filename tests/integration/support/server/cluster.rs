//! A cluster on loopback: three masters and a replica of each, made with redis-cli.
//!
//! ```ignore
//! cluster::on_all(|cluster| {
//!     let mut c = cluster.client().get_connection().unwrap();
//!     let reply: [i64; 5] = cmd("RL.CHECK").arg("key").arg("5/m").query(&mut c).unwrap();
//!     assert_eq!(reply, [0, 5, 4, 0, 60_000]);
//! });
//! ```

use std::env;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::{Connection, cmd, pipe};

use super::{Builder, DEADLINE, Flavor, Server, all, eventually, from_env};
use crate::support::machine;

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;

/// Number of hash slots.
pub const SLOTS: u16 = 16_384;

/// How long a node may fail to answer before the others declare it dead. Long, so that no node
/// fails over only because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(5);
/// Replaces [`PATIENCE`] while the cluster forms and after a node was killed. It is shorter, to save
/// time.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// How long a call of redis-cli may take.
const CLI_DEADLINE: Duration = Duration::from_secs(60);

/// A running cluster; its drop ends all of its servers.
pub struct Cluster {
    flavor: Flavor,
    nodes: Vec<Server>,
}

/// A node as the cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    pub id: String,
    /// The index of its server.
    pub index: usize,
    /// The id of its master; `None` for a master.
    pub master: Option<String>,
    pub slots: Vec<u16>,
    flags: String,
}

/// Runs a test on a cluster of each server, one after the other, `RATELIMIT_ROUNDS` times
/// (default 1). Each round has a new cluster: in Redis, a replica that is elected twice within a short
/// time still counts the votes of the first election. After all servers have run, a panic names those
/// that failed. A server whose node crashed fails even if `body` passed.
pub fn on_all(body: impl Fn(&mut Cluster)) {
    on_all_with(|builder| builder, body);
}

/// Runs a test as [`on_all`] does, on nodes that `configure` configures.
pub fn on_all_with(configure: impl Fn(Builder) -> Builder, body: impl Fn(&mut Cluster)) {
    machine::share_for_cluster();
    let rounds = env::var("RATELIMIT_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"));
    let passes = |flavor: Flavor| {
        let mut cluster = Cluster::start(flavor, &configure);
        let passed = catch_unwind(AssertUnwindSafe(|| body(&mut cluster))).is_ok();
        let crashed = cluster.nodes.iter_mut().any(Server::has_ended);
        if !passed || crashed {
            cluster.show_logs();
        }
        passed && !crashed
    };
    // If a cluster does not form, that panic has given the reason.
    let passes = |flavor| catch_unwind(AssertUnwindSafe(|| passes(flavor))).unwrap_or(false);
    let always_passes = |flavor: &Flavor| (0..rounds).all(|_| passes(*flavor));
    let failed: Vec<_> =
        all().iter().filter(|flavor| !always_passes(flavor)).map(|flavor| flavor.name).collect();
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

impl Cluster {
    /// Starts the servers, joins them, and waits until all agree.
    fn start(flavor: Flavor, configure: impl Fn(Builder) -> Builder) -> Self {
        let start_node = || {
            let timeout = IMPATIENCE.as_millis().to_string();
            configure(flavor.builder())
                .cluster_node()
                .config("cluster-node-timeout", &timeout)
                // A replica takes over with data of any age: tests measure what is lost.
                .config("cluster-replica-validity-factor", "0")
                .config("cluster-require-full-coverage", "no")
                .config("cluster-allow-replica-migration", "no")
                .start()
        };
        let nodes: Vec<_> = (0..NODES).map(|_| start_node()).collect();
        let cluster = Self { flavor, nodes };
        let addresses: Vec<_> = cluster.nodes.iter().map(address).collect();
        let mut create = vec!["create"];
        create.extend(addresses.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1"]);
        cluster.redis_cli(&create);
        cluster.settled();
        cluster
    }

    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// A client that knows which node owns which slots.
    pub fn client(&self) -> ClusterClient {
        let nodes = self.nodes.iter().map(|node| format!("redis://{}", address(node)));
        ClusterClient::builder(nodes)
            .connection_timeout(*DEADLINE)
            .response_timeout(*DEADLINE)
            .build()
            .expect("the addresses are well formed")
    }

    /// The server behind a node.
    pub fn server(&self, node: &Node) -> &Server {
        &self.nodes[node.index]
    }

    /// The address of a node, `host:port`.
    pub fn address(&self, node: &Node) -> String {
        address(self.server(node))
    }

    /// A connection to one node.
    pub fn connect(&self, node: &Node) -> Connection {
        self.server(node).connect()
    }

    /// The masters, in the order of their first slots.
    pub fn masters(&self) -> Vec<Node> {
        let mut masters = self.topology();
        masters.retain(|node| node.master.is_none() && !node.slots.is_empty());
        masters.sort_by(|a, b| a.slots.cmp(&b.slots));
        masters
    }

    pub fn replica_of(&self, master: &Node) -> Node {
        let is_its = |node: &Node| node.master.as_ref() == Some(&master.id);
        self.topology().into_iter().find(is_its).expect("every master has a replica")
    }

    /// Names of keys in these slots. No name is returned twice.
    pub fn keys_in(&self, slots: &[u16], count: usize) -> Vec<String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = || format!("key{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut c = self.connect(&self.masters()[0]);
        let mut keys = Vec::new();
        while keys.len() < count {
            let names: Vec<_> = (0..1_000).map(|_| name()).collect();
            let mut ask = pipe();
            for name in &names {
                ask.cmd("CLUSTER").arg("KEYSLOT").arg(name);
            }
            let found: Vec<u16> = ask.query(&mut c).unwrap();
            let is_in = |(name, slot)| slots.binary_search(&slot).is_ok().then_some(name);
            keys.extend(names.into_iter().zip(found).filter_map(is_in));
        }
        keys.truncate(count);
        keys
    }

    /// Whether this node is the master of all of these slots.
    pub fn owns(&self, node: &Node, slots: &[u16]) -> bool {
        let now = self.slots_of(node);
        slots.iter().all(|slot| now.binary_search(slot).is_ok())
    }

    /// The slots that this node serves now.
    fn slots_of(&self, node: &Node) -> Vec<u16> {
        let now = self.masters().into_iter().find(|master| master.id == node.id);
        now.map(|now| now.slots).unwrap_or_default()
    }

    /// Moves the first `count` slots of a master to another with redis-cli, which uses `MIGRATE`.
    /// Valkey refuses to move a slot if a busy replica does not confirm it within 2 s: redis-cli then
    /// repairs that slot, and moves the others.
    pub fn reshard(&self, from: &Node, to: &Node, count: usize) {
        let entry = self.address(from);
        let has = || self.slots_of(from).len();
        let (start, keeps) = (Instant::now(), has().saturating_sub(count));
        while let left @ 1.. = has().saturating_sub(keeps) {
            let left = left.to_string();
            let job =
                ["--cluster-from", &from.id, "--cluster-to", &to.id, "--cluster-slots", &left];
            match self.try_redis_cli(&[&["reshard", &entry], &job[..]].concat()) {
                Ok(()) => return,
                Err(said) if said.contains("NOREPLICAS") && start.elapsed() < CLI_DEADLINE => {
                    self.redis_cli(&["fix", &entry]);
                    self.agreed();
                }
                Err(said) => panic!("{said}"),
            }
        }
    }

    /// `CLUSTER FAILOVER`: the replica takes over while its master is alive.
    pub fn fail_over_to(&self, replica: &Node) {
        let () = cmd("CLUSTER").arg("FAILOVER").query(&mut self.connect(replica)).unwrap();
        self.eventually_master(replica);
    }

    /// Waits until this replica is a master. Returns the last time at which it surely was a
    /// replica.
    pub fn eventually_master(&self, replica: &Node) -> Instant {
        let mut c = self.connect(replica);
        let mut was_replica = Instant::now();
        eventually("a replica to take over", || {
            let now = Instant::now();
            let role: Vec<redis::Value> = cmd("ROLE").query(&mut c).unwrap();
            let is_master = role[0] == redis::Value::BulkString(b"master".to_vec());
            if !is_master {
                was_replica = now;
            }
            is_master
        });
        was_replica
    }

    /// Ends a node as a crash does. The others soon declare it dead.
    pub fn kill9(&mut self, node: &Node) {
        self.set_node_timeout(IMPATIENCE);
        self.nodes[node.index].kill9();
    }

    /// Starts a killed node again and waits until all nodes agree.
    pub fn resume(&mut self, node: &Node) {
        self.set_node_timeout(PATIENCE); // on the running nodes
        self.nodes[node.index].resume();
        self.settled();
    }

    /// Waits until the cluster is complete and replicas follow their masters. From then on
    /// nodes wait long before they declare another dead.
    pub fn settled(&self) {
        self.agreed();
        self.set_node_timeout(PATIENCE);
        self.streams_flow();
    }

    /// Waits until all nodes serve, agree on the roles, and the replicas are linked.
    fn agreed(&self) {
        let mut connections: Vec<_> = self.nodes.iter().map(Server::connect).collect();
        eventually("the nodes to agree on a whole cluster", || {
            let views: Vec<_> = connections.iter_mut().map(|c| self.seen_by(c)).collect();
            let is_whole = |c: &mut Connection| {
                let info: String = cmd("CLUSTER").arg("INFO").query(c).unwrap();
                let links: String = cmd("INFO").arg("replication").query(c).unwrap();
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && (links.contains("master_link_status:up") || links.contains("state=online"))
            };
            let is_calm = |node: &Node| {
                let bad = ["fail", "handshake", "noaddr"];
                !bad.iter().any(|flag| node.flags.contains(flag))
            };
            views[0].len() == NODES
                && views.iter().flatten().all(is_calm)
                && views.iter().all(|view| roles(view) == roles(&views[0]))
                && connections.iter_mut().all(is_whole)
        });
    }

    /// Waits until the masters' streams reach their replicas. A master may show a replica as
    /// online too early: if the acknowledgement of a snapshot arrives before the master knows
    /// that the snapshot was sent, the master sends no stream until the next acknowledgement, a
    /// second later.
    fn streams_flow(&self) {
        for master in self.masters() {
            let key = self.keys_in(&master.slots, 1).remove(0);
            let mut c = self.connect(&master);
            eventually("a master's stream to reach its replica", || {
                let () = cmd("SET").arg(&key).arg("x").query(&mut c).unwrap();
                let () = cmd("DEL").arg(&key).query(&mut c).unwrap();
                let replicas: i64 = cmd("WAIT").arg(1).arg(2_000).query(&mut c).unwrap();
                replicas > 0
            });
        }
    }

    /// Waits until replicas hold what their masters hold. No client may write meanwhile.
    pub fn replicas_agree(&self) {
        for master in self.masters() {
            let replica = self.replica_of(&master);
            let digest = |node| -> String {
                cmd("DEBUG").arg("DIGEST").query(&mut self.connect(node)).unwrap()
            };
            eventually("a replica to hold what its master holds", || {
                digest(&master) == digest(&replica)
            });
        }
    }

    /// Runs `redis-cli --cluster`. If it fails, the panic shows its output.
    pub fn redis_cli(&self, args: &[&str]) {
        self.try_redis_cli(args).unwrap_or_else(|said| panic!("{said}"));
    }

    /// Runs `redis-cli --cluster`. The error is its output.
    fn try_redis_cli(&self, args: &[&str]) -> Result<(), String> {
        let program = from_env("RATELIMIT_SERVERS", ".cache/servers").join("redis-7.0/cli");
        let said = self.nodes[0].dir().join("redis-cli.log");
        let log = File::create(&said).expect("the log opens");
        let mut cli = Command::new(&program)
            .arg("--cluster")
            .args(args)
            .arg("--cluster-yes")
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a second handle to the log"))
            .stdout(log)
            .spawn()
            .unwrap_or_else(|error| panic!("no {}: {error}: run `make fetch`", program.display()));
        let start = Instant::now();
        let status = loop {
            match cli.try_wait().expect("redis-cli is a child") {
                Some(status) => break Some(status),
                None if start.elapsed() > CLI_DEADLINE => {
                    cli.kill().and_then(|()| cli.wait()).expect("redis-cli is a child");
                    break None;
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        let said = fs::read_to_string(&said).unwrap_or_default();
        match status {
            Some(status) if status.success() => Ok(()),
            _ => Err(format!("{args:?}: {status:?}\n{said}")),
        }
    }

    /// Sets the time after which nodes declare another dead, on all running nodes.
    fn set_node_timeout(&self, timeout: Duration) {
        for node in self.nodes.iter().filter(|node| node.runs()) {
            let mut set = cmd("CONFIG");
            set.arg("SET").arg("cluster-node-timeout").arg(timeout.as_millis() as u64);
            let () = set.query(&mut node.connect()).unwrap();
        }
    }

    /// All nodes as the first node that answers sees them.
    fn topology(&self) -> Vec<Node> {
        let answering = self.nodes.iter().find_map(|node| node.client().get_connection().ok());
        self.seen_by(&mut answering.expect("a node answers"))
    }

    fn seen_by(&self, c: &mut Connection) -> Vec<Node> {
        let text: String = cmd("CLUSTER").arg("NODES").query(c).unwrap();
        let mut nodes: Vec<_> = text.lines().map(|line| self.parse_node(line)).collect();
        nodes.sort();
        nodes
    }

    /// `id ip:port@bus[,more] flags master ping pong epoch link [slot | from-to ...]`
    fn parse_node(&self, line: &str) -> Node {
        let fields: Vec<_> = line.split(' ').collect();
        let port = fields[1].split(['@', ':']).nth(1).and_then(|port| port.parse().ok());
        let index = self.nodes.iter().position(|node| Some(node.port()) == port);
        let slot = |text: &str| text.parse::<u16>().unwrap_or_else(|_| panic!("a slot: {line}"));
        let is_owned = |text: &&&str| !text.starts_with('['); // a slot that moves
        Node {
            id: fields[0].to_string(),
            index: index.unwrap_or_else(|| panic!("no server has this port: {line}")),
            flags: fields[2].to_string(),
            master: Some(fields[3].to_string()).filter(|id| id != "-"),
            slots: fields[8..]
                .iter()
                .filter(is_owned)
                .flat_map(|text| match text.split_once('-') {
                    Some((first, last)) => slot(first)..=slot(last),
                    None => slot(text)..=slot(text),
                })
                .collect(),
        }
    }

    fn show_logs(&self) {
        let name = self.flavor.name;
        for node in &self.nodes {
            let (port, log) = (node.port(), node.log_tail());
            eprintln!("---- that was {name}, port {port}; the end of its log:\n{log}");
        }
    }
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// The roles and slots in a view, on which all nodes must agree.
fn roles(view: &[Node]) -> Vec<(&str, Option<&str>, &[u16])> {
    view.iter().map(|node| (&*node.id, node.master.as_deref(), &*node.slots)).collect()
}
