//! What a command did to a key: the effect that replicas and the append-only
//! file get.
//!
//! Replication and the append-only file carry effects, not decisions. A replica
//! decides nothing and reads no clock: it records what its primary did, and so
//! ends up with the same bytes.
//!
//! ```text
//! RL.APPLY key v1:at-us:expiry:WORD...    ...
//!
//! admit, charge           :units[:keep]           [text] rule [rule ...]    consumed
//! pass, deny, refuse      :units[:keep]           [text] rule [rule ...]    history only
//! hold                    :units:end-us:refund[:keep]
//!                                                 id [text] rule [rule ...] admitted and held
//! settle                                          id [REFUND | COST n|name=n ...]
//! renew                   :end-us                 id                        the new end
//! refund                  :units                  [rule [rule ...]]         no rule: all states
//! block, exempt           :until-us               reason user               -1: no end; user: who set it
//! ban                     :until-us:length-us[:bans:forgotten-us:span-us]
//!                                                 reason                    a block by a rule
//! pause                   :until-us               reason
//! plan                    :until-us               policy                    -1: no end
//! lapse                                                                 holds that ended
//! reset, unblock, unexempt, resume, unplan
//! ```
//!
//! The expiry is in Unix milliseconds: -1 means that the key does not expire, 0 that its expiry does not
//! change. `units` is the cost of rules without `cost=`; a rule whose cost the request gave by name has
//! that cost in its text. `refund` is 1 if the charges come back when the hold lapses, else 0. A hold or
//! a pause lasts from the effect's time until its end. `keep` is how many checks the history keeps; the
//! text of `META` follows only if `keep` is given. `bans` is the key's count of bans, if it has one. The
//! server makes, sends and frees each argument separately, so the word and its numbers form one
//! argument, the head.
//!
//! # Versions
//!
//! Append-only files and replication streams outlive the module that wrote them, so later
//! modules read every released version; `tests/fixtures/effects` holds files of each. Each change of the
//! text of effects or of rules needs a new version, so that an older module stops at it instead of
//! misreading it.
//!
//! [`Head`] writes an effect, [`read()`] reads it. Both take the words from `Word` and the numbers'
//! ranges from `write`. Property tests read back what is written, for every command and with each
//! number at its bounds.

mod read;
mod write;

pub use read::{EffectError, read};
pub use write::Head;

use ratelimit_engine::key::{
    Access, AccessEntry, Author, BanCount, Change, Check, CheckOptions, Costs, Expiry, HoldRequest,
    Limiter, Meta, Plan, Settlement, Verdict,
};
use ratelimit_engine::named;
use ratelimit_engine::rule::{Name, NamedCost, Rule};
use std::ffi::CStr;
use std::num::NonZeroU64;

/// The newest version of effects, in which a block or an exemption names its user.
pub const VERSION: u64 = 2;
/// The version of every other effect.
const WITHOUT_AUTHOR: u64 = 1;

/// An effect. It lacks the rules of a check or a refund, and a settlement's costs by name: the writer
/// has these as texts, and the reader returns them parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The time of the decision, in Unix microseconds.
    pub at_us: u64,
    /// What happened to the key's expiry.
    pub expiry: Expiry,
    /// What was done to the key at that time.
    pub action: Action<'a>,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A check; its rules come with the effect.
    Check {
        /// Whether states changed, or only the history.
        recorded: Recorded<'a>,
        /// The cost of rules without `cost=`, 0 ..= [`MAX_UNITS`](ratelimit_engine::rule::MAX_UNITS).
        cost: u32,
        /// How many checks the history keeps, and the text of `META`; `None` if it keeps none.
        meta: Option<Meta<'a>>,
    },
    /// `RL.SETTLE` ended a hold.
    Settle {
        /// The id of the hold.
        id: &'a [u8],
        /// What becomes of its charges; the costs by name come with the effect.
        settled: Settlement<Costs<'a>>,
    },
    /// Holds lapsed. A check noticed this, and made no other change.
    Lapse,
    /// A renewal, or a check that repeated a hold.
    Renew {
        /// The id of the hold.
        id: &'a [u8],
        /// Its new end, in Unix microseconds.
        end_us: u64,
    },
    /// `RL.REFUND`, or `RL.THROTTLE` with a negative quantity.
    Refund {
        /// How many units come back to the state of each rule of the effect, or to every state if the
        /// effect has no rules.
        units: u32,
    },
    /// `RL.RESET` dropped every state and every hold.
    Reset,
    /// A block, a ban or an exemption was set.
    Set {
        /// A ban is a block.
        kind: Access,
        /// When it ends, in Unix microseconds; `None`: never.
        until_us: Option<u64>,
        /// The terms of a ban; `None` if no rule caused the block.
        ban: Option<BanTerms>,
        /// Empty if none was given; for a ban, `rule` and the rule's name or text.
        reason: &'a [u8],
        /// The user who set it at the effect's time, empty for a script. `None` for a ban, and in
        /// effects of version 1.
        user: Option<&'a [u8]>,
    },
    /// The block and the count of bans were removed.
    Unblock,
    /// The exemption was removed.
    Unexempt,
    /// The key was paused.
    Pause {
        /// When the pause ends, in Unix microseconds.
        until_us: u64,
        /// Empty if none was given.
        reason: &'a [u8],
    },
    /// The pause was ended.
    Resume,
    /// A plan was bound to the key.
    Plan {
        /// When the plan ends, in Unix microseconds; `None`: never.
        until_us: Option<u64>,
        /// The name of its policy.
        name: &'a [u8],
    },
    /// The plan was unbound.
    Unplan,
}

/// What a check did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded<'a> {
    /// Every rule admitted it and was charged.
    Admitted,
    /// Every rule admitted it and was charged, and it took this hold.
    Held(HoldRequest<'a>),
    /// It was denied, and its `count=all` rules were charged.
    Charged,
    /// The history got an entry with this verdict, and no state changed.
    HistoryOnly(Verdict),
}

/// What a ban has besides its end and its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanTerms {
    /// How long the ban was set for, in microseconds.
    pub length_us: u64,
    /// The key's count of bans; `None`: it is unchanged.
    pub count: Option<BanCount>,
}

named! {
    /// An action's word in the text of effects.
    enum Word {
        Admit = "admit",
        Charge = "charge",
        Pass = "pass",
        Deny = "deny",
        Refuse = "refuse",
        Hold = "hold",
        Settle = "settle",
        Renew = "renew",
        Lapse = "lapse",
        Refund = "refund",
        Reset = "reset",
        Block = "block",
        Ban = "ban",
        Exempt = "exempt",
        Unblock = "unblock",
        Unexempt = "unexempt",
        Pause = "pause",
        Resume = "resume",
        Plan = "plan",
        Unplan = "unplan",
    }
}

/// The keyspace event of a ban.
pub const BAN_EVENT: &CStr = c"rl.ban";

impl<'a> Action<'a> {
    /// The action of a check, if it changed states or history.
    #[inline]
    pub fn of_check(check: &Check<'a>, change: Change) -> Option<Self> {
        let recorded = match (change, check.hold()) {
            (Change::Nothing, _) | (Change::Renewed, None) => return None,
            (Change::Renewed, Some(HoldRequest { id, end_us, .. })) => {
                return Some(Self::Renew { id, end_us });
            }
            (Change::Admitted, None) => Recorded::Admitted,
            (Change::Admitted, Some(hold)) => Recorded::Held(hold),
            (Change::Charged, _) => Recorded::Charged,
            (Change::HistoryOnly(verdict), _) => Recorded::HistoryOnly(verdict),
        };
        Some(Self::Check { recorded, cost: check.cost, meta: check.meta() })
    }

    /// The action that gives a key this block, ban or exemption. `count` is the key's count of
    /// bans; only a ban has one.
    pub fn set(access: &'a AccessEntry, count: Option<&BanCount>) -> Self {
        let AccessEntry { kind, until_us, ban_us, ref reason, ref author } = *access;
        let count = count.copied();
        let ban = ban_us.map(|length_us| BanTerms { length_us: length_us.get(), count });
        let user = author.as_ref().map(|author| &*author.user);
        Self::Set { kind, until_us, ban, reason, user }
    }

    /// True if the action's time can come from `AT`.
    pub const fn takes_at(&self) -> bool {
        match self {
            Self::Check { .. }
            | Self::Settle { .. }
            | Self::Lapse
            | Self::Renew { .. }
            | Self::Refund { .. } => true,
            Self::Reset
            | Self::Set { .. }
            | Self::Unblock
            | Self::Unexempt
            | Self::Pause { .. }
            | Self::Resume
            | Self::Plan { .. }
            | Self::Unplan => false,
        }
    }

    /// The version in which the effect is written.
    const fn version(&self) -> u64 {
        match self {
            Self::Set { user: Some(_), .. } => VERSION,
            _ => WITHOUT_AUTHOR,
        }
    }

    const fn word(&self) -> Word {
        match self {
            Self::Check { recorded, .. } => match recorded {
                Recorded::Admitted => Word::Admit,
                Recorded::Held(_) => Word::Hold,
                Recorded::Charged => Word::Charge,
                Recorded::HistoryOnly(Verdict::Allowed) => Word::Pass,
                Recorded::HistoryOnly(Verdict::Limited) => Word::Deny,
                Recorded::HistoryOnly(Verdict::Blocked) => Word::Refuse,
            },
            Self::Settle { .. } => Word::Settle,
            Self::Renew { .. } => Word::Renew,
            Self::Refund { .. } => Word::Refund,
            Self::Lapse => Word::Lapse,
            Self::Reset => Word::Reset,
            Self::Set { kind: Access::Block, ban: None, .. } => Word::Block,
            Self::Set { kind: Access::Block, ban: Some(_), .. } => Word::Ban,
            Self::Set { kind: Access::Exempt, .. } => Word::Exempt,
            Self::Unblock => Word::Unblock,
            Self::Unexempt => Word::Unexempt,
            Self::Pause { .. } => Word::Pause,
            Self::Resume => Word::Resume,
            Self::Plan { .. } => Word::Plan,
            Self::Unplan => Word::Unplan,
        }
    }

    /// The texts that follow the head: the id of a hold, a `META`, a reason and a user, or the name of a
    /// policy.
    #[inline]
    pub fn texts(&self) -> [Option<&'a [u8]>; 2] {
        match *self {
            Self::Check { recorded: Recorded::Held(hold), meta, .. } => {
                [Some(hold.id), meta.map(|meta| meta.text)]
            }
            Self::Check { meta, .. } => [meta.map(|meta| meta.text), None],
            Self::Set { reason, user, .. } => [Some(reason), user],
            Self::Settle { id: text, .. }
            | Self::Renew { id: text, .. }
            | Self::Pause { reason: text, .. }
            | Self::Plan { name: text, .. } => [Some(text), None],
            Self::Refund { .. }
            | Self::Lapse
            | Self::Reset
            | Self::Unblock
            | Self::Unexempt
            | Self::Resume
            | Self::Unplan => [None, None],
        }
    }

    /// The keyspace event, on a primary and on its replicas.
    pub const fn event(&self) -> Option<&'static CStr> {
        match self.word() {
            Word::Ban => Some(BAN_EVENT),
            Word::Block => Some(c"rl.block"),
            Word::Exempt => Some(c"rl.exempt"),
            Word::Unblock => Some(c"rl.unblock"),
            Word::Unexempt => Some(c"rl.unexempt"),
            Word::Pause => Some(c"rl.pause"),
            Word::Resume => Some(c"rl.resume"),
            Word::Plan => Some(c"rl.plan"),
            Word::Unplan => Some(c"rl.unplan"),
            Word::Admit | Word::Charge | Word::Pass | Word::Deny | Word::Refuse | Word::Hold => {
                None
            }
            Word::Settle | Word::Renew | Word::Refund | Word::Lapse | Word::Reset => None,
        }
    }
}

impl Effect<'_> {
    /// Does to a limiter what the primary did to its limiter. The rules and the costs are those
    /// that came with the effect.
    pub fn perform(&self, rules: &[Rule], named: &[NamedCost], limiter: &mut Limiter) {
        match self.action {
            Action::Check { recorded, cost, meta } => {
                let (change, hold) = match recorded {
                    Recorded::Admitted => (Change::Admitted, None),
                    Recorded::Held(hold) => (Change::Admitted, Some(hold)),
                    Recorded::Charged => (Change::Charged, None),
                    Recorded::HistoryOnly(verdict) => (Change::HistoryOnly(verdict), None),
                };
                let options = CheckOptions { meta, hold, ..CheckOptions::default() };
                limiter.record(&Check::new(rules, cost, self.at_us).with(&options), change);
            }
            Action::Settle { id, settled } => {
                _ = limiter.settle(id, settled.map(|costs| costs.with(named)), self.at_us);
            }
            Action::Renew { id, end_us } => _ = limiter.renew(id, end_us, self.at_us),
            Action::Refund { units } => _ = limiter.refund(units, self.at_us, rules),
            Action::Lapse => limiter.lapse(self.at_us),
            Action::Reset => _ = limiter.reset(self.at_us),
            Action::Set { kind, until_us, ban, reason, user } => {
                let BanTerms { length_us, count } = ban.unwrap_or_default();
                let (ban_us, reason) = (NonZeroU64::new(length_us), reason.into());
                let author = user.map(|user| Author::new(self.at_us, user));
                limiter.set_ban(AccessEntry { kind, until_us, ban_us, reason, author }, count);
            }
            Action::Unblock => limiter.unblock(),
            Action::Unexempt => limiter.set_access(None),
            Action::Pause { until_us, reason } => {
                limiter.pause_until(until_us, self.at_us, reason);
            }
            Action::Resume => limiter.resume(),
            Action::Plan { until_us, name } => {
                // The reader has tested the name.
                if let Some(name) = Name::new(name) {
                    limiter.set_plan(Some(Plan { name, until_us }));
                }
            }
            Action::Unplan => limiter.set_plan(None),
        }
    }
}

#[cfg(test)]
mod tests;
