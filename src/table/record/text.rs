//! Texts that do not fit their cells, in blocks of some forty sizes.
//!
//! ```text
//! chunk | mark 4, class 4 | blocks begun 4, in use 4 | first free 4, 0 4 | 0 8 | block | block | ...
//! block | number in its chunk 4, class 4 | text, or the number of the next free block 4 | ...
//! ```
//! A chunk is an extent of blocks of one size; a chunk with no block in use goes back to the arena. A
//! text too long for the largest block has an extent of its own, with the same head as a block.
//!
//! Which chunks have room is known only in memory: those of an opened arena are looked at when a block
//! of their class is wanted, so opening reads none.

#![expect(unsafe_code, reason = "texts lie in arena memory")]

use std::ptr::NonNull;

use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;

/// Blocks are 8 bytes longer than their text.
const BLOCK_HEAD: usize = 8;
const CHUNK_HEAD: usize = 32;

const BLOCK_BYTES_MIN: usize = 32;
/// Larger texts have an extent of their own.
const BLOCK_BYTES_MAX: usize = 32 << 10;

const CLASSES: usize = 41;
/// The class of a text with an extent of its own.
const ALONE: u32 = u32::MAX;

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

const _: () = assert!(size_of::<Chunk>() == CHUNK_HEAD);

/// The texts of a part.
pub(super) struct Texts {
    owner: u32,
    /// By class: offsets of chunks that have, or may have, room.
    spacious: Vec<Vec<u64>>,
    /// Extents of chunks, and of texts alone, by offset.
    extents: hashbrown::HashMap<u64, Extent>,
    bytes: u64,
}

impl Texts {
    pub(super) fn new(owner: u32) -> Self {
        Self {
            owner,
            spacious: vec![Vec::new(); CLASSES],
            extents: hashbrown::HashMap::new(),
            bytes: 0,
        }
    }

    /// The texts that extents of an opened arena hold.
    pub(super) fn open(owner: u32, entries: &[Entry]) -> Option<Self> {
        let mut texts = Self::new(owner);
        for Entry { extent, use_ } in entries {
            texts.extents.insert(extent.offset, *extent);
            texts.bytes += extent.bytes;
            if use_.detail != ALONE {
                texts
                    .spacious
                    .get_mut(use_.detail as usize)?
                    .push(extent.offset);
            }
        }
        Some(texts)
    }

    /// Bytes of the arena in use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives all memory back, of a part that no catalog names any more: it need not go at once.
    pub(super) fn release(self, arena: &mut Arena) {
        for extent in self.extents.into_values() {
            arena.release_in_turn(extent);
        }
    }

    /// Copies a text into the arena; its place.
    pub(super) fn add(&mut self, arena: &mut Arena, text: &[u8]) -> Result<u64, ArenaFull> {
        let bytes = BLOCK_HEAD + text.len();
        let (offset, number, class) = if bytes > BLOCK_BYTES_MAX {
            let extent = self.extent(arena, bytes, ALONE)?;
            arena.fresh(arena.address(extent), bytes);
            (extent.offset, 0, ALONE)
        } else {
            let class = class_of(bytes);
            let (offset, number) = self.block(arena, class)?;
            (offset, number, class as u32)
        };
        let block = arena.at(offset);
        // SAFETY: the block is ours, told, and long enough for head and text.
        unsafe {
            block.cast::<[u32; 2]>().write([number, class]);
            block
                .add(BLOCK_HEAD)
                .copy_from_nonoverlapping(NonNull::from(text).cast(), text.len());
        }
        Ok(offset + BLOCK_HEAD as u64)
    }

    fn extent(&mut self, arena: &mut Arena, bytes: usize, class: u32) -> Result<Extent, ArenaFull> {
        let use_ = ExtentUse::new(self.owner, ExtentKind::Text, 0).detail(class);
        let extent = arena.allocate(bytes, use_)?;
        self.extents.insert(extent.offset, extent);
        self.bytes += extent.bytes;
        Ok(extent)
    }

    /// Takes a block of a class: its offset, and its number in its chunk.
    fn block(&mut self, arena: &mut Arena, class: usize) -> Result<(u64, u32), ArenaFull> {
        let size = block_bytes(class);
        while let Some(&offset) = self.spacious[class].last() {
            let extent = self.extents[&offset];
            if let Some(number) = take(arena, extent, class) {
                return Ok((block_offset(offset, number, size), number));
            }
            self.spacious[class].pop();
        }
        let extent = self.extent(arena, chunk_bytes(class), class as u32)?;
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
        self.spacious[class].push(extent.offset);
        Ok((block_offset(extent.offset, 0, size), 0))
    }

    /// Gives a text's memory back. A place that is none, as a damaged file may have it, is left alone.
    pub(super) fn remove(&mut self, arena: &mut Arena, place: u64) {
        let Some(offset) = place.checked_sub(BLOCK_HEAD as u64) else {
            return;
        };
        if !offset.is_multiple_of(8) || !arena.has(offset, BLOCK_HEAD) {
            return;
        }
        // SAFETY: the block's head lies in the arena, and any bytes make numbers.
        let [number, class] = unsafe { arena.at(offset).cast::<[u32; 2]>().read() };
        if class == ALONE {
            if let Some(extent) = self.extents.remove(&offset) {
                self.bytes -= extent.bytes;
                arena.release(extent);
            }
        } else if (class as usize) < CLASSES {
            self.remove_block(arena, offset, number, class as usize);
        }
    }

    fn remove_block(&mut self, arena: &mut Arena, offset: u64, number: u32, class: usize) {
        let size = block_bytes(class) as u64;
        let before = CHUNK_HEAD as u64 + u64::from(number) * size;
        let Some(extent) = offset
            .checked_sub(before)
            .and_then(|chunk| self.extents.get(&chunk).copied())
        else {
            return;
        };
        let chunk = arena.address(extent).cast::<Chunk>();
        // SAFETY: the extent is a chunk of ours; any bytes make a head.
        let mut head = unsafe { chunk.read() };
        if head.mark != MARK || head.class != class as u32 || number >= head.begun || head.live == 0
        {
            return;
        }
        if head.live == 1 {
            self.extents.remove(&extent.offset);
            self.spacious[class].retain(|&offset| offset != extent.offset);
            self.bytes -= extent.bytes;
            arena.release(extent);
            return;
        }
        let was_full = head.free == 0 && head.begun == blocks(extent, class);
        let block = arena.at(offset);
        arena.before(chunk.cast(), CHUNK_HEAD);
        arena.before(block, 2 * BLOCK_HEAD);
        // SAFETY: the block lies in the chunk, and is 32 bytes at least.
        unsafe {
            block
                .cast::<[u32; 4]>()
                .write([number, ALONE - 1, head.free, 0])
        };
        head.live -= 1;
        head.free = number + 1;
        // SAFETY: as above.
        unsafe { chunk.write(head) };
        if was_full {
            self.spacious[class].push(extent.offset);
        }
    }
}

#[cfg(test)]
/// The text of so many bytes at a place; none if it cannot be one, as in a damaged file.
pub(super) fn text(arena: &Arena, place: u64, length: usize) -> Option<&[u8]> {
    if !arena.has(place, length) {
        return None;
    }
    // SAFETY: the bytes lie in the arena's memory, which lives as long as the reference, and `&Arena`
    // excludes writers.
    Some(unsafe { std::slice::from_raw_parts(arena.at(place).as_ptr(), length) })
}

fn blocks(extent: Extent, class: usize) -> u32 {
    ((extent.bytes as usize - CHUNK_HEAD) / block_bytes(class)) as u32
}

fn block_offset(chunk: u64, number: u32, size: usize) -> u64 {
    chunk + CHUNK_HEAD as u64 + u64::from(number) * size as u64
}

/// Takes a free block of a chunk, if it has one.
fn take(arena: &mut Arena, extent: Extent, class: usize) -> Option<u32> {
    let chunk = arena.address(extent).cast::<Chunk>();
    // SAFETY: the extent is a chunk of ours; any bytes make a head.
    let mut head = unsafe { chunk.read() };
    if head.mark != MARK || head.class != class as u32 {
        return None;
    }
    let size = block_bytes(class);
    let number = if head.free > 0 {
        let number = head.free - 1;
        if number >= head.begun || head.begun > blocks(extent, class) {
            return None;
        }
        let block = arena.at(block_offset(extent.offset, number, size));
        // What was freed in this scope lies there still.
        arena.before(block, size);
        // SAFETY: the block lies in the chunk, as just checked.
        head.free = unsafe { block.cast::<[u32; 4]>().read() }[2];
        number
    } else {
        if head.begun >= blocks(extent, class) {
            return None;
        }
        head.begun += 1;
        let block = arena.at(block_offset(extent.offset, head.begun - 1, size));
        arena.fresh(block, size);
        head.begun - 1
    };
    arena.before(chunk.cast(), CHUNK_HEAD);
    head.live += 1;
    // SAFETY: as above.
    unsafe { chunk.write(head) };
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MapOptions;

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
                let place = texts.add(&mut arena, &bytes).unwrap();
                kept.push((place, bytes));
            } else {
                let (place, bytes) = kept.swap_remove((random >> 16) as usize % kept.len());
                assert_eq!(text(&arena, place, bytes.len()), Some(&*bytes));
                texts.remove(&mut arena, place);
            }
            if kept.len() > 500 {
                for (place, _) in kept.drain(..400) {
                    texts.remove(&mut arena, place);
                }
            }
        }
        for (place, bytes) in kept {
            assert_eq!(text(&arena, place, bytes.len()), Some(&*bytes));
            texts.remove(&mut arena, place);
        }
        assert_eq!((texts.bytes(), arena.used_bytes()), (0, 0));
    }
}
