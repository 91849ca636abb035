//! Which parts of the arena are free: best fit, neighbours joined.

use std::collections::{BTreeMap, BTreeSet};

/// A part of the arena, in bytes; both figures are multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Free extents below `top`, in two orders, and the never used rest above it. What lies below
/// `start` is not for extents.
pub(super) struct Extents {
    by_offset: BTreeMap<u64, u64>,
    by_bytes: BTreeSet<(u64, u64)>,
    start: u64,
    top: u64,
    free_bytes: u64,
    bound: u64,
}

impl Extents {
    pub(super) fn new(start: u64, bound: u64) -> Self {
        Self {
            by_offset: BTreeMap::new(),
            by_bytes: BTreeSet::new(),
            start,
            top: start,
            free_bytes: 0,
            bound,
        }
    }

    /// The space that extents in use leave free; two of them that overlap are told.
    pub(super) fn around(
        start: u64,
        bound: u64,
        mut used: Vec<Extent>,
    ) -> Result<Self, (Extent, Extent)> {
        let mut extents = Self::new(start, bound);
        used.sort_unstable_by_key(|extent| extent.offset);
        for pair in used.windows(2) {
            if pair[0].offset + pair[0].bytes > pair[1].offset {
                return Err((pair[0], pair[1]));
            }
        }
        for extent in used {
            if extent.offset > extents.top {
                extents.insert(extents.top, extent.offset - extents.top);
            }
            extents.top = extent.offset + extent.bytes;
        }
        Ok(extents)
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Option<Extent> {
        if let Some(&(free, offset)) = self.by_bytes.range((bytes, 0)..).next() {
            self.remove(offset, free);
            if free > bytes {
                self.insert(offset + bytes, free - bytes);
            }
            return Some(Extent { offset, bytes });
        }
        if self.bound - self.top < bytes {
            return None;
        }
        let offset = self.top;
        self.top += bytes;
        Some(Extent { offset, bytes })
    }

    /// As [`allocate`](Self::allocate), at the lowest offset that has room, if that is below one.
    pub(super) fn allocate_below(&mut self, bytes: u64, below: u64) -> Option<Extent> {
        let mut free = self.by_offset.range(..below);
        let (&offset, &free) = free.find(|&(_, &free)| free >= bytes)?;
        self.remove(offset, free);
        if free > bytes {
            self.insert(offset + bytes, free - bytes);
        }
        Some(Extent { offset, bytes })
    }

    /// Whether an extent of so many bytes would be given out below the top.
    pub(super) fn has_free(&self, bytes: u64) -> bool {
        self.by_bytes.range((bytes, 0)..).next().is_some()
    }

    pub(super) fn release(&mut self, extent: Extent) {
        let Extent {
            mut offset,
            mut bytes,
        } = extent;
        debug_assert!(offset + bytes <= self.top);
        if let Some((&before, &length)) = self.by_offset.range(..offset).next_back() {
            debug_assert!(before + length <= offset, "extent released twice");
            if before + length == offset {
                self.remove(before, length);
                offset = before;
                bytes += length;
            }
        }
        if let Some(&length) = self.by_offset.get(&(offset + bytes)) {
            self.remove(offset + bytes, length);
            bytes += length;
        }
        if offset + bytes == self.top {
            self.top = offset;
        } else {
            self.insert(offset, bytes);
        }
    }

    /// The free extents below the top, and the part above it that may have been used before.
    pub(super) fn free(&self) -> impl Iterator<Item = Extent> {
        let above = Extent {
            offset: self.top,
            bytes: self.bound - self.top,
        };
        self.by_offset
            .iter()
            .map(|(&offset, &bytes)| Extent { offset, bytes })
            .chain(std::iter::once(above))
    }

    pub(super) fn top(&self) -> u64 {
        self.top
    }

    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// Bytes of free extents below the top.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(super) fn used(&self) -> u64 {
        self.top - self.start - self.free_bytes
    }

    fn insert(&mut self, offset: u64, bytes: u64) {
        self.by_offset.insert(offset, bytes);
        self.by_bytes.insert((bytes, offset));
        self.free_bytes += bytes;
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_bytes.remove(&(bytes, offset));
        self.free_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_neighbours_join_and_the_top_comes_down() {
        let mut extents = Extents::new(0, 100);
        let parts: Vec<_> = (0..5).map(|_| extents.allocate(20).unwrap()).collect();
        assert_eq!(extents.allocate(1), None);
        extents.release(parts[1]);
        extents.release(parts[3]);
        assert_eq!(extents.allocate(40), None);
        extents.release(parts[2]);
        assert_eq!(
            extents.allocate(60),
            Some(Extent {
                offset: 20,
                bytes: 60
            })
        );
        extents.release(Extent {
            offset: 20,
            bytes: 60,
        });
        extents.release(parts[4]);
        extents.release(parts[0]);
        assert_eq!((extents.top(), extents.used()), (0, 0));
    }

    #[test]
    fn smallest_fitting_extent_is_taken_first() {
        let mut extents = Extents::new(0, 1000);
        let large = extents.allocate(100).unwrap();
        extents.allocate(1).unwrap();
        let small = extents.allocate(30).unwrap();
        extents.allocate(1).unwrap();
        extents.release(large);
        extents.release(small);
        assert_eq!(extents.allocate(25).unwrap().offset, small.offset);
        assert_eq!(extents.used(), 27);
    }

    #[test]
    fn space_around_extents_in_use_is_free() {
        let at = |offset, bytes| Extent { offset, bytes };
        let mut extents = Extents::around(10, 100, vec![at(40, 10), at(20, 5)]).unwrap();
        assert_eq!((extents.used(), extents.top()), (15, 50));
        assert_eq!(extents.allocate(15).unwrap(), at(25, 15));
        assert_eq!(extents.allocate(10).unwrap(), at(10, 10));
        assert_eq!(extents.allocate(50).unwrap(), at(50, 50));
        assert_eq!(extents.allocate(1), None);
        let overlap = Extents::around(0, 100, vec![at(40, 10), at(35, 6)]);
        assert_eq!(overlap.err(), Some((at(35, 6), at(40, 10))));
    }
}
