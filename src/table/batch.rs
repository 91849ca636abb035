//! Operations gathered by a program, to be run together, and what became of them.

use std::marker::PhantomData;

use super::{Block, Code, Rolling, Row, Table, Verb, Verbs, Width};
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, SurrogateId};

/// Any mixture of operations on one table, run in order within each shard.
///
/// Each operation is a transaction of its own. Made once and [`clear`](Self::clear)ed between uses,
/// a batch allocates nothing once it has grown to its usual size.
///
/// ```
/// use ancile::{Batch, DirectId, Engine, Outcome, Schema, Verbs};
/// let engine = Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
/// let table = engine.create_table::<[u64; 2]>("pairs", Schema::cells(2))?;
/// let mut session = engine.session()?;
/// let id = session.insert(&table, &[1, 2])?;
///
/// let mut batch = Batch::<[u64; 2], DirectId>::new(&table, 3);
/// batch.update(id, &[3, 4])?;
/// batch.select(id)?;
/// batch.delete(id)?;
/// session.run(&mut batch)?;
/// assert_eq!(batch.outcomes().collect::<Vec<_>>(), [Outcome::Updated, Outcome::Selected([3, 4]), Outcome::Deleted]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<R: Row, I: RowId> {
    table: Table<R>,
    operations: BatchOperations<I>,
}

/// The operations of a batch, side by side as in a block.
pub(crate) struct BatchOperations<I> {
    cells: usize,
    ids: Vec<u64>,
    verbs: Vec<Verb>,
    outcomes: Vec<Code>,
    rows: Vec<u64>,
    id: PhantomData<I>,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome<R> {
    /// A select found this row.
    Selected(R),
    /// An update or upsert found a row and replaced it.
    Updated,
    /// An insert or upsert added a row, which has this place.
    Inserted(DirectId),
    /// A delete removed a row.
    Deleted,
    /// There is no such row.
    NotFound,
    /// The operation changed nothing.
    Failed(Error),
}

impl<R: Row> Outcome<R> {
    /// The outcome of an operation, from the parts of its block.
    pub(crate) fn new(verb: Verb, code: Code, id: u64, cells: &[u64]) -> Self {
        match (code, verb) {
            (Code::Done, Verb::Select) => Self::Selected(R::load(cells)),
            (Code::Done, Verb::Update | Verb::Upsert) => Self::Updated,
            (Code::Done, Verb::Delete) => Self::Deleted,
            (Code::Done, Verb::Insert) | (Code::Inserted, _) => {
                Self::Inserted(DirectId::from_u64(id))
            }
            (Code::NotFound, _) => Self::NotFound,
            _ => Self::Failed(code.to_error(id, cells[0]).unwrap_or(Error::Closed)),
        }
    }
}

impl<R: Row, I: RowId> Batch<R, I> {
    /// No operations yet, room for `capacity`.
    pub fn new(table: &Table<R>, capacity: usize) -> Self {
        let cells = table.width().cells();
        let operations = BatchOperations {
            cells,
            ids: Vec::with_capacity(capacity),
            verbs: Vec::with_capacity(capacity),
            outcomes: Vec::with_capacity(capacity),
            rows: Vec::with_capacity(capacity * cells),
            id: PhantomData,
        };
        Self {
            table: table.clone(),
            operations,
        }
    }

    /// Adds a select.
    #[inline]
    pub fn select(&mut self, id: I) -> Result<()> {
        self.table.check_id::<I>()?;
        self.push(Verb::Select, id.raw(), None);
        Ok(())
    }

    /// Adds an update.
    #[inline]
    pub fn update(&mut self, id: I, row: &R) -> Result<()> {
        self.table.check_id::<I>()?;
        self.table.check_row(row)?;
        self.push(Verb::Update, id.raw(), Some(row));
        Ok(())
    }

    /// Adds a delete.
    #[inline]
    pub fn delete(&mut self, id: I) -> Result<()> {
        self.table.check_id::<I>()?;
        self.push(Verb::Delete, id.raw(), None);
        Ok(())
    }

    /// Operations in the batch.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all operations, keeps the memory.
    pub fn clear(&mut self) {
        self.operations.clear();
    }

    /// What became of each operation, in the order in which they were added. Of operations that were
    /// not run: `Failed(Closed)`.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<R>> {
        let BatchOperations {
            ids,
            verbs,
            outcomes,
            ..
        } = &self.operations;
        (0..self.len())
            .map(|at| Outcome::new(verbs[at], outcomes[at], ids[at], self.operations.row(at)))
    }

    /// The table, and the operations on it, to look at.
    pub(crate) fn view(&self) -> (&Table<R>, &BatchOperations<I>) {
        (&self.table, &self.operations)
    }

    /// The table, and the operations on it.
    pub(crate) fn parts(&mut self) -> (&Table<R>, &mut BatchOperations<I>) {
        (&self.table, &mut self.operations)
    }

    #[inline(always)]
    fn push(&mut self, verb: Verb, id: u64, row: Option<&R>) {
        let cells = self.operations.push(verb, id);
        if let Some(row) = row {
            row.store(cells);
        }
    }
}

impl<I: RowId> BatchOperations<I> {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.verbs.clear();
        self.outcomes.clear();
        // The rows stay, so that their memory is not cleared once more by the next use.
    }

    /// Adds an operation; gives the cells of its row.
    #[inline(always)]
    fn push(&mut self, verb: Verb, id: u64) -> &mut [u64] {
        let start = self.ids.len() * self.cells;
        self.ids.push(id);
        self.verbs.push(verb);
        self.outcomes.push(Code::Pending);
        if self.rows.len() < start + self.cells {
            self.rows.resize(start + self.cells, 0);
        }
        &mut self.rows[start..start + self.cells]
    }

    /// The ids of all operations, as plain numbers; 0 for inserts without a key.
    pub(crate) fn ids(&self) -> &[u64] {
        &self.ids
    }

    #[inline(always)]
    pub(crate) fn verb(&self, at: usize) -> Verb {
        self.verbs[at]
    }

    #[inline(always)]
    pub(crate) fn id(&self, at: usize) -> I {
        I::from_raw(self.ids[at])
    }

    #[inline(always)]
    pub(crate) fn row(&self, at: usize) -> &[u64] {
        &self.rows[at * self.cells..][..self.cells]
    }

    /// Takes what became of an operation.
    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, code: Code, id: u64, cells: &[u64]) {
        self.outcomes[at] = code;
        self.ids[at] = id;
        match (self.verbs[at], code) {
            (Verb::Select, Code::Done) => {
                self.rows[at * self.cells..][..self.cells].copy_from_slice(cells);
            }
            (_, Code::ArenaFull) => self.rows[at * self.cells] = cells[0],
            _ => {}
        }
    }

    /// The operations as a block of a shard.
    pub(crate) fn block<'a>(&'a mut self, rolling: Rolling<'a>) -> Block<'a> {
        Block {
            rows: &mut self.rows[..self.ids.len() * self.cells],
            ids: &mut self.ids,
            verbs: Verbs::Each(&self.verbs),
            outcomes: &mut self.outcomes,
            rolling,
        }
    }
}

impl<R: Row> Batch<R, DirectId> {
    /// Adds an insert; its outcome tells the place of the row.
    #[inline]
    pub fn insert(&mut self, row: &R) -> Result<()> {
        self.table.check_insert::<DirectId>()?;
        self.table.check_row(row)?;
        self.push(Verb::Insert, 0, Some(row));
        Ok(())
    }
}

impl<R: Row> Batch<R, SurrogateId> {
    /// Adds an insert with a key.
    #[inline]
    pub fn insert(&mut self, key: SurrogateId, row: &R) -> Result<()> {
        self.table.check_insert::<SurrogateId>()?;
        self.table.check_row(row)?;
        self.push(Verb::Insert, key.0, Some(row));
        Ok(())
    }

    /// Adds an upsert.
    #[inline]
    pub fn upsert(&mut self, key: SurrogateId, row: &R) -> Result<()> {
        self.table.check_insert::<SurrogateId>()?;
        self.table.check_row(row)?;
        self.push(Verb::Upsert, key.0, Some(row));
        Ok(())
    }
}
