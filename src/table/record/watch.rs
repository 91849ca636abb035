//! Which records change while a unique index is made of a table in use.
//!
//! A shard cannot keep a unique index: its entries are records of another table, in any shards. So
//! whoever makes one lets every shard note the entries of all records that change meanwhile, before and
//! after, and looks those records up again. What is noted may be of a change that was taken back: it says
//! where to look, not what is there.

use std::sync::Arc;

use super::image::Values;
use super::part::{RecordPart, RecordShape};
use super::shape::{Shape, Spot};
use crate::arena::Arena;
use crate::table::Place;

/// What is noted of the records that change.
pub(super) struct Watch {
    /// The fields of an entry: those of the index, and the key's.
    fields: Vec<Spot>,
    /// Fields of the index: without values in all of them a record has no entry.
    needed: usize,
    /// What entries look like.
    shape: Shape,
    /// The images of entries.
    noted: Vec<u64>,
}

impl RecordPart {
    /// Notes the entries of records that change from now on, of an index over some fields.
    pub(crate) fn watch(&mut self, index: &[Spot], shape: &Shape) {
        let fields = index.iter().chain(&self.shape.shape.key).copied();
        self.watch = Some(Box::new(Watch {
            fields: fields.collect(),
            needed: index.len(),
            shape: shape.clone(),
            noted: Vec::new(),
        }));
    }

    /// The images that were noted since the last call.
    pub(crate) fn take_noted(&mut self) -> Vec<u64> {
        let watch = self.watch.as_mut();
        watch.map_or_else(Vec::new, |watch| std::mem::take(&mut watch.noted))
    }

    /// Notes nothing any more.
    pub(crate) fn end_watch(&mut self) {
        self.watch = None;
    }

    /// Takes the unique indexes of a shape that is the part's own otherwise.
    pub(crate) fn set_shape(&mut self, shape: Arc<RecordShape>) {
        self.shape = shape;
    }

    /// Notes the entry of a record as it is now, before or after a change.
    #[inline]
    pub(super) fn note(&mut self, arena: &Arena, place: Place) {
        if self.watch.is_some() {
            self.note_entry(arena, place);
        }
    }

    #[cold]
    fn note_entry(&mut self, arena: &Arena, place: Place) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        let Watch {
            fields,
            needed,
            shape,
            noted,
        } = &mut *watch;
        let row = self.values(arena, place);
        row.pick(fields.iter().copied(), *needed, shape, noted);
        self.watch = Some(watch);
    }
}
