//! What a shard and the writer of its journal tell each other, between two scopes.

use std::sync::Arc;

use super::Shard;
use crate::arena::{Entry, Extent, ExtentKind, ExtentUse, Redo};
use crate::error::ArenaFull;
use crate::journal::{ToShard, ToWriter, WriterQueue};

/// Frozen pages that are copied for a checkpoint at once: so long the shard serves nobody.
const PAGES_AT_ONCE: usize = 32;

/// A shard's way to the writer.
pub(super) struct Journaled {
    queue: Arc<WriterQueue>,
    /// What has become of the files, once they are closed.
    closed: Option<Result<(), String>>,
    /// Where the database's tables are noted, in the shard that keeps them.
    tables: Option<Extent>,
}

impl Shard {
    /// Makes the shard one whose changes go into a journal.
    pub(crate) fn set_writer(&mut self, queue: Arc<WriterQueue>) {
        self.writer = Some(Journaled {
            queue,
            closed: None,
            tables: None,
        });
    }

    /// Takes back where the tables are noted, from the extents of the opened arena.
    pub(super) fn find_noted_tables(&mut self, own: &[Entry]) {
        let noted = own
            .iter()
            .find(|entry| entry.use_.kind == ExtentKind::Tables);
        if let Some(writer) = &mut self.writer {
            writer.tables = noted.map(|entry| entry.extent);
        }
    }

    /// Notes the tables of the database in this shard's memory, in place of what was noted before.
    pub(crate) fn note_tables(&mut self, text: &str) -> Result<(), ArenaFull> {
        let arena = self.catalog.arena();
        arena.prepare(0)?;
        let extent = arena.write_text(text, ExtentUse::new(0, ExtentKind::Tables, 0))?;
        let before = self
            .writer
            .as_mut()
            .and_then(|writer| writer.tables.replace(extent));
        if let Some(before) = before {
            self.catalog.arena().release(before);
        }
        self.catalog.end_scope();
        Ok(())
    }

    fn redo(&mut self) -> Option<&mut Redo> {
        self.catalog.arena().redo()
    }

    /// Whether so much waits for the disk that no request is to be served before it has caught up.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.writer.is_some() && self.catalog.is_held_up()
    }

    /// Whether the writer is about to ask for a seal, because somebody waits for one.
    pub(crate) fn awaits_seal(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| {
            let clock = writer.queue.clock();
            clock.is_flagged(self.index) && clock.wanted() > clock.durable()
        })
    }

    /// Gives the writer the blocks that are full, or all.
    #[inline]
    pub(super) fn hand_over(&mut self, wants_all: bool) {
        if self.writer.is_some() {
            self.hand_blocks_over(wants_all);
        }
    }

    fn hand_blocks_over(&mut self, wants_all: bool) {
        let Some(Journaled { queue, .. }) = &self.writer else {
            return;
        };
        let Some(redo) = self.catalog.arena().redo() else {
            return;
        };
        while let Some(block) = redo.next_block(wants_all) {
            queue.send(self.index, ToWriter::Block(block));
        }
    }

    fn tell_writer(&self, told: ToWriter) {
        if let Some(Journaled { queue, .. }) = &self.writer {
            queue.send(self.index, told);
        }
    }

    /// Does what the writer asks for, or takes what it tells.
    pub(super) fn hear(&mut self, told: ToShard) {
        let arena_bytes = self.catalog.arena().bound_bytes();
        let Some(redo) = self.redo() else { return };
        match told {
            ToShard::Seal(seal) => {
                redo.seal(&seal);
                self.hand_over(true);
            }
            ToShard::Report(mut report) => redo.take_back(&mut report),
            ToShard::Freeze => {
                let (mark, pages) = redo.freeze();
                // The mark first, so that its place is looked for when it is written.
                self.tell_writer(ToWriter::Frozen {
                    mark,
                    pages,
                    arena_bytes,
                });
                self.hand_over(true);
            }
            ToShard::Pages => {
                let pages = redo.take_frozen(PAGES_AT_ONCE);
                self.tell_writer(ToWriter::Pages(pages));
            }
            ToShard::Thaw(pages) => redo.thaw(&pages),
            ToShard::Load { first, content } => {
                self.catalog.arena().load(first, &content);
                self.tell_writer(ToWriter::Loaded);
            }
            ToShard::Closed(result) => {
                if let Some(writer) = &mut self.writer {
                    writer.closed = Some(result);
                }
            }
        }
    }

    /// Tells the writer, if there is one, that nothing will be changed any more; false without one.
    pub(crate) fn begin_close(&mut self) -> bool {
        self.catalog.end_scope();
        self.hand_over(true);
        self.tell_writer(ToWriter::Ended);
        self.writer.is_some()
    }

    /// What has become of the files, once they are closed.
    pub(crate) fn closed(&mut self) -> Option<Result<(), String>> {
        self.writer.as_mut()?.closed.take()
    }

    /// Tells the writer that the shard has failed.
    pub(crate) fn give_up_journal(&self, reason: String) {
        self.tell_writer(ToWriter::Failed(reason));
    }
}
