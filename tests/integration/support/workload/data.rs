//! Everything that a replica, or a restart, must preserve: values, and when they expire.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Connection, cmd};

use super::{DATABASES, keys};
use crate::support::client::{ask, expiries_ms, now_ms};
use crate::support::server::{Flavor, Server, eventually};

/// A key, with the database it is in.
type Place = (u32, Vec<u8>);

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key is not there, or its time has come.
    Gone,
    Never,
    /// Unix milliseconds.
    At(i64),
}

/// What a server holds under the keys of the traffic.
#[derive(Clone, Debug)]
pub struct Data {
    /// Of all there is, expired or not: `DEBUG DIGEST`.
    digest: String,
    /// Of each value, expired or not; zeros where there is none.
    values: BTreeMap<Place, String>,
    expiries: BTreeMap<Place, Expiry>,
    /// The server's clock when all of this had been read, unix milliseconds.
    read_at_ms: i64,
}

impl Data {
    pub fn of(server: &Server) -> Self {
        Self::of_all(&[server]).remove(0)
    }

    /// What each server holds. The values of all come first: a server that is asked for the
    /// expiry of a key whose time has come deletes it, and has its replicas delete it.
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

    /// Where another server holds something else. A key that expired while this was read may be
    /// seen on the one and not on the other, if its time has come.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (place, value) in &self.values {
            if other.values[place] != *value {
                differences.push(format!("{}: the values differ", name(place)));
            }
        }
        let now_ms = self.read_at_ms.max(other.read_at_ms);
        for (place, &mine) in &self.expiries {
            let its = other.expiries[place];
            let alike = match (mine, its) {
                (Expiry::Gone, Expiry::At(ms)) | (Expiry::At(ms), Expiry::Gone) => ms <= now_ms,
                (mine, its) => mine == its,
            };
            if !alike {
                differences.push(format!("{} expires: {mine:?} and {its:?}", name(place)));
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

    /// Whether all keys that expired are deleted, and no other will expire within this time.
    pub fn is_settled_for(&self, time: Duration) -> bool {
        let until_ms = self.read_at_ms + i64::try_from(time.as_millis()).expect("some time");
        self.expiries.iter().all(|(place, expiry)| match *expiry {
            Expiry::Gone => !is_value(&self.values[place]),
            Expiry::Never => true,
            Expiry::At(ms) => ms > until_ms,
        })
    }
}

/// Waits until what expired is deleted, and nothing else will expire for a moment.
pub fn settle(server: &Server) {
    eventually("short keys to expire", || Data::of(server).is_settled_for(Duration::from_secs(3)));
}

fn is_value(digest: &str) -> bool {
    digest.contains(|digit| digit != '0')
}

fn name((database, key): &Place) -> String {
    format!("{} of database {database}", key.escape_ascii())
}

/// Reads something of each key, database by database.
fn each_key<T>(
    c: &mut Connection,
    read: impl Fn(&mut Connection, &[Vec<u8>]) -> Vec<T>,
) -> BTreeMap<Place, T> {
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

fn values(c: &mut Connection) -> BTreeMap<Place, String> {
    each_key(c, |c, names| cmd("DEBUG").arg("DIGEST-VALUE").arg(names).query(c).expect("digests"))
}

fn expiries(c: &mut Connection, flavor: Flavor) -> BTreeMap<Place, Expiry> {
    each_key(c, |c, names| {
        let expiry = |ms| match ms {
            -2 => Expiry::Gone,
            -1 => Expiry::Never,
            ms => Expiry::At(ms),
        };
        expiries_ms(c, flavor, names).into_iter().map(expiry).collect()
    })
}
