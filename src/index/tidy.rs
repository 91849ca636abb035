//! Making an index small again, and moving its segments to lower offsets.

use super::segment::{Buckets, Segment};
use super::{HashIndex, KEYS_PER_BUCKET_PRESIZED_TENTHS, Keys, Probe, SEGMENT_BUCKETS_MIN};
use crate::arena::{Arena, Extent};

impl HashIndex {
    /// The extents that may move.
    pub(crate) fn movable(&self) -> impl Iterator<Item = Extent> {
        self.segments.iter().map(Segment::extent)
    }

    /// Moves a segment down, if the extent is one of ours and there is room; says whether it did.
    pub(crate) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        let mut segments = self.segments.iter();
        let Some(number) = segments.position(|segment| segment.extent() == extent) else {
            return false;
        };
        let Some(lower) = arena.sink(extent) else {
            return false;
        };
        self.segments[number].settle(arena, lower);
        let buckets: Buckets = self.segments[number].buckets();
        for entry in &mut self.directory {
            if entry.segment as usize == number {
                entry.buckets = buckets;
            }
        }
        true
    }

    /// Replaces segments that are less than half as full as they were made by smaller ones, where the
    /// arena need not grow for it.
    pub(crate) fn shrink(&mut self, arena: &mut Arena, keys: &impl Keys) {
        for number in 0..self.segments.len() {
            let segment = &mut self.segments[number];
            let (range, count) = (segment.range(), segment.buckets().count());
            let held = u64::from(segment.keys());
            let wanted = (held * 10 / KEYS_PER_BUCKET_PRESIZED_TENTHS + 1) as u32;
            let wanted = wanted.max(SEGMENT_BUCKETS_MIN);
            let bytes = wanted as usize * 64;
            if wanted > count / 2
                || segment.extent().bytes <= bytes as u64
                || !arena.has_free(bytes)
            {
                continue;
            }
            let Ok(small) = Segment::new(arena, self.owner, range, wanted) else {
                return;
            };
            // Any place of the segment's range will do.
            let probe = Probe::of_hash(u64::from(range.prefix) << 32);
            self.replace(arena, number as u32, small, None, probe, keys);
            if arena.is_scope_long() {
                arena.end_scope();
            }
        }
    }
}
