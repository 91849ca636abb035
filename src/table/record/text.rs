//! Texts that do not fit their cells, in blocks of some forty sizes.
//!
//! ```text
//! chunk | mark 4, class 4 | blocks begun 4, in use 4 | first free 4, 0 4 | 0 8 | block | block | ...
//! block | number in its chunk 4 | class 2, cell 2 | slot 4, length 4 | text
//! free  | number in its chunk 4 | class 2, 0 2 | number of the next free block 4, 0 4 |
//! ```
//! A chunk is an extent of blocks of one size; a chunk with no block in use goes back to the arena. A
//! text too long for the largest block has an extent of its own, with the same head as a block.
//!
//! A block names the slot and the cell that name it. So a block can be moved ([`tidy`]), and whoever
//! does not trust a file can ask both sides ([`check`]).
//!
//! Which chunks have room is known only in memory: those of an opened arena are looked at when a block
//! of their class is wanted, or a few at a time, so opening reads none.

#![expect(unsafe_code, reason = "texts lie in arena memory")]

mod check;
mod tidy;

use std::ptr::NonNull;

use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;
pub(super) use tidy::Movable;
use tidy::{Plan, Sparse};

/// Blocks are longer than their text by this.
const BLOCK_HEAD: usize = size_of::<Block>();
const CHUNK_HEAD: usize = size_of::<Chunk>();

const BLOCK_BYTES_MIN: usize = 32;
/// Larger texts have an extent of their own.
const BLOCK_BYTES_MAX: usize = 32 << 10;

const CLASSES: usize = 41;
/// The class of a text with an extent of its own, in its head and in the ledger.
const ALONE: u16 = u16::MAX;
const ALONE_DETAIL: u32 = u32::MAX;
/// The class of a block that is free.
const FREE: u16 = u16::MAX - 1;

const MARK: u32 = 0x7478_6574;

/// Bytes of the blocks of a class: four steps from each power of two to the next.
fn block_bytes(class: usize) -> usize {
    let (power, step) = (class / 4, class % 4);
    (BLOCK_BYTES_MIN << power) * (4 + step) / 4
}

/// The class of the smallest blocks of at least so many bytes.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(BLOCK_BYTES_MIN);
    let power = (bytes / BLOCK_BYTES_MIN).ilog2() as usize;
    let step = (bytes - (BLOCK_BYTES_MIN << power)).div_ceil((BLOCK_BYTES_MIN << power) / 4);
    power * 4 + step
}

/// Bytes of a chunk of a class: some dozen blocks at least.
fn chunk_bytes(class: usize) -> usize {
    (CHUNK_HEAD + 15 * block_bytes(class))
        .next_multiple_of(PAGE_BYTES)
        .max(16 * PAGE_BYTES)
}

/// The head of a chunk.
#[derive(Clone, Copy)]
#[repr(C)]
struct Chunk {
    mark: u32,
    class: u32,
    /// Blocks ever used.
    begun: u32,
    live: u32,
    /// One more than the number of the first free block; 0 if there is none.
    free: u32,
    zero: [u32; 3],
}

const _: () = assert!(size_of::<Chunk>() == 32);

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Block {
    number: u32,
    class: u16,
    cell: u16,
    /// The slot that names it; of a free block, the next free one, as in [`Chunk::free`].
    slot: u32,
    length: u32,
}

const _: () = assert!(size_of::<Block>() == 16);

/// Who names a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextOwner {
    pub(super) slot: u32,
    pub(super) cell: u16,
}

/// An extent of texts.
#[derive(Clone, Copy)]
struct Home {
    extent: Extent,
    class: u16,
    /// Whether its free blocks are counted, as those of a chunk that nobody has looked at are not.
    is_seen: bool,
    /// In which lists of sparse chunks it is: a bit for each.
    sparse: u8,
    /// Its blocks are on their way to other chunks.
    is_victim: bool,
}

/// The texts of a part.
pub(super) struct Texts {
    owner: u32,
    /// By class: offsets of chunks that have room, or had.
    spacious: Vec<Vec<u64>>,
    /// By class: how many of these are gone, at most.
    stale: Vec<usize>,
    homes: hashbrown::HashMap<u64, Home>,
    bytes: u64,
    /// Bytes of chunks, and of the free blocks in those that were looked at.
    chunk_bytes: u64,
    free_bytes: u64,
    /// Chunks that nobody has looked at since the arena was opened.
    unseen: Vec<u64>,
    sparse: Sparse,
    plan: Box<Plan>,
}

impl Texts {
    pub(super) fn new(owner: u32) -> Self {
        Self {
            owner,
            spacious: vec![Vec::new(); CLASSES],
            stale: vec![0; CLASSES],
            homes: hashbrown::HashMap::new(),
            bytes: 0,
            chunk_bytes: 0,
            free_bytes: 0,
            unseen: Vec::new(),
            sparse: Sparse::default(),
            plan: Box::default(),
        }
    }

    /// The texts that extents of an opened arena hold.
    pub(super) fn open(owner: u32, entries: &[Entry]) -> Option<Self> {
        let mut texts = Self::new(owner);
        for Entry { extent, use_ } in entries {
            let mut class = ALONE;
            if use_.detail != ALONE_DETAIL {
                class = u16::try_from(use_.detail).ok()?;
                let spacious = texts.spacious.get_mut(usize::from(class))?;
                if extent.bytes < chunk_bytes(usize::from(class)) as u64 {
                    return None;
                }
                spacious.push(extent.offset);
                texts.unseen.push(extent.offset);
            }
            texts.note(*extent, class, false);
        }
        Some(texts)
    }

    /// As [`open`](Self::open), of extents that are not trusted: those that cannot be are left out.
    pub(super) fn salvage(owner: u32, entries: &[Entry]) -> Self {
        let mut texts = Self::new(owner);
        for Entry { extent, use_ } in entries {
            let class = u16::try_from(use_.detail).unwrap_or(ALONE);
            let is_chunk = usize::from(class) < CLASSES
                && extent.bytes >= chunk_bytes(usize::from(class)) as u64;
            if is_chunk || use_.detail == ALONE_DETAIL {
                texts.note(*extent, class, false);
            }
        }
        texts
    }

    fn note(&mut self, extent: Extent, class: u16, is_seen: bool) {
        let home = Home {
            extent,
            class,
            is_seen,
            sparse: 0,
            is_victim: false,
        };
        self.homes.insert(extent.offset, home);
        self.bytes += extent.bytes;
        if class != ALONE {
            self.chunk_bytes += extent.bytes;
        }
    }

    fn forget(&mut self, extent: Extent, class: u16) {
        self.homes.remove(&extent.offset);
        self.bytes -= extent.bytes;
        if class != ALONE {
            self.chunk_bytes -= extent.bytes;
        }
    }

    /// Bytes of the arena in use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives all memory back, of a part that no catalog names any more: it need not go at once.
    pub(super) fn release(self, arena: &mut Arena) {
        for home in self.homes.into_values() {
            arena.release_in_turn(home.extent);
        }
    }

    /// Copies a text into the arena; its place.
    pub(super) fn add(
        &mut self,
        arena: &mut Arena,
        text: &[u8],
        owner: TextOwner,
    ) -> Result<u64, ArenaFull> {
        let bytes = BLOCK_HEAD + text.len();
        let (offset, number, class) = if bytes > BLOCK_BYTES_MAX {
            let extent = self.extent(arena, bytes, ALONE)?;
            arena.fresh(arena.address(extent), bytes);
            (extent.offset, 0, ALONE)
        } else {
            let class = class_of(bytes);
            let (offset, number) = self.block(arena, class)?;
            (offset, number, class as u16)
        };
        let head = Block {
            number,
            class,
            cell: owner.cell,
            slot: owner.slot,
            length: text.len() as u32,
        };
        let block = arena.at(offset);
        // SAFETY: the block is ours, told, and long enough for head and text.
        unsafe {
            block.cast::<Block>().write(head);
            block
                .add(BLOCK_HEAD)
                .copy_from_nonoverlapping(NonNull::from(text).cast(), text.len());
        }
        Ok(offset + BLOCK_HEAD as u64)
    }

    fn extent(&mut self, arena: &mut Arena, bytes: usize, class: u16) -> Result<Extent, ArenaFull> {
        let detail = if class == ALONE {
            ALONE_DETAIL
        } else {
            u32::from(class)
        };
        let use_ = ExtentUse::new(self.owner, ExtentKind::Text, 0).detail(detail);
        let extent = arena.allocate(bytes, use_)?;
        self.note(extent, class, true);
        Ok(extent)
    }

    /// Takes a block of a class: its offset, and its number in its chunk.
    fn block(&mut self, arena: &mut Arena, class: usize) -> Result<(u64, u32), ArenaFull> {
        if let Some(taken) = self.spare_block(arena, class) {
            return Ok(taken);
        }
        let size = block_bytes(class);
        let extent = self.extent(arena, chunk_bytes(class), class as u16)?;
        let head = Chunk {
            mark: MARK,
            class: class as u32,
            begun: 1,
            live: 1,
            free: 0,
            zero: [0; 3],
        };
        arena.fresh(arena.address(extent), CHUNK_HEAD + size);
        // SAFETY: the extent is ours.
        unsafe { arena.address(extent).cast::<Chunk>().write(head) };
        self.free_bytes += u64::from(blocks(extent, class) - 1) * size as u64;
        self.spacious[class].push(extent.offset);
        Ok((block_offset(extent.offset, 0, size), 0))
    }

    /// Takes a block of a chunk that is there and has one, if any has.
    fn spare_block(&mut self, arena: &mut Arena, class: usize) -> Option<(u64, u32)> {
        let size = block_bytes(class);
        while let Some(&offset) = self.spacious[class].last() {
            // A chunk on its way out, or one that is gone, takes no more.
            let home = self.homes.get(&offset).copied();
            let home = home.filter(|home| usize::from(home.class) == class && !home.is_victim);
            if let Some(home) = home {
                self.see(arena, home);
                if let Some(number) = take(arena, home.extent, class) {
                    self.free_bytes = self.free_bytes.saturating_sub(size as u64);
                    return Some((block_offset(offset, number, size), number));
                }
            }
            self.spacious[class].pop();
        }
        None
    }

    /// Gives a text's memory back. A place that is none, as a damaged file may have it, is left alone.
    pub(super) fn remove(&mut self, arena: &mut Arena, place: u64) {
        let Some((offset, head)) = block_at(arena, place) else {
            return;
        };
        if head.class == ALONE {
            if let Some(home) = self.homes.get(&offset).filter(|home| home.class == ALONE) {
                let extent = home.extent;
                self.forget(extent, ALONE);
                arena.release(extent);
            }
        } else if let Some((home, head)) = self.chunk_of(arena, offset, head) {
            self.remove_block(arena, offset, home, head);
        }
    }

    /// The chunk of a block in use, and the chunk's head, if both are what they should be.
    fn chunk_of(&self, arena: &Arena, offset: u64, block: Block) -> Option<(Home, Chunk)> {
        let class = usize::from(block.class);
        if class >= CLASSES {
            return None;
        }
        let before = CHUNK_HEAD as u64 + u64::from(block.number) * block_bytes(class) as u64;
        let home = *self.homes.get(&offset.checked_sub(before)?)?;
        let head = chunk_head(arena, home)?;
        (home.class == block.class && block.number < head.begun && head.live > 0)
            .then_some((home, head))
    }

    fn remove_block(&mut self, arena: &mut Arena, offset: u64, home: Home, mut head: Chunk) {
        let class = usize::from(home.class);
        let (extent, size) = (home.extent, block_bytes(class) as u64);
        self.see(arena, home);
        if head.live == 1 {
            // Its other blocks are free, and counted so.
            let free = u64::from(blocks(extent, class) - 1) * size;
            self.free_bytes = self.free_bytes.saturating_sub(free);
            self.forget(extent, home.class);
            self.forget_stale(class);
            arena.release(extent);
            return;
        }
        let number = ((offset - extent.offset - CHUNK_HEAD as u64) / size) as u32;
        let was_full = head.free == 0 && head.begun == blocks(extent, class);
        let chunk = arena.address(extent).cast::<Chunk>();
        let block = arena.at(offset);
        arena.before(chunk.cast(), CHUNK_HEAD);
        arena.before(block, BLOCK_HEAD);
        let freed = Block {
            number,
            class: FREE,
            cell: 0,
            slot: head.free,
            length: 0,
        };
        // SAFETY: the block lies in the chunk.
        unsafe { block.cast::<Block>().write(freed) };
        head.live -= 1;
        head.free = number + 1;
        // SAFETY: the extent is a chunk of ours.
        unsafe { chunk.write(head) };
        self.free_bytes += size;
        if was_full && !home.is_victim {
            self.spacious[class].push(extent.offset);
        }
        self.note_sparse(extent, class, head.live);
    }
}

impl Texts {
    /// Counts a chunk that is gone, and forgets those where they are many.
    fn forget_stale(&mut self, class: usize) {
        self.stale[class] += 1;
        if self.stale[class] * 2 > self.spacious[class].len() {
            self.stale[class] = 0;
            let homes = &self.homes;
            self.spacious[class].retain(|offset| {
                homes
                    .get(offset)
                    .is_some_and(|home| usize::from(home.class) == class)
            });
        }
    }
}

#[cfg(test)]
/// The text of so many bytes at a place; none if it cannot be one, as in a damaged file.
#[cfg(test)]
fn text(arena: &Arena, place: u64, length: usize) -> Option<Vec<u8>> {
    arena
        .has(place, length)
        .then(|| arena.view().with(place, length, <[u8]>::to_vec))
}

/// Blocks of a chunk.
fn blocks(extent: Extent, class: usize) -> u32 {
    ((extent.bytes as usize - CHUNK_HEAD) / block_bytes(class)) as u32
}

fn block_offset(chunk: u64, number: u32, size: usize) -> u64 {
    chunk + CHUNK_HEAD as u64 + u64::from(number) * size as u64
}

/// Where the block of a text at a place begins, and its head; none where no block can be.
fn block_at(arena: &Arena, place: u64) -> Option<(u64, Block)> {
    let offset = place.checked_sub(BLOCK_HEAD as u64)?;
    if !offset.is_multiple_of(8) || !arena.has(offset, BLOCK_HEAD) {
        return None;
    }
    // SAFETY: the block's head lies in the arena, and any bytes make one.
    Some((offset, unsafe { arena.at(offset).cast::<Block>().read() }))
}

/// The head of a chunk, if its numbers are possible.
fn chunk_head(arena: &Arena, home: Home) -> Option<Chunk> {
    let class = usize::from(home.class);
    if class >= CLASSES {
        return None;
    }
    // SAFETY: the extent is a chunk of ours, and any bytes make a head.
    let head = unsafe { arena.address(home.extent).cast::<Chunk>().read() };
    let is_sound = head.mark == MARK
        && head.class as usize == class
        && head.begun <= blocks(home.extent, class)
        && head.live <= head.begun;
    is_sound.then_some(head)
}

/// The head of a block of a chunk, in use or free.
fn block_head(arena: &Arena, extent: Extent, class: usize, number: u32) -> Block {
    debug_assert!(number < blocks(extent, class));
    let offset = block_offset(extent.offset, number, block_bytes(class));
    // SAFETY: the block lies in its chunk, and any bytes make a head.
    unsafe { arena.at(offset).cast::<Block>().read() }
}

/// Takes a free block of a chunk, if it has one.
fn take(arena: &mut Arena, extent: Extent, class: usize) -> Option<u32> {
    let chunk = arena.address(extent).cast::<Chunk>();
    // SAFETY: the extent is a chunk of ours; any bytes make a head.
    let mut head = unsafe { chunk.read() };
    let blocks = blocks(extent, class);
    if head.mark != MARK || head.class != class as u32 || head.begun > blocks {
        return None;
    }
    let size = block_bytes(class);
    let number = if head.free > 0 {
        let number = head.free - 1;
        if number >= head.begun {
            return None;
        }
        let freed = block_head(arena, extent, class, number);
        if freed.class != FREE {
            return None;
        }
        // What was freed in this scope lies there still.
        arena.before(arena.at(block_offset(extent.offset, number, size)), size);
        head.free = freed.slot;
        number
    } else {
        if head.begun == blocks {
            return None;
        }
        head.begun += 1;
        let block = arena.at(block_offset(extent.offset, head.begun - 1, size));
        arena.fresh(block, size);
        head.begun - 1
    };
    arena.before(chunk.cast(), CHUNK_HEAD);
    head.live = head.live.saturating_add(1);
    // SAFETY: as above.
    unsafe { chunk.write(head) };
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MapOptions;

    const OWNER: TextOwner = TextOwner { slot: 0, cell: 0 };

    #[test]
    fn classes_hold_what_they_are_for_and_waste_at_most_a_quarter() {
        assert_eq!(block_bytes(CLASSES - 1), BLOCK_BYTES_MAX);
        for bytes in 1..=BLOCK_BYTES_MAX {
            let block = block_bytes(class_of(bytes));
            assert!(block >= bytes && block.is_multiple_of(8), "{bytes}");
            assert!(bytes < 64 || block * 4 <= bytes * 5, "{bytes}: {block}");
        }
    }

    #[test]
    fn texts_of_all_lengths_stay_what_they_are_and_their_memory_comes_back() {
        let mut arena = Arena::new(&MapOptions {
            bytes: 256 << 20,
            node: None,
            huge_pages: false,
        })
        .unwrap();
        let mut texts = Texts::new(1);
        let mut random = 7;
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in 0..20_000_u64 {
            random = crate::id::hash(random ^ step);
            if random % 3 > 0 || kept.is_empty() {
                let length = match random >> 8 & 15 {
                    0 => (random >> 16) as usize % 200_000,
                    1..4 => (random >> 16) as usize % 5_000,
                    _ => (random >> 16) as usize % 100,
                };
                let bytes: Vec<u8> = (0..length).map(|at| (at as u64 ^ random) as u8).collect();
                let place = texts.add(&mut arena, &bytes, OWNER).unwrap();
                kept.push((place, bytes));
            } else {
                let (place, bytes) = kept.swap_remove((random >> 16) as usize % kept.len());
                assert_eq!(text(&arena, place, bytes.len()), Some(bytes));
                texts.remove(&mut arena, place);
            }
            if kept.len() > 500 {
                for (place, _) in kept.drain(..400) {
                    texts.remove(&mut arena, place);
                }
            }
        }
        for (place, bytes) in kept {
            assert_eq!(text(&arena, place, bytes.len()), Some(bytes));
            texts.remove(&mut arena, place);
        }
        assert_eq!((texts.bytes(), arena.used_bytes()), (0, 0));
    }
}
