//! One mapping: reserved, asked to be of huge pages, bound to a node, and read back.
//!
//! It is anonymous memory, or a file. A file grows before it is used: its blocks are asked of the
//! file system first, which may refuse, as a page that has no block ends the process when it is
//! touched.

#![expect(
    unsafe_code,
    reason = "address space and memory policy are system calls on raw memory"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::{fs, io, ptr};

use crate::limits::{HUGE_PAGE_BYTES, PAGE_BYTES};

/// What to reserve.
#[derive(Clone, Debug)]
pub(crate) struct MapOptions {
    /// Address space; rounded up to whole huge pages.
    pub(crate) bytes: u64,
    /// Operating-system number of the node to prefer.
    pub(crate) node: Option<u32>,
    /// Whether to ask for huge pages.
    pub(crate) huge_pages: bool,
}

/// The reservation was refused.
#[derive(Debug, thiserror::Error)]
#[error("the system refused to reserve {bytes} bytes of address space: {source}")]
pub(crate) struct MapError {
    pub(crate) bytes: u64,
    pub(crate) source: io::Error,
}

/// What the system answered to the request for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// No node was asked for.
    Unasked,
    /// The policy is set: pages come from this node while it has any.
    Preferred(u32),
    /// The system refused, with this error number.
    Denied { node: u32, errno: i32 },
}

/// Where touched pages are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// Sampled pages by node.
    pub(crate) by_node: BTreeMap<u32, u64>,
    /// Bytes in huge pages, over the whole mapping.
    pub(crate) huge_bytes: u64,
    /// Bytes present, over the whole mapping.
    pub(crate) resident_bytes: u64,
    /// Why pages could not be asked for, when they could not.
    pub(crate) error: Option<String>,
}

/// Pages that one read-back asks for at most; they are spread evenly.
const SAMPLE_PAGES_MAX: usize = 4096;

// From Linux's include/uapi/linux/mempolicy.h and mman-common.h.
const MPOL_PREFERRED: libc::c_long = 1;
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Changes go into the file.
    Shared,
    /// Changes stay in memory; the file is only read.
    Copy,
}

/// By how much a file grows at least.
const FILE_STEP_BYTES: u64 = 2 << 20;

pub(super) struct Map {
    whole: NonNull<u8>,
    whole_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
    binding: Binding,
    file: Option<MappedFile>,
    /// Bytes of a file that is only read.
    copied_bytes: Option<u64>,
    /// As much address space again, from which memory is moved into this mapping.
    shadow: Option<Box<Self>>,
}

/// The file below a mapping that grows.
struct MappedFile {
    file: File,
    /// Bytes that have blocks, or had.
    bytes: u64,
    /// Whether some of them may have been given back.
    has_holes: bool,
}

// SAFETY: a mapping is plain memory that goes where its owner goes.
unsafe impl Send for Map {}

impl Map {
    pub(super) fn new(options: &MapOptions) -> Result<Self, MapError> {
        let mut map = Self::reserve(options)?;
        map.prepare(options);
        Ok(map)
    }

    /// Maps a file from its beginning, with room to grow to `options.bytes`, or to its own length if
    /// that is more.
    pub(super) fn of_file(
        options: &MapOptions,
        file: File,
        access: Access,
    ) -> Result<Self, MapError> {
        let refused = |source| MapError {
            bytes: options.bytes,
            source,
        };
        let facts = file.metadata().map_err(refused)?;
        let bytes = facts.len();
        let options = MapOptions {
            bytes: options.bytes.max(bytes),
            ..options.clone()
        };
        let mut map = Self::reserve(&options)?;
        let (flags, mapped) = match access {
            Access::Shared => (libc::MAP_SHARED, map.bytes),
            Access::Copy => (libc::MAP_PRIVATE, bytes as usize),
        };
        // SAFETY: replaces a part of our own fresh reservation, which nobody uses yet.
        let address = unsafe {
            libc::mmap(
                map.base.as_ptr().cast(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        map.prepare(&options);
        // A child of a fork must not write into the file; it finds no memory there.
        map.advise(0, map.bytes, libc::MADV_DONTFORK);
        map.copied_bytes = (access == Access::Copy).then_some(bytes);
        #[cfg(test)]
        if access == Access::Shared {
            let address = map.whole.as_ptr().expose_provenance();
            let mapped = (address, map.whole_bytes, file.as_raw_fd());
            FILES.with_borrow_mut(|files| files.push(mapped));
        }
        map.file = (access == Access::Shared).then(|| MappedFile {
            file,
            bytes,
            has_holes: facts.blocks() * 512 < bytes,
        });
        Ok(map)
    }

    /// Has [`unmap_files`] take this mapping away, too, though it is of no file.
    #[cfg(test)]
    pub(super) fn end_with_process(&self) {
        let address = self.whole.as_ptr().expose_provenance();
        FILES.with_borrow_mut(|files| files.push((address, self.whole_bytes, -1)));
    }

    /// Makes sure that a range has memory. Only a file can refuse.
    pub(super) fn ensure(&mut self, offset: u64, bytes: u64) -> Result<(), io::Error> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let end = offset + bytes;
        if file.has_holes && offset < file.bytes {
            allocate(&file.file, offset, end.min(file.bytes) - offset)?;
        }
        if end > file.bytes {
            let whole = end.next_multiple_of(FILE_STEP_BYTES).min(self.bytes as u64);
            if allocate(&file.file, file.bytes, whole - file.bytes).is_err() {
                allocate(&file.file, file.bytes, end - file.bytes)?;
                file.bytes = end;
            } else {
                file.bytes = whole;
            }
        }
        Ok(())
    }

    /// Bytes of the file; of anonymous memory, all.
    pub(super) fn file_bytes(&self) -> u64 {
        let whole = self.copied_bytes.unwrap_or(self.bytes as u64);
        self.file.as_ref().map_or(whole, |file| file.bytes)
    }

    /// Waits until the first `bytes` of the file are on its disk.
    pub(super) fn sync(&self, bytes: u64) -> Result<(), io::Error> {
        if self.file.is_none() {
            return Ok(());
        }
        // SAFETY: the range is part of our own mapping.
        let result =
            unsafe { libc::msync(self.base.as_ptr().cast(), bytes as usize, libc::MS_SYNC) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where an address lies in the mapping.
    #[inline(always)]
    pub(super) fn offset(&self, address: NonNull<u8>) -> u64 {
        (address.addr().get() - self.base.addr().get()) as u64
    }

    fn reserve(options: &MapOptions) -> Result<Self, MapError> {
        let refused = |source| MapError {
            bytes: options.bytes,
            source,
        };
        let too_large = || refused(io::Error::from_raw_os_error(libc::ENOMEM));
        let bytes = usize::try_from(options.bytes)
            .ok()
            .and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES))
            .ok_or_else(too_large)?;
        let whole_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let whole = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if whole == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        let whole = NonNull::new(whole.cast::<u8>())
            .expect("the kernel never maps at address zero unasked");
        let skip = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is less than one huge page, by which the mapping is longer than `bytes`.
        let base = unsafe { whole.add(skip) };
        Ok(Self {
            whole,
            whole_bytes,
            base,
            bytes,
            binding: Binding::Unasked,
            file: None,
            copied_bytes: None,
            shadow: None,
        })
    }

    fn prepare(&mut self, options: &MapOptions) {
        let advice = if options.huge_pages {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // The advice is a wish; a kernel without huge pages refuses it, and the read-back shows it.
        self.advise(0, self.bytes, advice);
        self.bind(options.node);
    }

    /// Puts anonymous memory of the mapping's own kind in the place of a huge page of a mapped file, or of
    /// a part of one: with this content, but for pages that keep what is there. Without memory for that
    /// all stays as it is.
    pub(super) fn replace(&mut self, offset: usize, content: &[u8], keeps: impl Fn(usize) -> bool) {
        debug_assert!(offset.is_multiple_of(HUGE_PAGE_BYTES) && content.len() <= HUGE_PAGE_BYTES);
        if self.shadow.is_none() {
            let options = MapOptions {
                bytes: self.bytes as u64,
                node: match self.binding {
                    Binding::Preferred(node) => Some(node),
                    Binding::Unasked | Binding::Denied { .. } => None,
                },
                huge_pages: true,
            };
            self.shadow = Self::new(&options).ok().map(Box::new);
        }
        let Some(shadow) = &self.shadow else { return };
        // The rest of the huge page is of the mapping already, and stays.
        let bytes = content.len();
        let (from, to) = (shadow.address(offset), self.address(offset));
        for (page, content) in content.chunks(PAGE_BYTES).enumerate() {
            let at = page * PAGE_BYTES;
            // SAFETY: both mappings have the range; the shadow's is nobody's, and what is in this one is
            // only read.
            unsafe {
                let source = if keeps(page) {
                    to.add(at).as_ptr().cast_const()
                } else {
                    content.as_ptr()
                };
                from.add(at)
                    .as_ptr()
                    .copy_from_nonoverlapping(source, content.len());
            }
        }
        // SAFETY: moves memory of the shadow, which nobody uses, into this mapping, where the same bytes
        // were; whoever holds addresses of them finds them again.
        let moved = unsafe {
            libc::mremap(
                from.as_ptr().cast(),
                bytes,
                bytes,
                // Without the last one there would be a hole in the shadow, which others might get.
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
                to.as_ptr(),
            )
        };
        debug_assert!(moved == libc::MAP_FAILED || moved == to.as_ptr().cast());
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn binding(&self) -> &Binding {
        &self.binding
    }

    pub(super) fn address(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.bytes);
        // SAFETY: `offset` lies within the mapping, which starts at `base`.
        unsafe { self.base.add(offset) }
    }

    /// Returns the memory of the range's whole huge pages to the system. A huge page of which a part
    /// were returned would come back as small ones.
    pub(super) fn discard(&mut self, offset: usize, bytes: usize) {
        let start = offset.next_multiple_of(HUGE_PAGE_BYTES);
        let end = (offset + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if start >= end {
            return;
        }
        let Some(file) = &mut self.file else {
            self.advise(start, end - start, libc::MADV_DONTNEED);
            return;
        };
        let (start, end) = (start as u64, (end as u64).min(file.bytes));
        if start < end {
            file.has_holes |= punch(&file.file, start, end - start);
        }
    }

    /// Copies a range to another one, of which nothing is in use.
    pub(super) fn copy(&mut self, from: u64, to: u64, bytes: usize) {
        let (from, to) = (self.address(from as usize), self.address(to as usize));
        // SAFETY: both ranges lie in the mapping, by the caller's word apart, and `&mut self` excludes
        // readers.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
    }

    /// Cuts the file after the first `bytes`, in whole steps.
    pub(super) fn shorten(&mut self, bytes: u64) -> Result<(), io::Error> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let bytes = bytes.next_multiple_of(FILE_STEP_BYTES);
        if bytes < file.bytes {
            file.file.set_len(bytes)?;
            file.bytes = bytes;
        }
        Ok(())
    }

    /// Makes the range's pages present; of a file, as far as it reaches.
    pub(super) fn populate(&mut self, offset: usize, bytes: usize) {
        let bytes = bytes.min((self.file_bytes() as usize).saturating_sub(offset));
        // Whole huge pages at a time, so that the kernel can be interrupted and memory that runs
        // out leaves the rest for first touch.
        let mut at = offset;
        let end = offset + bytes;
        while at < end {
            let step = (HUGE_PAGE_BYTES - at % HUGE_PAGE_BYTES).min(end - at);
            if !self.advise(at, step, MADV_POPULATE_WRITE) {
                return;
            }
            at += step;
        }
    }

    fn advise(&mut self, offset: usize, bytes: usize, advice: libc::c_int) -> bool {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: the range is part of our own mapping; the advices used change no byte in use
        // (discarded ranges are free by the caller's word, `&mut self` keeps others out).
        unsafe { libc::madvise(self.address(offset).as_ptr().cast(), bytes, advice) == 0 }
    }

    fn bind(&mut self, node: Option<u32>) {
        let Some(node) = node else { return };
        let bits = libc::c_ulong::BITS;
        let mut mask = vec![0 as libc::c_ulong; (node / bits) as usize + 1];
        mask[(node / bits) as usize] = 1 << (node % bits);
        let mask_bits = mask.len() as u64 * u64::from(bits) + 1;
        // SAFETY: sets the policy of our own mapping; `mask` outlives the call and has `mask_bits - 1` bits.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                MPOL_PREFERRED,
                mask.as_ptr(),
                mask_bits,
                0,
            )
        };
        self.binding = match result {
            0 => Binding::Preferred(node),
            _ => Binding::Denied {
                node,
                errno: io::Error::last_os_error().raw_os_error().unwrap_or(0),
            },
        };
    }

    /// Asks the system where the pages of the first `used` bytes are.
    pub(super) fn pages(&self, used: usize) -> Pages {
        let mut pages = Pages::default();
        (pages.resident_bytes, pages.huge_bytes) = self.resident();
        let count = used / PAGE_BYTES;
        let step = count.div_ceil(SAMPLE_PAGES_MAX).max(1);
        let addresses: Vec<*mut u8> = (0..count)
            .step_by(step)
            .map(|page| self.address(page * PAGE_BYTES).as_ptr())
            .collect();
        if addresses.is_empty() {
            return pages;
        }
        let mut status = vec![0 as libc::c_int; addresses.len()];
        // SAFETY: with no target nodes the call only reports; both arrays have the stated length.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                addresses.len(),
                addresses.as_ptr(),
                ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if result != 0 {
            pages.error = Some(io::Error::last_os_error().to_string());
            return pages;
        }
        for node in status
            .into_iter()
            .filter_map(|node| u32::try_from(node).ok())
        {
            *pages.by_node.entry(node).or_default() += 1;
        }
        pages
    }

    /// Resident and huge bytes of the mapping, from the process's own memory map.
    fn resident(&self) -> (u64, u64) {
        let Ok(smaps) = fs::read_to_string("/proc/self/smaps") else {
            return (0, 0);
        };
        let ours = self.whole.as_ptr() as usize..self.whole.as_ptr() as usize + self.whole_bytes;
        let (mut resident, mut huge, mut inside) = (0, 0, false);
        for line in smaps.lines() {
            let kilobytes = |name: &str| -> Option<u64> {
                line.strip_prefix(name)?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse::<u64>()
                    .ok()
            };
            if let Some(bytes) = kilobytes("Rss:").filter(|_| inside) {
                resident += bytes << 10;
            } else if let Some(bytes) = ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"]
                .iter()
                .find_map(|name| kilobytes(name))
                .filter(|_| inside)
            {
                huge += bytes << 10;
            } else if let Some((start, _)) = line.split_once('-')
                && let Ok(start) = usize::from_str_radix(start, 16)
            {
                inside = ours.contains(&start);
            }
        }
        (resident, huge)
    }
}

/// Asks the file system for the blocks of a range; the file grows with it.
fn allocate(file: &File, offset: u64, bytes: u64) -> Result<(), io::Error> {
    let signed = |number: u64| {
        libc::off_t::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
    };
    let (offset, bytes) = (signed(offset)?, signed(bytes)?);
    loop {
        // SAFETY: a call on an open file of ours.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, bytes) } {
            0 => return Ok(()),
            libc::EINTR => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Whether a file system keeps its files in memory: tmpfs, ramfs or hugetlbfs.
pub(super) fn is_in_memory(file: &File) -> Result<bool, io::Error> {
    // From Linux's include/uapi/linux/magic.h.
    const KINDS: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    let mut facts = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call fills the structure or fails.
    let kind = unsafe {
        if libc::fstatfs(file.as_raw_fd(), facts.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        facts.assume_init().f_type
    };
    Ok(KINDS.contains(&(kind as u32)))
}

/// Gives the blocks of a range back; says whether the file system did.
fn punch(file: &File, offset: u64, bytes: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a call on an open file of ours; the range is free by the caller's word.
    unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            mode,
            offset as libc::off_t,
            bytes as libc::off_t,
        ) == 0
    }
}

/// The logical processor that runs the calling thread at this moment.
pub(crate) fn current_pu() -> Option<u32> {
    // SAFETY: takes nothing and only reports.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

impl Drop for Map {
    fn drop(&mut self) {
        #[cfg(test)]
        FILES.with_borrow_mut(|files| {
            files.retain(|(address, ..)| *address != self.whole.addr().get())
        });
        // SAFETY: the mapping is ours and nothing refers to it once its owner is dropped.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
    }
}

#[cfg(test)]
thread_local! {
    /// Mappings of files that this thread has made, and the files.
    static FILES: std::cell::RefCell<Vec<(usize, usize, libc::c_int)>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

/// Takes away all of this thread's mappings of files it writes to, as the end of a process does.
///
/// # Safety
/// Their arenas are never used again, not even dropped.
#[cfg(test)]
pub(crate) unsafe fn unmap_files() {
    for (address, bytes, file) in FILES.take() {
        // SAFETY: by the contract.
        unsafe {
            libc::munmap(ptr::with_exposed_provenance_mut(address), bytes);
            if file >= 0 {
                libc::close(file);
            }
        }
    }
}

/// Sets a range of an arena's memory.
#[cfg(test)]
pub(super) fn fill(address: NonNull<u8>, bytes: usize, value: u8) {
    // SAFETY: tests pass an extent of a live arena.
    unsafe { address.write_bytes(value, bytes) };
}

/// Whether every byte of a range has the value.
#[cfg(test)]
pub(super) fn all(address: NonNull<u8>, bytes: usize, value: u8) -> bool {
    // SAFETY: tests pass an extent of a live arena, written before or fresh from the kernel.
    unsafe { std::slice::from_raw_parts(address.as_ptr(), bytes) }
        .iter()
        .all(|&byte| byte == value)
}
