//! The undo log: what was there before each change of a transaction in one shard.
//!
//! Rolling back walks the log from its end. Slots of rows that the transaction deleted stay
//! reserved until it commits, so that undoing finds them untouched.
//!
//! The log is kept from one transaction to the next, so that a transaction allocates nothing once
//! the log has grown to the usual size.

use allocator_api2::vec::Vec;

use crate::arena::{Arena, Heap};
use crate::error::{ArenaFull, Error};
use crate::table::{BeforeImages, GlobalLog, GlobalPart, RecordPart, TablePart};

/// Changes after which a transaction's log is given back instead of kept.
const KEPT_ENTRIES_MAX: usize = 1 << 16;

/// The tables of the shard, by their place in the catalog.
pub(crate) trait Tables {
    fn changed(&mut self, index: u32) -> Option<(Changed<'_>, &mut Arena)>;
}

/// A table that a transaction has changed.
pub(crate) enum Changed<'a> {
    Rows(&'a mut TablePart),
    Records(&'a mut RecordPart),
    Globals(&'a mut GlobalPart),
}

impl Changed<'_> {
    fn free_slot(&mut self, arena: &mut Arena, slot: u32) {
        match self {
            Self::Rows(part) => part.free_slot(arena, slot),
            Self::Records(part) => part.free_slot(arena, slot),
            Self::Globals(_) => {}
        }
    }

    fn free_text(&mut self, arena: &mut Arena, text: u64) {
        if let Self::Records(part) = self {
            part.free_text(arena, text);
        }
    }

    fn end_undo(&mut self) {
        match self {
            Self::Rows(_) => {}
            Self::Records(part) => part.end_undo(),
            Self::Globals(globals) => globals.end_undo(),
        }
    }

    fn undo_insert(&mut self, arena: &mut Arena, slot: u32) {
        match self {
            Self::Rows(part) => part.undo_insert(arena, slot),
            Self::Records(part) => part.undo_insert(arena, slot),
            Self::Globals(_) => {}
        }
    }

    fn undo_update(&mut self, arena: &mut Arena, slot: u32, header: u64, cells: &[u64]) {
        match self {
            Self::Rows(part) => part.undo_update(arena, slot, header, cells),
            Self::Records(part) => part.undo_update(arena, slot, header, cells),
            Self::Globals(_) => {}
        }
    }

    fn undo_delete(&mut self, arena: &mut Arena, slot: u32, header: u64) -> Result<(), ArenaFull> {
        match self {
            Self::Rows(part) => part.undo_delete(arena, slot, header),
            Self::Records(part) => {
                part.undo_delete(arena, slot, header);
                Ok(())
            }
            Self::Globals(_) => Ok(()),
        }
    }
}

/// What a change did, and where its before-image is.
#[derive(Clone, Copy, Debug)]
enum Change {
    Insert,
    Update {
        header: u64,
        cells: u32,
    },
    Delete {
        header: u64,
    },
    /// A text was replaced.
    Retire {
        text: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    table: u32,
    slot: u32,
    change: Change,
}

/// The before-images of a transaction under way.
pub(crate) struct UndoLog {
    entries: Vec<Entry, Heap>,
    /// Cells of updated rows, one row after the other.
    images: Vec<u64, Heap>,
    /// Nodes of globals, as they were.
    pub(crate) globals: GlobalLog,
}

impl UndoLog {
    pub(crate) fn new(heap: &Heap) -> Self {
        Self {
            entries: Vec::new_in(heap.clone()),
            images: Vec::new_in(heap.clone()),
            globals: GlobalLog::new(heap),
        }
    }

    /// Makes room for one more change of a row of `cells`, and of the texts among them, so that noting
    /// it cannot fail.
    pub(crate) fn reserve(&mut self, cells: usize, texts: usize) -> Result<(), Error> {
        let (entries, images) = (self.entries.capacity(), self.images.capacity());
        self.entries
            .try_reserve(1 + texts)
            .map_err(|_| self.full((2 * entries).max(1) * size_of::<Entry>()))?;
        self.images
            .try_reserve(cells)
            .map_err(|_| self.full((2 * images).max(cells) * size_of::<u64>()))?;
        Ok(())
    }

    /// The log has no room to double: what is full is the shard's heap, not its arena.
    #[cold]
    fn full(&self, asked: usize) -> ArenaFull {
        let heap = self.entries.allocator();
        ArenaFull {
            asked_bytes: asked as u64,
            used_bytes: heap.bytes() as u64,
            bound_bytes: heap.bytes_max() as u64,
            is_disk: false,
        }
    }

    /// Notes changes of one table.
    pub(crate) fn of_table(&mut self, table: u32) -> TableImages<'_> {
        TableImages { log: self, table }
    }

    /// Keeps the changes: slots of deleted rows are free from now on.
    pub(crate) fn commit(&mut self, tables: &mut impl Tables) {
        for &Entry {
            table,
            slot,
            change,
        } in &self.entries
        {
            let Some((mut table, arena)) = tables.changed(table) else {
                continue;
            };
            match change {
                Change::Delete { .. } => table.free_slot(arena, slot),
                Change::Retire { text } => table.free_text(arena, text),
                Change::Insert | Change::Update { .. } => {}
            }
        }
        self.let_pages_go(tables);
        self.clear();
    }

    /// Lets go of the pages that were kept for putting nodes and entries of indexes back.
    fn let_pages_go(&self, tables: &mut impl Tables) {
        let mut last = None;
        let records = self.entries.iter().map(|entry| entry.table);
        for table in self.globals.tables().chain(records) {
            if last.replace(table) != Some(table)
                && let Some((mut changed, _)) = tables.changed(table)
            {
                changed.end_undo();
            }
        }
    }

    /// Puts nodes of globals back. What is missing for that was made sure of before they changed: a
    /// shard in which it fails all the same cannot go on, and is whole again when its file is opened.
    fn put_nodes_back(&mut self, tables: &mut impl Tables) {
        self.let_pages_go(tables);
        while let Some(table) = self.globals.last_table() {
            let part = match tables.changed(table) {
                Some((Changed::Globals(globals), arena)) => Some((globals, arena)),
                _ => None,
            };
            if let Err(error) = self.globals.put_back(part) {
                panic!("a node cannot be put back as it was: {error}");
            }
        }
    }

    /// Takes the changes back, the last one first.
    pub(crate) fn roll_back(&mut self, tables: &mut impl Tables) -> Result<(), Error> {
        let mut result = Ok(());
        self.put_nodes_back(tables);
        while let Some(Entry {
            table,
            slot,
            change,
        }) = self.entries.pop()
        {
            let image = match change {
                Change::Update { cells, .. } => self.images.len() - cells as usize,
                Change::Insert | Change::Delete { .. } | Change::Retire { .. } => self.images.len(),
            };
            if let Some((mut table, arena)) = tables.changed(table) {
                match change {
                    Change::Insert => table.undo_insert(arena, slot),
                    Change::Update { header, .. } => {
                        table.undo_update(arena, slot, header, &self.images[image..])
                    }
                    Change::Delete { header } => {
                        result =
                            result.and(table.undo_delete(arena, slot, header).map_err(Error::from));
                    }
                    Change::Retire { .. } => {}
                }
            }
            self.images.truncate(image);
        }
        self.clear();
        result
    }

    fn clear(&mut self) {
        if self.entries.len() > KEPT_ENTRIES_MAX {
            self.entries = Vec::new_in(self.entries.allocator().clone());
            self.images = Vec::new_in(self.images.allocator().clone());
        }
        self.entries.clear();
        self.images.clear();
        self.globals.clear();
    }
}

/// [`BeforeImages`] of one table, noted in the log. Room was made by [`UndoLog::reserve`].
pub(crate) struct TableImages<'a> {
    log: &'a mut UndoLog,
    table: u32,
}

impl TableImages<'_> {
    fn note(&mut self, slot: u32, change: Change) {
        self.log.entries.push(Entry {
            table: self.table,
            slot,
            change,
        });
    }
}

impl BeforeImages for TableImages<'_> {
    const HOLDS_SLOTS: bool = true;
    const IS_ALONE: bool = false;

    fn inserted(&mut self, slot: u32) {
        self.note(slot, Change::Insert);
    }

    fn updating(&mut self, slot: u32, header: u64, cells: &[u64]) {
        self.log.images.extend_from_slice(cells);
        self.note(
            slot,
            Change::Update {
                header,
                cells: cells.len() as u32,
            },
        );
    }

    fn deleted(&mut self, slot: u32, header: u64) {
        self.note(slot, Change::Delete { header });
    }

    fn retired(&mut self, text: u64) {
        self.note(0, Change::Retire { text });
    }
}
