//! A segment: a run of buckets in one extent, and the keys of one range of hashes.

#![expect(unsafe_code, reason = "buckets lie in arena memory")]

mod check;

use std::ptr::NonNull;

use super::bucket::{BUCKET_ENTRIES, Bucket};
use super::{DEPTH_MAX, KEYS_PER_BUCKET_TENTHS};
use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;

/// How many keys ahead of their re-placing their rows are asked for.
const MOVE_DISTANCE: usize = 32;

pub(super) struct Segment {
    extent: Extent,
    buckets: Buckets,
    range: Range,
    /// Keys, or a number above [`KEYS_KNOWN_MAX`] if nobody has counted them yet.
    keys: u32,
    keys_max: u32,
}

/// The places that a segment serves: those that begin with the first `depth` bits of `prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) prefix: u32,
    pub(super) depth: u32,
}

/// No segment has more keys than that.
const KEYS_KNOWN_MAX: u32 = u32::MAX / 2;

/// Buckets of one segment at most, so that their number fits what the ledger keeps beside the depth.
const COUNT_MAX: u32 = 1 << 24;

impl Range {
    /// The lower and the upper half.
    pub(super) fn halves(self) -> (Self, Self) {
        let depth = self.depth + 1;
        let half = |prefix| Self { prefix, depth };
        (half(self.prefix), half(self.prefix | 1 << (32 - depth)))
    }
}

impl Segment {
    pub(super) fn new(
        arena: &mut Arena,
        owner: u32,
        range: Range,
        count: u32,
    ) -> Result<Self, ArenaFull> {
        debug_assert!(count > 0 && count < COUNT_MAX);
        let use_ = ExtentUse::new(owner, ExtentKind::Segment, range.prefix);
        let use_ = use_.detail(count << 8 | range.depth);
        let extent = arena.allocate(count as usize * size_of::<Bucket>(), use_)?;
        let first = arena.address(extent).cast::<Bucket>();
        // SAFETY: the extent is ours, page-aligned, and long enough for `count` buckets; all zeros is an empty bucket.
        unsafe { first.write_bytes(0, count as usize) };
        arena.fresh(first.cast(), count as usize * size_of::<Bucket>());
        Ok(Self::at(arena, extent, range, count, 0))
    }

    fn at(arena: &Arena, extent: Extent, range: Range, count: u32, keys: u32) -> Self {
        let first = arena.address(extent).cast();
        let keys_max = (u64::from(count) * KEYS_PER_BUCKET_TENTHS / 10) as u32;
        Self {
            extent,
            buckets: Buckets { first, count },
            range,
            keys,
            keys_max,
        }
    }

    /// The segment that an extent of an opened arena holds, if it can be one.
    pub(super) fn open(arena: &Arena, entry: Entry) -> Option<Self> {
        let Entry { extent, use_ } = entry;
        let (count, depth) = (use_.detail >> 8, use_.detail & 0xff);
        let prefix = use_.number;
        let bytes =
            (u64::from(count) * size_of::<Bucket>() as u64).next_multiple_of(PAGE_BYTES as u64);
        let is_sound = count > 0
            && extent.bytes == bytes
            && depth <= DEPTH_MAX
            && (u64::from(prefix) << depth) as u32 == 0;
        let range = Range { prefix, depth };
        is_sound.then(|| Self::at(arena, extent, range, count, u32::MAX))
    }

    /// Counts the keys, if nobody has yet.
    pub(super) fn count_keys(&mut self) {
        if self.keys > KEYS_KNOWN_MAX {
            self.keys = self.keys();
        }
    }

    /// The keys, counted.
    pub(super) fn keys(&self) -> u32 {
        let buckets = 0..self.buckets.count;
        buckets
            .map(|number| self.buckets.bucket(number).len())
            .sum()
    }

    pub(super) fn release(self, arena: &mut Arena) {
        arena.release(self.extent);
    }

    /// As [`release`](Self::release), of one of many that need not go at once.
    pub(super) fn release_in_turn(self, arena: &mut Arena) {
        arena.release_in_turn(self.extent);
    }

    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Takes note that it was moved.
    pub(super) fn settle(&mut self, arena: &Arena, extent: Extent) {
        self.extent = extent;
        self.buckets.first = arena.address(extent).cast();
    }

    pub(super) fn buckets(&self) -> Buckets {
        self.buckets
    }

    pub(super) fn range(&self) -> Range {
        self.range
    }

    pub(super) fn bytes(&self) -> u64 {
        self.extent.bytes
    }

    /// Whether it has to grow, or at least to be counted, before it takes another key.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.keys_max
    }

    /// Whether it is so full that searches would suffer: nine entries of ten.
    pub(super) fn is_packed(&self) -> bool {
        u64::from(self.keys()) * 10 >= u64::from(self.buckets.count) * BUCKET_ENTRIES as u64 * 9
    }

    /// Tells that its buckets were filled.
    pub(super) fn tell(&self, arena: &mut Arena) {
        let bytes = self.buckets.count as usize * size_of::<Bucket>();
        arena.fresh(self.buckets.first.cast(), bytes);
    }

    pub(super) fn count_up(&mut self) {
        self.keys = self.keys.saturating_add(1);
    }

    pub(super) fn count_down(&mut self) {
        self.keys = self.keys.saturating_sub(1);
    }
}

/// The address of a segment's buckets. Copies live in the directory and nowhere else; they are
/// replaced there before the segment's extent is released, which is what makes every access valid.
#[derive(Clone, Copy)]
pub(super) struct Buckets {
    first: NonNull<Bucket>,
    count: u32,
}

/// Where a bucket is, or was: the segment may have been released since. The arena's memory stays
/// mapped for the life of the index, so reading it is harmless, and any bytes make a bucket.
#[derive(Clone, Copy)]
pub(super) struct BucketAddress(NonNull<Bucket>);

impl BucketAddress {
    #[inline(always)]
    pub(super) fn prefetch(self) {
        crate::arena::prefetch(self.0.as_ptr().cast());
    }

    /// The slot of the first entry with this tag.
    #[inline(always)]
    pub(super) fn candidate(self, tag: u16) -> Option<u32> {
        // SAFETY: see the type; the index's owner is on this thread, so nobody writes meanwhile.
        let bucket = unsafe { self.0.as_ref() };
        let matches = bucket.matches(tag);
        (matches != 0).then(|| bucket.slot(matches.trailing_zeros() as usize))
    }
}

/// A key's entry.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) slot: u32,
    bucket: u32,
    entry: usize,
}

impl Buckets {
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// The bucket that a place belongs to: its fraction of the segment's range.
    #[inline(always)]
    pub(super) fn home(self, place: u32, depth: u32) -> u32 {
        let fraction = (u64::from(place) << depth) as u32;
        ((u64::from(fraction) * u64::from(self.count)) >> 32) as u32
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> &Bucket {
        debug_assert!(number < self.count);
        // SAFETY: the number is below the count, and the segment lives (see the type).
        unsafe { self.first.add(number as usize).as_ref() }
    }

    #[inline(always)]
    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        debug_assert!(number < self.count);
        // SAFETY: as above; the index is borrowed mutably by every caller, so no other reference exists.
        unsafe { self.first.add(number as usize).as_mut() }
    }

    #[inline(always)]
    fn next(self, number: u32) -> u32 {
        if number + 1 == self.count {
            0
        } else {
            number + 1
        }
    }

    #[inline(always)]
    pub(super) fn address(self, number: u32) -> BucketAddress {
        debug_assert!(number < self.count);
        // SAFETY: the number is below the count.
        BucketAddress(unsafe { self.first.add(number as usize) })
    }

    /// The entry with this tag whose slot is the one meant.
    #[inline(always)]
    pub(super) fn find(
        self,
        home: u32,
        tag: u16,
        mut is_meant: impl FnMut(u32) -> bool,
    ) -> Option<Found> {
        let reach = self.bucket(home).reach();
        let mut number = home;
        for _ in 0..=reach {
            let bucket = self.bucket(number);
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let entry = matches.trailing_zeros() as usize;
                let slot = bucket.slot(entry);
                if is_meant(slot) {
                    return Some(Found {
                        slot,
                        bucket: number,
                        entry,
                    });
                }
                matches &= matches - 1;
            }
            number = self.next(number);
        }
        None
    }

    /// Where in memory a part of a bucket is.
    #[inline(always)]
    fn part(self, number: u32, offset: usize) -> NonNull<u8> {
        debug_assert!(number < self.count && offset < size_of::<Bucket>());
        // SAFETY: the number is below the count, and the offset within a bucket.
        unsafe { self.first.add(number as usize).cast::<u8>().add(offset) }
    }

    /// Puts an entry into its home bucket, or the next one with room; `before` is told what changes.
    /// False, and nothing is changed, if the segment is full to the last entry: it grows long before,
    /// unless its file is damaged.
    #[inline(always)]
    pub(super) fn insert(
        mut self,
        home: u32,
        tag: u16,
        slot: u32,
        mut before: impl FnMut(NonNull<u8>, usize),
    ) -> bool {
        let mut number = home;
        let mut distance = 0;
        let entry = loop {
            if let Some(entry) = self.bucket(number).vacancy() {
                break entry;
            }
            number = self.next(number);
            distance += 1;
            if distance == self.count {
                return false;
            }
        };
        before(
            self.part(number, Bucket::tag_offset(entry)),
            size_of::<u16>(),
        );
        before(
            self.part(number, Bucket::slot_offset(entry)),
            size_of::<u32>(),
        );
        self.bucket_mut(number).set(entry, tag, slot);
        if distance > 0 {
            before(self.part(home, Bucket::OVERFLOW_OFFSET), size_of::<u32>());
            self.bucket_mut(home)
                .displace(u16::try_from(distance).unwrap_or(u16::MAX));
        }
        true
    }

    #[inline(always)]
    pub(super) fn remove(
        mut self,
        home: u32,
        tag: u16,
        slot: u32,
        mut before: impl FnMut(NonNull<u8>, usize),
    ) -> bool {
        let Some(found) = self.find(home, tag, |candidate| candidate == slot) else {
            return false;
        };
        before(
            self.part(found.bucket, Bucket::tag_offset(found.entry)),
            size_of::<u16>(),
        );
        self.bucket_mut(found.bucket).clear(found.entry);
        if found.bucket != home {
            before(self.part(home, Bucket::OVERFLOW_OFFSET), size_of::<u32>());
            self.bucket_mut(home).replace_one();
        }
        true
    }

    /// Gives the entry of a slot to another one.
    pub(super) fn rename(
        mut self,
        home: u32,
        tag: u16,
        slot: u32,
        next: u32,
        mut before: impl FnMut(NonNull<u8>, usize),
    ) -> bool {
        let Some(found) = self.find(home, tag, |candidate| candidate == slot) else {
            return false;
        };
        before(
            self.part(found.bucket, Bucket::slot_offset(found.entry)),
            size_of::<u32>(),
        );
        self.bucket_mut(found.bucket).set(found.entry, tag, next);
        true
    }

    /// Visits every slot, its row asked for [`MOVE_DISTANCE`] visits before.
    pub(super) fn drain(self, prefetch: impl Fn(u32), mut visit: impl FnMut(u32)) {
        let mut slots = Vec::with_capacity(self.count as usize * BUCKET_ENTRIES);
        for number in 0..self.count {
            slots.extend(self.bucket(number).slots());
        }
        for (at, &slot) in slots.iter().enumerate() {
            if let Some(&ahead) = slots.get(at + MOVE_DISTANCE) {
                prefetch(ahead);
            }
            visit(slot);
        }
    }
}
