//! The rows of a table in the shard at hand: every verb, one at a time or in batches, with no hop.

use std::ops::ControlFlow;

use crate::arena::Arena;
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId, TableKey};
use crate::table::{
    Batch, BatchOperations, BeforeImages, Compared, Means, Outcome, Place, Rolling, Row, RowPart,
    Single, Table, TablePart, Verb, Width,
};
use crate::transaction::UndoLog;

/// A table's rows in one shard, for code that runs there.
///
/// In a transaction ([`Context::rows`](crate::Context::rows)) changes are undone with it; in
/// resident work ([`Resident::rows`](crate::Resident::rows)) each operation is a transaction of its
/// own. Ids of rows in other shards, and keys in a table without, find nothing here.
///
/// Batches are faster than single calls by what prefetching hides: the memory of each operation is
/// asked for while those before it run.
pub struct Rows<'a, R: Row> {
    part: &'a mut TablePart,
    arena: &'a mut Arena,
    undo: Option<&'a mut UndoLog>,
    width: R::Width,
    key: TableKey,
    shard: ShardIndex,
    shards: usize,
    rolling: Rolling<'a>,
}

/// Whether rows may be changed.
#[inline]
fn check_writable(arena: &Arena) -> Result<()> {
    arena.check_writable()
}

/// Runs an operation with the images that its transaction needs.
macro_rules! with_images {
    ($rows:expr, |$images:ident| $operation:expr) => {{
        check_writable($rows.arena)?;
        match &mut $rows.undo {
            None => {
                let $images = &mut Single;
                let result = $operation;
                $rows.part.end_scope($rows.arena);
                result
            }
            Some(undo) => {
                undo.reserve($rows.width.cells(), 0)?;
                $rows.arena.prepare_undoable($rows.part.row_bytes())?;
                let $images = &mut undo.of_table($rows.key.index);
                $operation
            }
        }
    }};
}

impl<'a, R: Row> Rows<'a, R> {
    pub(crate) fn new(
        table: &Table<R>,
        (part, arena): (&'a mut TablePart, &'a mut Arena),
        undo: Option<&'a mut UndoLog>,
        shard: ShardIndex,
        shards: usize,
    ) -> Result<Self> {
        debug_assert_eq!(table.width().cells(), part.columns());
        let (width, key, rolling) = (table.width(), table.key(), Rolling::ALONE);
        Ok(Self {
            part,
            arena,
            undo,
            width,
            key,
            shard,
            shards,
            rolling,
        })
    }

    /// Adds a row, placed in this shard.
    #[inline]
    pub fn insert(&mut self, row: &R) -> Result<DirectId> {
        self.insert_at(None, row)
    }

    /// Adds a row with a key; [`Error::Duplicate`] if there is one. The key must belong to this
    /// shard ([`Engine::shard_of`](crate::Engine::shard_of)).
    #[inline]
    pub fn insert_keyed(&mut self, key: SurrogateId, row: &R) -> Result<DirectId> {
        self.check_keyed()?;
        self.check_owner(key)?;
        self.insert_at(Some(key.0), row)
    }

    #[inline]
    fn insert_at(&mut self, key: Option<u64>, row: &R) -> Result<DirectId> {
        self.check_row(row)?;
        let place = with_images!(self, |images| {
            self.part
                .insert(self.arena, self.width, key, images, |cells| {
                    row.store(cells)
                })
        });
        Ok(self.part.id(place?))
    }

    /// The row, if there is one.
    #[inline]
    pub fn select<I: RowId>(&self, id: I) -> Option<R> {
        let place = self.part.find(id)?;
        Some(R::load(self.part.cells(self.width, place)))
    }

    /// Some columns of a row, in the order asked for.
    pub fn select_columns<I: RowId>(&self, id: I, columns: &[usize]) -> Result<Option<Vec<u64>>> {
        self.check_id::<I>()?;
        columns
            .iter()
            .try_for_each(|&column| self.check_column(column))?;
        let Some(place) = self.part.find(id) else {
            return Ok(None);
        };
        let cells = self.part.cells(self.width, place);
        Ok(Some(columns.iter().map(|&column| cells[column]).collect()))
    }

    /// Replaces a row; says whether there was one.
    #[inline]
    pub fn update<I: RowId>(&mut self, id: I, row: &R) -> Result<bool> {
        self.check_id::<I>()?;
        self.check_row(row)?;
        let Some(place) = self.part.find(id) else {
            return Ok(false);
        };
        self.change(place, |cells| row.store(cells))?;
        Ok(true)
    }

    /// Sets some columns of a row; says whether there was one.
    pub fn update_columns<I: RowId>(&mut self, id: I, values: &[(usize, u64)]) -> Result<bool> {
        self.check_id::<I>()?;
        values
            .iter()
            .try_for_each(|&(column, _)| self.check_column(column))?;
        let Some(place) = self.part.find(id) else {
            return Ok(false);
        };
        self.change(place, |cells| set(cells, values))?;
        Ok(true)
    }

    /// Sets some columns if all of `expected` have these values.
    pub fn update_if<I: RowId>(
        &mut self,
        id: I,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Result<Compared> {
        self.check_id::<I>()?;
        expected
            .iter()
            .chain(values)
            .try_for_each(|&(column, _)| self.check_column(column))?;
        let Some(place) = self.part.find(id) else {
            return Ok(Compared::NotFound);
        };
        let cells = self.part.cells(self.width, place);
        if expected
            .iter()
            .any(|&(column, value)| cells[column] != value)
        {
            return Ok(Compared::Differs);
        }
        self.change(place, |cells| set(cells, values))?;
        Ok(Compared::Updated)
    }

    /// Replaces the row of a key, or adds it; says whether there was one.
    pub fn upsert(&mut self, key: SurrogateId, row: &R) -> Result<bool> {
        self.check_keyed()?;
        self.check_owner(key)?;
        if self.update(key, row)? {
            return Ok(true);
        }
        self.insert_at(Some(key.0), row)?;
        Ok(false)
    }

    /// Removes a row; says whether there was one.
    #[inline]
    pub fn delete<I: RowId>(&mut self, id: I) -> Result<bool> {
        self.check_id::<I>()?;
        let Some(place) = self.part.find(id) else {
            return Ok(false);
        };
        with_images!(self, |images| self.part.delete(self.arena, place, images));
        Ok(true)
    }

    /// Rows of this table in this shard.
    pub fn count(&self) -> u64 {
        self.part.len()
    }

    /// Bytes of this table's rows, and of its index, in this shard.
    pub fn bytes(&self) -> (u64, u64) {
        let space = self.part.space();
        (space.row_bytes, space.index_bytes)
    }

    /// Every row of this shard, in the order of their places.
    pub fn scan(&self) -> impl Iterator<Item = (DirectId, R)> {
        self.scan_slots(0..u32::MAX)
    }

    pub(crate) fn scan_slots(
        &self,
        slots: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (DirectId, R)> {
        self.part.scan(slots).map(|place| {
            (
                self.part.id(place),
                R::load(self.part.cells(self.width, place)),
            )
        })
    }

    /// Every row of this shard, of a keyed table, with its key.
    pub fn scan_keyed(&self) -> Result<impl Iterator<Item = (SurrogateId, R)>> {
        if self.part.is_keyed() {
            Ok(self.scan_keyed_slots(0..u32::MAX))
        } else {
            Err(Error::NotKeyed)
        }
    }

    pub(crate) fn scan_keyed_slots(
        &self,
        slots: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (SurrogateId, R)> {
        self.part.scan(slots).map(|place| {
            (
                SurrogateId(self.part.number(place)),
                R::load(self.part.cells(self.width, place)),
            )
        })
    }

    pub(crate) fn slots_end(&self) -> u32 {
        self.part.slots_end()
    }

    /// Tells which ids the next batch will have: their memory is asked for while this batch runs, so
    /// that short batches, one after the other, run like a long one. A hint; any ids are harmless.
    ///
    /// ```
    /// # use ancile::{Engine, Schema, DirectId};
    /// # let engine = Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
    /// # let table = engine.create_table::<[u64; 1]>("t", Schema::cells(1))?;
    /// let sum = engine.spawn(0, move |resident| {
    ///     let mut ids = Vec::new();
    ///     let rows = vec![[1]; 1_000];
    ///     resident.rows(&table)?.insert_batch(&rows, &mut ids)?;
    ///     let mut sum = 0;
    ///     let mut batches = ids.chunks(64).peekable();
    ///     while let Some(batch) = batches.next() {
    ///         let next = batches.peek().copied().unwrap_or_default();
    ///         let mut rows = resident.rows(&table)?.followed_by(next);
    ///         rows.select_each(batch, |_, row| sum += row.map_or(0, |[value]| *value));
    ///     }
    ///     Ok::<_, ancile::Error>(sum)
    /// })?;
    /// assert_eq!(sum.join()??, 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn followed_by<I: RowId>(mut self, next: &'a [I]) -> Self {
        self.rolling.next = I::raw_slice(next);
        self
    }

    /// Starts reading the rows of these ids, so that they are there when they are needed. A hint; any
    /// ids are harmless. By key this waits for the lines of the index, all at once.
    #[inline]
    pub fn prepare<I: RowId>(&self, ids: &[I]) {
        self.part.prepare(self.width, ids);
    }

    /// As [`followed_by`](Self::followed_by), where the next batch is a [`Batch`].
    #[inline]
    pub fn followed_by_batch<I: RowId>(mut self, next: &'a Batch<R, I>) -> Self {
        self.rolling.next = next.view().1.ids();
        self
    }

    /// Visits the row of each id in order.
    #[inline]
    pub fn select_each<I: RowId>(&mut self, ids: &[I], mut visit: impl FnMut(usize, Option<&R>)) {
        let width = self.width;
        self.part.each(
            width,
            self.rolling,
            ids.len(),
            |at| ids[at],
            |part, at, place| match place {
                Some(place) => R::view(part.cells(width, place), |row| visit(at, Some(row))),
                None => visit(at, None),
            },
        );
    }

    /// Replaces the row of each id; says how many there were.
    #[inline]
    pub fn update_batch<I: RowId>(&mut self, ids: &[I], rows: &[R]) -> Result<usize> {
        self.check_id::<I>()?;
        check_lengths("ids and rows", ids.len(), rows.len())?;
        rows.iter().try_for_each(|row| self.check_row(row))?;
        check_writable(self.arena)?;
        let mut updated = 0;
        if self.undo.is_some() {
            for (&id, row) in ids.iter().zip(rows) {
                updated += usize::from(self.update(id, row)?);
            }
            return Ok(updated);
        }
        let (width, arena) = (self.width, &mut *self.arena);
        self.part.each(
            width,
            self.rolling,
            ids.len(),
            |at| ids[at],
            |part, at, place| {
                if let Some(place) = place {
                    part.update(arena, width, place, &mut Single, |cells| {
                        rows[at].store(cells)
                    });
                    updated += 1;
                }
            },
        );
        self.part.end_scope(self.arena);
        Ok(updated)
    }

    /// Removes the row of each id; says how many there were.
    #[inline]
    pub fn delete_batch<I: RowId>(&mut self, ids: &[I]) -> Result<usize> {
        self.check_id::<I>()?;
        check_writable(self.arena)?;
        let mut deleted = 0;
        if self.undo.is_some() {
            for &id in ids {
                deleted += usize::from(self.delete(id)?);
            }
            return Ok(deleted);
        }
        let (width, arena) = (self.width, &mut *self.arena);
        self.part.each(
            width,
            Rolling {
                part: RowPart::Head,
                ..self.rolling
            },
            ids.len(),
            |at| ids[at],
            |part, _, place| {
                if let Some(place) = place {
                    part.delete(arena, place, &mut Single);
                    deleted += 1;
                }
            },
        );
        self.part.end_scope(self.arena);
        Ok(deleted)
    }

    /// Adds rows, placed in this shard; their ids are appended to `ids`. On an error those before it
    /// are there, and in `ids`.
    #[inline]
    pub fn insert_batch(&mut self, rows: &[R], ids: &mut Vec<DirectId>) -> Result<()> {
        rows.iter().try_for_each(|row| self.check_row(row))?;
        check_writable(self.arena)?;
        ids.reserve(rows.len());
        if self.undo.is_some() {
            for row in rows {
                ids.push(self.insert(row)?);
            }
            return Ok(());
        }
        let mut result = Ok(());
        let done = |_, made: Result<DirectId>| match made {
            Ok(id) => {
                ids.push(id);
                ControlFlow::Continue(())
            }
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        };
        let fill = |at: usize, cells: &mut [u64]| rows[at].store(cells);
        self.part
            .insert_each(self.arena, self.width, rows.len(), fill, done);
        self.part.end_scope(self.arena);
        result
    }

    /// Adds rows with keys of this shard; says how many were added. Rows whose key exists are left
    /// out; on another error those before it are there.
    #[inline]
    pub fn insert_keyed_batch(&mut self, keys: &[SurrogateId], rows: &[R]) -> Result<usize> {
        self.check_keyed()?;
        check_lengths("keys and rows", keys.len(), rows.len())?;
        rows.iter().try_for_each(|row| self.check_row(row))?;
        keys.iter().try_for_each(|&key| self.check_owner(key))?;
        check_writable(self.arena)?;
        let (mut inserted, mut result) = (0, Ok(()));
        let mut done = |made: Result<()>| {
            match made {
                Ok(()) => inserted += 1,
                Err(Error::Duplicate { .. }) => {}
                Err(error) => {
                    result = Err(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        if self.undo.is_some() {
            for (key, row) in keys.iter().zip(rows) {
                if done(self.insert_at(Some(key.0), row).map(drop)).is_break() {
                    break;
                }
            }
        } else {
            let fill = |at: usize, cells: &mut [u64]| rows[at].store(cells);
            let done = |_: &TablePart, _, made: Result<Place>| done(made.map(drop));
            let (width, key_at) = (self.width, |at: usize| keys[at].0);
            let means = Means {
                arena: self.arena,
                width,
                images: &mut Single,
            };
            self.part
                .insert_each_key(means, self.rolling, keys.len(), key_at, fill, done);
            self.part.end_scope(self.arena);
        }
        result.map(|()| inserted)
    }

    /// Runs a mixture of operations on this table in order; [`Batch::outcomes`] tells what became of
    /// each. Ids of other shards find nothing, and keys of other shards are not inserted.
    pub fn run<I: RowId>(&mut self, batch: &mut Batch<R, I>) -> Result<()> {
        batch.keep_outcomes(|batch, keep| self.run_each(batch, keep))
    }

    /// Runs a mixture of operations in order and visits what became of each, with its number. The
    /// batch stays as it is, and can be run again.
    #[inline]
    pub fn run_each<I: RowId>(
        &mut self,
        batch: &Batch<R, I>,
        mut visit: impl FnMut(usize, Outcome<&R>),
    ) -> Result<()> {
        let (table, operations) = batch.view();
        if table.key() != self.key {
            return Err(Error::TableGone);
        }
        self.check_owners(operations)?;
        if operations.changes() {
            check_writable(self.arena)?;
        }
        let (width, count) = (self.width, operations.len());
        let key = self.key.index;
        if let Some(undo) = &mut self.undo {
            for at in 0..count {
                undo.reserve(width.cells(), 0)?;
                self.arena.prepare_undoable(self.part.row_bytes())?;
                let place = self.part.find(operations.id(at));
                let means = Means {
                    arena: self.arena,
                    width,
                    images: &mut undo.of_table(key),
                };
                one(self.part, means, operations, at, place, |outcome| {
                    visit(at, outcome)
                });
            }
            return Ok(());
        }
        let arena = &mut *self.arena;
        self.part.each(
            width,
            self.rolling,
            count,
            |at| operations.id(at),
            |part, at, place| {
                let means = Means {
                    arena,
                    width,
                    images: &mut Single,
                };
                one(part, means, operations, at, place, |outcome| {
                    visit(at, outcome)
                });
            },
        );
        self.part.end_scope(self.arena);
        Ok(())
    }

    /// Whether the keys that a batch inserts belong to this shard.
    fn check_owners<I: RowId>(&self, operations: &BatchOperations<I>) -> Result<()> {
        if !I::KEYED {
            return Ok(());
        }
        (0..operations.len())
            .filter(|&at| matches!(operations.verb(at), Verb::Insert | Verb::Upsert))
            .try_for_each(|at| self.check_owner(SurrogateId(operations.id(at).raw())))
    }

    #[inline]
    fn change(&mut self, place: Place, change: impl FnOnce(&mut [u64])) -> Result<()> {
        with_images!(self, |images| self
            .part
            .update(self.arena, self.width, place, images, change));
        Ok(())
    }

    /// Whether rows of this table have ids of this kind.
    #[inline]
    fn check_id<I: RowId>(&self) -> Result<()> {
        if I::KEYED { self.check_keyed() } else { Ok(()) }
    }

    #[inline]
    fn check_keyed(&self) -> Result<()> {
        if self.part.is_keyed() {
            Ok(())
        } else {
            Err(Error::NotKeyed)
        }
    }

    #[inline]
    fn check_owner(&self, key: SurrogateId) -> Result<()> {
        let owner = key.shard_of(self.shards);
        if owner == self.shard {
            Ok(())
        } else {
            Err(Error::OtherShard {
                key: key.0,
                owner,
                shard: self.shard,
            })
        }
    }

    #[inline]
    fn check_row(&self, row: &R) -> Result<()> {
        let (given, columns) = (row.columns(), self.width.cells());
        if given == columns {
            Ok(())
        } else {
            Err(Error::Width { given, columns })
        }
    }

    fn check_column(&self, column: usize) -> Result<()> {
        let columns = self.width.cells();
        if column < columns {
            Ok(())
        } else {
            Err(Error::Column { column, columns })
        }
    }
}

/// Executes one operation of a batch and shows what became of it.
#[inline(always)]
fn one<R: Row, I: RowId>(
    part: &mut TablePart,
    means: Means<'_, R::Width, impl BeforeImages>,
    operations: &BatchOperations<I>,
    at: usize,
    place: Option<Place>,
    show: impl FnOnce(Outcome<&R>),
) {
    let (verb, width) = (operations.verb(at), means.width);
    match (verb, place) {
        (Verb::Select, Some(place)) => {
            R::view(part.cells(width, place), |row| show(Outcome::Selected(row)));
        }
        _ => {
            let fill = |cells: &mut [u64]| cells.copy_from_slice(operations.row(at));
            let done = part.one(means, verb, operations.id(at), place, fill);
            show(Outcome::without_row(verb, done.code, done.id, done.detail));
        }
    }
}

fn set(cells: &mut [u64], values: &[(usize, u64)]) {
    for &(column, value) in values {
        cells[column] = value;
    }
}

pub(crate) fn check_lengths(what: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right {
        Ok(())
    } else {
        Err(Error::Lengths { what, left, right })
    }
}
