//! What is whole of a database that cannot be opened.

use std::path::Path;

use super::{Finding, Survey, SurveyedShard};
use crate::arena::Entry;
use crate::collation::GlobalKeyRef;
use crate::engine::{TableInfo, TableSchema, indexed_table};
use crate::error::{OpenError, TableError};
use crate::id::{DirectId, SurrogateId};
use crate::shard::{Content, TableShape};
use crate::table::{
    Cell, Codec, Kind, LeftOut, Schema, Timestamp, Value, salvage_globals, salvage_records,
    salvage_rows,
};

/// What is whole of a database that cannot be opened any more: it was open when the system went down,
/// or parts of its files are damaged.
///
/// With journals, each shard whose journal is whole is taken as it was at the end of the newest epoch of
/// all of those; one whose journal is damaged as it was at the end of the last epoch before the damage, so
/// that transactions over it and others may be there in part. Pages of images that do not have their
/// checksums are left out. What is missing is told ([`lost`](Self::lost)).
///
/// Indexes are not trusted: rows are taken from where they lie, and each must be whole in itself. Its
/// key must belong to its shard, and no second row have it; its texts must lie where they should, and
/// name it. Nothing is changed.
///
/// ```no_run
/// let mut salvage = ancile::Salvage::open("/dev/shm/accounts")?;
/// for table in salvage.tables() {
///     let count = salvage.rows(&table.name, |row| println!("{:?}", row.values))?;
///     println!("{}: {} rows, left out: {:?}", table.name, count.rows, count.left_out);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Salvage {
    survey: Survey,
    lost: Vec<Finding>,
}

/// A row, or a record, that is whole.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SalvagedRow {
    /// Where it lies.
    pub id: DirectId,
    /// Its key, in keyed tables of rows.
    pub key: Option<SurrogateId>,
    /// The values of its columns, or fields.
    pub values: Vec<Value>,
}

/// What was saved of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageCount {
    /// Rows that are whole.
    pub rows: u64,
    /// What was left out: why, and how much.
    pub left_out: Vec<(String, u64)>,
}

impl Salvage {
    /// Opens a database, whatever is wrong with its files. Its directory must have a manifest that can
    /// be read, and nobody may have it open.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let (survey, lost) = Survey::salvage(path.as_ref())?;
        Ok(Self { survey, lost })
    }

    /// What of the files cannot be read: what was there is not counted by [`rows`](Self::rows).
    pub fn lost(&self) -> &[Finding] {
        &self.lost
    }

    /// The tables.
    pub fn tables(&self) -> Vec<TableInfo> {
        let tables = self.survey.tables.iter();
        let tables = tables.filter(|(table, _)| indexed_table(&table.name).is_none());
        tables
            .map(|(table, _)| TableInfo {
                name: table.name.clone(),
                schema: table.schema.clone(),
            })
            .collect()
    }

    /// Visits every row of a table that is whole, shard by shard; globals have none, but
    /// [`nodes`](Self::nodes).
    pub fn rows(
        &mut self,
        table: &str,
        mut visit: impl FnMut(SalvagedRow),
    ) -> Result<SalvageCount, TableError> {
        let mut tables = self.survey.tables.iter();
        let found = tables.find(|(stored, _)| stored.name == table);
        let (stored, shape) = found.ok_or_else(|| TableError::Missing(table.to_owned()))?;
        let (mut rows, mut left) = (0, LeftOut::default());
        let shards = self.survey.shards.len();
        for (index, surveyed) in self.survey.shards.iter_mut().enumerate() {
            surveyed.rows(
                (index, shards),
                shape,
                &stored.schema,
                &mut left,
                &mut |row| {
                    rows += 1;
                    visit(row);
                },
            );
        }
        Ok(count_of(rows, left))
    }

    /// Visits every node of a set of globals that is whole, shard by shard, in order: nothing of tables. Nodes are
    /// counted as rows.
    ///
    /// Leaves are read from where they lie, whatever is above them. A leaf is left out whole if anything in it
    /// does not fit, its values apart: these cannot tell whether they are whole. Nor can the first leaf of all, and
    /// the last, whether what all of its keys begin with is right.
    pub fn nodes(
        &mut self,
        table: &str,
        mut visit: impl FnMut(GlobalKeyRef<'_>, &[u8]),
    ) -> Result<SalvageCount, TableError> {
        let mut tables = self.survey.tables.iter();
        let found = tables.find(|(stored, _)| stored.name == table);
        let (_, shape) = found.ok_or_else(|| TableError::Missing(table.to_owned()))?;
        let (mut nodes, mut left) = (0, LeftOut::default());
        let shards = self.survey.shards.len();
        for (index, surveyed) in self.survey.shards.iter_mut().enumerate() {
            nodes += surveyed.nodes((index, shards), shape, &mut left, &mut visit);
        }
        Ok(count_of(nodes, left))
    }
}

fn count_of(rows: u64, left: LeftOut) -> SalvageCount {
    let counts = left.into_counts();
    SalvageCount {
        rows,
        left_out: counts.map(|(why, count)| (why.to_owned(), count)).collect(),
    }
}

impl SurveyedShard {
    fn nodes(
        &mut self,
        place: (usize, usize),
        table: &TableShape,
        left: &mut LeftOut,
        visit: &mut dyn FnMut(GlobalKeyRef<'_>, &[u8]),
    ) -> u64 {
        let Content::Globals(routing) = table.content else {
            return 0;
        };
        let Some(shard) = &mut self.shard else {
            left.note("files that could not be opened");
            return 0;
        };
        let entries = self.entries.iter().copied();
        let own: Vec<Entry> = entries.filter(|entry| table.owns(entry)).collect();
        let arena = shard.catalog.arena();
        salvage_globals(arena, place, routing, (table.name(), &own), left, visit)
    }

    fn rows(
        &mut self,
        place: (usize, usize),
        table: &TableShape,
        schema: &TableSchema,
        left: &mut LeftOut,
        visit: &mut dyn FnMut(SalvagedRow),
    ) {
        let Some(shard) = &mut self.shard else {
            return left.note("files that could not be opened");
        };
        let entries = self.entries.iter().copied();
        let own: Vec<Entry> = entries.filter(|entry| table.owns(entry)).collect();
        let arena = shard.catalog.arena();
        match (&table.content, schema) {
            (Content::Rows { columns, keyed }, TableSchema::Rows(schema)) => salvage_rows(
                arena,
                place,
                (*columns, *keyed),
                (table.name(), &own),
                left,
                &mut |id, key, cells| {
                    let key = key.map(SurrogateId);
                    let values = values(schema, cells);
                    visit(SalvagedRow { id, key, values });
                },
            ),
            (Content::Records(records), _) => {
                let mut unread = 0;
                salvage_records(
                    arena,
                    place,
                    records,
                    (table.name(), &own),
                    left,
                    &mut |id, image| match Codec::new(&records.shape).read(*image) {
                        Ok(values) => visit(SalvagedRow {
                            id,
                            key: None,
                            values,
                        }),
                        Err(_) => unread += 1,
                    },
                );
                (0..unread).for_each(|_| left.note("records with damaged values"));
            }
            _ => {}
        }
    }
}

/// The values of a row.
fn values(schema: &Schema, cells: &[u64]) -> Vec<Value> {
    let columns = schema.columns().iter().zip(cells);
    columns
        .map(|(column, &cell)| match column.kind {
            Kind::U64 => Value::U64(cell),
            Kind::I64 => Value::I64(Cell::from_cell(cell)),
            Kind::F64 => Value::F64(Cell::from_cell(cell)),
            Kind::Timestamp => Value::Timestamp(Timestamp::from_cell(cell)),
        })
        .collect()
}
