//! A key that a command may change, from opening to closing, with the consequences of a change: the
//! key's expiry moves if it must, an empty key is deleted, replicas and the append-only file get
//! the effect, and clients that watch, cache or wait for the key are notified.

use super::{line, top};
use crate::datatype::LIMITER;
use crate::metrics;
use crate::policy::Resolver;
use crate::server::{Arg, Args, Call, CommandError, Texts, WriteKey, clock};
use ratelimit_engine::check::{CheckError, Decision, Outcome, RULES_A_HOLD, Refusal};
use ratelimit_engine::key::{Access, Change, Check, Expiry, Limiter};
use ratelimit_engine::rule::{Excerpt, Identity, Rule};
use ratelimit_protocol::effect::{Action, BAN_EVENT, Effect, Head};
use ratelimit_protocol::parse::RuleResolver;
use ratelimit_protocol::waiting::Cause;
use std::borrow::Cow;
use std::ffi::CStr;

/// The command that carries an effect.
const APPLY: &CStr = c"RL.APPLY";

/// An open key, existing or missing.
pub struct Opened<'c> {
    pub key: WriteKey<'c, Limiter>,
    /// The time of the change: what `AT` gave, otherwise the server's.
    pub at_us: u64,
    /// The server's clock.
    pub clock_us: u64,
}

impl<'c> Opened<'c> {
    /// Opens the first argument. `at_us` is what `AT` gave.
    ///
    /// # Errors
    /// [`CommandError::WrongArity`] and [`CommandError::WRONG_TYPE`]
    #[inline(always)]
    pub fn first(call: &'c Call<'c>, at_us: Option<u64>) -> Result<Self, CommandError> {
        let clock_us = clock::now_us();
        let key = call.open_write(call.key_name()?, &LIMITER)?;
        Ok(Self { key, at_us: at_us.unwrap_or(clock_us), clock_us })
    }

    /// Passes the value to `change`. A missing key gets a new value, unless the value stays empty.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server refuses the value.
    pub fn change(&mut self, change: impl FnOnce(&mut Limiter)) -> Result<(), CommandError> {
        let mut new = Limiter::default();
        change(self.key.value_mut().unwrap_or(&mut new));
        self.store(new)
    }

    /// Stores the new value of a missing key, unless the value is empty.
    ///
    /// # Errors
    /// [`CommandError::Internal`] if the server refuses the value.
    #[inline]
    pub fn store(&mut self, new: Limiter) -> Result<(), CommandError> {
        if !new.is_empty() {
            self.key.set(&LIMITER, new)?;
            metrics::value_made();
        }
        Ok(())
    }

    /// Ends the lapsed holds before a check, if that changes what rules read. This propagates a
    /// separate effect, because the check itself may change nothing. The server likewise propagates
    /// the deletion of a key that it finds expired.
    #[inline(always)]
    pub fn lapse(&mut self) {
        if self.key.value().is_some_and(|limiter| limiter.lapse_is_due(self.at_us)) {
            self.lapse_now();
        }
    }

    #[cold]
    fn lapse_now(&mut self) {
        let held = self.states(Limiter::states_held);
        if let Some(limiter) = self.key.value_mut() {
            limiter.lapse(self.at_us);
        }
        self.after_change(Action::Lapse, Cause::Returned(&held), EffectArgs::default);
    }

    /// The states that `of` selects in the value of the key, for the clients that wait for the key.
    /// Empty if no client waits.
    pub fn states(&self, of: impl FnOnce(&Limiter) -> Vec<Identity>) -> Vec<Identity> {
        let limiter = self.key.value().filter(|_| line::is_in_use());
        limiter.map(of).unwrap_or_default()
    }

    /// Applies the consequences of an action, and tells `cause` to the clients that wait. `args`
    /// returns the texts of the action's rules or costs, and is only called if they are propagated.
    pub fn after_change<'e>(
        &mut self,
        action: Action<'e>,
        cause: Cause<'_>,
        args: impl FnOnce() -> EffectArgs<'e>,
    ) {
        let expiry = self.move_expiry(action.takes_at());
        if self.key.call().propagates() {
            self.propagate(expiry, action, &args());
        }
        self.key.call().signal_modified(self.key.name());
        line::tell(self.key.name(), cause);
    }

    /// Counts a check of this key, and applies the consequences of its change. `decisions` is
    /// empty if a block or an exemption answered. `rules` returns the texts of the check's rules, and
    /// is only called if they are propagated. Returns true if shadows or the setting `enforce` may have
    /// kept the check from being denied.
    #[inline(always)]
    pub fn after_check<'e>(
        &mut self,
        check: &Check<'e>,
        decisions: &[Decision],
        outcome: &Outcome,
        rules: impl FnOnce() -> EffectArgs<'e>,
    ) -> bool {
        let banned = outcome.ban.is_some();
        let shadowed = metrics::count_key(outcome.access, banned, check.rules, decisions);
        self.apply(check, outcome, rules);
        shadowed || check.observes()
    }

    /// Counts the key and the rule of each shadow that would have denied a check. Returns true if
    /// the setting `enforce` kept the check from being denied: by a rule that is a shadow for this
    /// request alone, by a block or by a pause.
    #[cold]
    pub fn spared(&self, check: &Check<'_>, decisions: &[Decision], outcome: &Outcome) -> bool {
        for rule in check.shadowed(decisions) {
            top::shadowed(self.key.call(), self.key.name(), rule, self.clock_us);
        }
        let is_stopped = |limiter: &Limiter| {
            let access = limiter.access_at(check.now_us);
            access.is_some_and(|access| access.kind == Access::Block)
                || limiter.pause_at(check.now_us).is_some() && !outcome.repeated
        };
        check.observes()
            && outcome.access != Some(Access::Exempt)
            && (check.shadowed(decisions).any(Rule::is_observed)
                || self.key.value().is_some_and(is_stopped))
    }

    /// Applies the consequences of a check's change.
    #[inline(always)]
    fn apply<'e>(
        &mut self,
        check: &Check<'e>,
        outcome: &Outcome,
        rules: impl FnOnce() -> EffectArgs<'e>,
    ) {
        if outcome.held {
            metrics::HOLDS_TAKEN.add(1);
        }
        if outcome.repeated {
            metrics::HOLDS_REPEATED.add(1);
        }
        if outcome.denied {
            top::denied(self.key.call(), self.key.name(), self.clock_us);
        }
        if !outcome.changed() {
            return;
        }
        let expiry = self.move_expiry(true);
        if self.key.call().propagates() {
            // Renewing a hold needs no rules.
            let renews = matches!(outcome.change, Change::Renewed);
            if let Some(action) = Action::of_check(check, outcome.change) {
                let args = if renews { EffectArgs::None } else { rules() };
                self.propagate(expiry, action, &args);
            }
            if outcome.ban_changed()
                && let Some(limiter) = self.key.value()
                && let Some(ban) = limiter.access()
            {
                self.propagate(expiry, Action::set(ban, limiter.bans()), &EffectArgs::None);
            }
        }
        self.key.call().signal_modified(self.key.name());
        if line::is_in_use() {
            self.tell_line(check, outcome);
        }
    }

    /// Tells the clients that wait what a check did.
    #[cold]
    fn tell_line(&self, check: &Check<'_>, outcome: &Outcome) {
        let name = self.key.name();
        if outcome.ban_changed() {
            return line::tell(name, Cause::Changed);
        }
        match outcome.change {
            Change::Admitted | Change::Charged => {
                let hold = check.hold().filter(|_| outcome.held).map(|hold| hold.id);
                line::tell(name, Cause::Consumed { rules: check.rules, hold });
            }
            // The hold may end earlier now.
            Change::Renewed => {
                line::tell(name, Cause::Returned(&self.states(Limiter::states_held)));
            }
            Change::Nothing | Change::HistoryOnly(_) => {}
        }
    }

    /// Deletes the key if it is empty; otherwise moves its expiry if needed.
    #[inline(always)]
    fn move_expiry(&mut self, command_takes_at: bool) -> Expiry {
        let Some(limiter) = self.key.value() else { return Expiry::Keep };
        if limiter.is_empty() {
            self.key.delete();
            return Expiry::Keep;
        }
        let expiry = self.expiry(limiter, command_takes_at);
        self.set_expiry(expiry);
        expiry
    }

    /// How to move the expiry of the key, whose value is `limiter`.
    #[inline(always)]
    fn expiry(&self, limiter: &Limiter, command_takes_at: bool) -> Expiry {
        let expires_ms = self.key.expires_at_ms();
        let deadline = match command_takes_at {
            true => limiter.deadline(),
            false => limiter.deadline_without_at(self.clock_us, expires_ms),
        };
        deadline.expiry(self.at_us, self.clock_us, expires_ms)
    }

    /// True if a user has moved the key's expiry, and the key now expires too early or much too late. A
    /// command without `AT` then has to correct the expiry.
    pub fn expires_wrongly(&self) -> bool {
        self.key.value().is_some_and(|limiter| self.expiry(limiter, false) != Expiry::Keep)
    }

    /// Sends an effect to the replicas and the append-only file.
    #[inline]
    fn propagate(&self, expiry: Expiry, action: Action<'_>, args: &EffectArgs<'_>) {
        let (call, name) = (self.key.call(), self.key.name());
        let head = Head::of(&Effect { at_us: self.at_us, expiry, action });
        call.replicate(APPLY, name, head.text(), action.texts(), args.args());
    }

    /// Moves the key's expiry as decided.
    pub fn set_expiry(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Keep => {}
            Expiry::At(at_ms) => self.key.expire_at_ms(Some(at_ms)),
            Expiry::Never => self.key.expire_at_ms(None),
        }
    }

    /// Closes the key, then publishes the keyspace event, because a module that reacts to the event
    /// may open the key.
    #[inline]
    pub fn close(self, event: Option<&'static CStr>) {
        let (call, name) = (self.key.call(), self.key.name());
        drop(self);
        if let Some(event) = event {
            call.notify(event, name);
        }
    }
}

/// The keyspace event of a check.
pub fn event(outcome: &Outcome) -> Option<&'static CStr> {
    outcome.ban_changed().then_some(BAN_EVENT)
}

/// The error if one of a check's keys refuses the check.
#[cold]
pub fn refused(keys: Args<'_>, error: &CheckError) -> CommandError {
    let CheckError { key, why } = error;
    let key = Excerpt::new(keys.get(*key).map_or(&[][..], Arg::bytes));
    CommandError::Because(reason(&key, why).into())
}

/// Why a key refuses a check, and what to do.
pub fn reason(key: &Excerpt, why: &Refusal) -> String {
    match why {
        Refusal::TooManyStates { .. } => format!(
            "key {key} would hold {why} (ratelimit.max-states); \
             use fewer names and periods of rules for one key, or RL.RESET it"
        ),
        Refusal::TooManyHolds { .. } => format!("{why} (ratelimit.max-holds)"),
        Refusal::TooManyRulesOfHolds { .. } => {
            format!("{why} ({RULES_A_HOLD} for each of ratelimit.max-holds)")
        }
        Refusal::OtherCost { .. } => why.to_string(),
    }
}

/// The rules or costs of a request as arguments of its effect, after its texts. A rule stays as the caller
/// wrote it, and a policy becomes its rules, so a replica can read them without the policy. A rule named
/// in `COST name=n` gets that cost in its text, and an observed rule the option `shadow`.
#[derive(Debug, Default)]
pub enum EffectArgs<'a> {
    #[default]
    None,
    /// Consecutive arguments of the request, or the rules of one policy.
    Borrowed(Args<'a>),
    /// Arguments of the request and rules of policies, joined.
    Joined(Vec<Arg<'a>>),
    /// Copies, some with a named cost or as shadows.
    Copied(Texts),
}

impl<'a> EffectArgs<'a> {
    /// `written` are the arguments that are rules or names of policies. `resolver` found these policies
    /// for the key with this index.
    pub fn of_rules(written: Args<'a>, resolver: &'a Resolver<'_>, key: usize) -> Self {
        if !resolver.named_a_policy() {
            return Self::Borrowed(written);
        }
        let rules_of =
            |text: &[u8]| Some(resolver.named(text.strip_prefix(b"@")?, key)?.texts.args());
        let only = written.get(0).filter(|_| written.len() == 1);
        if let Some(rules) = only.and_then(|only| rules_of(only.bytes())) {
            return Self::Borrowed(rules);
        }
        let mut joined = Vec::new();
        for arg in written.iter() {
            match rules_of(arg.bytes()) {
                Some(rules) => joined.extend(rules.iter()),
                None => joined.push(arg),
            }
        }
        Self::Joined(joined)
    }

    /// The arguments for a check of these rules, given in the same order.
    #[inline]
    pub fn of_check(
        written: Args<'a>,
        resolver: &'a Resolver<'_>,
        key: usize,
        rules: &[Rule],
    ) -> Self {
        let args = Self::of_rules(written, resolver, key);
        if rules.iter().any(Rule::differs_from_text) { args.rewritten(rules) } else { args }
    }

    #[cold]
    fn rewritten(self, rules: &[Rule]) -> Self {
        let texts =
            self.args().iter().zip(rules).map(|(arg, rule)| match rule.differs_from_text() {
                true => Cow::Owned(format!("{rule:#}").into_bytes()),
                false => Cow::Borrowed(arg.bytes()),
            });
        Self::Copied(Texts::new(texts))
    }

    pub fn args(&self) -> Args<'_> {
        match self {
            Self::None => Args::default(),
            Self::Borrowed(args) => *args,
            Self::Joined(joined) => Args::joined(joined),
            Self::Copied(texts) => texts.args(),
        }
    }
}
