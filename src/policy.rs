//! Policies: rules that the server keeps under a name.
//!
//! ```text
//! RL.POLICY SET free 20/m 800/d        parsed once
//! RL.CHECK user:42 @free               looked up: nothing is parsed
//! ```
//!
//! Policies belong to the server, not to a key. Like functions they are saved in the
//! RDB file outside of keys, and propagated as the commands that set them. An effect
//! has a policy's rules and not its name, so neither a replica nor a saved key
//! depends on policies.
//!
//! ```text
//! loaded with the module      from its arguments
//! then from RDB or AOF        a saved policy replaces a configured one of the same name; with
//!                             the setting `policies config` the configured one stays
//! from a primary              the primary's policies replace all
//!   loaded in the background  staged, and in effect once everything is loaded
//! ```
//!
//! An AOF that does not begin with an RDB file has no auxiliary data, and the server calls the
//! module only for keys. So the process that rewrites the AOF writes the policies before the
//! first limiter. If there is no limiter, the server appends them to the AOF once the rewrite
//! has started.
//!
//! The lock is held briefly, and never during a call of the server (except to allocate memory),
//! so a command within a command finds it free.

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
use ratelimit_core::limit::Verdict;
use ratelimit_core::parse::{self, Limits, ParseError, RuleArgError};
use ratelimit_core::rule::Name;
use ratelimit_core::rule::Rule;

/// A policy: rules under a name.
#[derive(Debug)]
pub struct Policy {
    name: Name,
    rules: Box<[Rule]>,
    /// The rules in canonical text.
    texts: Texts,
    counts: Arc<Counts>,
}

/// Counters of the checks that named a policy. They outlive a change of its rules.
#[derive(Debug)]
struct Counts {
    /// The name of the field in `INFO`.
    field: CString,
    allowed: Counter,
    limited: Counter,
}

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

/// Counts changes of the policies in effect. It is incremented under the lock, so a reader that
/// sees the new number then waits for the lock, and so for the change.
static GENERATION: AtomicU64 = AtomicU64::new(0);

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
        let field = CString::new(format!("policy_{}", name.as_str())).unwrap_or_default();
        let counts = Counts { field, allowed: Counter::new(), limited: Counter::new() };
        let texts = Texts::new(rules.iter().map(Rule::to_string));
        Self { name, rules: rules.into(), texts, counts: Arc::new(counts) }
    }

    /// The rules in canonical text.
    #[must_use]
    pub const fn texts(&self) -> &Texts {
        &self.texts
    }

    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    #[must_use]
    pub const fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

/// Sets or replaces a policy.
pub fn set(name: Name, rules: &[Rule]) {
    let mut policy = Policy::new(name, rules);
    let replaced = {
        let mut store = store_to_change();
        if let Some(before) = store.in_effect.get(name.as_bytes()) {
            policy.counts = Arc::clone(&before.counts);
        }
        store.in_effect.insert(name.as_bytes().into(), Arc::new(policy))
    };
    drop(replaced);
    changes::report(|| Changes::Everything);
}

/// Sets the policies of the arguments of `loadmodule`, each `name=rule[;rule ...]`.
///
/// The first argument that is not a policy, and why.
pub fn configure(texts: &[&[u8]]) -> Result<(), String> {
    let limits = config::limits();
    let mut rules = Vec::new();
    for text in texts {
        let name = parse::written_policy(text, &limits, &mut rules).map_err(|error| {
            format!("argument 'policy {}': {error}", String::from_utf8_lossy(text))
        })?;
        set(name, &rules);
        if let Some(policy) = get(name.as_bytes()) {
            let replaced = store().configured.insert(name.as_bytes().into(), policy);
            drop(replaced);
        }
    }
    Ok(())
}

/// Sets the configured policies again, in case loading replaced them by saved ones.
fn restore_configured() {
    let configured: Vec<_> = store().configured.values().cloned().collect();
    for policy in configured {
        set(policy.name, &policy.rules);
    }
}

/// Propagates the configured policies to replicas. A full synchronization contains them, but a
/// replica of a restarted primary may continue with a partial one.
fn propagate_to_replicas(ctx: &EventContext) {
    let names: Vec<_> = store().configured.keys().cloned().collect();
    for policy in names.iter().filter_map(|name| get(name)) {
        propagate(ctx, ReplicateTo::Replicas, &policy);
    }
}

fn propagate(ctx: &EventContext, to: ReplicateTo, policy: &Policy) {
    let name = policy.name.as_bytes();
    ctx.replicate_only(to, c"RL.POLICY", c"SET", name, policy.texts.args());
}

/// The policy of this name, if there is one.
#[must_use]
pub fn get(name: &[u8]) -> Option<Arc<Policy>> {
    store().in_effect.get(name).cloned()
}

/// Deletes a policy, and returns whether it existed.
pub fn delete(name: &Name) -> bool {
    let removed = store_to_change().in_effect.remove(name.as_bytes());
    changes::report(|| Changes::Everything);
    removed.is_some()
}

/// Whether there is any policy.
#[must_use]
pub fn any() -> bool {
    !store().in_effect.is_empty()
}

/// All policies, sorted by name.
#[must_use]
pub fn all() -> Vec<Arc<Policy>> {
    let mut all: Vec<_> = store().in_effect.values().cloned().collect();
    all.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
    all
}

/// The policies that a request names, and a cache of them for later requests, which usually
/// name the same ones. Any change of a policy empties the cache.
#[derive(Debug, Default)]
pub struct UsedPolicies {
    /// The policies that the request names come first.
    cache: Vec<Arc<Policy>>,
    /// How many the request names.
    used: usize,
    /// The `GENERATION` of the cached policies.
    generation: u64,
}

impl UsedPolicies {
    /// The most policies that the cache keeps for the next request: enough for what an
    /// application uses regularly, few enough for a linear search.
    const CACHED: usize = 8;

    /// Finds the rules of a policy, and marks it as named by the request.
    ///
    /// # Errors
    /// [`RuleArgError::UnknownPolicy`]
    pub fn find(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        let generation = GENERATION.load(Ordering::Relaxed);
        if self.used == 0 && self.generation != generation {
            self.cache.clear();
            self.generation = generation;
        }
        let index = match self.cache.iter().position(|policy| policy.name.as_bytes() == name) {
            Some(index) => index,
            None => {
                self.cache.push(get(name).ok_or(RuleArgError::UnknownPolicy)?);
                self.cache.len().saturating_sub(1)
            }
        };
        let index = self.mark_used(index);
        Ok(self.cache.get(index).map_or(&[], |policy| policy.rules()))
    }

    /// Moves a cached policy to those that the request names, and returns its new index.
    fn mark_used(&mut self, index: usize) -> usize {
        if index < self.used {
            return index;
        }
        let last = self.used;
        self.cache.swap(last, index);
        self.used = last.saturating_add(1);
        last
    }

    /// Whether the request names no policy.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Prepares for the next request.
    #[inline]
    pub fn clear(&mut self) {
        if self.used > 0 {
            self.used = 0;
            self.cache.truncate(Self::CACHED);
        }
    }

    fn all(&self) -> &[Arc<Policy>] {
        self.cache.get(..self.used).unwrap_or_default()
    }

    /// A policy that the request names.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Policy> {
        self.all().iter().find(|policy| policy.name.as_bytes() == name).map(|policy| &**policy)
    }

    /// Counts a check for each policy that it named.
    pub fn count(&self, verdict: Verdict) {
        for policy in self.all() {
            match verdict {
                Verdict::Allowed => policy.counts.allowed.add(1),
                Verdict::Limited => policy.counts.limited.add(1),
                Verdict::Blocked => {}
            }
        }
    }
}

/// The saved form of all policies: a line each, `name=rule[;rule ...]`.
#[must_use]
pub fn save() -> Vec<u8> {
    let mut lines = Vec::new();
    for policy in all() {
        lines.extend_from_slice(policy.name.as_bytes());
        for (index, rule) in policy.rules.iter().enumerate() {
            lines.push(if index == 0 { b'=' } else { b';' });
            lines.extend_from_slice(rule.to_string().as_bytes());
        }
        lines.push(b'\n');
    }
    lines
}

/// Loads saved policies: all of them, or none if there is an error.
///
/// # Errors
/// Why the first invalid line is not a policy.
pub fn load(saved: &[u8]) -> Result<(), ParseError> {
    let mut loaded = Vec::new();
    let mut rules = Vec::new();
    // Each line ends with a line feed, so nothing follows the last one.
    for line in saved.strip_suffix(b"\n").unwrap_or(saved).split(|&byte| byte == b'\n') {
        if !saved.is_empty() {
            let name = parse::written_policy(line, &Limits::ANY, &mut rules)?;
            loaded.push(Arc::new(Policy::new(name, &rules)));
        }
    }
    let mut replaced = Vec::new();
    let mut store = store_to_change();
    let Store { in_effect, staged, .. } = &mut *store;
    let policies = staged.as_mut().unwrap_or(in_effect);
    for policy in loaded {
        replaced.extend(policies.insert(policy.name.as_bytes().into(), policy));
    }
    drop(store);
    drop(replaced);
    Ok(())
}

/// Makes the policies follow the server's data.
pub fn on_server_event(ctx: &EventContext, event: ServerEvent) {
    match event {
        ServerEvent::LoadingFromPrimary => drop_unless_staging(),
        ServerEvent::StagingStarted => drop(replace_staged(Some(Policies::default()))),
        ServerEvent::StagingAborted => drop(replace_staged(None)),
        ServerEvent::StagingCompleted => {
            if let Some(staged) = replace_staged(None) {
                let replaced = std::mem::replace(&mut store_to_change().in_effect, staged);
                drop(replaced);
            }
        }
        ServerEvent::LoadingEnded => {
            if ctx.is_primary() && config::configured_policies_win() {
                restore_configured();
            }
        }
        ServerEvent::Ready => {
            if ctx.is_primary() {
                propagate_to_replicas(ctx);
            }
        }
        ServerEvent::AofWriteStarted => DUE_IN_AOF.store(true, Ordering::Relaxed),
        ServerEvent::WriteEnded => DUE_IN_AOF.store(false, Ordering::Relaxed),
        ServerEvent::AofRewriteStarted => {
            for policy in all() {
                propagate(ctx, ReplicateTo::Aof, &policy);
            }
        }
        ServerEvent::LoadingFailed | ServerEvent::Promoted | ServerEvent::Alarm => {}
    }
}

/// Whether this process writes an AOF and has not yet written the policies to it.
static DUE_IN_AOF: AtomicBool = AtomicBool::new(false);

/// The policies to write to the AOF before a key: all of them before the first key, then none.
#[must_use]
pub fn take_due_in_aof() -> Vec<Arc<Policy>> {
    if DUE_IN_AOF.swap(false, Ordering::Relaxed) { all() } else { Vec::new() }
}

fn replace_staged(staged: Option<Policies>) -> Option<Policies> {
    std::mem::replace(&mut store().staged, staged)
}

/// Drops the policies before those of a primary are loaded, unless these are staged.
fn drop_unless_staging() {
    let mut store = store_to_change();
    if store.staged.is_none() {
        let dropped = std::mem::take(&mut store.in_effect);
        drop(store);
        drop(dropped);
    }
}

/// Writes the `INFO` section of the policies, a line each.
pub fn write_info(info: &Info) {
    if any()
        && let Some(fields) = info.section(Some(c"policies"))
    {
        for policy in all() {
            let Counts { field, allowed, limited } = &*policy.counts;
            fields.add_pair(field, (c"allowed", allowed.get()), (c"limited", limited.get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(line: &str) -> Vec<Rule> {
        line.split(' ').map(|text| Rule::from_text(text.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn cached_policies_follow_changes_between_requests_only() {
        let mut used = UsedPolicies::default();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        for text in ["cached", "other"] {
            assert_eq!(used.find(text.as_bytes()), Err(RuleArgError::UnknownPolicy));
            set(name(text), &rules("20/m"));
        }
        for line in ["20/m 800/d", "30/m", "30/m"] {
            set(name("cached"), &rules(line));
            assert_eq!(used.find(b"other"), Ok(&rules("20/m")[..]));
            assert_eq!(used.find(b"cached"), Ok(&rules(line)[..]));
            // A request sees one policy under a name, even if it changes meanwhile.
            set(name("cached"), &rules("1/s"));
            assert_eq!(used.find(b"cached"), Ok(&rules(line)[..]));
            assert!(used.get(b"cached").is_some_and(|policy| policy.rules() == rules(line)));
            used.clear();
            assert!(used.is_empty() && used.get(b"cached").is_none());
            assert_eq!(used.find(b"cached"), Ok(&rules("1/s")[..]));
            assert!(used.get(b"other").is_none(), "the request before named it");
            used.clear();
        }
        delete(&name("cached"));
        assert_eq!(used.find(b"cached"), Err(RuleArgError::UnknownPolicy));
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut used = UsedPolicies::default();
        for n in 0..3 * UsedPolicies::CACHED {
            let text = format!("few{n}");
            set(Name::new(text.as_bytes()).unwrap(), &rules(&format!("{n}/m")));
        }
        for n in 0..3 * UsedPolicies::CACHED {
            let found = used.find(format!("few{n}").as_bytes());
            assert_eq!(found, Ok(&rules(&format!("{n}/m"))[..]));
        }
        used.clear();
        assert_eq!(used.cache.len(), UsedPolicies::CACHED);
    }
}
