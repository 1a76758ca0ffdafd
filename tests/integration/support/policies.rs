//! Policies, as a test sets them and a server shows them.

use std::collections::BTreeMap;

use redis::{Connection, pipe};

use crate::support::client::ask;
use crate::support::server::Server;

/// Names of policies and the canonical texts of their rules.
pub type Policies = BTreeMap<String, Vec<String>>;

/// Policies from lines `name rule [rule ...]` with canonical rules.
pub fn policies(lines: &[&str]) -> Policies {
    let policy = |line: &&str| {
        let mut words = line.split(' ').map(ToString::to_string);
        (words.next().expect("a name"), words.collect())
    };
    lines.iter().map(policy).collect()
}

/// All policies that a server has.
pub fn known(c: &mut Connection) -> Policies {
    let names: Vec<String> = ask(c, "RL.POLICY LIST");
    let mut gets = pipe();
    for name in &names {
        gets.cmd("RL.POLICY").arg("GET").arg(name);
    }
    let rules: Vec<Vec<String>> =
        if names.is_empty() { Vec::new() } else { gets.query(c).expect("each has rules") };
    names.into_iter().zip(rules).collect()
}

/// All policies that a replica has. On 6.2, all of `RL.POLICY` counts as a write, which a
/// read-only replica refuses.
pub fn known_by_replica(replica: &Server) -> Policies {
    let mut c = replica.connect();
    if replica.flavor().is_7_or_later() {
        return known(&mut c);
    }
    let () = ask(&mut c, "CONFIG SET replica-read-only no");
    let known = known(&mut c);
    let () = ask(&mut c, "CONFIG SET replica-read-only yes");
    known
}

/// Sets policies from lines `name rule [rule ...]`.
pub fn set(c: &mut Connection, lines: &[&str]) {
    for line in lines {
        let () = ask(c, &format!("RL.POLICY SET {line}"));
    }
}

/// How many checks that named a policy were allowed and limited, from `INFO`; `None` without a
/// line.
pub fn counted(c: &mut Connection, name: &str) -> Option<(u64, u64)> {
    let section: String = ask(c, "INFO ratelimit_policies");
    let field = format!("ratelimit_policy_{name}:allowed=");
    let counts = section.lines().find_map(|line| line.strip_prefix(&field))?;
    let (counts, _shadowed) = counts.split_once(",shadowed=").expect("three numbers");
    let (allowed, limited) = counts.split_once(",limited=").expect("three numbers");
    Some((allowed.parse().expect("a number"), limited.parse().expect("a number")))
}
