//! A bare bucket table: one cache line holds ten tags and ten places.
//!
//! ```text
//! byte  0          20      22     24                   64
//!       | tag16 x10 | passed | -- | place32 x10         |
//! ```
//!
//! A key's home bucket and its tag come from different bits of one hash. A full bucket passes the
//! key on to its neighbour and counts that in `passed`; a search goes on only while that count is not
//! zero. At six keys a bucket on average, one bucket in twenty passes any.
#![expect(
    unsafe_code,
    reason = "the bare table reads buckets at numbers it made itself"
)]

use bytemuck::{Pod, Zeroable};

use super::prefetch;
use crate::failure::Failure;
use crate::region::Region;

/// Entries of a bucket.
const WAYS: usize = 10;

/// Average keys a bucket: a load of 0.6.
const KEYS_PER_BUCKET: usize = 6;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Bucket {
    // Zero marks an empty entry.
    tags: [u16; WAYS],
    passed: u16,
    spare: u16,
    places: [u32; WAYS],
}

/// Where a key starts, and its tag.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Home {
    bucket: u32,
    tag: u16,
}

/// Tags and places of keys that are stored elsewhere.
pub(super) struct Buckets {
    buckets: Region<Bucket>,
}

impl Buckets {
    /// Room for `keys` keys.
    pub(super) fn new(keys: usize) -> Result<Self, Failure> {
        Ok(Self {
            buckets: Region::new(keys.div_ceil(KEYS_PER_BUCKET).max(2))?,
        })
    }

    #[inline(always)]
    pub(super) fn home(&self, key: u64) -> Home {
        let wide = u128::from(key ^ 0x2D35_8DCC_AA6C_78A5) * 0x8BB8_4B93_962E_ACC9;
        let hash = (wide as u64) ^ ((wide >> 64) as u64);
        Home {
            bucket: (((hash >> 32) * self.buckets.len() as u64) >> 32) as u32,
            tag: (hash as u16).max(1),
        }
    }

    /// The key's home; its bucket is prefetched.
    #[inline(always)]
    pub(super) fn ask(&self, key: u64) -> Home {
        let home = self.home(key);
        prefetch::line(self.buckets.as_ptr().wrapping_add(home.bucket as usize));
        home
    }

    /// The first place with the key's tag in its home bucket: most likely the key's.
    #[inline(always)]
    pub(super) fn candidate(&self, home: Home) -> u32 {
        let bucket = self.bucket(home.bucket);
        let matches = bucket.matches(home.tag);
        // Without a match any place will do: it is a hint.
        bucket.places[(matches.trailing_zeros() as usize).min(WAYS - 1)]
    }

    /// The key's bucket, entry and place; `is_key` looks at the key stored at a place.
    #[inline(always)]
    pub(super) fn find(&self, home: Home, is_key: impl Fn(u32) -> bool) -> Option<Found> {
        let mut number = home.bucket;
        loop {
            let bucket = self.bucket(number);
            let mut matches = bucket.matches(home.tag);
            while matches != 0 {
                let entry = matches.trailing_zeros() as usize;
                if is_key(bucket.places[entry]) {
                    return Some(Found {
                        bucket: number,
                        entry,
                        place: bucket.places[entry],
                    });
                }
                matches &= matches - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            number = self.neighbour(number);
        }
    }

    /// Stores a place under a home that was searched before; no key twice is the caller's duty.
    #[inline(always)]
    pub(super) fn insert(&mut self, home: Home, place: u32) {
        let mut number = home.bucket;
        loop {
            let next = self.neighbour(number);
            let bucket = self.bucket_mut(number);
            let empty = bucket.matches(0);
            if empty != 0 {
                let entry = empty.trailing_zeros() as usize;
                bucket.tags[entry] = home.tag;
                bucket.places[entry] = place;
                return;
            }
            bucket.passed += 1;
            number = next;
        }
    }

    /// Takes out what `find` found from the same home.
    #[inline(always)]
    pub(super) fn remove(&mut self, home: Home, found: Found) {
        let mut number = home.bucket;
        while number != found.bucket {
            self.bucket_mut(number).passed -= 1;
            number = self.neighbour(number);
        }
        self.bucket_mut(number).tags[found.entry] = 0;
    }

    pub(super) fn clear(&mut self) {
        self.buckets.fill(Bucket::zeroed());
    }

    #[inline(always)]
    fn neighbour(&self, number: u32) -> u32 {
        let next = number + 1;
        if next as usize == self.buckets.len() {
            0
        } else {
            next
        }
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> &Bucket {
        debug_assert!((number as usize) < self.buckets.len());
        // SAFETY: numbers come from `home`, which scales to the table's length, and `neighbour`.
        unsafe { &*self.buckets.as_ptr().add(number as usize) }
    }

    #[inline(always)]
    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        debug_assert!((number as usize) < self.buckets.len());
        // SAFETY: as in `bucket`; the table is borrowed exclusively.
        unsafe { &mut *self.buckets.as_mut_ptr().add(number as usize) }
    }
}

/// Where a key was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    bucket: u32,
    entry: usize,
    /// The place stored there.
    pub(super) place: u32,
}

impl Bucket {
    /// One bit for every entry with this tag.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{
                __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
                _mm_set1_epi16,
            };
            let first = self.tags.as_ptr();
            // SAFETY: both reads stay inside the ten tags (entries 0 to 7 and 2 to 9); SSE2 is part
            // of the base instruction set.
            unsafe {
                let wanted = _mm_set1_epi16(tag.cast_signed());
                let low = _mm_cmpeq_epi16(_mm_loadu_si128(first.cast::<__m128i>()), wanted);
                let high = _mm_cmpeq_epi16(_mm_loadu_si128(first.add(2).cast::<__m128i>()), wanted);
                let bits = _mm_movemask_epi8(_mm_packs_epi16(low, high)).cast_unsigned();
                (bits & 0xFF) | ((bits >> 14) << 8)
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.tags.iter().enumerate().fold(0, |bits, (entry, held)| {
            bits | (u32::from(*held == tag) << entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::key_of;

    #[test]
    fn every_entry_of_a_bucket_is_matched_by_its_own_tag_only() {
        let mut bucket = Bucket::zeroed();
        for entry in 0..WAYS {
            bucket.tags[entry] = 100 + entry as u16;
        }
        for entry in 0..WAYS {
            assert_eq!(bucket.matches(100 + entry as u16), 1 << entry);
        }
        assert_eq!(bucket.matches(0), 0);
    }

    #[test]
    fn an_overfull_table_still_finds_every_key_and_forgets_the_removed() {
        let mut table = Buckets::new(60).unwrap();
        let keys: Vec<u64> = (0..95).map(key_of).collect();
        for (place, key) in keys.iter().enumerate() {
            table.insert(table.home(*key), place as u32);
        }
        for (place, key) in keys.iter().enumerate() {
            let home = table.home(*key);
            let found = table.find(home, |at| keys[at as usize] == *key).unwrap();
            assert_eq!(found.place as usize, place);
            if place % 2 == 0 {
                table.remove(home, found);
            }
        }
        for (place, key) in keys.iter().enumerate() {
            let home = table.home(*key);
            let found = table.find(home, |at| keys[at as usize] == *key);
            assert_eq!(found.is_some(), place % 2 == 1);
        }
        for place in (1..keys.len()).step_by(2) {
            let home = table.home(keys[place]);
            let found = table.find(home, |at| at as usize == place).unwrap();
            table.remove(home, found);
        }
        assert!(table.buckets.iter().all(|bucket| bucket.passed == 0));
    }
}
