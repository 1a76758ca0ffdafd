//! Policies: rules that the server keeps under a name.
//!
//! ```text
//! RL.POLICY SET free 20/m 800/d        parsed once
//! RL.CHECK user:42 @free               looked up: nothing is parsed
//! ```
//!
//! Policies belong to the server, not to a key. Like the server's functions, they are saved in
//! the RDB file outside of keys, and propagated as the commands that set them. An effect
//! has a policy's rules and not its name, so neither a replica nor a saved key
//! depends on policies.
//!
//! ```text
//! loaded with the module      from its arguments
//! then from RDB or AOF        a saved policy replaces a configured one of the same name; with
//!                             the setting `policies config` the configured one stays
//! from a primary              the primary's policies replace all
//!   loaded in the background  staged, and in effect when everything is loaded
//! ```
//!
//! An AOF that does not begin with an RDB file has no auxiliary data, and the server calls the
//! module only for keys. So the process that rewrites the AOF writes the policies before the
//! first limiter. In case there is no limiter, the server also propagates the policies to the
//! AOF after the rewrite has started.
//!
//! The lock is held briefly, and never during a call of the server, except to allocate or free
//! memory, so a command within a command finds the lock free.

mod resolver;

use foldhash::fast::RandomState;
use lazy_static::lazy_static;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config;
use crate::metrics::Counter;
use crate::server::changes::{self, Changes};
use crate::server::info::Info;
use crate::server::{EventContext, ReplicateTo, ServerEvent, Texts};
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Check, Verdict};
use ratelimit_engine::rule::{Kind, Name, Rule};
use ratelimit_protocol::parse::{self, Limits, ParseError};
pub use resolver::{Memory, Resolver};

/// A policy: rules under a name.
#[derive(Debug)]
pub struct Policy {
    pub name: Name,
    pub rules: Box<[Rule]>,
    /// The rules in canonical text.
    pub texts: Texts,
    /// A hash of the name and the rules.
    digest: u64,
    counts: Arc<Counts>,
}

/// Counters of the checks that named a policy. A change of the policy's rules does not reset them.
#[derive(Debug, Default)]
struct Counts {
    allowed: Counter,
    limited: Counter,
    /// Checks that a shadow rule of the policy would have denied.
    shadowed: Counter,
    /// When a check last named the policy, by the server's clock: reading another one takes long.
    used_us: Counter,
}

/// How long a policy counts as used after a check.
const MINUTE_US: u64 = 60_000_000;

impl Counts {
    fn add(&self, verdict: Verdict) {
        match verdict {
            Verdict::Allowed => self.allowed.add(1),
            Verdict::Limited => self.limited.add(1),
            Verdict::Blocked => {}
        }
    }
}

/// Policies by name.
type Policies = HashMap<Box<[u8]>, Arc<Policy>, RandomState>;

#[derive(Debug, Default)]
struct Store {
    in_effect: Policies,
    /// The policies of a snapshot that is being loaded while the old data still serves.
    staged: Option<Policies>,
    /// The policies of the arguments of `loadmodule`.
    configured: Policies,
}

lazy_static! {
    static ref STORE: Mutex<Store> = Mutex::default();
}

/// Counts changes of the policies in effect. A change increments the count under the lock. A reader
/// that sees the new count has to take the lock, and so gets the policies after the change.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// A value that [`GENERATION`] never has.
const NO_GENERATION: u64 = u64::MAX;

/// Locks the store for a change of the policies in effect.
fn store_to_change() -> MutexGuard<'static, Store> {
    let store = store();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    store
}

fn store() -> MutexGuard<'static, Store> {
    // A call that panicked under the lock cannot have left a map half changed.
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Policy {
    fn new(name: Name, rules: &[Rule]) -> Self {
        let texts = Texts::new(rules.iter().map(Rule::to_string));
        let digest = fnv1a(line(name, rules).as_bytes());
        Self { name, rules: rules.into(), texts, digest, counts: Arc::default() }
    }

    /// Milliseconds since a check used the policy, if one did in the last minute.
    pub fn used_ms_ago(&self, now_us: u64) -> Option<u64> {
        let used_us = Some(self.counts.used_us.get()).filter(|&used_us| used_us > 0)?;
        let ago_us = now_us.saturating_sub(used_us);
        (ago_us < MINUTE_US).then_some(ago_us / 1_000)
    }

    /// Whether a shadow of the policy would have denied a check of one key.
    pub fn shadows(&self, check: &Check<'_>, decisions: &[Decision]) -> bool {
        let is_own = |rule: &Rule| self.rules.iter().any(|own| own.same_identity(rule));
        check.shadowed(decisions).any(is_own)
    }

    /// Counts a check that a shadow of the policy would have denied.
    pub fn count_shadowed(&self) {
        self.counts.shadowed.add(1);
    }

    fn propagate(&self, ctx: &EventContext, to: ReplicateTo) {
        let name = self.name.as_bytes();
        ctx.replicate_only(to, c"RL.POLICY", c"SET", name, self.texts.args());
    }
}

/// Sets a policy, and returns the one that it replaces.
pub fn set(name: Name, rules: &[Rule]) -> Option<Arc<Policy>> {
    let mut policy = Policy::new(name, rules);
    let mut store = store_to_change();
    if let Some(before) = store.in_effect.get(name.as_bytes()) {
        policy.counts = Arc::clone(&before.counts);
    }
    let before = store.in_effect.insert(name.as_bytes().into(), Arc::new(policy));
    drop(store);
    changes::report(|| Changes::Everything);
    before
}

/// Sets the policies of the arguments of `loadmodule`, each `name=rule[;rule ...]`.
///
/// # Errors
/// The first argument that is not a policy, and why.
pub fn configure(texts: &[&[u8]]) -> Result<(), String> {
    let limits = config::limits();
    let mut rules = Vec::new();
    for text in texts {
        let name = parse::written_policy(text, &limits, &mut rules).map_err(|error| {
            format!("argument 'policy {}': {error}", String::from_utf8_lossy(text))
        })?;
        set(name, &rules);
        let policy = get(name.as_bytes());
        store().configured.extend(policy.map(|policy| (name.as_bytes().into(), policy)));
    }
    Ok(())
}

/// The policy of this name, if there is one.
pub fn get(name: &[u8]) -> Option<Arc<Policy>> {
    store().in_effect.get(name).cloned()
}

/// Deletes a policy, and returns it.
pub fn delete(name: &Name) -> Option<Arc<Policy>> {
    let before = store_to_change().in_effect.remove(name.as_bytes());
    changes::report(|| Changes::Everything);
    before
}

/// The number of rules of the longest policy.
pub fn most_rules() -> i64 {
    greatest(|policy| policy.rules.len() as i64)
}

/// The largest limit of a log rule in a policy.
pub fn most_log_entries() -> i64 {
    let is_log = |rule: &&Rule| rule.kind() == Kind::Log;
    let limits = |policy: &Policy| {
        policy.rules.iter().filter(is_log).map(|rule| rule.limit().into()).max().unwrap_or(0)
    };
    greatest(limits)
}

fn greatest(of: impl Fn(&Policy) -> i64) -> i64 {
    store().in_effect.values().map(|policy| of(policy)).max().unwrap_or(0)
}

/// Whether there is any policy.
pub fn any() -> bool {
    !store().in_effect.is_empty()
}

/// All policies, sorted by name.
pub fn all() -> Vec<Arc<Policy>> {
    let mut all: Vec<_> = store().in_effect.values().cloned().collect();
    all.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
    all
}

/// The saved form of all policies: a line each, `name=rule[;rule ...]`.
pub fn save() -> String {
    all().iter().map(|policy| line(policy.name, &policy.rules)).collect()
}

fn line(name: Name, rules: &[Rule]) -> String {
    let rules: Vec<_> = rules.iter().map(Rule::to_string).collect();
    format!("{}={}\n", name.as_str(), rules.join(";"))
}

/// A hash that is the same in every version of this module: FNV-1a, 64 bits
/// (<http://www.isthe.com/chongo/tech/comp/fnv/>).
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A number for all policies. Servers with equal policies have the same number; others almost surely do
/// not. It is below 2^48, because Prometheus stores numbers above 2^53 inexactly.
fn digest() -> u64 {
    store().in_effect.values().fold(0, |sum: u64, policy| sum.wrapping_add(policy.digest)) >> 16
}

/// Loads saved policies: all of them, or none if there is an error.
///
/// # Errors
/// Why the first invalid line is not a policy.
pub fn load(saved: &[u8]) -> Result<(), ParseError> {
    let mut loaded = Policies::default();
    let mut rules = Vec::new();
    // Each line ends with a line feed.
    for line in saved.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let name = parse::written_policy(line, &Limits::ANY_CHECK, &mut rules)?;
        loaded.insert(name.as_bytes().into(), Arc::new(Policy::new(name, &rules)));
    }
    let Store { in_effect, staged, .. } = &mut *store_to_change();
    staged.as_mut().unwrap_or(in_effect).extend(loaded);
    Ok(())
}

/// Makes the policies follow the server's data.
pub fn on_server_event(ctx: &EventContext, event: ServerEvent) {
    match event {
        ServerEvent::LoadingFromPrimary => {
            // The policies of the primary replace all others: at once, unless they are staged.
            let mut store = store_to_change();
            if store.staged.is_none() {
                store.in_effect.clear();
            }
        }
        ServerEvent::StagingStarted => store().staged = Some(Policies::default()),
        ServerEvent::StagingAborted => store().staged = None,
        ServerEvent::StagingCompleted => {
            let mut store = store_to_change();
            if let Some(staged) = store.staged.take() {
                store.in_effect = staged;
            }
        }
        // Loading may have replaced configured policies by saved ones.
        ServerEvent::LoadingEnded if ctx.is_primary() && config::configured_policies_win() => {
            for policy in configured() {
                set(policy.name, &policy.rules);
            }
        }
        // A full synchronization contains the configured policies, but after a restart of the
        // primary, a replica may continue with a partial synchronization.
        ServerEvent::Ready if ctx.is_primary() => {
            for policy in configured().iter().filter_map(|policy| get(policy.name.as_bytes())) {
                policy.propagate(ctx, ReplicateTo::Replicas);
            }
        }
        ServerEvent::AofWriteStarted => DUE_IN_AOF.store(true, Ordering::Relaxed),
        ServerEvent::WriteEnded => DUE_IN_AOF.store(false, Ordering::Relaxed),
        ServerEvent::AofRewriteStarted => {
            all().iter().for_each(|policy| policy.propagate(ctx, ReplicateTo::Aof));
        }
        _ => {}
    }
}

/// The policies of the arguments of `loadmodule`.
fn configured() -> Vec<Arc<Policy>> {
    store().configured.values().cloned().collect()
}

/// Whether this process writes an AOF and has not yet written the policies to it.
static DUE_IN_AOF: AtomicBool = AtomicBool::new(false);

/// The policies to write to the AOF before a key: all of them before the first key, then none.
pub fn take_due_in_aof() -> Vec<Arc<Policy>> {
    if DUE_IN_AOF.swap(false, Ordering::Relaxed) { all() } else { Vec::new() }
}

/// Writes the `INFO` section of the policies, a line each.
pub fn write_info(info: &Info) {
    if info.section(Some(c"policies")) {
        info.add(c"policies_digest", digest());
        for policy in all() {
            let field = CString::new(format!("policy_{}", policy.name.as_str()));
            let Counts { allowed, limited, shadowed, used_us: _ } = &*policy.counts;
            let field = field.unwrap_or_default();
            let counts = [(c"allowed", allowed), (c"limited", limited), (c"shadowed", shadowed)];
            info.add_several(&field, &counts.map(|(name, counter)| (name, counter.get())));
        }
    }
}
