//! Operations gathered by a program, to be run together, and what became of them.

use std::marker::PhantomData;

use super::{Code, Row, Table, Verb, Width};
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
/// assert_eq!(batch.outcomes(), [Outcome::Updated, Outcome::Selected([3, 4]), Outcome::Deleted]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<R: Row, I: RowId> {
    table: Table<R>,
    operations: BatchOperations<I>,
    outcomes: Vec<Outcome<R>>,
}

/// The operations of a batch, side by side as in a block.
pub(crate) struct BatchOperations<I> {
    cells: usize,
    ids: Vec<u64>,
    verbs: Vec<Verb>,
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

impl<R> Outcome<R> {
    /// The outcome of an operation, from the parts of its block.
    pub(crate) fn new(verb: Verb, code: Code, id: u64, cells: &[u64]) -> Self
    where
        R: Row,
    {
        match (code, verb) {
            (Code::Done, Verb::Select) => Self::Selected(R::load(cells)),
            _ => Self::without_row(verb, code, id, cells[0]),
        }
    }

    /// The outcome of an operation that found no row to show; `detail` belongs to an error.
    pub(crate) fn without_row(verb: Verb, code: Code, id: u64, detail: u64) -> Self {
        match (code, verb) {
            (Code::Done, Verb::Update | Verb::Upsert) => Self::Updated,
            (Code::Done, Verb::Delete) => Self::Deleted,
            (Code::Done, Verb::Insert) | (Code::Inserted, _) => {
                Self::Inserted(DirectId::from_u64(id))
            }
            (Code::NotFound, _) => Self::NotFound,
            _ => Self::Failed(code.to_error(id, detail).unwrap_or(Error::Closed)),
        }
    }
}

impl<R: Clone> Outcome<&R> {
    /// The outcome with a row of its own.
    pub fn cloned(self) -> Outcome<R> {
        match self {
            Self::Selected(row) => Outcome::Selected(row.clone()),
            Self::Updated => Outcome::Updated,
            Self::Inserted(id) => Outcome::Inserted(id),
            Self::Deleted => Outcome::Deleted,
            Self::NotFound => Outcome::NotFound,
            Self::Failed(error) => Outcome::Failed(error),
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
            rows: Vec::with_capacity(capacity * cells),
            id: PhantomData,
        };
        Self {
            table: table.clone(),
            operations,
            outcomes: Vec::new(),
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
        self.outcomes.clear();
    }

    /// What became of each operation in the last [`run`](crate::Verbs::run), in the order in which
    /// they were added; nothing before.
    pub fn outcomes(&self) -> &[Outcome<R>] {
        &self.outcomes
    }

    /// The table, and the operations on it, to look at.
    pub(crate) fn view(&self) -> (&Table<R>, &BatchOperations<I>) {
        (&self.table, &self.operations)
    }

    /// Runs the operations by `run`, which visits the outcome of each, and keeps the outcomes.
    pub(crate) fn keep_outcomes(
        &mut self,
        run: impl FnOnce(&Self, &mut dyn FnMut(usize, Outcome<&R>)) -> Result<()>,
    ) -> Result<()> {
        let mut outcomes = self.begin_outcomes();
        let result = run(self, &mut |at, outcome| outcomes[at] = outcome.cloned());
        self.end_outcomes(outcomes);
        result
    }

    /// Room for the outcome of each operation; the batch has none until it is given back.
    pub(crate) fn begin_outcomes(&mut self) -> Vec<Outcome<R>> {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        outcomes.resize(self.len(), Outcome::Failed(Error::Closed));
        outcomes
    }

    pub(crate) fn end_outcomes(&mut self, outcomes: Vec<Outcome<R>>) {
        self.outcomes = outcomes;
    }

    #[inline(always)]
    fn push(&mut self, verb: Verb, id: u64, row: Option<&R>) {
        // First what may panic: the row is the program's own code.
        let cells = self.operations.next_row();
        if let Some(row) = row {
            row.store(cells);
        }
        self.operations.push(verb, id);
    }
}

impl<I: RowId> BatchOperations<I> {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are others than selects.
    pub(crate) fn changes(&self) -> bool {
        self.verbs.iter().any(|&verb| verb != Verb::Select)
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.verbs.clear();
        // The rows stay, so that their memory is not cleared once more by the next use.
    }

    /// The cells of the row of the operation that is pushed next.
    #[inline(always)]
    fn next_row(&mut self) -> &mut [u64] {
        let start = self.ids.len() * self.cells;
        if self.rows.len() < start + self.cells {
            self.rows.resize(start + self.cells, 0);
        }
        &mut self.rows[start..start + self.cells]
    }

    #[inline(always)]
    fn push(&mut self, verb: Verb, id: u64) {
        self.ids.push(id);
        self.verbs.push(verb);
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
