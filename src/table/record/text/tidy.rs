//! Moving texts out of chunks that are mostly free, so that those go back to the arena.
//!
//! A chunk whose blocks in use become fewer than a bound is noted as *sparse*, once for each of three
//! bounds. While more than an eighth of all chunks' bytes is free, a sparse chunk is made the *victim*:
//! its blocks are moved, one by one, into others of their class, and their rows told. With the last one
//! it goes. What is done at once is as little as the caller wants.

#![expect(unsafe_code, reason = "texts lie in arena memory")]

use std::ptr::NonNull;

use super::{
    ALONE, BLOCK_HEAD, Block, CHUNK_HEAD, CLASSES, FREE, Home, TextOwner, Texts, block_at,
    block_bytes, block_head, block_offset, blocks, chunk_bytes, chunk_head,
};
use crate::arena::{Arena, Extent};

/// Bounds of blocks in use, in sixteenths of all: at most so many are few.
const BOUNDS: [u32; 3] = [4, 8, 12];

/// Free bytes that are never worth a move.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// Chunks of an opened arena that are looked at between two moves.
const LOOKS: usize = 16;

/// Chunks with few blocks in use, or that had few when they were noted: by bound and class.
#[derive(Default)]
pub(super) struct Sparse(Vec<Vec<u64>>);

/// The chunk at hand, and those that come next because all of the texts are to be moved together.
#[derive(Default)]
pub(super) struct Plan {
    victim: Option<Victim>,
    next: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Victim {
    offset: u64,
    /// The block that is looked at next.
    number: u32,
}

/// A text that should move.
#[derive(Clone, Copy, Debug)]
pub(in crate::table::record) struct Movable {
    pub(in crate::table::record) place: u64,
    pub(in crate::table::record) owner: TextOwner,
    pub(in crate::table::record) length: usize,
    class: usize,
}

impl Texts {
    /// Whether so much is free that texts should be moved.
    pub(in crate::table::record) fn is_sparse(&self) -> bool {
        self.free_bytes > FREE_BYTES_MIN && self.free_bytes * 8 > self.chunk_bytes
    }

    /// Counts the free blocks of a chunk, if nobody has yet.
    pub(super) fn see(&mut self, arena: &Arena, home: Home) {
        if home.is_seen || home.class == ALONE {
            return;
        }
        let class = usize::from(home.class);
        // One whose head is damaged takes no block and loses none.
        let live = chunk_head(arena, home).map_or(blocks(home.extent, class), |head| head.live);
        let free = u64::from(blocks(home.extent, class) - live);
        self.free_bytes += free * block_bytes(class) as u64;
        if let Some(home) = self.homes.get_mut(&home.extent.offset) {
            home.is_seen = true;
        }
        self.note_sparse(home.extent, class, live);
    }

    /// Notes that a chunk has only so many blocks in use.
    pub(super) fn note_sparse(&mut self, extent: Extent, class: usize, live: u32) {
        let all = blocks(extent, class);
        if live * 16 > all * BOUNDS[BOUNDS.len() - 1] {
            return;
        }
        let Some(home) = self.homes.get_mut(&extent.offset) else {
            return;
        };
        for (at, bound) in BOUNDS.iter().enumerate() {
            if live * 16 <= all * bound && home.sparse >> at & 1 == 0 {
                home.sparse |= 1 << at;
                let lists = &mut self.sparse.0;
                lists.resize(lists.len().max(BOUNDS.len() * CLASSES), Vec::new());
                lists[at * CLASSES + class].push(extent.offset);
            }
        }
    }

    /// Looks at some chunks that nobody has looked at.
    pub(in crate::table::record) fn look_around(&mut self, arena: &Arena) {
        for _ in 0..LOOKS {
            let Some(offset) = self.unseen.pop() else {
                return;
            };
            if let Some(&home) = self.homes.get(&offset) {
                self.see(arena, home);
            }
        }
    }

    /// Plans to move all texts together: into the fullest chunks of each class, as many as it takes.
    pub(in crate::table::record) fn plan_all(&mut self, arena: &Arena) {
        self.end_victim();
        for offset in std::mem::take(&mut self.unseen) {
            if let Some(&home) = self.homes.get(&offset) {
                self.see(arena, home);
            }
        }
        let mut chunks: Vec<Vec<(u32, u64)>> = vec![Vec::new(); CLASSES];
        for home in self.homes.values() {
            if let Some(head) = chunk_head(arena, *home) {
                // A full one comes before one that is less so, and a near one before a far one.
                let free = blocks(home.extent, usize::from(home.class)) - head.live;
                chunks[usize::from(home.class)].push((free, home.extent.offset));
            }
        }
        self.plan.next.clear();
        for (class, mut chunks) in chunks.into_iter().enumerate() {
            chunks.sort_unstable();
            let all = (chunk_bytes(class) - CHUNK_HEAD) / block_bytes(class);
            let free: usize = chunks.iter().map(|&(free, _)| free as usize).sum();
            let live = (all * chunks.len()).saturating_sub(free);
            for (_, offset) in chunks.split_off(live.div_ceil(all).min(chunks.len())) {
                if let Some(home) = self.homes.get_mut(&offset) {
                    home.is_victim = true;
                    self.plan.next.push(offset);
                }
            }
            self.spacious[class].clear();
            let spacious = chunks.iter().filter(|(free, _)| *free > 0);
            self.spacious[class].extend(spacious.map(|&(_, offset)| offset));
        }
    }

    /// The next text that should move; none if that is not worth it any more. After a plan for all,
    /// what it names is.
    pub(in crate::table::record) fn next_movable(&mut self, arena: &Arena) -> Option<Movable> {
        loop {
            if self.plan.victim.is_none() {
                self.plan.victim = Some(self.next_victim(arena)?);
            }
            let victim = self.plan.victim.as_mut()?;
            let home = self.homes.get(&victim.offset).copied();
            let home = home.filter(|home| home.is_victim);
            let Some((home, head)) = home.and_then(|home| Some((home, chunk_head(arena, home)?)))
            else {
                self.plan.victim = None;
                continue;
            };
            let class = usize::from(home.class);
            while victim.number < head.begun {
                let number = victim.number;
                victim.number += 1;
                let block = block_head(arena, home.extent, class, number);
                if block.class != home.class || block.number != number {
                    continue;
                }
                let offset = block_offset(victim.offset, number, block_bytes(class));
                return Some(Movable {
                    place: offset + BLOCK_HEAD as u64,
                    owner: TextOwner {
                        slot: block.slot,
                        cell: block.cell,
                    },
                    length: block.length as usize,
                    class,
                });
            }
            // What is left there could not be moved.
            self.end_victim();
        }
    }

    /// Gives the chunk at hand, and those that come next, back to their use.
    pub(in crate::table::record) fn end_victim(&mut self) {
        let victim = self.plan.victim.take().map(|victim| victim.offset);
        let planned = if victim.is_none() {
            std::mem::take(&mut self.plan.next)
        } else {
            Vec::new()
        };
        for offset in victim.into_iter().chain(planned) {
            if let Some(home) = self.homes.get_mut(&offset)
                && home.is_victim
            {
                home.is_victim = false;
                // It may be there twice, which is found when its blocks are taken.
                self.spacious[usize::from(home.class)].insert(0, offset);
            }
        }
    }

    fn next_victim(&mut self, arena: &Arena) -> Option<Victim> {
        while let Some(offset) = self.plan.next.pop() {
            if self.homes.get(&offset).is_some_and(|home| home.is_victim) {
                return Some(Victim { offset, number: 0 });
            }
        }
        if !self.is_sparse() {
            return None;
        }
        for list in 0..self.sparse.0.len() {
            let (at, class) = (list / CLASSES, list % CLASSES);
            // The chunk that takes the class's next text is no victim.
            let mut spared = None;
            while let Some(offset) = self.sparse.0[list].pop() {
                let Some(home) = self.homes.get_mut(&offset) else {
                    continue;
                };
                if usize::from(home.class) != class || home.sparse >> at & 1 == 0 {
                    continue;
                }
                if self.spacious[class].last() == Some(&offset) {
                    spared = Some(offset);
                    continue;
                }
                home.sparse &= !(1 << at);
                let all = blocks(home.extent, class);
                let is_few =
                    chunk_head(arena, *home).is_some_and(|head| head.live * 16 <= all * BOUNDS[at]);
                if is_few && !home.is_victim {
                    home.is_victim = true;
                    self.sparse.0[list].extend(spared);
                    return Some(Victim { offset, number: 0 });
                }
            }
            self.sparse.0[list].extend(spared);
        }
        None
    }

    /// The extents that may move.
    pub(in crate::table::record) fn movable(&self) -> impl Iterator<Item = Extent> {
        self.homes.values().map(|home| home.extent)
    }

    /// Moves an extent of ours down, if there is room; the texts in it, as they were, and how far they
    /// went. Their rows are to be told.
    pub(in crate::table::record) fn sink(
        &mut self,
        arena: &mut Arena,
        extent: Extent,
    ) -> Option<(Vec<Movable>, u64)> {
        let home = *self.homes.get(&extent.offset)?;
        let texts = texts_of(arena, home)?;
        let lower = arena.sink(extent)?;
        self.homes.remove(&extent.offset);
        let moved = Home {
            extent: lower,
            sparse: 0,
            ..home
        };
        self.homes.insert(lower.offset, moved);
        if home.class != ALONE {
            let class = usize::from(home.class);
            for list in [&mut self.spacious[class], &mut self.unseen] {
                for offset in list.iter_mut().filter(|offset| **offset == extent.offset) {
                    *offset = lower.offset;
                }
            }
            if let Some(head) = chunk_head(arena, moved) {
                self.note_sparse(lower, class, head.live);
            }
        }
        Some((texts, extent.offset - lower.offset))
    }

    /// Copies a text into another chunk of its class that has room; its new place. The old one is
    /// still to be removed.
    pub(in crate::table::record) fn copy(
        &mut self,
        arena: &mut Arena,
        from: Movable,
    ) -> Option<u64> {
        let (old, block) = block_at(arena, from.place)?;
        let (offset, number) = self.spare_block(arena, from.class)?;
        let bytes = (BLOCK_HEAD + from.length).min(block_bytes(from.class));
        debug_assert!(old != offset && CHUNK_HEAD.is_multiple_of(8));
        let (source, target): (NonNull<u8>, NonNull<u8>) = (arena.at(old), arena.at(offset));
        // SAFETY: two blocks of this class, each in its chunk; the target was just taken, and told.
        unsafe {
            target.copy_from_nonoverlapping(source, bytes);
            target.cast::<Block>().write(Block { number, ..block });
        }
        debug_assert!(block.class != FREE);
        Some(offset + BLOCK_HEAD as u64)
    }
}

/// The texts of an extent.
fn texts_of(arena: &Arena, home: Home) -> Option<Vec<Movable>> {
    let mut texts = Vec::new();
    let mut add = |offset: u64, block: Block| {
        texts.push(Movable {
            place: offset + BLOCK_HEAD as u64,
            owner: TextOwner {
                slot: block.slot,
                cell: block.cell,
            },
            length: block.length as usize,
            class: usize::from(block.class),
        });
    };
    if home.class == ALONE {
        let (offset, block) = block_at(arena, home.extent.offset + BLOCK_HEAD as u64)?;
        add(offset, block);
        return Some(texts);
    }
    let class = usize::from(home.class);
    for number in 0..chunk_head(arena, home)?.begun {
        let block = block_head(arena, home.extent, class, number);
        if block.class == home.class {
            add(
                block_offset(home.extent.offset, number, block_bytes(class)),
                block,
            );
        }
    }
    Some(texts)
}
