//! Whom the limiter asks: one server, the nodes of a cluster, or nobody.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult, Value};

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::node::{Node, Request};

pub enum Servers {
    One(Arc<Node>),
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
    /// The limiter in the process decides everything.
    None,
}

impl Servers {
    /// Sends a command, which has this much time.
    pub async fn send(&self, request: Request<'_>, time: Duration) -> RedisResult<Value> {
        match self {
            Self::One(node) => node.send(request, false, time).await.map_err(of_one_server),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.send(request, time).await,
            Self::None => Err(nobody()),
        }
    }

    /// The node of a key.
    #[cfg_attr(not(feature = "cluster"), expect(clippy::unused_async))]
    pub async fn node(&self, key: &[u8]) -> RedisResult<Arc<Node>> {
        let _ = key;
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.node(key).await,
            Self::None => Err(nobody()),
        }
    }

    /// Whether the node of a key is away.
    pub fn rests(&self, key: &[u8]) -> bool {
        let _ = key;
        match self {
            Self::One(node) => node.is_away(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.rests(key),
            Self::None => true,
        }
    }

    pub fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.nodes(),
            Self::None => Vec::new(),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.nodes().iter().for_each(|node| node.close());
    }
}

fn nobody() -> RedisError {
    (ErrorKind::InvalidClientConfig, "a limiter in the process asks no server").into()
}

/// Without the map of a cluster, a redirection is a fault of the configuration.
fn of_one_server(error: RedisError) -> RedisError {
    if error.redirect_node().is_none() {
        return error;
    }
    let why = "a node of a cluster needs `RateLimiter::cluster`";
    (ErrorKind::InvalidClientConfig, why, error.to_string()).into()
}
