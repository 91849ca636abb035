//! The regions of all heaps of the process, and the mimalloc heaps in them.
//!
//! mimalloc calls a region an *arena*. It has room for 132 of them in a process and no way to take
//! one out again, so an engine that is opened and closed a hundred times must not register a
//! hundred times. Regions therefore live in a pool: one that a heap gave back is emptied (its
//! pages go back to the system), bound anew, and lent to the next heap that it is large enough
//! for. Sizes are powers of two, so that few sizes exist and most regions fit most heaps; address
//! space is all that an idle region costs.
//!
//! Four properties of mimalloc's version 2 carry this, each held by a test:
//!
//! - a heap made in an *exclusive* arena allocates there or fails, and nobody else does;
//! - an arena declared *large* is never purged behind our back, so freed blocks stay resident;
//! - a heap made with leave to be destroyed gives back all its segments at once, even with live
//!   blocks in them, and takes over none from threads that ended;
//! - a heap is tied to the thread that made it, but an arena is not.

#![expect(unsafe_code, reason = "allocators are unsafe to implement and to call")]

#[cfg(test)]
mod test;

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use allocator_api2::alloc::AllocError;
use libmimalloc_sys as mimalloc;

use super::Placement;

/// Regions that may exist. mimalloc has 132 places, of which it wants some for itself, the more
/// so if the program made it the global allocator.
const REGIONS_MAX: usize = 96;

/// Segments, from which mimalloc cuts everything, have this size and alignment.
const SEGMENT_BYTES: usize = 32 << 20;

/// Nodes that fit the mask given to the kernel, which itself knows at most 1,024.
const NODES_MAX: usize = 1024;

/// What `Heap::new` tries first, to see that the heap lives where it should.
const PROBE_BYTES: usize = 64;

/// Of the kernel's memory policies: move pages that are there already.
const MPOL_MF_MOVE: c_int = 2;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: Vec::new(),
    registered: 0,
});

/// A mimalloc heap and the region that it alone allocates from.
pub(super) struct RegionHeap {
    /// Made on this thread, which it never leaves: the raw pointer makes this type neither `Send`
    /// nor `Sync`.
    heap: NonNull<mimalloc::mi_heap_t>,
    /// Lent from the pool; given back on drop.
    region: Region,
}

impl RegionHeap {
    /// Opens a heap with room for `bytes_max` bytes in blocks, or says why there can be none.
    pub(super) fn open(
        node: Option<u32>,
        bytes_max: usize,
    ) -> Result<(Self, Placement), Placement> {
        let region = pool(|pool| pool.lend(region_bytes(bytes_max)))?;
        let placement = region.bind(node);
        // SAFETY: the arena is registered. Tag 0 is the default; the heap may be destroyed with
        // live blocks in it.
        let heap = unsafe { mi_heap_new_ex(0, true, region.arena) };
        let Some(heap) = NonNull::new(heap) else {
            pool(|pool| pool.take_back(region));
            return Err(Placement::Refused);
        };
        let heap = Self { heap, region };
        if heap.serves_its_region() {
            Ok((heap, placement))
        } else {
            Err(Placement::Refused)
        }
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        self.region.start..self.region.start + self.region.bytes
    }

    #[inline]
    pub(super) fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty_block(layout));
        }
        // SAFETY: the heap is live, and we are on its thread; size and alignment come from a
        // layout, so the alignment is a power of two.
        let block = unsafe {
            mimalloc::mi_heap_malloc_aligned(self.heap.as_ptr(), layout.size(), layout.align())
        };
        block_of(block, layout)
    }

    #[inline]
    pub(super) fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty_block(layout));
        }
        // SAFETY: as in `allocate`.
        let block = unsafe {
            mimalloc::mi_heap_zalloc_aligned(self.heap.as_ptr(), layout.size(), layout.align())
        };
        block_of(block, layout)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// `block` must be live and come from this heap with this `layout`.
    #[inline]
    pub(super) unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller vouches for the block; one of no bytes was never mimalloc's.
            unsafe { mimalloc::mi_free(block.as_ptr().cast()) };
        }
    }

    /// Whether blocks come out of the region. Some builds of mimalloc and some of its environment
    /// variables rule that out.
    fn serves_its_region(&self) -> bool {
        let layout = Layout::new::<[u8; PROBE_BYTES]>();
        let Ok(block) = self.allocate(layout) else {
            return false;
        };
        let block = block.cast::<u8>();
        let inside = self.addresses().contains(&block.addr().get());
        // SAFETY: the block was allocated just now with this layout.
        unsafe { self.deallocate(block, layout) };
        inside
    }
}

impl Drop for RegionHeap {
    fn drop(&mut self) {
        // SAFETY: the heap is live, and we are on its thread, as this type cannot leave it. No
        // block is used any more: this runs when the last handle goes, and blocks are only good
        // while there is one.
        unsafe { mimalloc::mi_heap_destroy(self.heap.as_ptr()) };
        self.region.empty();
        pool(|pool| pool.take_back(self.region));
    }
}

/// Registered once, never unmapped. Copied about as plain numbers; the pool lends each to one
/// heap at a time.
#[derive(Clone, Copy)]
struct Region {
    arena: mimalloc::mi_arena_id_t,
    start: usize,
    bytes: usize,
}

impl Region {
    /// Reserves address space and registers it as an exclusive arena.
    fn register(bytes: usize) -> Result<Self, Placement> {
        let start = reserve(bytes).map_err(|errno| Placement::NoAddressSpace { errno })?;
        let mut arena = 0;
        // SAFETY: the range is ours, aligned to a segment, readable, writable and zero. Declared
        // committed and large: it needs no preparation and must not be purged. Of no node as far
        // as mimalloc is concerned: an exclusive arena is only used by its own heaps.
        let registered = unsafe {
            mimalloc::mi_manage_os_memory_ex(
                ptr::with_exposed_provenance(start),
                bytes,
                true,
                true,
                true,
                -1,
                true,
                &raw mut arena,
            )
        };
        if registered {
            return Ok(Self {
                arena,
                start,
                bytes,
            });
        }
        unmap(start, bytes);
        Err(Placement::PoolExhausted)
    }

    /// Asks the kernel to prefer `node` for the pages of this region, or, without a node, to take
    /// them from where they are first touched.
    fn bind(&self, node: Option<u32>) -> Placement {
        match node {
            None => {
                // No news is good news: this only forgets what an earlier heap may have asked.
                let _ = bind_range(self.start, self.bytes, libc::MPOL_DEFAULT, None);
                Placement::FirstTouch
            }
            Some(node) => {
                match bind_range(self.start, self.bytes, libc::MPOL_PREFERRED, Some(node)) {
                    Ok(()) => Placement::Bound { node },
                    Err(errno) => Placement::NotBound { node, errno },
                }
            }
        }
    }

    /// Gives all pages back to the system.
    fn empty(&self) {
        // SAFETY: the range is mapped, ours, and no block in it is used any more. mimalloc takes
        // memory that was used before for dirty, so it does not rely on the old contents.
        let status = unsafe {
            libc::madvise(
                ptr::with_exposed_provenance_mut(self.start),
                self.bytes,
                libc::MADV_DONTNEED,
            )
        };
        // Refused for memory that the program locked; the pages then stay, which harms nobody.
        debug_assert!(status == 0 || errno() == libc::EINVAL);
    }
}

struct Pool {
    idle: Vec<Region>,
    /// Regions in existence, idle or lent; at most `REGIONS_MAX`.
    registered: usize,
}

impl Pool {
    /// Lends the smallest idle region of at least `bytes`, or a new one.
    fn lend(&mut self, bytes: usize) -> Result<Region, Placement> {
        let idle = self.idle.iter().enumerate();
        let fitting = idle.filter(|(_, region)| region.bytes >= bytes);
        if let Some((place, _)) = fitting.min_by_key(|(_, region)| region.bytes) {
            return Ok(self.idle.swap_remove(place));
        }
        if self.registered == REGIONS_MAX {
            return Err(Placement::PoolExhausted);
        }
        let region = Region::register(bytes)?;
        self.registered += 1;
        Ok(region)
    }

    fn take_back(&mut self, region: Region) {
        debug_assert!(self.idle.len() < self.registered);
        self.idle.push(region);
    }
}

/// Runs `work` on the pool. It holds nothing but numbers that are right after every step, so a
/// thread that panicked in here did no harm.
fn pool<R>(work: impl FnOnce(&mut Pool) -> R) -> R {
    work(&mut POOL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Size of a region for `bytes_max` bytes in blocks. At worst, with blocks a little above half a
/// segment, mimalloc loses as much as it hands out; so the limit of the heap is reached first.
fn region_bytes(bytes_max: usize) -> usize {
    bytes_max
        .saturating_mul(2)
        .saturating_add(SEGMENT_BYTES)
        .checked_next_power_of_two()
        .unwrap_or(usize::MAX)
}

/// Maps `bytes` bytes at a multiple of the segment size, without claiming memory for them.
fn reserve(bytes: usize) -> Result<usize, i32> {
    let mapped = bytes.checked_add(SEGMENT_BYTES).ok_or(libc::ENOMEM)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(errno());
    }
    let mapping = address.expose_provenance();
    let start = mapping.next_multiple_of(SEGMENT_BYTES);
    unmap(mapping, start - mapping);
    unmap(start + bytes, mapping + mapped - (start + bytes));
    Ok(start)
}

/// Unmaps part of a mapping that `reserve` made and that nobody uses.
fn unmap(start: usize, bytes: usize) {
    if bytes != 0 {
        // SAFETY: as the callers see to, the range is ours and unused.
        let status = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), bytes) };
        debug_assert_eq!(status, 0, "unmapping failed with error {}", errno());
    }
}

/// Sets the memory policy of a range. There is no libc function for this system call.
fn bind_range(start: usize, bytes: usize, policy: c_int, node: Option<u32>) -> Result<(), i32> {
    let mut mask = [0_u64; NODES_MAX / 64];
    if let Some(node) = node {
        let word = mask.get_mut(node as usize / 64).ok_or(libc::EINVAL)?;
        *word |= 1 << (node % 64);
    }
    // The kernel reads one bit less than it is told.
    let (mask, bits) = match node {
        Some(_) => (mask.as_ptr(), NODES_MAX + 1),
        None => (ptr::null(), 0),
    };
    // SAFETY: the range is a mapping of ours, and the mask is as long as said. Pages that are
    // there already are moved, which no reader notices.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            policy,
            mask,
            bits,
            MPOL_MF_MOVE,
        )
    };
    if status == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A block of no bytes needs no memory, only an address of the right alignment.
fn empty_block(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(layout.dangling_ptr(), 0)
}

#[inline]
fn block_of(block: *mut c_void, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let block = NonNull::new(block.cast()).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, layout.size()))
}

unsafe extern "C" {
    /// mimalloc's full form of making a heap, which its Rust declarations leave out.
    fn mi_heap_new_ex(
        tag: c_int,
        allow_destroy: bool,
        arena: mimalloc::mi_arena_id_t,
    ) -> *mut mimalloc::mi_heap_t;
}
