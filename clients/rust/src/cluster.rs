//! The nodes of a cluster, and which of them has the slot of a key.

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{
    Client, ConnectionAddr, ErrorKind, FromRedisValue, RedisError, RedisResult, Value, cmd,
};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::{Connections, Opener};
use crate::events::Events;
use crate::node::{Node, Request, Survey};
use crate::outage::late;
use crate::value::{misuse, unreadable};
use crate::within::within;

/// How often a command may be sent to another node.
const REDIRECTIONS: usize = 3;
/// How many nodes are asked for the map at once, so that one that hangs delays none.
const AT_ONCE: usize = 3;
/// How long a map without an owner of a slot is taken as true.
const AGAIN: Duration = Duration::from_secs(1);

pub struct Cluster {
    /// The nodes that the application named.
    seeds: Vec<Client>,
    /// Stands for the cluster until its map is known.
    entry: Arc<Node>,
    timeout: Duration,
    concurrency: usize,
    events: Arc<Events>,
    map: Mutex<Map>,
    /// One task asks for the map at a time.
    surveying: AsyncMutex<()>,
    survey: Survey,
}

#[derive(Default)]
struct Map {
    nodes: HashMap<String, Arc<Node>>,
    slots: HashMap<Slot, Arc<Node>>,
    /// The reply, and when it came.
    seen: Option<(Value, Instant)>,
}

impl Cluster {
    pub fn new(
        seeds: Vec<Client>,
        timeout: Duration,
        concurrency: usize,
        events: Arc<Events>,
    ) -> RedisResult<Arc<Self>> {
        let first = seeds.first().ok_or_else(|| misuse("a cluster without nodes"))?;
        let name = first.get_connection_info().addr().to_string();
        let connections = Connections::of(Opener::of(first.clone(), concurrency));
        Ok(Arc::new_cyclic(|cluster: &Weak<Self>| {
            let cluster = Weak::clone(cluster);
            let survey: Survey = Arc::new(move |node| {
                let (cluster, node) = (Weak::clone(&cluster), Arc::clone(node));
                Box::pin(async move {
                    let Some(cluster) = cluster.upgrade() else { return Ok(false) };
                    cluster.survey().await?;
                    Ok(cluster
                        .map()
                        .nodes
                        .get(&node.name)
                        .is_some_and(|own| Arc::ptr_eq(own, &node)))
                })
            });
            let (of_entry, events_of_entry) = (Arc::clone(&survey), Arc::clone(&events));
            let entry = Node::new(name, connections, timeout, events_of_entry, Some(of_entry));
            let (map, surveying) = (Mutex::default(), AsyncMutex::default());
            Self { seeds, entry, timeout, concurrency, events, map, surveying, survey }
        }))
    }

    /// Sends a command to the node of its key, and to where that sends it on.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<'_>,
        time: Duration,
    ) -> RedisResult<Value> {
        let (began, mut asking) = (Instant::now(), false);
        let mut node = self.node(request.key).await?;
        for _ in 0..REDIRECTIONS {
            let answer = node.send(request, asking, time.saturating_sub(began.elapsed())).await;
            let Err(error) = &answer else { return answer };
            if let Some("MOVED" | "READONLY" | "MASTERDOWN") = error.code() {
                let cluster = Arc::clone(self);
                tokio::spawn(async move { cluster.survey().await });
            }
            let Some((address, _)) = error.redirect_node() else { return answer };
            (node, asking) = (self.at(address, &node)?, error.code() == Some("ASK"));
        }
        Err((ErrorKind::ClusterConnectionNotFound, "too many redirections").into())
    }

    /// The node of a key.
    pub async fn node(self: &Arc<Self>, key: &[u8]) -> RedisResult<Arc<Node>> {
        let slot = Slot::for_key(key);
        let find = || self.map().slots.get(&slot).cloned();
        if let Some(node) = find() {
            return Ok(node);
        }
        if self.map().seen.as_ref().is_none_or(|(_, at)| at.elapsed() >= AGAIN) {
            self.entry.unless_away(async { Ok(()) }).await?;
            let surveyed = within(self.timeout, self.survey()).await;
            let surveyed = surveyed.unwrap_or_else(|| Err(late(self.timeout)));
            surveyed.inspect_err(|error| self.entry.leave(error))?;
        }
        let why = "no node of the cluster has the slot";
        find().ok_or_else(|| (ErrorKind::ClusterConnectionNotFound, why).into())
    }

    /// Whether the node of a key is away.
    pub fn rests(&self, key: &[u8]) -> bool {
        let map = self.map();
        map.slots.get(&Slot::for_key(key)).unwrap_or(&self.entry).is_away()
    }

    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes.values().chain([&self.entry]).cloned().collect()
    }

    /// The node at an address to which `other` redirects.
    fn at(&self, address: &str, other: &Node) -> RedisResult<Arc<Node>> {
        let name = full(address, other);
        if let Some(node) = self.map().nodes.get(&name) {
            return Ok(Arc::clone(node));
        }
        let node = self.open(&name)?;
        self.map().nodes.insert(name, Arc::clone(&node));
        Ok(node)
    }

    /// A new node, which is asked as the seeds are.
    fn open(&self, name: &str) -> RedisResult<Arc<Node>> {
        let unnamed = || misuse(format!("the node '{name}', expected host:port"));
        let (host, port) = name.rsplit_once(':').ok_or_else(unnamed)?;
        let (host, port) = (host.to_string(), port.parse().map_err(|_| unnamed())?);
        let seed = self.seeds.first().ok_or_else(unnamed)?.get_connection_info();
        let address = match seed.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let opener = Opener::of(Client::open(seed.clone().set_addr(address))?, self.concurrency);
        let (events, survey) = (Arc::clone(&self.events), Arc::clone(&self.survey));
        Ok(Node::new(name.to_string(), Connections::of(opener), self.timeout, events, Some(survey)))
    }

    /// Asks for the map, a few nodes at once: first those that answer.
    async fn survey(self: &Arc<Self>) -> RedisResult<()> {
        let asked = Instant::now();
        // One whose runtime does not run stops no other.
        let half = self.timeout.checked_div(2).unwrap_or_default();
        let _only = within(half, self.surveying.lock()).await;
        if self.map().seen.as_ref().is_some_and(|(_, at)| *at >= asked) {
            return Ok(());
        }
        let mut nodes = self.map().nodes.values().cloned().collect::<Vec<_>>();
        nodes.retain(|node| !node.is_away());
        for seed in &self.seeds {
            nodes.push(self.open(&seed.get_connection_info().addr().to_string())?);
        }
        let mut failed = RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node"));
        for some in nodes.chunks(AT_ONCE) {
            let mut asking = JoinSet::new();
            for node in some.iter().cloned() {
                let timeout = self.timeout;
                asking.spawn(async move {
                    let mut slots = cmd("CLUSTER");
                    slots.arg("SLOTS");
                    let answer = within(timeout, node.ask(&slots)).await;
                    Ok((node, answer.unwrap_or_else(|| Err(late(timeout)))?))
                });
            }
            while let Some(answer) = asking.join_next().await {
                match answer.unwrap_or_else(|error| Err(io::Error::other(error).into())) {
                    Ok((node, reply)) => return self.learn(&node, reply),
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// Replaces the map. Nodes that have no slot any more are forgotten.
    fn learn(&self, teller: &Node, reply: Value) -> RedisResult<()> {
        let mut map = self.map();
        if map.seen.as_ref().is_none_or(|(seen, _)| *seen != reply) {
            let known = std::mem::take(&mut map.nodes);
            map.slots.clear();
            for (slots, address) in primaries(&reply).ok_or_else(|| unreadable(&reply))? {
                let name = full(&address, teller);
                let node = match map.nodes.get(&name).or_else(|| known.get(&name)) {
                    Some(node) => Arc::clone(node),
                    None => self.open(&name)?,
                };
                map.nodes.insert(name, Arc::clone(&node));
                map.slots.extend(slots.filter_map(Slot::new).map(|slot| (slot, Arc::clone(&node))));
            }
            let gone = known.into_values().filter(|node| !map.nodes.contains_key(&node.name));
            let gone = gone.collect::<Vec<_>>();
            map.seen = Some((reply, Instant::now()));
            drop(map);
            gone.iter().chain([&self.entry]).for_each(|node| node.come_back());
        } else if let Some((_, at)) = &mut map.seen {
            *at = Instant::now();
        }
        Ok(())
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address in an answer of a node. Without a host it has that node's.
fn full(address: &str, teller: &Node) -> String {
    let host = teller.name.rsplit_once(':').map_or("", |(host, _)| host);
    if address.starts_with(':') { format!("{host}{address}") } else { address.to_string() }
}

/// The slots of each primary, and its address, in a reply to `CLUSTER SLOTS`.
fn primaries(reply: &Value) -> Option<Vec<(RangeInclusive<u16>, String)>> {
    let rows = reply.as_sequence()?.iter().map(|row| {
        let [first, last, primary, ..] = row.as_sequence()? else { return None };
        let [host, port, ..] = primary.as_sequence()? else { return None };
        let slot = |value: &Value| u16::from_redis_value_ref(value).ok();
        let host = Option::<String>::from_redis_value_ref(host).ok()?.unwrap_or_default();
        Some((slot(first)?..=slot(last)?, format!("{host}:{}", slot(port)?)))
    });
    rows.collect()
}
