//! The memory layout of a series: the header, and the size of the ring behind it.

use super::entries::Width;
use super::needs::{PackedNeeds, PastNeeds};
use super::weights::Weights;
use crate::header_slice::HeaderSlice;
use crate::rule::MAX_TIME_US;
use alloc::{boxed::Box, vec::Vec};

/// Entries in time order, oldest first.
#[derive(Clone, Debug)]
pub struct Series {
    pub(super) ring: HeaderSlice<Head, u8>,
}

#[derive(Clone, Debug, Default)]
pub struct Head {
    pub newest: Newest,
    pub extras: Option<Box<Extras>>,
    /// The byte offset in the ring at which the oldest entry begins.
    pub front: u32,
    pub len: u32,
    /// The needs of the log that owns the series.
    pub needs: PackedNeeds,
}

/// Parts that only some series have: weights, and what a log stores besides its admitted requests.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    pub weights: Option<Weights>,
    /// Charged denials; see `log`.
    pub charged: Option<Series>,
    /// The needs of earlier checks; see `needs`.
    pub past: Vec<PastNeeds>,
}

/// The time of the newest entry, which every check reads, and the entries' width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest(u64);

impl Newest {
    const CODE_BITS: u32 = Width::CODES.count_ones();
    pub const MAX_US: u64 = u64::MAX >> Self::CODE_BITS;

    #[inline]
    pub const fn new(us: u64, width: Width) -> Self {
        Self(us << Self::CODE_BITS | width.code())
    }

    #[inline]
    pub const fn us(self) -> u64 {
        self.0 >> Self::CODE_BITS
    }

    #[inline]
    pub const fn width(self) -> Width {
        Width::of_code(self.0)
    }
}

const _: () = assert!(MAX_TIME_US <= Newest::MAX_US);

/// Bytes of the allocation before its ring.
pub const OVERHEAD: u32 = 36;

const _: () = assert!(HeaderSlice::<Head, u8>::OVERHEAD == OVERHEAD as usize);

/// Bytes of a ring for `entries` entries, rounded up so that the allocation fills one of the
/// allocator's size classes. These start at 64 bytes and rise in steps of 16, and from 128 on in four
/// steps per doubling.
pub fn ring_for(entries: u32, width: Width) -> u32 {
    let bytes = entries.saturating_mul(width.bytes()).saturating_add(OVERHEAD).max(64);
    let doubling = bytes.saturating_sub(1).checked_ilog2().unwrap_or(0);
    let step = 1u32 << doubling.saturating_sub(2).max(4);
    let class = bytes.checked_next_multiple_of(step).unwrap_or(u32::MAX);
    let room = class.saturating_sub(OVERHEAD);
    room.saturating_sub(room.checked_rem(width.bytes()).unwrap_or(0))
}
