//! Pages that leave the extents that lie highest.
//!
//! Pages are named by their places, so a page that moves is copied, what names it is told, and the old one is
//! free. Branches and leaves are named by the branch above, pages of a long value by its leaf, and by each other.
//! Extents that everything has left
//! go back to the arena. Then all happens once more, for extents of the same lengths at lower places, where
//! there is room for them now.

use super::Tree;
use super::build::Stored;
use super::error::{Damaged, TreeError};
use super::head::{self, Head, Place};
use super::pack::{LOOK_BYTES, go_on};
use super::page::{CHAINED, HAS_CHAINS, View, u16_at};
use super::pages::{self, Header};
use super::path::{self, Path};
use super::space::{self, PageMut};
use super::value::{self, FIRST_AT, NEXT_AT};
use crate::arena::Arena;
use crate::limits::PAGE_BYTES;

/// Pages that stay free in the extents that are kept, beside a share of those in use.
const SPARE_PAGES: u32 = 8;

/// Where a branch names its first child, and in a slot the slot's.
const FIRST_CHILD_AT: usize = 20;
const CHILD_AT: usize = 4;

/// Which extents pages leave, and how far that is.
pub(crate) struct Settling {
    /// First pages of the extents that are kept, the lowest first; those before `fills` are full.
    kept: Vec<u32>,
    fills: usize,
    /// Of those that go, in order.
    leaving: Vec<u32>,
    /// The key whose leaf comes next; none, when all have had their turn.
    from: Option<Vec<u8>>,
    /// It is the second time.
    sinks: bool,
}

/// A page, and the page and the byte where it is named; the root is named by the head.
#[derive(Clone, Copy)]
struct Lodger {
    page: u32,
    named_at: Option<(u32, usize)>,
}

impl Settling {
    /// Decides which extents stay: the lowest ones, as long as they are not too much, and then one that has
    /// about the room that is missing, which may be a new one.
    pub(super) fn plan(arena: &mut Arena, place: Place) -> Result<Self, TreeError> {
        let (extents, in_use) = extents_of(arena, place)?;
        let needed = in_use + in_use / 64 + SPARE_PAGES + place.held;
        let (mut missing, mut kept, mut others) = (needed, Vec::new(), Vec::new());
        for (page, room) in extents {
            if room <= missing || page == place.head {
                kept.push(page);
                missing = missing.saturating_sub(room);
            } else {
                others.push((room, page));
            }
        }
        others.sort_unstable();
        if let Some(&(room, smallest)) = others.first()
            && missing > 0
        {
            // All others have more than is missing.
            let is_fitting = room <= missing + needed / 8;
            let fitting = if is_fitting {
                None
            } else {
                pages::add_fitting(arena, place, missing)?
            };
            if fitting.is_none() {
                others.remove(0);
            }
            kept.push(fitting.unwrap_or(smallest));
        }
        let mut leaving: Vec<u32> = others.into_iter().map(|(_, page)| page).collect();
        leaving.sort_unstable();
        kept.sort_unstable();
        Ok(Self {
            kept,
            fills: 0,
            leaving,
            from: Some(Vec::new()),
            sinks: false,
        })
    }

    /// Takes lower extents for those that have been kept, where there is room.
    fn sink(&mut self, arena: &mut Arena, place: Place) -> Result<(), TreeError> {
        self.kept.clear();
        let (extents, _) = extents_of(arena, place)?;
        let movable = extents.into_iter().rev();
        for (page, room) in movable.filter(|&(page, _)| page != place.head) {
            if let Some(lower) = pages::add_below(arena, place, page, room + 1)? {
                self.kept.push(lower);
                self.leaving.push(page);
            }
        }
        self.kept.sort_unstable();
        self.leaving.sort_unstable();
        self.fills = 0;
        self.from = Some(Vec::new());
        self.sinks = true;
        Ok(())
    }

    /// Whether a page is to leave the extent that it lies in.
    fn leaves(&self, arena: &Arena, page: u32) -> Result<bool, Damaged> {
        let delta = u32::from(u16_at(space::page(arena, page)?, 16));
        let first = page.wrapping_sub(delta);
        Ok(self.leaving.binary_search(&first).is_ok())
    }

    /// An extent that is kept and has a free page.
    fn room(&mut self, arena: &Arena, place: Place) -> Option<u32> {
        while let Some(&extent) = self.kept.get(self.fills) {
            // It may be gone meanwhile.
            let header = Header::read(arena, extent, place.stamp);
            if header.is_ok_and(|header| !header.is_full()) {
                return Some(extent);
            }
            self.fills += 1;
        }
        None
    }
}

/// The extents, the lowest first, each with the pages that it has room for; and how many of all are in use.
fn extents_of(arena: &Arena, place: Place) -> Result<(Vec<(u32, u32)>, u32), Damaged> {
    let head = Head::read(arena, place)?;
    let mut extents = Vec::new();
    let (mut next, mut in_use) = (head.first, 0);
    while next != pages::NONE {
        let header = Header::read(arena, next, place.stamp)?;
        if extents.len() as u32 == head.extents {
            return header.damaged("there are more extents than the head counts");
        }
        in_use += header.used - 1;
        extents.push((next, header.pages - 1));
        next = header.next;
    }
    extents.sort_unstable();
    Ok((extents, in_use))
}

impl Tree {
    /// Takes a step, as [`pack`](Tree::pack) does.
    pub(super) fn settle(
        &mut self,
        arena: &mut Arena,
        settling: &mut Settling,
    ) -> Result<Option<usize>, TreeError> {
        let place = self.place;
        let Some(from) = settling
            .from
            .take()
            .filter(|_| !settling.leaving.is_empty())
        else {
            return give_back(arena, place, settling);
        };
        let mut path = Path::new();
        let leaf = path::descend(arena, place, &from, &mut path)?;
        if let Some(lodger) = next_lodger(arena, place, settling, (&path, leaf))? {
            arena.prepare(space::log_bytes(1, 1, 1))?;
            let head = Head::read(arena, place)?;
            let has_free = head.free > place.held;
            if let Some(extent) = settling.room(arena, place).filter(|_| has_free) {
                self.reshaped();
                move_page(arena, place, lodger, extent)?;
                settling.from = Some(from);
                return Ok(Some(2 * PAGE_BYTES));
            }
            // Others have used what was free: that is all.
            return Ok(Some(LOOK_BYTES));
        }
        let mut next = from;
        if go_on(arena, place, &path, &mut next)? {
            settling.from = Some(next);
        }
        Ok(Some(LOOK_BYTES))
    }
}

/// The first page of those from the root to a leaf, and of the leaf's long values, that lies in an extent that
/// goes.
fn next_lodger(
    arena: &Arena,
    place: Place,
    settling: &Settling,
    (path, leaf): (&Path, u32),
) -> Result<Option<Lodger>, Damaged> {
    let height = path.steps().len();
    let mut named_at = None;
    for depth in 0..=height {
        let step = path.steps().get(depth);
        let page = step.map_or(leaf, |step| step.page);
        if settling.leaves(arena, page)? {
            return Ok(Some(Lodger { page, named_at }));
        }
        if let Some(step) = step {
            let branch = View::open(arena, step.page, place.stamp, height - depth)?;
            let at = match usize::from(step.child).checked_sub(1) {
                None => FIRST_CHILD_AT,
                Some(slot) => branch.slot_at(slot) + CHILD_AT,
            };
            named_at = Some((step.page, at));
        }
    }
    let view = View::open(arena, leaf, place.stamp, 0)?;
    if view.flags() & HAS_CHAINS == 0 {
        return Ok(None);
    }
    for index in 0..view.count() {
        let cell = view.cell(index)?;
        if cell.head & CHAINED == 0 {
            continue;
        }
        let stored = Stored {
            head: cell.head,
            bytes: &view.bytes[cell.value.clone()],
        };
        pages::check_chain(arena, place, leaf, stored.chain_pages())?;
        let (mut named_at, mut found) = ((leaf, cell.value.start + FIRST_AT), None);
        value::visit_chain(arena, place.stamp, stored, |page| {
            if found.is_none() && settling.leaves(arena, page)? {
                let named_at = Some(named_at);
                found = Some(Lodger { page, named_at });
            }
            named_at = (page, NEXT_AT);
            Ok(())
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Moves a page into an extent that has a free one.
fn move_page(arena: &mut Arena, place: Place, lodger: Lodger, extent: u32) -> Result<(), Damaged> {
    let mut bytes = *space::page(arena, lodger.page)?;
    let (to, delta) = pages::allocate_in(arena, place, extent)?;
    bytes[16..18].copy_from_slice(&delta.to_le_bytes());
    PageMut::open(arena, to)?.write_fresh(0, &bytes);
    match lodger.named_at {
        None => {
            let height = Head::read(arena, place)?.height;
            head::set_root(arena, place, to, height)?;
        }
        Some((page, at)) => PageMut::open(arena, page)?.write(at, &to.to_le_bytes()),
    }
    pages::take_back(arena, place, lodger.page)
}

/// Gives one of the extents back that nothing is left in, or begins anew when all have had their turn.
fn give_back(
    arena: &mut Arena,
    place: Place,
    settling: &mut Settling,
) -> Result<Option<usize>, TreeError> {
    let Some(extent) = settling.leaving.pop() else {
        if settling.sinks {
            return Ok(None);
        }
        settling.sink(arena, place)?;
        return Ok(Some(LOOK_BYTES));
    };
    arena.prepare(space::log_bytes(1, 0, 1))?;
    pages::release_if_empty(arena, place, extent)?;
    Ok(Some(LOOK_BYTES))
}
