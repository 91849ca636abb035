//! The records of a part in the order of an index.

use std::ops::ControlFlow;

use super::RecordPart;
use crate::arena::Arena;
use crate::error::{Error, Result};
use crate::table::record::order::slot_of;
use crate::table::record::secondary::{By, Ordered};
use crate::table::{Direction, Place};

impl RecordPart {
    fn ordered(&self, index: usize) -> Result<&Ordered> {
        match self.indexes.get(index).map(|index| &index.by) {
            Some(By::Order(ordered)) => Ok(ordered),
            // The handle is of a time when there was another index.
            _ => Err(Error::TableGone),
        }
    }

    /// Visits the records whose keys in an ordered index are from `start` to below `end`, or to the last
    /// one, in either direction. Those that are reserved for transactions are not there yet.
    pub(crate) fn range(
        &self,
        arena: &Arena,
        index: usize,
        span: (&[u8], Option<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], Place) -> ControlFlow<()>,
    ) -> Result<()> {
        let ordered = self.ordered(index)?;
        ordered.scan(arena, span, direction, |key| {
            match slot_of(key).and_then(|slot| self.living(slot)) {
                Some(place) => visit(key, place),
                None => ControlFlow::Continue(()),
            }
        })
    }

    /// How many records [`range`](Self::range) visits.
    pub(crate) fn count_range(
        &self,
        arena: &Arena,
        index: usize,
        span: (&[u8], Option<&[u8]>),
    ) -> Result<u64> {
        let ordered = self.ordered(index)?;
        if ordered.len(arena)? == self.len() {
            return ordered.count(arena, span.0, span.1);
        }
        let mut count = 0;
        self.range(arena, index, span, Direction::Forward, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}
