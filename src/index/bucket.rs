//! A bucket: ten tags and ten slots in one cache line.

#![expect(
    unsafe_code,
    reason = "tags are compared eight at a time with vector instructions"
)]

/// Entries of a bucket.
pub(super) const BUCKET_ENTRIES: usize = 10;

/// Tag 0 marks a free entry; tags in use are never 0.
#[repr(C, align(64))]
pub(super) struct Bucket {
    tags: [u16; BUCKET_ENTRIES],
    slots: [u32; BUCKET_ENTRIES],
    /// Keys of this bucket that had to go elsewhere.
    displaced: u16,
    /// How many buckets farther the farthest of them went.
    reach: u16,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// One bit for each entry with this tag.
    #[inline(always)]
    pub(super) fn matches(&self, tag: u16) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{
                __m128i, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16,
                _mm_set1_epi16,
            };
            let line = std::ptr::from_ref(self).cast::<__m128i>();
            // SAFETY: SSE2 is part of x86-64; both loads lie within the 64-byte, 64-aligned bucket.
            let mask = unsafe {
                let wanted = _mm_set1_epi16(tag.cast_signed());
                let low = _mm_cmpeq_epi16(_mm_load_si128(line), wanted);
                let high = _mm_cmpeq_epi16(_mm_load_si128(line.add(1)), wanted);
                _mm_movemask_epi8(_mm_packs_epi16(low, high))
            };
            mask.cast_unsigned() & ((1 << BUCKET_ENTRIES) - 1)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self.tags
                .iter()
                .rev()
                .fold(0, |mask, &other| mask << 1 | u32::from(other == tag))
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, entry: usize) -> u32 {
        self.slots[entry]
    }

    pub(super) fn tag(&self, entry: usize) -> u16 {
        self.tags[entry]
    }

    pub(super) fn displaced(&self) -> u16 {
        self.displaced
    }

    #[inline(always)]
    pub(super) fn reach(&self) -> u16 {
        self.reach
    }

    /// A free entry, if there is one.
    #[inline(always)]
    pub(super) fn vacancy(&self) -> Option<usize> {
        let free = self.matches(0);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Takes a free entry.
    #[inline(always)]
    pub(super) fn set(&mut self, entry: usize, tag: u16, slot: u32) {
        self.tags[entry] = tag;
        self.slots[entry] = slot;
    }

    /// Where in a bucket the tag of an entry is.
    pub(super) const fn tag_offset(entry: usize) -> usize {
        std::mem::offset_of!(Self, tags) + entry * size_of::<u16>()
    }

    /// Where in a bucket the slot of an entry is.
    pub(super) const fn slot_offset(entry: usize) -> usize {
        std::mem::offset_of!(Self, slots) + entry * size_of::<u32>()
    }

    /// Where in a bucket its overflow is counted, in one word.
    pub(super) const OVERFLOW_OFFSET: usize = std::mem::offset_of!(Self, displaced);

    #[inline(always)]
    pub(super) fn clear(&mut self, entry: usize) {
        self.tags[entry] = 0;
    }

    /// Notes that a key of this bucket went `distance` buckets farther.
    #[inline(always)]
    pub(super) fn displace(&mut self, distance: u16) {
        self.displaced = self.displaced.saturating_add(1);
        self.reach = self.reach.max(distance);
    }

    /// Notes that a displaced key is gone.
    #[inline(always)]
    pub(super) fn replace_one(&mut self) {
        self.displaced = self.displaced.saturating_sub(1);
        if self.displaced == 0 {
            self.reach = 0;
        }
    }

    /// Entries in use.
    pub(super) fn len(&self) -> u32 {
        BUCKET_ENTRIES as u32 - self.matches(0).count_ones()
    }

    /// The slots in use.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.tags
            .iter()
            .zip(&self.slots)
            .filter(|(tag, _)| **tag != 0)
            .map(|(_, &slot)| slot)
    }
}
