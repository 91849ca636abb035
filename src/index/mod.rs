//! The unique hash index: from a 64-bit key to a slot, one cache line a probe.
//!
//! # Shape
//! ```text
//! hash   63 .................. 32 | 31 ............... 0
//!        | place: directory, then |  shard choice, tag  |
//!        |        bucket          |   (low 16 bits)     |
//!
//! bucket | tag 16 x 10 | slot 32 x 10 | displaced 16 | reach 16 |   64 bytes, one line
//! ```
//! The index stores no keys: a tag that matches is a candidate, whose key is read in its row, which
//! the caller is about to touch anyway. A *segment* is up to [`SEGMENT_BUCKETS_MAX`] buckets in one
//! extent; the directory, an array indexed by the top bits of the place, names the segments
//! (extendible hashing: Fagin, Nievergelt, Pippenger, Strong, TODS 1979).
//!
//! # Overflow
//! A key whose bucket is full goes to one of the next buckets of its segment. Its home bucket
//! counts such keys and remembers how far the farthest one went, so a search reads past its first
//! line only where it must. Segments grow at [`KEYS_PER_BUCKET_TENTHS`] / 10 keys a bucket, where 4 % of the
//! buckets overflow.
//!
//! # Growth
//! One segment at a time, by a quarter, and from a certain size by splitting in two, so the longest
//! insert re-places some ten thousand keys, however large the index. The place of a key grows
//! monotonically with its hash: a bucket's keys move to one or two neighbouring buckets.
//!
//! # What is absent on purpose
//! Growth in one stop, keys, pointers into rows. Removal never moves another key.

mod bucket;
mod check;
mod segment;
mod tidy;

#[cfg(test)]
mod test;

use crate::arena::{Arena, Entry as UsedExtent};
use crate::error::ArenaFull;
use segment::{Range, Segment};

/// Keys that a bucket holds on average before its segment grows: 6.2 of 10.
const KEYS_PER_BUCKET_TENTHS: u64 = 62;

/// Keys a bucket when a size is asked for beforehand.
const KEYS_PER_BUCKET_PRESIZED_TENTHS: u64 = 58;

/// Buckets of the first segment of an index of unknown size.
const SEGMENT_BUCKETS_MIN: u32 = 4;

/// A segment larger than this is split instead: 128 KiB.
const SEGMENT_BUCKETS_MAX: u32 = 2048;

/// Directory bits at most. Hashes of distinct keys are distinct and spread evenly, so this is far
/// beyond any table; a set of keys chosen to share their hash's top bits gets one large segment
/// instead of a large directory.
const DEPTH_MAX: u32 = 24;

/// Where the keys are: the rows of the table. A slot that never was, as a damaged file may name one,
/// has none.
pub(crate) trait Keys {
    /// Whether a row that the index refers to has the key that is looked for.
    fn is(&self, slot: u32, key: u64) -> bool;
    /// The key of a row that the index refers to, with its hash.
    fn probe(&self, slot: u32) -> Option<Probe>;
    /// Starts reading that key's memory.
    fn prefetch(&self, slot: u32);
}

/// A unique index.
pub(crate) struct HashIndex {
    /// `1 << depth` entries; neighbours may name the same segment.
    directory: Vec<Entry>,
    segments: Vec<Segment>,
    /// The serial of the table.
    owner: u32,
    depth: u32,
    bytes: u64,
}

/// What a probe needs of a segment, copied out so that it costs one line.
#[derive(Clone, Copy)]
struct Entry {
    segment: u32,
    /// Directory bits that this segment's keys share.
    depth: u32,
    buckets: segment::Buckets,
}

/// A key and its hash.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) key: u64,
    hash: u64,
}

impl Probe {
    /// A probe for a key.
    #[inline(always)]
    pub(crate) fn new(key: u64) -> Self {
        let hash = crate::id::hash(key);
        Self { key, hash }
    }

    /// A probe for a key of another kind, known by its hash: whoever looks for it has it at hand.
    #[inline(always)]
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self { key: hash, hash }
    }

    #[inline(always)]
    fn place(self) -> u32 {
        (self.hash >> 32) as u32
    }

    #[inline(always)]
    fn tag(self) -> u16 {
        (self.hash as u16).max(1)
    }
}

/// Where a key's bucket was when it was asked for: good for a guess, whatever has happened since.
#[derive(Clone, Copy)]
pub(crate) struct Hint {
    bucket: segment::BucketAddress,
    tag: u16,
}

/// Where a key that is not there belongs.
pub(crate) struct Vacancy {
    segment: u32,
    buckets: segment::Buckets,
    home: u32,
}

impl HashIndex {
    /// An index with room for `keys_expected`, growing beyond it as needed, of the table with the
    /// serial `owner`.
    pub(crate) fn new(
        arena: &mut Arena,
        owner: u32,
        keys_expected: u64,
    ) -> Result<Self, ArenaFull> {
        let buckets = (keys_expected * 10)
            .div_ceil(KEYS_PER_BUCKET_PRESIZED_TENTHS)
            .max(u64::from(SEGMENT_BUCKETS_MIN));
        let depth = buckets
            .div_ceil(u64::from(SEGMENT_BUCKETS_MAX))
            .next_power_of_two()
            .trailing_zeros();
        let count = buckets.div_ceil(1 << depth) as u32;
        let asked_bytes = buckets.saturating_mul(64);
        let (used_bytes, bound_bytes) = (arena.used_bytes(), arena.bound_bytes());
        if asked_bytes > bound_bytes - used_bytes {
            return Err(ArenaFull {
                asked_bytes,
                used_bytes,
                bound_bytes,
                is_disk: false,
            });
        }
        let mut index = Self {
            directory: Vec::new(),
            segments: Vec::new(),
            owner,
            depth,
            bytes: 0,
        };
        for number in 0..1_u64 << depth {
            let prefix = ((number << 32) >> depth) as u32;
            // No catalog names the index yet: it need not be there at once.
            if arena.is_scope_long() {
                arena.end_scope();
            }
            match Segment::new(arena, owner, Range { prefix, depth }, count) {
                Ok(segment) => index.add(segment),
                Err(full) => {
                    index.release(arena);
                    return Err(full);
                }
            }
        }
        Ok(index)
    }

    /// The index that extents of an opened arena hold; none, if they cannot be one.
    pub(crate) fn open(arena: &Arena, owner: u32, extents: &[UsedExtent]) -> Option<Self> {
        let mut segments: Vec<Segment> = extents
            .iter()
            .map(|&entry| Segment::open(arena, entry))
            .collect::<Option<_>>()?;
        segments.sort_unstable_by_key(|segment| segment.range().prefix);
        // Together they serve every place, once, or a damaged file would ask for a vast directory.
        let span = |segment: &Segment| 1_u64 << (DEPTH_MAX - segment.range().depth);
        if segments.iter().map(span).sum::<u64>() != 1 << DEPTH_MAX {
            return None;
        }
        let depth = segments.iter().map(|segment| segment.range().depth).max()?;
        let mut index = Self {
            directory: Vec::with_capacity(1 << depth),
            segments: Vec::new(),
            owner,
            depth,
            bytes: 0,
        };
        for segment in segments {
            let Range { prefix, depth } = segment.range();
            // Each begins where the one before it ends.
            if (u64::from(prefix) << index.depth) >> 32 != index.directory.len() as u64 {
                return None;
            }
            let span = 1 << (index.depth - depth);
            let entry = index.entry_of(&segment);
            index.directory.resize(index.directory.len() + span, entry);
            index.bytes += segment.bytes();
            index.segments.push(segment);
        }
        (index.directory.len() == 1 << index.depth).then_some(index)
    }

    fn add(&mut self, segment: Segment) {
        self.bytes += segment.bytes();
        self.directory.push(self.entry_of(&segment));
        self.segments.push(segment);
    }

    /// The directory's entry of the segment that is added next.
    fn entry_of(&self, segment: &Segment) -> Entry {
        Entry {
            segment: self.segments.len() as u32,
            depth: segment.range().depth,
            buckets: segment.buckets(),
        }
    }

    /// Gives all memory back, of an index that no catalog names any more: it need not go at once.
    pub(crate) fn release(&mut self, arena: &mut Arena) {
        self.directory.clear();
        for segment in self.segments.drain(..) {
            segment.release_in_turn(arena);
        }
        self.bytes = 0;
    }

    /// Number of keys.
    #[cfg(test)]
    fn len(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.keys()))
            .sum()
    }

    /// The slots that the index names.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut slots = Vec::new();
        for segment in &self.segments {
            segment.buckets().drain(|_| {}, |slot| slots.push(slot));
        }
        slots
    }

    /// Bytes of buckets and directory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
            + (self.directory.capacity() * size_of::<Entry>()
                + self.segments.capacity() * size_of::<Segment>()) as u64
    }

    #[inline(always)]
    fn entry(&self, probe: Probe) -> Entry {
        // A shift by the full width is avoided by going through 64 bits.
        let at = (u64::from(probe.place()) << self.depth) >> 32;
        self.directory[at as usize]
    }

    /// Starts reading a key's bucket.
    #[inline(always)]
    pub(crate) fn ask(&self, probe: Probe) -> Hint {
        let Entry { buckets, depth, .. } = self.entry(probe);
        let bucket = buckets.address(buckets.home(probe.place(), depth));
        bucket.prefetch();
        Hint {
            bucket,
            tag: probe.tag(),
        }
    }

    /// The first slot whose tag matches, without asking for its key: right but for one in 9,000, so
    /// good enough to start reading the row. It may be any number if the index has changed.
    #[inline(always)]
    pub(crate) fn candidate(&self, hint: Hint) -> Option<u32> {
        // The arena keeps its memory as long as `self` may be used, whatever lies there now.
        hint.bucket.candidate(hint.tag)
    }

    /// The slot of a key.
    #[inline(always)]
    pub(crate) fn find(&self, probe: Probe, keys: &impl Keys) -> Option<u32> {
        self.seek(probe, keys).ok()
    }

    /// The slot of a key, or where it belongs.
    #[inline(always)]
    pub(crate) fn seek(&self, probe: Probe, keys: &impl Keys) -> Result<u32, Vacancy> {
        let Entry {
            segment,
            buckets,
            depth,
        } = self.entry(probe);
        let home = buckets.home(probe.place(), depth);
        match buckets.find(home, probe.tag(), |slot| keys.is(slot, probe.key)) {
            Some(found) => Ok(found.slot),
            None => Err(Vacancy {
                segment,
                buckets,
                home,
            }),
        }
    }

    /// Adds a key where it belongs.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        mut vacancy: Vacancy,
        slot: u32,
        keys: &impl Keys,
    ) -> Result<(), ArenaFull> {
        if self.segments[vacancy.segment as usize].is_full() {
            match self.grow(arena, probe, keys) {
                Ok(grown) => vacancy = grown,
                // Growth is for speed: what is over the bound finds room, until there is none at all.
                Err(full) => {
                    if self.segments[vacancy.segment as usize].is_packed() {
                        return Err(full);
                    }
                }
            }
        }
        while !vacancy
            .buckets
            .insert(vacancy.home, probe.tag(), slot, |at, bytes| {
                arena.before(at, bytes)
            })
        {
            vacancy = self.grow(arena, probe, keys)?;
        }
        self.segments[vacancy.segment as usize].count_up();
        Ok(())
    }

    /// Whether an entry of this key refers to `slot`.
    pub(crate) fn refers(&self, probe: Probe, slot: u32) -> bool {
        let Entry { buckets, depth, .. } = self.entry(probe);
        let home = buckets.home(probe.place(), depth);
        let found = buckets.find(home, probe.tag(), |candidate| candidate == slot);
        found.is_some()
    }

    /// Grows the segment of a key, if it is full, so that adding the key next cannot fail.
    pub(crate) fn make_room(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        keys: &impl Keys,
    ) -> Result<(), ArenaFull> {
        if self.segments[self.entry(probe).segment as usize].is_full() {
            self.grow_segment(arena, probe, keys)?;
        }
        Ok(())
    }

    /// Makes the entry that refers to `slot` refer to `next`; says whether there was one.
    pub(crate) fn rename(&mut self, arena: &mut Arena, probe: Probe, slot: u32, next: u32) -> bool {
        let Entry { buckets, depth, .. } = self.entry(probe);
        let home = buckets.home(probe.place(), depth);
        let before = |at, bytes| arena.before(at, bytes);
        buckets.rename(home, probe.tag(), slot, next, before)
    }

    /// Removes the entry that refers to `slot`; says whether there was one.
    #[inline(always)]
    pub(crate) fn remove(&mut self, arena: &mut Arena, probe: Probe, slot: u32) -> bool {
        let Entry {
            segment,
            buckets,
            depth,
        } = self.entry(probe);
        let home = buckets.home(probe.place(), depth);
        let before = |at, bytes| arena.before(at, bytes);
        let removed = buckets.remove(home, probe.tag(), slot, before);
        if removed {
            self.segments[segment as usize].count_down();
        }
        removed
    }

    /// Makes room in a key's segment; says where the key belongs now.
    #[cold]
    #[inline(never)]
    fn grow(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        keys: &impl Keys,
    ) -> Result<Vacancy, ArenaFull> {
        self.grow_segment(arena, probe, keys)?;
        let Entry {
            segment,
            buckets,
            depth,
        } = self.entry(probe);
        Ok(Vacancy {
            segment,
            buckets,
            home: buckets.home(probe.place(), depth),
        })
    }

    fn grow_segment(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        keys: &impl Keys,
    ) -> Result<(), ArenaFull> {
        let number = self.entry(probe).segment;
        let segment = &mut self.segments[number as usize];
        segment.count_keys();
        if !segment.is_full() {
            return Ok(());
        }
        let count = segment.buckets().count();
        let range = segment.range();
        let depth = range.depth;
        let larger = count + (count / 4).max(SEGMENT_BUCKETS_MIN);
        if larger <= SEGMENT_BUCKETS_MAX || depth >= DEPTH_MAX {
            let grown = Segment::new(arena, self.owner, range, larger)?;
            self.replace(arena, number, grown, None, probe, keys);
            return Ok(());
        }
        let half = larger.div_ceil(2);
        let (lower, upper) = range.halves();
        let low = Segment::new(arena, self.owner, lower, half)?;
        let high = match Segment::new(arena, self.owner, upper, half) {
            Ok(high) => high,
            Err(full) => {
                low.release(arena);
                return Err(full);
            }
        };
        if depth == self.depth {
            self.directory = self
                .directory
                .iter()
                .flat_map(|&entry| [entry, entry])
                .collect();
            self.depth += 1;
        }
        self.replace(arena, number, low, Some(high), probe, keys);
        Ok(())
    }

    /// Moves a segment's keys to its successors and names those in the directory.
    fn replace(
        &mut self,
        arena: &mut Arena,
        number: u32,
        mut low: Segment,
        mut high: Option<Segment>,
        probe: Probe,
        keys: &impl Keys,
    ) {
        let old_depth = self.segments[number as usize].range().depth;
        let split_bit = 31_u32.saturating_sub(old_depth);
        self.segments[number as usize].buckets().drain(
            |slot| keys.prefetch(slot),
            |slot| {
                let Some(moved) = keys.probe(slot) else {
                    return;
                };
                let upper = high.is_some() && moved.place() >> split_bit & 1 == 1;
                let target = if upper {
                    high.as_mut().unwrap_or(&mut low)
                } else {
                    &mut low
                };
                let home = target.buckets().home(moved.place(), target.range().depth);
                let is_in = target.buckets().insert(home, moved.tag(), slot, |_, _| {});
                debug_assert!(is_in, "a new segment has more room than the old one");
                target.count_up();
            },
        );
        for segment in std::iter::once(&low).chain(&high) {
            segment.tell(arena);
        }
        let span = 1_usize << (self.depth - old_depth);
        let first = ((u64::from(probe.place()) << self.depth) >> 32) as usize & !(span - 1);
        let low_span = if high.is_some() { span / 2 } else { span };
        self.bytes += low.bytes();
        self.name(first..first + low_span, number, &low);
        let old = std::mem::replace(&mut self.segments[number as usize], low);
        self.bytes -= old.bytes();
        old.release(arena);
        if let Some(high) = high {
            let number = self.segments.len() as u32;
            self.bytes += high.bytes();
            self.name(first + low_span..first + span, number, &high);
            self.segments.push(high);
        }
    }

    fn name(&mut self, range: std::ops::Range<usize>, number: u32, segment: &Segment) {
        self.directory[range].fill(Entry {
            segment: number,
            depth: segment.range().depth,
            buckets: segment.buckets(),
        });
    }
}
