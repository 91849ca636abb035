//! Which pages a tree has: extents of the arena, cut into pages.
//!
//! # Shape
//! ```text
//! extent's first page
//! 0    kind 8 | 0 24 | stamp 32 |
//! 8    used 16 | top 16 | pages 32 |
//! 16   check 32 | number 32 |
//! 24   next extent 32 | extent before 32 |
//! 32   bitmap of the pages in use 512
//! ```
//! An extent has as many pages as the tree had before, at least [`EXTENT_PAGES_MIN`] and at most
//! [`EXTENT_PAGES_MAX`]. All extents are linked, those with free pages first, so the first one tells
//! whether there is a free page. Pages at and above `top` were never given out: they hold nothing.
//! A page that was used before may have been freed in the same scope, so the whole of it is named
//! as in use when it is given out again.
//!
//! An extent without pages in use goes back to the arena, if it is not the one with the head, and if
//! others have some free pages (so that a tree at a boundary does not take and return an extent again
//! and again).
//!
//! # All or nothing
//! A change asks for the pages that it needs at most before it changes anything ([`reserve`]); from
//! there on [`allocate`] cannot fail but for damage.

use super::error::{Damaged, TreeError};
use super::head::{
    ENDS, EXTENTS, FREE, HEAD, HEAD_BYTES, Head, MAGIC, Place, TreeName, VERSION, write_head,
};
use super::page::{Kind, u16_at, u32_at, u64_at, word};
use super::space::{self, Bytes, PageMut};
use crate::arena::Arena;
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;

pub(super) const EXTENT_PAGES_MIN: u32 = 4;
pub(super) const EXTENT_PAGES_MAX: u32 = 512;

/// Free pages that stay when an extent goes back, if so many are in use.
const SPARE_PAGES: u32 = 8;
/// Extents among which one without pages in use is looked for.
const EXTENTS_SEARCHED: usize = 4;

const USED: usize = 8;
const CHECK: usize = 16;
const LINKS: usize = 24;
const BITMAP: usize = 32;

/// Where a link leads to nothing.
pub(super) const NONE: u32 = u32::MAX;

/// A number that an extent of another place or length does not have: what goes back to the arena must
/// be what came from it.
fn check(page: u32, pages: u32, stamp: u32) -> u32 {
    let place = u64::from(page) << 32 | u64::from(pages);
    (crate::id::hash(place ^ u64::from(stamp) << 16) >> 32) as u32
}

/// An extent's first page, read out.
#[derive(Clone, Copy)]
pub(super) struct Header<'a> {
    pub(super) page: u32,
    pub(super) used: u32,
    top: u32,
    pub(super) pages: u32,
    pub(super) next: u32,
    pub(super) before: u32,
    bytes: &'a Bytes,
}

impl<'a> Header<'a> {
    pub(super) fn read(arena: &'a Arena, page: u32, stamp: u32) -> Result<Self, Damaged> {
        let bytes = space::page(arena, page)?;
        let header = Self {
            page,
            used: u32::from(u16_at(bytes, USED)),
            top: u32::from(u16_at(bytes, USED + 2)),
            pages: u32_at(bytes, USED + 4),
            next: u32_at(bytes, LINKS),
            before: u32_at(bytes, LINKS + 4),
            bytes,
        };
        let is_sound = u64_at(bytes, 0) == word(Kind::Extent, 0, 0, stamp)
            && u32_at(bytes, CHECK) == check(page, header.pages, stamp)
            && (1..=EXTENT_PAGES_MAX).contains(&header.pages)
            && (1..=header.pages).contains(&header.used)
            && header.top <= header.pages;
        if !is_sound {
            return header.damaged("it is not the first page of an extent of this tree");
        }
        Ok(header)
    }

    pub(super) fn damaged<T>(&self, what: &'static str) -> Result<T, Damaged> {
        let page = self.page;
        Err(Damaged { page, what })
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.pages
    }

    /// Whether a page of the extent is in use.
    pub(super) fn is_used(&self, index: u32) -> bool {
        index < self.pages && self.word(index / 64) >> (index % 64) & 1 == 1
    }

    /// The lowest free page.
    fn free_index(&self) -> Option<u32> {
        let mut words = (0..self.pages.div_ceil(64)).map(|word| (word, self.word(word)));
        let (word, used) = words.find(|(_, used)| *used != u64::MAX)?;
        Some(word * 64 + used.trailing_ones()).filter(|&index| index < self.pages)
    }

    fn word(&self, word: u32) -> u64 {
        u64_at(self.bytes, BITMAP + word as usize * 8)
    }
}

/// Makes a tree's first extent with its head, and no root yet.
pub(super) fn create(arena: &mut Arena, name: TreeName) -> Result<Place, TreeError> {
    let head = space::take(arena, EXTENT_PAGES_MIN, name, 0)?;
    let stamp = name.stamp();
    let place = Place {
        head,
        name,
        stamp,
        held: 0,
    };
    write_extent(arena, place, head, EXTENT_PAGES_MIN, 0)?;
    let numbers = [
        MAGIC,
        VERSION,
        name.owner,
        name.tree,
        0,
        0,
        0,
        1,
        EXTENT_PAGES_MIN - 1,
        EXTENT_PAGES_MIN,
        head,
        head,
        1,
        1,
    ];
    let mut bytes = [0; HEAD_BYTES];
    for (at, number) in bytes.chunks_exact_mut(4).zip(numbers) {
        at.copy_from_slice(&number.to_le_bytes());
    }
    PageMut::open(arena, head)?.write_fresh(HEAD, &bytes);
    Ok(place)
}

/// Writes the first page of a new extent, with links to nothing.
fn write_extent(
    arena: &mut Arena,
    place: Place,
    page: u32,
    pages: u32,
    number: u32,
) -> Result<(), Damaged> {
    let mut bytes = [0; HEAD];
    bytes[..8].copy_from_slice(&word(Kind::Extent, 0, 0, place.stamp).to_le_bytes());
    let used = 1_u64 | 1 << 16 | u64::from(pages) << 32;
    bytes[USED..USED + 8].copy_from_slice(&used.to_le_bytes());
    let check = check(page, pages, place.stamp);
    bytes[CHECK..CHECK + 4].copy_from_slice(&check.to_le_bytes());
    bytes[CHECK + 4..CHECK + 8].copy_from_slice(&number.to_le_bytes());
    bytes[LINKS..LINKS + 8].fill(0xff);
    bytes[BITMAP] = 1;
    PageMut::open(arena, page)?.write_fresh(0, &bytes);
    Ok(())
}

/// Sees to it that so many pages can be allocated. If it fails, nothing has changed.
#[inline]
pub(super) fn reserve(arena: &mut Arena, place: Place, pages: u32) -> Result<(), TreeError> {
    let pages = pages.saturating_add(place.held);
    if Head::read(arena, place)?.free >= pages {
        return Ok(());
    }
    reserve_more(arena, place, pages)
}

#[cold]
fn reserve_more(arena: &mut Arena, place: Place, pages: u32) -> Result<(), TreeError> {
    let mut extents = 0;
    loop {
        let head = Head::read(arena, place)?;
        if head.free >= pages {
            return Ok(());
        }
        // The first page of an extent is not for use.
        let least = (pages - head.free).saturating_add(1).min(EXTENT_PAGES_MAX);
        let wanted = head
            .pages
            .clamp(EXTENT_PAGES_MIN, EXTENT_PAGES_MAX)
            .max(least);
        let mut take = |pages| {
            let page = space::take(arena, pages, place.name, head.next_number)?;
            Ok((page, pages))
        };
        match take(wanted).or_else(|full| take(least).map_err(|_: ArenaFull| full)) {
            Ok((page, pages)) => add_extent(arena, place, page, pages)?,
            Err(full) => {
                release_first(arena, place, extents)?;
                return Err(TreeError::ArenaFull(full));
            }
        }
        extents += 1;
    }
}

fn add_extent(arena: &mut Arena, place: Place, page: u32, pages: u32) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    write_extent(arena, place, page, pages, head.next_number)?;
    let free = head.free.wrapping_add(pages - 1);
    write_head(arena, place, FREE, free, head.pages.wrapping_add(pages))?;
    let (extents, next) = (
        head.extents.wrapping_add(1),
        head.next_number.wrapping_add(1),
    );
    write_head(arena, place, EXTENTS, extents, next)?;
    link_first(arena, place, page)
}

/// Takes an extent that has room for so many pages, fewer than the largest has, if there is memory; its
/// first page.
pub(super) fn add_fitting(
    arena: &mut Arena,
    place: Place,
    pages: u32,
) -> Result<Option<u32>, TreeError> {
    let pages = (pages + 1).clamp(EXTENT_PAGES_MIN, EXTENT_PAGES_MAX);
    arena.prepare(space::log_bytes(1, 1, 0))?;
    let number = Head::read(arena, place)?.next_number;
    let Ok(page) = space::take(arena, pages, place.name, number) else {
        return Ok(None);
    };
    add_extent(arena, place, page, pages)?;
    Ok(Some(page))
}

/// Takes an extent of so many pages below a page, if there is room; its first page.
pub(super) fn add_below(
    arena: &mut Arena,
    place: Place,
    page: u32,
    pages: u32,
) -> Result<Option<u32>, TreeError> {
    arena.prepare(space::log_bytes(1, 1, 0))?;
    let number = Head::read(arena, place)?.next_number;
    let Some(lower) = space::take_below(arena, pages, place.name, number, page) else {
        return Ok(None);
    };
    add_extent(arena, place, lower, pages)?;
    Ok(Some(lower))
}

/// Gives back extents that were taken for a change that does not happen: they are the first ones.
fn release_first(arena: &mut Arena, place: Place, extents: u32) -> Result<(), Damaged> {
    for _ in 0..extents {
        let head = Head::read(arena, place)?;
        let pages = Header::read(arena, head.first, place.stamp)?.pages;
        release(arena, place, head.first, pages)?;
    }
    Ok(())
}

/// Gives out a page, of which some were reserved: its number, and its distance to the extent's first.
pub(super) fn allocate(arena: &mut Arena, place: Place) -> Result<(u32, u16), Damaged> {
    let first = Head::read(arena, place)?.first;
    allocate_in(arena, place, first)
}

/// As [`allocate`], out of the extent that begins with this page.
pub(super) fn allocate_in(
    arena: &mut Arena,
    place: Place,
    extent: u32,
) -> Result<(u32, u16), Damaged> {
    let head = Head::read(arena, place)?;
    let header = Header::read(arena, extent, place.stamp)?;
    let Some(index) = header.free_index() else {
        return header.damaged("an extent with free pages is said to be there, and is not");
    };
    if head.free == 0 || index == 0 {
        return header.damaged("a free page is said to be there, and is not");
    }
    let was_used = index < header.top;
    let (page, used, top) = (header.page, header.used + 1, header.top.max(index + 1));
    let becomes_full = used == header.pages;
    set_used(arena, page, index, used, top)?;
    write_head(arena, place, FREE, head.free - 1, head.pages)?;
    if becomes_full && head.last != page {
        unlink(arena, place, page)?;
        link_last(arena, place, page)?;
    }
    let number = page.wrapping_add(index);
    if was_used {
        PageMut::open(arena, number)?.before(0..PAGE_BYTES);
    }
    Ok((number, index as u16))
}

/// Flips a page's bit.
fn set_used(arena: &mut Arena, page: u32, index: u32, used: u32, top: u32) -> Result<(), Damaged> {
    let mut first = PageMut::open(arena, page)?;
    let at = BITMAP + index as usize / 64 * 8;
    let bits = u64_at(first.bytes(), at) ^ 1 << (index % 64);
    first.write(at, &bits.to_le_bytes());
    let counts = used | top << 16;
    first.write(USED, &counts.to_le_bytes());
    Ok(())
}

/// Takes a page back, and gives an extent back that is empty. The page's content stays until it is given
/// out again.
pub(super) fn free(arena: &mut Arena, place: Place, number: u32) -> Result<(), Damaged> {
    take_back(arena, place, number)?;
    release_empty(arena, place).map(drop)
}

/// Takes a page back.
pub(super) fn take_back(arena: &mut Arena, place: Place, number: u32) -> Result<(), Damaged> {
    let delta = u32::from(u16_at(space::page(arena, number)?, 16));
    let damaged = |what| {
        let page = number;
        Err(Damaged { page, what })
    };
    let Some(page) = number.checked_sub(delta).filter(|_| delta != 0) else {
        return damaged("it names no extent that it belongs to");
    };
    let header = Header::read(arena, page, place.stamp)?;
    if !header.is_used(delta) || header.used < 2 {
        return damaged("it is to be freed, and is free");
    }
    let head = Head::read(arena, place)?;
    let (was_full, used, top) = (header.is_full(), header.used - 1, header.top);
    set_used(arena, page, delta, used, top)?;
    write_head(arena, place, FREE, head.free.wrapping_add(1), head.pages)?;
    if was_full && head.first != page {
        unlink(arena, place, page)?;
        link_first(arena, place, page)?;
    }
    Ok(())
}

/// Whether a page that is alone in use lies in another extent than the head, which would have room for
/// it.
pub(super) fn is_astray(arena: &Arena, place: Place, number: u32) -> Result<bool, Damaged> {
    let delta = u32::from(u16_at(space::page(arena, number)?, 16));
    if number.wrapping_sub(delta) == place.head {
        return Ok(false);
    }
    let header = Header::read(arena, place.head, place.stamp)?;
    Ok(!header.is_full())
}

/// Refuses a long value of so many pages, named in a leaf, where the tree has fewer: in a damaged page its
/// length may be anything.
#[inline]
pub(super) fn check_chain(
    arena: &Arena,
    place: Place,
    leaf: u32,
    pages: usize,
) -> Result<(), Damaged> {
    if pages > 0 && pages > Head::read(arena, place)?.pages as usize {
        return Err(Damaged {
            page: leaf,
            what: "a long value has more pages than the tree",
        });
    }
    Ok(())
}

/// Gives back an extent without pages in use, if one is near and there are free pages enough in others;
/// says whether it did.
pub(super) fn release_empty(arena: &mut Arena, place: Place) -> Result<bool, Damaged> {
    let head = Head::read(arena, place)?;
    let in_use = head
        .pages
        .saturating_sub(head.free)
        .saturating_sub(head.extents);
    let spare = in_use.clamp(1, SPARE_PAGES).max(place.held);
    let mut next = head.first;
    for _ in 0..EXTENTS_SEARCHED {
        if next == NONE {
            return Ok(false);
        }
        let header = Header::read(arena, next, place.stamp)?;
        if header.is_full() {
            return Ok(false);
        }
        let is_empty = header.used == 1 && next != place.head;
        if is_empty && head.free >= header.pages - 1 + spare {
            let pages = header.pages;
            release(arena, place, next, pages)?;
            return Ok(true);
        }
        next = header.next;
    }
    Ok(false)
}

/// Gives this extent back, if it is one of the tree still, and empty, and there are free pages enough in
/// others.
pub(super) fn release_if_empty(arena: &mut Arena, place: Place, page: u32) -> Result<(), Damaged> {
    let Ok(header) = Header::read(arena, page, place.stamp) else {
        return Ok(());
    };
    let pages = header.pages;
    let is_empty = header.used == 1 && page != place.head;
    if is_empty && Head::read(arena, place)?.free >= pages - 1 + SPARE_PAGES.max(place.held) {
        release(arena, place, page, pages)?;
    }
    Ok(())
}

/// Gives an extent without pages in use back to the arena.
fn release(arena: &mut Arena, place: Place, page: u32, pages: u32) -> Result<(), Damaged> {
    let header = Header::read(arena, page, place.stamp)?;
    if (0..pages).any(|index| header.is_used(index) != (index == 0)) {
        return header.damaged("it has not as many pages in use as it says");
    }
    unlink(arena, place, page)?;
    let head = Head::read(arena, place)?;
    let free = head.free.wrapping_sub(pages - 1);
    write_head(arena, place, FREE, free, head.pages.wrapping_sub(pages))?;
    let extents = head.extents.wrapping_sub(1);
    write_head(arena, place, EXTENTS, extents, head.next_number)?;
    // Whoever still refers to it shall not find an extent.
    PageMut::open(arena, page)?.write(0, &[0; 8]);
    space::give_back(arena, page, pages);
    Ok(())
}

fn write_links(arena: &mut Arena, page: u32, next: u32, before: u32) -> Result<(), Damaged> {
    let pair = u64::from(next) | u64::from(before) << 32;
    PageMut::open(arena, page)?.write(LINKS, &pair.to_le_bytes());
    Ok(())
}

fn unlink(arena: &mut Arena, place: Place, page: u32) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    let header = Header::read(arena, page, place.stamp)?;
    let (next, before) = (header.next, header.before);
    let (mut first, mut last) = (head.first, head.last);
    if before == NONE {
        first = next;
    } else {
        let other = Header::read(arena, before, place.stamp)?;
        let further = other.before;
        write_links(arena, before, next, further)?;
    }
    if next == NONE {
        last = before;
    } else {
        let other = Header::read(arena, next, place.stamp)?;
        let further = other.next;
        write_links(arena, next, further, before)?;
    }
    write_head(arena, place, ENDS, first, last)
}

fn link_first(arena: &mut Arena, place: Place, page: u32) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    let further = Header::read(arena, head.first, place.stamp)?.next;
    write_links(arena, head.first, further, page)?;
    write_links(arena, page, head.first, NONE)?;
    write_head(arena, place, ENDS, page, head.last)
}

fn link_last(arena: &mut Arena, place: Place, page: u32) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    let further = Header::read(arena, head.last, place.stamp)?.before;
    write_links(arena, head.last, page, further)?;
    write_links(arena, page, NONE, head.last)?;
    write_head(arena, place, ENDS, head.first, page)
}

/// Gives every extent back to the arena. If that is interrupted, the arena still knows by their use the
/// extents that are left.
pub(super) fn release_all(arena: &mut Arena, place: Place) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    let mut extents = Vec::new();
    let mut next = head.first;
    while next != NONE {
        let header = Header::read(arena, next, place.stamp)?;
        if extents.len() as u32 == head.extents {
            return header.damaged("there are more extents than the head counts");
        }
        extents.push((next, header.pages));
        next = header.next;
    }
    for (page, pages) in extents {
        space::give_back_in_turn(arena, page, pages);
    }
    Ok(())
}
