//! Looking over all tables of a shard: what they use, and whether they are whole.

use super::{Catalog, Part};
use crate::arena::Arena;
use crate::error::Faults;
use crate::id::{ShardIndex, TableKey};
use crate::table::{PartSpace, RecordPart};

impl Catalog {
    /// What each table uses, by its place in the catalog.
    pub(crate) fn space(&self) -> Vec<(u32, PartSpace)> {
        let tables = (0_u32..).zip(&self.tables);
        let space = tables.filter_map(|(place, table)| {
            let space = match &table.as_ref()?.1 {
                Part::Rows(part) => part.space(),
                Part::Records(part) => part.space(&self.arena),
                Part::Globals(part) => part.space(&self.arena),
            };
            Some((place, space))
        });
        space.collect()
    }

    fn part(&self, key: TableKey) -> Option<&Part> {
        match self.tables.get(key.index as usize) {
            Some(Some((stamp, part))) if *stamp == key.stamp => Some(part),
            _ => None,
        }
    }

    /// Tells of everything that is wrong with a table's part; the number of its rows.
    pub(crate) fn check(
        &self,
        key: TableKey,
        (shard, shards): (ShardIndex, usize),
        faults: &mut Faults,
    ) -> u64 {
        match self.part(key) {
            None => 0,
            Some(Part::Rows(part)) => {
                part.check(shard, shards, faults);
                part.len()
            }
            Some(Part::Records(part)) => {
                part.check(&self.arena, shard, shards, faults);
                part.len()
            }
            Some(Part::Globals(part)) => part.check(&self.arena, shards, faults),
        }
    }

    /// A table of records, to be looked at.
    pub(crate) fn records_to_look_at(&self, key: TableKey) -> Option<(&RecordPart, &Arena)> {
        match self.part(key)? {
            Part::Records(part) => Some((part, &self.arena)),
            Part::Rows(_) | Part::Globals(_) => None,
        }
    }
}
