//! Which parts of the arena are free: best fit, neighbours joined.

use std::collections::{BTreeMap, BTreeSet};

/// A part of the arena, in bytes; both figures are multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Free extents below `top`, in two orders, and the never used rest above it.
pub(super) struct Extents {
    by_offset: BTreeMap<u64, u64>,
    by_bytes: BTreeSet<(u64, u64)>,
    top: u64,
    free_bytes: u64,
    bound: u64,
}

impl Extents {
    pub(super) fn new(bound: u64) -> Self {
        Self {
            by_offset: BTreeMap::new(),
            by_bytes: BTreeSet::new(),
            top: 0,
            free_bytes: 0,
            bound,
        }
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

    pub(super) fn used(&self) -> u64 {
        self.top - self.free_bytes
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
        let mut extents = Extents::new(100);
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
        let mut extents = Extents::new(1000);
        let large = extents.allocate(100).unwrap();
        extents.allocate(1).unwrap();
        let small = extents.allocate(30).unwrap();
        extents.allocate(1).unwrap();
        extents.release(large);
        extents.release(small);
        assert_eq!(extents.allocate(25).unwrap().offset, small.offset);
        assert_eq!(extents.used(), 27);
    }
}
