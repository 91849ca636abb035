//! A shard's heap: small blocks of its own, on its own NUMA node.
//!
//! # How it works
//!
//! A shard keeps its working structures (maps, undo, staging) in a [`Heap`], which collections
//! hold by value as their allocator. With the crate feature `mimalloc` a heap is a mimalloc heap
//! that may only allocate from one *region*: a reservation of address space that the kernel was
//! asked to back with memory of the shard's node. Without the feature it is the global allocator
//! behind the same door.
//!
//! The node is asked for as *preferred*, never as the only one: on a full node a preference takes
//! memory from another, where a strict binding has the process killed. What was asked and what
//! came of it is the heap's [`Placement`]; a heap works whatever it says.
//!
//! Regions are registered with mimalloc for ever, and only so many can be, so they belong to the
//! process: a heap borrows one from a pool and gives it back, emptied, when it ends (see
//! `region`). When the pool has none left, the heap uses the global allocator and says so.
//!
//! # What cannot go wrong
//!
//! - *A block outliving its heap.* Every collection holds a clone of the handle, and the heap
//!   ends with the last of them. A handle that is forgotten keeps its region for good.
//! - *Allocating from the wrong thread*, which corrupts a heap of mimalloc's version 2. A handle
//!   is neither `Send` nor `Sync`, and neither is a collection that holds one.
//! - *Growing without end.* A heap has a limit in bytes; beyond it, and when the region is full,
//!   `allocate` fails. So collections in a heap must `try_reserve` before they grow: the calls
//!   that cannot report failure abort the process.
//!
//! # What is absent on purpose
//!
//! No growing in place: mimalloc's `realloc` moves blocks out of their region. A block grows by
//! allocating, copying and freeing, which the limit counts as both at once. Blocks are not given
//! back to the system before the heap ends: a shard that freed memory will want it again.
#![expect(
    unsafe_code,
    reason = "an allocator hands out raw memory; mimalloc and mbind are C"
)]

#[cfg(feature = "mimalloc")]
mod region;
#[cfg(test)]
mod test;

use std::alloc::Layout;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;

use allocator_api2::alloc::{AllocError, Allocator, Global};

#[cfg(feature = "mimalloc")]
use self::region::RegionHeap;

/// A handle to a shard's heap. Clones share the heap, which ends with the last of them.
#[derive(Clone)]
pub(crate) struct Heap {
    /// `Rc` also keeps the handle on its thread.
    inner: Rc<Inner>,
}

/// Where the memory of a heap comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    dead_code,
    reason = "which variants occur depends on the feature `mimalloc`"
)]
pub(crate) enum Placement {
    /// A region of its own, for which the kernel prefers this node.
    Bound {
        /// Number of the node in the operating system.
        node: u32,
    },
    /// A region of its own; no node was asked for, so pages lie where they are first touched.
    FirstTouch,
    /// A region of its own, but the kernel did not accept the node: pages lie where they are
    /// first touched.
    NotBound {
        /// The node that was asked for.
        node: u32,
        /// Error number of the refused system call.
        errno: i32,
    },
    /// The global allocator: every region that may exist in this process is in use.
    PoolExhausted,
    /// The global allocator: the kernel gave no address space for a region.
    NoAddressSpace {
        /// Error number of the refused system call.
        errno: i32,
    },
    /// The global allocator: mimalloc would not allocate from a region, as in a build or under
    /// environment variables that rule it out.
    Refused,
    /// The global allocator: built without the feature `mimalloc`.
    Global,
}

struct Inner {
    source: Source,
    placement: Placement,
    bytes_max: usize,
    /// Sum of the sizes of all live blocks, never above `bytes_max`.
    bytes: Cell<usize>,
}

enum Source {
    #[cfg(feature = "mimalloc")]
    Region(RegionHeap),
    Global,
}

impl Heap {
    /// Opens a heap of at most `bytes_max` bytes in blocks, on `node` if one is given. To be
    /// called on the thread that will use it, after that thread was pinned.
    ///
    /// Never fails: [`Heap::placement`] tells what could be had.
    pub(crate) fn new(node: Option<u32>, bytes_max: usize) -> Self {
        let (source, placement) = Source::open(node, bytes_max);
        Self {
            inner: Rc::new(Inner {
                source,
                placement,
                bytes_max,
                bytes: Cell::new(0),
            }),
        }
    }

    /// Where the memory comes from.
    pub(crate) fn placement(&self) -> Placement {
        self.inner.placement
    }

    /// Bytes in live blocks, as asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.bytes.get()
    }

    /// Bytes that live blocks may have together.
    pub(crate) fn bytes_max(&self) -> usize {
        self.inner.bytes_max
    }

    /// Addresses of the region, if the heap has one; for reading back where its pages lie.
    #[cfg(test)]
    pub(crate) fn region(&self) -> Option<std::ops::Range<usize>> {
        match &self.inner.source {
            #[cfg(feature = "mimalloc")]
            Source::Region(heap) => Some(heap.addresses()),
            Source::Global => None,
        }
    }

    /// Takes a block from `source` if the limit allows it.
    #[inline]
    fn take(
        &self,
        layout: Layout,
        source: impl FnOnce(&Source) -> Result<NonNull<[u8]>, AllocError>,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let inner = &*self.inner;
        let bytes = inner.bytes.get();
        if layout.size() > inner.bytes_max - bytes {
            return Err(AllocError);
        }
        let block = source(&inner.source)?;
        inner.bytes.set(bytes + layout.size());
        Ok(block)
    }
}

// SAFETY: a block stays valid until it is freed or the last clone of the handle, and with it the
// heap, is gone; handles can be moved freely, as the heap is behind an `Rc`; clones share the
// heap, so a block may be freed through any of them.
unsafe impl Allocator for Heap {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, |source| match source {
            #[cfg(feature = "mimalloc")]
            Source::Region(heap) => heap.allocate(layout),
            Source::Global => Global.allocate(layout),
        })
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, |source| match source {
            #[cfg(feature = "mimalloc")]
            Source::Region(heap) => heap.allocate_zeroed(layout),
            Source::Global => Global.allocate_zeroed(layout),
        })
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let inner = &*self.inner;
        debug_assert!(layout.size() <= inner.bytes.get());
        inner.bytes.set(inner.bytes.get() - layout.size());
        match &inner.source {
            #[cfg(feature = "mimalloc")]
            // SAFETY: the caller vouches that the block is live and came from this heap with this
            // layout; a heap has one source for life.
            Source::Region(heap) => unsafe { heap.deallocate(block, layout) },
            // SAFETY: as above.
            Source::Global => unsafe { Global.deallocate(block, layout) },
        }
    }
}

impl Source {
    #[cfg(feature = "mimalloc")]
    fn open(node: Option<u32>, bytes_max: usize) -> (Self, Placement) {
        match RegionHeap::open(node, bytes_max) {
            Ok((heap, placement)) => (Self::Region(heap), placement),
            Err(placement) => (Self::Global, placement),
        }
    }

    #[cfg(not(feature = "mimalloc"))]
    fn open(_node: Option<u32>, _bytes_max: usize) -> (Self, Placement) {
        (Self::Global, Placement::Global)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Heap")
            .field("placement", &self.placement())
            .field("bytes", &self.bytes())
            .field("bytes_max", &self.bytes_max())
            .finish()
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bound { node } => write!(formatter, "bound to node {node}"),
            Self::FirstTouch => formatter.write_str("not bound (no node asked for)"),
            Self::NotBound { node, errno } => {
                write!(formatter, "not bound to node {node} ({})", Errno(errno))
            }
            Self::PoolExhausted => formatter.write_str("global allocator (pool exhausted)"),
            Self::NoAddressSpace { errno } => {
                write!(formatter, "global allocator ({})", Errno(errno))
            }
            Self::Refused => formatter.write_str("global allocator (region refused)"),
            Self::Global => formatter.write_str("global allocator (built without mimalloc)"),
        }
    }
}

/// Shows an error number by its name in the manual pages.
struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "EPERM",
            12 => "ENOMEM",
            13 => "EACCES",
            22 => "EINVAL",
            38 => "ENOSYS",
            number => return write!(formatter, "error {number}"),
        };
        formatter.write_str(name)
    }
}
