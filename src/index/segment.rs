//! A segment: a run of buckets in one extent, and the keys of one range of hashes.

#![expect(unsafe_code, reason = "buckets lie in arena memory")]

use std::ptr::NonNull;

use super::KEYS_PER_BUCKET_TENTHS;
use super::bucket::{BUCKET_ENTRIES, Bucket};
use crate::arena::{Arena, Extent};
use crate::error::ArenaFull;

/// How many keys ahead of their re-placing their rows are asked for.
const MOVE_DISTANCE: usize = 32;

pub(super) struct Segment {
    extent: Extent,
    buckets: Buckets,
    depth: u32,
    keys: u32,
    keys_max: u32,
}

impl Segment {
    pub(super) fn new(arena: &mut Arena, count: u32, depth: u32) -> Result<Self, ArenaFull> {
        debug_assert!(count > 0);
        let extent = arena.allocate(count as usize * size_of::<Bucket>())?;
        let first = arena.address(extent).cast::<Bucket>();
        // SAFETY: the extent is ours, page-aligned, and long enough for `count` buckets; all zeros is an empty bucket.
        unsafe { first.write_bytes(0, count as usize) };
        let keys_max = (u64::from(count) * KEYS_PER_BUCKET_TENTHS / 10) as u32;
        Ok(Self {
            extent,
            buckets: Buckets { first, count },
            depth,
            keys: 0,
            keys_max,
        })
    }

    pub(super) fn release(self, arena: &mut Arena) {
        arena.release(self.extent);
    }

    pub(super) fn buckets(&self) -> Buckets {
        self.buckets
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn bytes(&self) -> u64 {
        self.extent.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.keys_max
    }

    pub(super) fn count_up(&mut self) {
        self.keys += 1;
    }

    pub(super) fn count_down(&mut self) {
        self.keys -= 1;
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

    /// Puts an entry into its home bucket, or the next one with room. The segment is never full.
    #[inline(always)]
    pub(super) fn insert(mut self, home: u32, tag: u16, slot: u32) {
        let mut number = home;
        let mut distance = 0;
        while !self.bucket_mut(number).insert(tag, slot) {
            number = self.next(number);
            distance += 1;
            debug_assert!(distance < self.count, "a segment grows before it is full");
        }
        if distance > 0 {
            self.bucket_mut(home)
                .displace(u16::try_from(distance).unwrap_or(u16::MAX));
        }
    }

    #[inline(always)]
    pub(super) fn remove(mut self, home: u32, tag: u16, slot: u32) -> bool {
        let Some(found) = self.find(home, tag, |candidate| candidate == slot) else {
            return false;
        };
        self.bucket_mut(found.bucket).clear(found.entry);
        if found.bucket != home {
            self.bucket_mut(home).replace_one();
        }
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
