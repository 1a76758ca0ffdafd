//! Entries as bytes: each is the low bytes of its time, in a ring.

/// Bytes of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// Spans of up to 71 minutes.
    #[default]
    Four = 0,
    /// Up to 12.7 days.
    Five = 1,
    /// Up to 8.9 years, longer than any window.
    Six = 2,
    /// Any time.
    Eight = 3,
}

impl Width {
    /// The narrowest width at which all times within this span differ.
    pub const fn for_span(us: u64) -> Self {
        match us >> 32 {
            0 => Self::Four,
            1..=0xFF => Self::Five,
            0x100..=0xFFFF => Self::Six,
            _ => Self::Eight,
        }
    }

    /// The width with this code, which [`Self::code`] returned.
    #[inline]
    pub const fn of_code(code: u64) -> Self {
        match code & Self::CODES {
            0 => Self::Four,
            1 => Self::Five,
            2 => Self::Six,
            _ => Self::Eight,
        }
    }

    /// The bits that a code uses.
    pub const CODES: u64 = 3;

    #[inline]
    pub const fn code(self) -> u64 {
        self as u64
    }

    pub const fn bytes(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Five => 5,
            Self::Six => 6,
            Self::Eight => 8,
        }
    }
}

/// The entries of a ring, of `W` bytes each.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a, const W: usize> {
    /// A whole number of entries, so none wraps around the end.
    pub ring: &'a [u8],
    /// Where in the ring the oldest entry begins.
    pub front: usize,
    /// The time of the newest entry.
    pub newest_us: u64,
}

impl<const W: usize> Entries<'_, W> {
    /// How much older an entry is than the newest.
    #[inline(always)]
    pub fn age(&self, index: u32) -> u64 {
        let start = position(self.ring.len(), self.front, index, W);
        let low = self.ring.get(start..).and_then(<[u8]>::first_chunk::<W>);
        self.newest_us.wrapping_sub(low.map_or(self.newest_us, widened)) & mask(W)
    }
}

/// A mask of the low bytes of a time that an entry stores.
#[inline(always)]
pub const fn mask(width: usize) -> u64 {
    match width {
        4 => u32::MAX as u64,
        5 => (1 << 40) - 1,
        6 => (1 << 48) - 1,
        _ => u64::MAX,
    }
}

/// The byte at which an entry begins, or at which the next entry will begin. `front + index * width`
/// cannot overflow; the position wraps only at the end of the ring.
#[inline(always)]
pub fn position(ring: usize, front: usize, index: u32, width: usize) -> usize {
    let position = front.wrapping_add((index as usize).wrapping_mul(width));
    if position >= ring { position.wrapping_sub(ring) } else { position }
}

/// Writes the low bytes of a time as an entry.
#[inline(always)]
pub fn write<const W: usize>(ring: &mut [u8], start: usize, time_us: u64) {
    let low = time_us.to_le_bytes();
    let entry = ring.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<W>);
    if let (Some(entry), Some(low)) = (entry, low.first_chunk::<W>()) {
        *entry = *low;
    }
}

#[inline(always)]
fn widened<const W: usize>(low: &[u8; W]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(start) = bytes.first_chunk_mut::<W>() {
        *start = *low;
    }
    u64::from_le_bytes(bytes)
}

/// Evaluates an expression with the width in bytes as a constant.
macro_rules! at_width {
    ($width:expr, $bytes:ident => $body:expr) => {
        match $width {
            Width::Four => at_width!($bytes = 4, $body),
            Width::Five => at_width!($bytes = 5, $body),
            Width::Six => at_width!($bytes = 6, $body),
            Width::Eight => at_width!($bytes = 8, $body),
        }
    };
    ($bytes:ident = $width:literal, $body:expr) => {{
        const $bytes: usize = $width;
        $body
    }};
}
pub(crate) use at_width;
