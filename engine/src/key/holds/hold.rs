//! A hold: what a check was charged, stored so that it can be corrected.
//!
//! ```text
//! Hold, 56 bytes: | id, up to 22 bytes in place | end, REFUND | its one charge, or -> charges |
//! ```

use super::least::Position;
use crate::algorithm::{Excess, Needs, PackedWindow, not_before_us};
use crate::heap::HeapVisitor;
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, Name, NamedCost};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::slice;

/// A hold of a key.
#[derive(Clone, Debug)]
pub struct Hold {
    id: Id,
    /// When it lapses, in Unix microseconds. The flag [`REFUND`] says that the lapse gives its charges
    /// back.
    end: u64,
    charges: Charges,
}

const _: () = assert!(size_of::<Hold>() == 56);

/// The highest bit of a hold's end.
const REFUND: u64 = 1 << 63;

/// What a hold was charged on one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The state's time when it was charged, Unix microseconds.
    pub stamp_us: u64,
    pub units: u32,
    /// The rule's limit, at which a debt drains; for a log, the largest limit of the log rules.
    pub limit: u32,
    pub detail: Detail,
    /// The number of its state's track, see `track`.
    pub track: TrackNumber,
    /// True if it took the check's default cost.
    pub by_default: bool,
    /// True if the rule was a shadow, which adds no debt beyond the capacity.
    pub shadow: bool,
}

/// The number of a track among those of a key's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackNumber(pub u16);

impl TrackNumber {
    /// The number for a charge whose state is gone, and for a state without holds.
    pub const NONE: Self = Self(u16::MAX);
}

/// Data that only charges of some algorithms have, in 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail(u32);

impl Detail {
    /// For a token bucket: where the hold's least debt is stored. `None` if nothing was consumed,
    /// or for a charge without further data.
    pub const fn least(position: Option<Position>) -> Self {
        match position {
            Some(position) => Self(position.0),
            None => Self(u32::MAX),
        }
    }

    pub const fn position(self) -> Option<Position> {
        if self.0 == u32::MAX { None } else { Some(Position(self.0)) }
    }

    /// For a log: the longest window of the hold's log rules.
    pub fn window(us: u64) -> Self {
        Self(PackedWindow::new(us).0)
    }

    pub fn window_us(self) -> u64 {
        PackedWindow(self.0).micros()
    }

    /// For a leaky bucket: its turn, in milliseconds after its stamp.
    pub fn turn(ms: u64) -> Self {
        Self(u32::try_from(ms).unwrap_or(u32::MAX))
    }

    pub const fn turn_ms(self) -> u32 {
        self.0
    }
}

impl Charge {
    /// What the request cost beyond this charge, if it really cost `cost`.
    pub fn excess(&self, cost: u32) -> Excess {
        let (units, limit) = (cost.saturating_sub(self.units), self.limit);
        // The hold does not store whether its log rules count denials. This assumes that one of
        // them does not: the log then keeps at least as much as it needs.
        let needs = Needs { window_us: self.detail.window_us(), units: limit, admitted: true };
        Excess { units, limit, shadow: self.shadow, needs }
    }

    /// The request's real cost on this state.
    pub fn settled(&self, settlement: Settlement<Costs<'_>>, names: &[Name]) -> u32 {
        match settlement {
            Settlement::AsCharged => self.units,
            Settlement::Refund => 0,
            Settlement::Cost(Costs { default, named }) => {
                let by_name = named.iter().find(|named| names.contains(&named.name));
                let default = default.filter(|_| self.by_default);
                by_name.map(|named| named.cost).or(default).unwrap_or(self.units)
            }
        }
    }
}

/// The charges of a hold, nearly always exactly one.
#[derive(Clone, Debug)]
enum Charges {
    One(Charge),
    Several(Box<[Charge]>),
    OfNamedLogRules(Box<OfNamedLogRules>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfNamedLogRules {
    charges: Box<[Charge]>,
    /// The names of the log rules, which share one unnamed state.
    log_names: Box<[Name]>,
}

/// An id, stored inline if it is short.
#[derive(Clone, Debug)]
pub enum Id {
    Short { len: u8, bytes: [u8; Self::SHORT] },
    Long(Box<[u8]>),
}

impl Id {
    const SHORT: usize = 22;

    pub fn new(id: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match (bytes.get_mut(..id.len()), u8::try_from(id.len())) {
            (Some(short), Ok(len)) => {
                short.copy_from_slice(id);
                Self::Short { len, bytes }
            }
            _ => Self::Long(id.into()),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(id) => id,
        }
    }

    /// Visits the heap allocation, if there is one.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        if let Self::Long(id) = self {
            to.slice(id);
        }
    }
}

impl Hold {
    /// A hold with its charges, and the names of the check's log rules.
    pub fn new(request: HoldRequest<'_>, charges: Vec<Charge>, log_names: Vec<Name>) -> Self {
        let charges = match (charges.as_slice(), log_names.is_empty()) {
            (&[charge], true) => Charges::One(charge),
            (_, true) => Charges::Several(charges.into_boxed_slice()),
            (_, false) => Charges::OfNamedLogRules(Box::new(OfNamedLogRules {
                charges: charges.into_boxed_slice(),
                log_names: log_names.into_boxed_slice(),
            })),
        };
        let refund = if request.refund { REFUND } else { 0 };
        Self { id: Id::new(request.id), end: request.end_us & !REFUND | refund, charges }
    }

    pub fn id(&self) -> &[u8] {
        self.id.as_bytes()
    }

    /// When it lapses, Unix microseconds.
    pub const fn end_us(&self) -> u64 {
        self.end & !REFUND
    }

    pub const fn set_end_us(&mut self, end_us: u64) {
        self.end = end_us & !REFUND | self.end & REFUND;
    }

    /// True if its charges are given back when it lapses.
    pub const fn refunds(&self) -> bool {
        self.end & REFUND != 0
    }

    /// True if it has reached its end at `now_us`. A hold can also lapse before its end, if the clock
    /// steps back: see `living`.
    pub const fn has_ended(&self, now_us: u64) -> bool {
        self.end_us() <= now_us
    }

    pub fn charges(&self) -> &[Charge] {
        match &self.charges {
            Charges::One(charge) => slice::from_ref(charge),
            Charges::Several(charges) => charges,
            Charges::OfNamedLogRules(named) => &named.charges,
        }
    }

    pub fn charges_mut(&mut self) -> &mut [Charge] {
        match &mut self.charges {
            Charges::One(charge) => slice::from_mut(charge),
            Charges::Several(charges) => charges,
            Charges::OfNamedLogRules(named) => &mut named.charges,
        }
    }

    /// The names of the log rules it was taken under.
    pub fn log_names(&self) -> &[Name] {
        match &self.charges {
            Charges::One(_) | Charges::Several(_) => &[],
            Charges::OfNamedLogRules(named) => &named.log_names,
        }
    }

    /// The number of rules it was taken under. Each charge counts as one rule, but the charge on a
    /// log counts as one for each name of its log rules.
    pub fn rules(&self) -> u32 {
        let more_names = self.log_names().len().saturating_sub(1);
        u32::try_from(self.charges().len().saturating_add(more_names)).unwrap_or(u32::MAX)
    }

    /// The largest charge on any state, in units.
    pub fn units(&self) -> u32 {
        self.charges().iter().map(|charge| charge.units).max().unwrap_or(0)
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        self.id.visit_heap(to);
        match &mut self.charges {
            Charges::One(_) => {}
            Charges::Several(charges) => to.slice(charges),
            Charges::OfNamedLogRules(named) => {
                to.boxed(named);
                to.slice(&mut named.charges);
                to.slice(&mut named.log_names);
            }
        }
    }
}

/// The `HOLD` of a check before the time of the check is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOption<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// How long it lasts from the time of the check: 1 ms ..= [`MAX_PERIOD_US`].
    pub hold_us: u64,
    /// Whether the charges come back when the hold lapses.
    pub refund: bool,
}

impl<'a> HoldOption<'a> {
    /// The hold that a check at this time asks for.
    pub const fn at(self, now_us: u64) -> HoldRequest<'a> {
        HoldRequest { id: self.id, end_us: hold_end_us(self.hold_us, now_us), refund: self.refund }
    }
}

/// The end of a hold that is taken or renewed at this time.
pub const fn hold_end_us(hold_us: u64, now_us: u64) -> u64 {
    let end_us = now_us.saturating_add(hold_us);
    if end_us < MAX_END_US { end_us } else { MAX_END_US }
}

/// The latest end of a hold or of a ban: the longest period after the latest time.
pub const MAX_END_US: u64 = MAX_TIME_US.saturating_add(MAX_PERIOD_US);

/// The `HOLD` of a check: the hold to take if the check is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// 1 ..= [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// When the hold lapses unless it is settled first, Unix microseconds.
    pub end_us: u64,
    /// True if its charges are given back when it lapses.
    pub refund: bool,
}

impl HoldRequest<'_> {
    /// How long the hold lasts if it is taken or renewed at `now_us`.
    pub(crate) fn length_from(&self, now_us: u64) -> Length {
        Length::new(self.end_us.saturating_sub(now_us))
    }
}

/// The longest id of a hold, in bytes.
pub const MAX_ID: usize = 64;

/// How settling a hold corrects what it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement<C> {
    /// The charge stands.
    AsCharged,
    /// The charge is given back.
    Refund,
    /// The real cost of the request, which may be more or less than its charge. The charge of a rule
    /// with `cost=` stands, unless the cost names the rule.
    Cost(C),
}

/// What a request with a hold really cost; charges without a new cost stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs<'a> {
    /// For charges of the default cost.
    pub default: Option<u32>,
    /// For charges of rules with these names; names that the hold lacks are ignored.
    pub named: &'a [NamedCost],
}

impl<C> Settlement<C> {
    /// The settlement with another cost, if it has a cost.
    pub fn map<D>(self, cost: impl FnOnce(C) -> D) -> Settlement<D> {
        match self {
            Self::AsCharged => Settlement::AsCharged,
            Self::Refund => Settlement::Refund,
            Self::Cost(given) => Settlement::Cost(cost(given)),
        }
    }
}

impl Costs<'_> {
    /// These costs, with costs by name.
    pub const fn with(self, named: &[NamedCost]) -> Costs<'_> {
        Costs { default: self.default, named }
    }
}

/// A hold's index in the rows. It changes when another hold ends.
pub type Row = u16;

/// An item in the order of ends: the row of a hold, which stores its end, and the hold's length.
#[derive(Clone, Copy, Debug)]
pub struct Lapse {
    pub row: Row,
    pub length: Length,
}

const _: () = assert!(size_of::<Lapse>() == 6);

/// How long a hold lasts from when it was set or last renewed. The [`PackedWindow`] is exact for a
/// hold of up to 24 days, and rounds up to a second beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length([u16; 2]);

impl Length {
    pub fn new(us: u64) -> Self {
        let PackedWindow(packed) = PackedWindow::new(us.min(MAX_PERIOD_US));
        let [a, b, c, d] = packed.to_ne_bytes();
        Self([u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])])
    }

    pub fn micros(self) -> u64 {
        let [[a, b], [c, d]] = self.0.map(u16::to_ne_bytes);
        PackedWindow(u32::from_ne_bytes([a, b, c, d])).micros()
    }

    /// True if a hold of this length that ends at `end_us` lives at `now_us`.
    pub fn lives(self, end_us: u64, now_us: u64) -> bool {
        (not_before_us(end_us, self.micros())..end_us).contains(&now_us)
    }
}
