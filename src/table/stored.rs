//! What of a table's part is kept in an arena that lives in a file, beside its extents.
//!
//! ```text
//! head  | next 8 | live 8 | first linked slot 8 | free slots 8 | columns 8 | keyed 8 |   one page
//! ```
//! The part itself works on values of its own; those that the head has are brought up to date when a
//! scope ends ([`TablePart::save`]).

#![expect(unsafe_code, reason = "the head lies in arena memory")]

use std::ptr::NonNull;

use super::TablePart;
use super::execute::Windows;
use super::slots::{SavedSlots, Slots};
use crate::arena::mutant::{self, Mutant};
use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;
use crate::id::ShardIndex;
use crate::index::HashIndex;
use crate::limits::PAGE_BYTES;

/// By what names a table's part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartName {
    /// Its place in the catalog of the running engine.
    pub(crate) place: u32,
    /// The number that the table has in its database for ever; not 0.
    pub(crate) serial: u32,
}

const SHAPE_AT: usize = 4;
const HEAD_WORDS: usize = 6;

/// The head of a part, in the arena.
pub(super) struct Stored {
    extent: Extent,
    head: NonNull<[u64; HEAD_WORDS]>,
    /// What the head says.
    saved: SavedSlots,
}

impl Stored {
    /// The head of a new part; none in an arena of memory only.
    pub(super) fn new(arena: &mut Arena, name: PartName) -> Result<Option<Self>, ArenaFull> {
        if !arena.is_logged() {
            return Ok(None);
        }
        let use_ = ExtentUse::new(name.serial, ExtentKind::Part, 0);
        let extent = arena.allocate(PAGE_BYTES, use_)?;
        let mut stored = Self::at(arena, extent);
        stored.saved = SavedSlots {
            next: u64::MAX,
            ..stored.saved
        };
        Ok(Some(stored))
    }

    fn at(arena: &Arena, extent: Extent) -> Self {
        let head: NonNull<[u64; HEAD_WORDS]> = arena.address(extent).cast();
        // SAFETY: an extent has at least a page, and any bytes make numbers.
        let words = unsafe { head.read() };
        Self {
            extent,
            head,
            saved: SavedSlots {
                next: words[0],
                live: words[1],
                linked: words[2],
                free: words[3],
            },
        }
    }

    /// The head of a part of an opened arena, which has this shape.
    pub(super) fn open(arena: &Arena, extents: &[Entry], shape: [u64; 2]) -> Result<Self, String> {
        let heads = of_kind(extents, ExtentKind::Part);
        let [head] = heads.as_slice() else {
            return Err(format!("a table has {} heads", heads.len()));
        };
        let stored = Self::at(arena, head.extent);
        if stored.shape() != shape {
            return Err("a table has another shape than the manifest says".to_owned());
        }
        Ok(stored)
    }

    /// What the head says.
    pub(super) fn saved(&self) -> SavedSlots {
        self.saved
    }

    /// Brings the head up to date.
    #[inline]
    pub(super) fn save(&mut self, arena: &mut Arena, saved: SavedSlots, shape: [u64; 2]) {
        let is_lost = mutant::is(Mutant::HeadsUnsaved) && self.saved.next != u64::MAX;
        if saved != self.saved && !is_lost {
            self.write(arena, saved, shape);
        }
    }

    pub(super) fn release(self, arena: &mut Arena) {
        arena.release(self.extent);
    }

    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Moves the head down, if there is room; says whether it did.
    pub(super) fn sink(&mut self, arena: &mut Arena) -> bool {
        let Some(lower) = arena.sink(self.extent) else {
            return false;
        };
        self.extent = lower;
        self.head = arena.address(lower).cast();
        true
    }

    fn shape(&self) -> [u64; 2] {
        // SAFETY: as in `at`.
        let words = unsafe { self.head.read() };
        [words[SHAPE_AT], words[SHAPE_AT + 1]]
    }

    fn write(&mut self, arena: &mut Arena, saved: SavedSlots, shape: [u64; 2]) {
        arena.before(self.head.cast(), size_of::<[u64; HEAD_WORDS]>());
        let SavedSlots {
            next,
            live,
            linked,
            free,
        } = saved;
        // SAFETY: the extent is ours.
        unsafe {
            self.head
                .write([next, live, linked, free, shape[0], shape[1]])
        };
        self.saved = saved;
    }
}

/// The extents of one kind, by their numbers.
pub(super) fn of_kind(extents: &[Entry], kind: ExtentKind) -> Vec<Entry> {
    let mut some: Vec<Entry> = extents
        .iter()
        .copied()
        .filter(|entry| entry.use_.kind == kind)
        .collect();
    some.sort_unstable_by_key(|entry| entry.use_.number);
    some
}

impl TablePart {
    /// Brings the head up to date.
    #[inline]
    pub(crate) fn save(&mut self, arena: &mut Arena) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let shape = [self.columns as u64, u64::from(self.index.is_some())];
        stored.save(arena, self.slots.saved(), shape);
    }

    /// Ends a scope in which no other part was changed.
    #[inline]
    pub(crate) fn end_scope(&mut self, arena: &mut Arena) {
        if arena.is_logged() {
            self.save(arena);
            arena.end_scope();
        }
    }

    /// The part that extents of an opened arena hold, or what is wrong with them.
    pub(crate) fn open(
        arena: &Arena,
        name: PartName,
        shard: ShardIndex,
        columns: usize,
        keyed: bool,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let stored = Stored::open(arena, extents, [columns as u64, u64::from(keyed)])?;
        let of_kind = |kind| of_kind(extents, kind);
        let (slabs, free) = (of_kind(ExtentKind::Slab), of_kind(ExtentKind::FreeSlots));
        let slots = Slots::new(name, shard, columns, keyed)
            .open(arena, stored.saved, &slabs, &free)
            .ok_or("the slots of a table do not fit its extents")?;
        let index = if keyed {
            let index = HashIndex::open(arena, name.serial, &of_kind(ExtentKind::Segment));
            Some(index.ok_or("the index of a table does not fit its extents")?)
        } else {
            None
        };
        Ok(Self {
            stored: Some(stored),
            slots,
            index,
            columns,
            windows: Windows::default(),
        })
    }
}
