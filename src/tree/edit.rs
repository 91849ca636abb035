//! Changes within a page: few bytes each, and all that changes is named.

use std::ops::Range;

use super::build::Stored;
use super::error::Damaged;
use super::head::Place;
use super::hint::Hint;
use super::page::{Counts, HAS_CHAINS, SLACK, VALUE_HEAD, View};
use super::slot::{Slot, print};
use super::space::PageMut;
use crate::arena::Arena;

/// Where an entry is to be changed.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) page: u32,
    pub(super) level: usize,
    pub(super) index: usize,
}

impl Spot {
    fn view(self, arena: &Arena, place: Place) -> Result<View<'_>, Damaged> {
        View::open(arena, self.page, place.stamp, self.level)
    }
}

/// What an entry has besides its key.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Value(Stored<'a>),
    Child(u32),
}

/// Adds an entry, if it fits as the page is.
#[inline]
pub(super) fn add(
    arena: &mut Arena,
    place: Place,
    spot: Spot,
    key: &[u8],
    payload: Payload<'_>,
) -> Result<bool, Damaged> {
    let view = spot.view(arena, place)?;
    let Some(suffix) = key.strip_prefix(view.prefix()) else {
        return Ok(false);
    };
    let shape = view.shape();
    let tail = &suffix[suffix.len() - shape.tail_bytes(suffix.len())..];
    let cell_bytes = match payload {
        Payload::Value(stored) => VALUE_HEAD + tail.len() + stored.bytes.len(),
        Payload::Child(_) => tail.len(),
    };
    if view.gap() < view.slot_bytes() + cell_bytes + SLACK {
        return Ok(false);
    }
    let counts = view.counts;
    let slots = view.slot_at(spot.index)..view.slots_end();
    let flags = view.flags();
    let cell = counts.heap - cell_bytes;
    let mut page = PageMut::open(arena, spot.page)?;
    let (print, child) = match payload {
        Payload::Value(stored) => {
            page.write_fresh_parts(cell, [&stored.head.to_le_bytes(), tail, stored.bytes]);
            if stored.is_chained() && flags & HAS_CHAINS == 0 {
                page.write(18, &(flags | HAS_CHAINS).to_le_bytes());
            }
            (print(tail), 0)
        }
        Payload::Child(child) => {
            page.write_fresh(cell, tail);
            (0, child)
        }
    };
    let slot = Slot::new(if cell_bytes == 0 { 0 } else { cell }, suffix.len(), print);
    let (slot, slot_bytes) = shape.slot(slot, child, suffix);
    page.insert(slots, &slot[..slot_bytes]);
    let counts = Counts {
        count: counts.count + 1,
        heap: cell,
        garbage: counts.garbage,
        hint: Hint::read(counts.hint).inserted(spot.index).to_u16(),
    };
    page.write(Counts::AT, &counts.to_bytes());
    Ok(true)
}

/// Gives an entry of a leaf another value, if it fits as the page is. The value that it has already
/// changes nothing, so that neither a before-image nor the journal has to hold it.
pub(super) fn replace(
    arena: &mut Arena,
    place: Place,
    spot: Spot,
    stored: Stored<'_>,
) -> Result<bool, Damaged> {
    let view = spot.view(arena, place)?;
    let cell = view.cell(spot.index)?;
    if cell.head == stored.head && view.bytes[cell.value.clone()] == *stored.bytes {
        return Ok(true);
    }
    let (counts, flags) = (view.counts, view.flags());
    let (slot, slot_at) = (view.slot(spot.index), view.slot_at(spot.index));
    let (old_bytes, new_bytes) = (cell.value.len(), stored.bytes.len());
    let in_place = new_bytes <= old_bytes;
    let tail = cell.start + VALUE_HEAD..cell.value.start;
    let cell_bytes = VALUE_HEAD + tail.len() + new_bytes;
    if !in_place && view.gap() < cell_bytes + SLACK {
        return Ok(false);
    }
    let mut page = PageMut::open(arena, spot.page)?;
    let mut after = counts;
    if in_place {
        if cell.head != stored.head {
            page.write(cell.start, &stored.head.to_le_bytes());
        }
        // What the shorter value does not need leaves use.
        page.before(cell.value.start + new_bytes..cell.value.end);
        page.write(cell.value.start, stored.bytes);
        after.garbage += old_bytes - new_bytes;
    } else {
        let tail = page.bytes()[tail].to_vec();
        after.heap -= cell_bytes;
        after.garbage += cell.value.end - cell.start;
        page.write_fresh_parts(
            after.heap,
            [&stored.head.to_le_bytes(), &tail, stored.bytes],
        );
        let slot = slot.at(after.heap);
        page.write(slot_at, &slot.to_bytes());
    }
    if stored.is_chained() && flags & HAS_CHAINS == 0 {
        page.write(18, &(flags | HAS_CHAINS).to_le_bytes());
    }
    if (after.heap, after.garbage) != (counts.heap, counts.garbage) {
        page.write(Counts::AT, &after.to_bytes());
    }
    Ok(true)
}

/// Takes entries out of a page. Their cells become garbage.
pub(super) fn remove(
    arena: &mut Arena,
    place: Place,
    number: u32,
    level: usize,
    entries: Range<usize>,
) -> Result<(), Damaged> {
    if entries.is_empty() {
        return Ok(());
    }
    let view = View::open(arena, number, place.stamp, level)?;
    let mut counts = view.counts;
    for index in entries.clone() {
        counts.garbage += view.cell_range(index)?.len();
    }
    if counts.garbage > crate::limits::PAGE_BYTES - counts.heap {
        return view.damaged("its cells overlap");
    }
    counts.count -= entries.len();
    let slots = view.slot_at(entries.start)..view.slots_end();
    let by = entries.len() * view.slot_bytes();
    let mut page = PageMut::open(arena, number)?;
    page.remove(slots, by);
    page.write(Counts::AT, &counts.to_bytes());
    Ok(())
}

/// Takes children out of a branch that keeps at least one.
pub(super) fn remove_children(
    arena: &mut Arena,
    place: Place,
    number: u32,
    level: usize,
    children: Range<usize>,
) -> Result<(), Damaged> {
    if children.is_empty() {
        return Ok(());
    }
    if children.start > 0 {
        let entries = children.start - 1..children.end - 1;
        return remove(arena, place, number, level, entries);
    }
    let view = View::open(arena, number, place.stamp, level)?;
    if children.end > view.count() {
        return view.damaged("all its children would go");
    }
    let first = view.child(children.end);
    PageMut::open(arena, number)?.write(20, &first.to_le_bytes());
    remove(arena, place, number, level, children)
}
