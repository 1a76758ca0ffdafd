//! Everything that a replica or a restart must preserve: values and expiries.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Connection, cmd};

use super::{DATABASES, keys};
use crate::support::client::{ask, expiries_ms, now_ms};
use crate::support::server::{Flavor, Server, eventually};

/// A database and the name of a key.
type Key = (u32, Vec<u8>);

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key does not exist, or has expired.
    Gone,
    Never,
    /// Unix milliseconds.
    At(i64),
}

/// What a server holds under the keys of a workload.
#[derive(Clone, Debug)]
pub struct Data {
    /// `DEBUG DIGEST` of all keys, expired or not.
    digest: String,
    /// `DEBUG DIGEST-VALUE` of each key, expired or not; zeros without a value.
    values: BTreeMap<Key, String>,
    expiries: BTreeMap<Key, Expiry>,
    /// The server's clock after everything was read, Unix milliseconds.
    read_at_ms: i64,
}

impl Data {
    pub fn of(server: &Server) -> Self {
        Self::of_all(&[server]).remove(0)
    }

    /// What each server holds. Reads the values of all servers before any expiry: reading the
    /// expiry of an expired key deletes the key, also on the replicas.
    pub fn of_all(servers: &[&Server]) -> Vec<Self> {
        let mut read: Vec<(Connection, Self)> = servers
            .iter()
            .map(|server| {
                let mut c = server.connect();
                let digest = ask(&mut c, "DEBUG DIGEST");
                let (values, expiries) = (values(&mut c), BTreeMap::new());
                (c, Self { digest, values, expiries, read_at_ms: 0 })
            })
            .collect();
        for (server, (c, data)) in servers.iter().zip(&mut read) {
            data.expiries = expiries(c, server.flavor());
            data.read_at_ms = now_ms(c);
        }
        read.into_iter().map(|(_, data)| data).collect()
    }

    /// How another server differs. A key that expired meanwhile may exist on one server only.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (key, value) in &self.values {
            if other.values[key] != *value {
                differences.push(format!("{}: the values differ", name(key)));
            }
        }
        let now_ms = self.read_at_ms.max(other.read_at_ms);
        for (key, &mine) in &self.expiries {
            let its = other.expiries[key];
            let alike = match (mine, its) {
                (Expiry::Gone, Expiry::At(ms)) | (Expiry::At(ms), Expiry::Gone) => ms <= now_ms,
                (mine, its) => mine == its,
            };
            if !alike {
                differences.push(format!("{} expires: {mine:?} and {its:?}", name(key)));
            }
        }
        if differences.is_empty() && self.digest != other.digest {
            differences.push("DEBUG DIGEST differs".into());
        }
        differences
    }

    /// How many keys have a value, expired or not.
    pub fn len(&self) -> usize {
        self.values.values().filter(|digest| is_value(digest)).count()
    }

    /// Whether all expired keys are deleted, and no key will expire within this time.
    pub fn is_settled_for(&self, time: Duration) -> bool {
        let until_ms = self.read_at_ms + i64::try_from(time.as_millis()).expect("some time");
        self.expiries.iter().all(|(key, expiry)| match *expiry {
            Expiry::Gone => !is_value(&self.values[key]),
            Expiry::Never => true,
            Expiry::At(ms) => ms > until_ms,
        })
    }
}

/// Waits until all expired keys are deleted, and no key will expire for a while.
pub fn settle(server: &Server) {
    eventually("short keys to expire", || Data::of(server).is_settled_for(Duration::from_secs(3)));
}

fn is_value(digest: &str) -> bool {
    digest.contains(|digit| digit != '0')
}

fn name((database, name): &Key) -> String {
    format!("{} of database {database}", name.escape_ascii())
}

/// Reads something about each key, database by database.
fn each_key<T>(
    c: &mut Connection,
    read: impl Fn(&mut Connection, &[Vec<u8>]) -> Vec<T>,
) -> BTreeMap<Key, T> {
    let names: Vec<Vec<u8>> = keys().collect();
    let mut found = BTreeMap::new();
    for database in DATABASES {
        let () = ask(c, &format!("SELECT {database}"));
        let read = read(c, &names);
        assert_eq!(read.len(), names.len());
        found.extend(names.iter().map(|name| (database, name.clone())).zip(read));
    }
    found
}

fn values(c: &mut Connection) -> BTreeMap<Key, String> {
    each_key(c, |c, names| cmd("DEBUG").arg("DIGEST-VALUE").arg(names).query(c).expect("digests"))
}

fn expiries(c: &mut Connection, flavor: Flavor) -> BTreeMap<Key, Expiry> {
    each_key(c, |c, names| {
        let expiry = |ms| match ms {
            -2 => Expiry::Gone,
            -1 => Expiry::Never,
            ms => Expiry::At(ms),
        };
        expiries_ms(c, flavor, names).into_iter().map(expiry).collect()
    })
}
