//! Policies: rules that the server keeps under a name.
//!
//! ```text
//! RL.POLICY SET free 20/m 800/d        parsed once
//! RL.CHECK user:42 @free               looked up: nothing is parsed
//! ```
//!
//! They are the server's, not a key's: like functions they lie in the RDB file
//! beside the keys, and travel in the replication stream and the AOF as the
//! commands that set them. What checks consume under them is told in their
//! rules' own words, so neither replicas nor a saved key ever depend on them.
//!
//! ```text
//! loaded with the module      from its arguments
//! then from RDB or AOF        those saved replace those of the same name, or with
//!                             the setting `policies config` the other way round
//! from a primary              those of the primary replace all
//!   loaded in the background  staged, and put in force when all is loaded
//! ```
//!
//! An AOF without an RDB file in front has no place for them, and only keys are
//! asked to write to it: the first limiter that is rewritten writes them before
//! itself. Where there is no limiter the server appends them when the rewriting
//! child was born, if it has an AOF to append to.
//!
//! The lock is held for a moment only, never while the server is called (but for
//! memory), so a call within a call finds it free.

#![forbid(unsafe_code)]

use foldhash::fast::RandomState;
use lazy_static::lazy_static;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config;
use crate::limit::Verdict;
use crate::metrics::Counter;
use crate::parse::{self, ParseError, RuleArgError};
use crate::rule::Name;
use crate::rule::Rule;
use crate::server::info::Info;
use crate::server::{EventContext, ReplicateTo, ServerEvent, Texts};

/// Rules under a name.
#[derive(Debug)]
pub struct Policy {
    name: Name,
    rules: Box<[Rule]>,
    /// The rules in canonical text.
    texts: Texts,
    counts: Arc<Counts>,
}

/// The checks that named a policy. They go on when its rules change.
#[derive(Debug)]
struct Counts {
    /// As `INFO` shows it.
    field: CString,
    allowed: Counter,
    limited: Counter,
}

type Names = HashMap<Box<[u8]>, Arc<Policy>, RandomState>;

#[derive(Debug, Default)]
struct Store {
    in_force: Names,
    /// What comes from a primary while the old data still serves.
    staged: Option<Names>,
    /// Those of the arguments of `loadmodule`.
    configured: Names,
}

lazy_static! {
    static ref STORE: Mutex<Store> = Mutex::default();
}

/// How often the policies in force may have changed. It is counted under the
/// lock, so that who sees the new count waits for the change.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The store, to change.
fn store_to_change() -> MutexGuard<'static, Store> {
    let store = store();
    CHANGES.fetch_add(1, Ordering::Relaxed);
    store
}

fn store() -> MutexGuard<'static, Store> {
    // A map is whole whatever happened to the call that had it last.
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
        if let Some(before) = store.in_force.get(name.as_bytes()) {
            policy.counts = Arc::clone(&before.counts);
        }
        store.in_force.insert(name.as_bytes().into(), Arc::new(policy))
    };
    drop(replaced);
}

/// Sets a policy written in one word, `name=rule[;rule ...]`.
///
/// # Errors
/// What is wrong with it.
pub fn configure(text: &[u8], limits: &parse::Limits) -> Result<(), ParseError> {
    let mut rules = Vec::new();
    let name = parse::written_policy(text, Some(limits), &mut rules)?;
    set(name, &rules);
    if let Some(policy) = get(name.as_bytes()) {
        let replaced = store().configured.insert(name.as_bytes().into(), policy);
        drop(replaced);
    }
    Ok(())
}

/// Puts those of the arguments in force again, where others of their names were
/// loaded.
fn restore_configured() {
    let configured: Vec<_> = store().configured.values().cloned().collect();
    for policy in configured {
        set(policy.name, &policy.rules);
    }
}

/// Tells replicas of those that this server brought with it. A full
/// synchronization has them, but a replica may go on without one.
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

/// A policy, if there is one of this name.
#[must_use]
pub fn get(name: &[u8]) -> Option<Arc<Policy>> {
    store().in_force.get(name).cloned()
}

/// Whether there was one to delete.
pub fn delete(name: &Name) -> bool {
    let removed = store_to_change().in_force.remove(name.as_bytes());
    removed.is_some()
}

/// Whether there is one.
#[must_use]
pub fn any() -> bool {
    !store().in_force.is_empty()
}

/// All of them, by name.
#[must_use]
pub fn all() -> Vec<Arc<Policy>> {
    let mut all: Vec<_> = store().in_force.values().cloned().collect();
    all.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
    all
}

/// The policies that a request names. They are kept for the next ones, which
/// name the same few again, until any policy changes.
#[derive(Debug, Default)]
pub struct Named {
    /// Those that the request names come first.
    kept: Vec<Arc<Policy>>,
    named: usize,
    /// Of when they are.
    changes: u64,
}

impl Named {
    /// So many at most are kept for the next request: enough for those an
    /// application names all the time, few enough to be looked through.
    const KEPT: usize = 8;

    /// The rules of a policy, which is named from here on.
    ///
    /// # Errors
    /// [`RuleArgError::UnknownPolicy`]
    pub fn find(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        let changes = CHANGES.load(Ordering::Relaxed);
        if self.named == 0 && self.changes != changes {
            self.kept.clear();
            self.changes = changes;
        }
        let place = match self.kept.iter().position(|policy| policy.name.as_bytes() == name) {
            Some(place) => place,
            None => {
                self.kept.push(get(name).ok_or(RuleArgError::UnknownPolicy)?);
                self.kept.len().saturating_sub(1)
            }
        };
        let place = self.put_first(place);
        Ok(self.kept.get(place).map_or(&[], |policy| policy.rules()))
    }

    /// Makes one of those kept one that is named. Where it is then.
    fn put_first(&mut self, place: usize) -> usize {
        if place < self.named {
            return place;
        }
        let last = self.named;
        self.kept.swap(last, place);
        self.named = last.saturating_add(1);
        last
    }

    /// Whether any is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.named == 0
    }

    /// Names none.
    #[inline]
    pub fn clear(&mut self) {
        if self.named > 0 {
            self.named = 0;
            self.kept.truncate(Self::KEPT);
        }
    }

    fn all(&self) -> &[Arc<Policy>] {
        self.kept.get(..self.named).unwrap_or_default()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Policy> {
        self.all().iter().find(|policy| policy.name.as_bytes() == name).map(|policy| &**policy)
    }

    /// Counts a check that named them.
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

/// All policies as they are saved: a line each, as [`configure`] reads it.
#[must_use]
pub fn saved() -> Vec<u8> {
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

/// Loads policies that were saved: all of them, or none if there is an error.
///
/// # Errors
/// What is wrong with the first line that is no policy.
pub fn load(saved: &[u8]) -> Result<(), ParseError> {
    let mut loaded = Vec::new();
    let mut rules = Vec::new();
    // Each line ends with a line feed: what follows the last is empty.
    for line in saved.strip_suffix(b"\n").unwrap_or(saved).split(|&byte| byte == b'\n') {
        if !saved.is_empty() {
            let name = parse::written_policy(line, None, &mut rules)?;
            loaded.push(Arc::new(Policy::new(name, &rules)));
        }
    }
    let mut replaced = Vec::new();
    let mut store = store_to_change();
    let Store { in_force, staged, .. } = &mut *store;
    let names = staged.as_mut().unwrap_or(in_force);
    for policy in loaded {
        replaced.extend(names.insert(policy.name.as_bytes().into(), policy));
    }
    drop(store);
    drop(replaced);
    Ok(())
}

/// What the server is about to do with its data.
pub fn on(ctx: &EventContext, event: ServerEvent) {
    match event {
        ServerEvent::LoadingFromPrimary => forget_unless_staged(),
        ServerEvent::StagingStarted => drop(store_staged(Some(Names::default()))),
        ServerEvent::StagingAborted => drop(store_staged(None)),
        ServerEvent::StagingCompleted => {
            if let Some(staged) = store_staged(None) {
                let replaced = std::mem::replace(&mut store_to_change().in_force, staged);
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
        ServerEvent::LoadingFailed | ServerEvent::Promoted => {}
    }
}

/// Whether this process writes an AOF that has no policies yet.
static DUE_IN_AOF: AtomicBool = AtomicBool::new(false);

/// The policies to write to the AOF before the first key: none before others.
#[must_use]
pub fn due_in_aof() -> Vec<Arc<Policy>> {
    if DUE_IN_AOF.swap(false, Ordering::Relaxed) { all() } else { Vec::new() }
}

fn store_staged(staged: Option<Names>) -> Option<Names> {
    std::mem::replace(&mut store().staged, staged)
}

fn forget_unless_staged() {
    let mut store = store_to_change();
    if store.staged.is_none() {
        let forgotten = std::mem::take(&mut store.in_force);
        drop(store);
        drop(forgotten);
    }
}

/// Writes a line a policy, in a section of their own.
pub fn write(info: &Info) {
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
        parse::rules_of_line(line)
    }

    #[test]
    fn what_is_kept_for_the_next_request_is_in_force() {
        let mut named = Named::default();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        for text in ["kept", "other"] {
            assert_eq!(named.find(text.as_bytes()), Err(RuleArgError::UnknownPolicy));
            set(name(text), &rules("20/m"));
        }
        for line in ["20/m 800/d", "30/m", "30/m"] {
            set(name("kept"), &rules(line));
            assert_eq!(named.find(b"other"), Ok(&rules("20/m")[..]));
            assert_eq!(named.find(b"kept"), Ok(&rules(line)[..]));
            // A request sees one policy under a name, whatever happens meanwhile.
            set(name("kept"), &rules("1/s"));
            assert_eq!(named.find(b"kept"), Ok(&rules(line)[..]));
            assert!(named.get(b"kept").is_some_and(|policy| policy.rules() == rules(line)));
            named.clear();
            assert!(named.is_empty() && named.get(b"kept").is_none());
            assert_eq!(named.find(b"kept"), Ok(&rules("1/s")[..]));
            assert!(named.get(b"other").is_none(), "it was named before");
            named.clear();
        }
        delete(&name("kept"));
        assert_eq!(named.find(b"kept"), Err(RuleArgError::UnknownPolicy));
    }

    #[test]
    fn few_are_kept() {
        let mut named = Named::default();
        for n in 0..3 * Named::KEPT {
            let text = format!("few{n}");
            set(Name::new(text.as_bytes()).unwrap(), &rules(&format!("{n}/m")));
        }
        for n in 0..3 * Named::KEPT {
            let found = named.find(format!("few{n}").as_bytes());
            assert_eq!(found, Ok(&rules(&format!("{n}/m"))[..]));
        }
        named.clear();
        assert_eq!(named.kept.len(), Named::KEPT);
    }
}
