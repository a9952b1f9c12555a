//! Casts to narrow integers for values known to be small: indices of components and bounded sizes.

/// An index or count as 32 bits; a scenario's check keeps all of them far below.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the check of a scenario bounds every index")]
pub(crate) const fn id(index: usize) -> u32 {
    debug_assert!(index <= u32::MAX as usize);
    index as u32
}

/// A size as 32 bits, for sizes that a scenario's check keeps below 2^30.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the check of a scenario bounds every size")]
pub(crate) const fn narrow_size(bytes: u64) -> u32 {
    debug_assert!(bytes <= u32::MAX as u64);
    bytes as u32
}

/// A count as 16 bits, for counts that are known to be smaller.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "bursts are cut to fit")]
pub(crate) const fn narrow_count(count: u32) -> u16 {
    debug_assert!(count <= u16::MAX as u32);
    count as u16
}
