//! The batch verbs, as what they have in common: operations with ids, rows to bring, results to give.

use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, SurrogateId};
use crate::shard::check_lengths;
use crate::table::{BatchOperations, Code, Outcome, Row, Table, Verb};

/// Operations on one table, numbered from 0.
pub(super) trait Operations {
    /// How their rows are found.
    type Id: RowId;
    /// The verb of all of them, if it is one.
    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        None
    }
    fn count(&self) -> usize;
    fn verb(&self, at: usize) -> Verb;
    fn id(&self, at: usize) -> Self::Id;
    /// Whether it inserts a row that may be placed anywhere.
    #[inline(always)]
    fn is_anywhere(&self, _at: usize) -> bool {
        false
    }
    /// Writes the row that the operation brings.
    fn fill(&self, at: usize, cells: &mut [u64]);
    /// Takes what became of it: `cells` is the row that a select found.
    fn done(&mut self, at: usize, code: Code, id: u64, cells: &[u64]);
}

pub(super) struct Selects<'a, R, I, F> {
    pub(super) ids: &'a [I],
    pub(super) visit: F,
    pub(super) row: std::marker::PhantomData<R>,
}

impl<R: Row, I: RowId, F: FnMut(usize, Option<&R>)> Operations for Selects<'_, R, I, F> {
    type Id = I;

    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        Some(Verb::Select)
    }

    fn count(&self) -> usize {
        self.ids.len()
    }

    #[inline(always)]
    fn verb(&self, _at: usize) -> Verb {
        Verb::Select
    }

    #[inline(always)]
    fn id(&self, at: usize) -> I {
        self.ids[at]
    }

    fn fill(&self, _at: usize, _cells: &mut [u64]) {}

    #[inline(always)]
    fn done(&mut self, at: usize, code: Code, _id: u64, cells: &[u64]) {
        if code == Code::Done {
            R::view(cells, |row| (self.visit)(at, Some(row)));
        } else {
            (self.visit)(at, None);
        }
    }
}

pub(super) struct Updates<'a, R, I> {
    pub(super) ids: &'a [I],
    pub(super) rows: &'a [R],
    pub(super) updated: usize,
}

impl<'a, R: Row, I: RowId> Updates<'a, R, I> {
    pub(super) fn new(table: &Table<R>, ids: &'a [I], rows: &'a [R]) -> Result<Self> {
        table.check_id::<I>()?;
        check_lengths("ids and rows", ids.len(), rows.len())?;
        rows.iter().try_for_each(|row| table.check_row(row))?;
        let updated = 0;
        Ok(Self { ids, rows, updated })
    }
}

impl<R: Row, I: RowId> Operations for Updates<'_, R, I> {
    type Id = I;

    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        Some(Verb::Update)
    }

    fn count(&self) -> usize {
        self.ids.len()
    }

    #[inline(always)]
    fn verb(&self, _at: usize) -> Verb {
        Verb::Update
    }

    #[inline(always)]
    fn id(&self, at: usize) -> I {
        self.ids[at]
    }

    #[inline(always)]
    fn fill(&self, at: usize, cells: &mut [u64]) {
        self.rows[at].store(cells);
    }

    #[inline(always)]
    fn done(&mut self, _at: usize, code: Code, _id: u64, _cells: &[u64]) {
        self.updated += usize::from(code == Code::Done);
    }
}

pub(super) struct Deletes<'a, I> {
    pub(super) ids: &'a [I],
    pub(super) deleted: usize,
}

impl<I: RowId> Operations for Deletes<'_, I> {
    type Id = I;

    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        Some(Verb::Delete)
    }

    fn count(&self) -> usize {
        self.ids.len()
    }

    #[inline(always)]
    fn verb(&self, _at: usize) -> Verb {
        Verb::Delete
    }

    #[inline(always)]
    fn id(&self, at: usize) -> I {
        self.ids[at]
    }

    fn fill(&self, _at: usize, _cells: &mut [u64]) {}

    #[inline(always)]
    fn done(&mut self, _at: usize, code: Code, _id: u64, _cells: &[u64]) {
        self.deleted += usize::from(code == Code::Done);
    }
}

pub(super) struct Inserts<'a, R> {
    pub(super) rows: &'a [R],
    /// As long as the rows; zeros at first.
    pub(super) ids: &'a mut [DirectId],
    pub(super) error: Option<Error>,
}

impl<'a, R: Row> Inserts<'a, R> {
    pub(super) fn new(table: &Table<R>, rows: &'a [R], ids: &'a mut [DirectId]) -> Result<Self> {
        rows.iter().try_for_each(|row| table.check_row(row))?;
        let error = None;
        Ok(Self { rows, ids, error })
    }
}

impl<R: Row> Operations for Inserts<'_, R> {
    type Id = DirectId;

    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        Some(Verb::Insert)
    }

    #[inline(always)]
    fn is_anywhere(&self, _at: usize) -> bool {
        true
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn verb(&self, _at: usize) -> Verb {
        Verb::Insert
    }

    #[inline(always)]
    fn id(&self, _at: usize) -> DirectId {
        DirectId::from_u64(0)
    }

    #[inline(always)]
    fn fill(&self, at: usize, cells: &mut [u64]) {
        self.rows[at].store(cells);
    }

    #[inline(always)]
    fn done(&mut self, at: usize, code: Code, id: u64, cells: &[u64]) {
        match code.to_error(id, cells[0]) {
            None => self.ids[at] = DirectId::from_u64(id),
            Some(error) => self.error = Some(error),
        }
    }
}

/// Inserts or upserts with keys.
pub(super) struct KeyedWrites<'a, R> {
    pub(super) verb: Verb,
    pub(super) keys: &'a [SurrogateId],
    pub(super) rows: &'a [R],
    pub(super) inserted: usize,
    pub(super) error: Option<Error>,
    pub(super) last: Option<DirectId>,
}

impl<'a, R: Row> KeyedWrites<'a, R> {
    pub(super) fn new(
        verb: Verb,
        table: &Table<R>,
        keys: &'a [SurrogateId],
        rows: &'a [R],
    ) -> Result<Self> {
        table.check_insert::<SurrogateId>()?;
        check_lengths("keys and rows", keys.len(), rows.len())?;
        rows.iter().try_for_each(|row| table.check_row(row))?;
        Ok(Self {
            verb,
            keys,
            rows,
            inserted: 0,
            error: None,
            last: None,
        })
    }
}

impl<R: Row> Operations for KeyedWrites<'_, R> {
    type Id = SurrogateId;

    #[inline(always)]
    fn only_verb(&self) -> Option<Verb> {
        Some(self.verb)
    }

    fn count(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn verb(&self, _at: usize) -> Verb {
        self.verb
    }

    #[inline(always)]
    fn id(&self, at: usize) -> SurrogateId {
        self.keys[at]
    }

    #[inline(always)]
    fn fill(&self, at: usize, cells: &mut [u64]) {
        self.rows[at].store(cells);
    }

    #[inline(always)]
    fn done(&mut self, _at: usize, code: Code, id: u64, cells: &[u64]) {
        if code == Code::Inserted || code == Code::Done && self.verb == Verb::Insert {
            self.inserted += 1;
            self.last = Some(DirectId::from_u64(id));
        } else if code != Code::Duplicate
            && let Some(error) = code.to_error(id, cells[0])
        {
            self.error = Some(error);
        }
    }
}

/// A batch; the outcomes go to a visitor.
pub(super) struct Visited<'a, R, I, F> {
    pub(super) operations: &'a BatchOperations<I>,
    pub(super) visit: F,
    pub(super) row: std::marker::PhantomData<R>,
}

impl<R: Row, I: RowId, F: FnMut(usize, Outcome<&R>)> Operations for Visited<'_, R, I, F> {
    type Id = I;

    fn count(&self) -> usize {
        self.operations.len()
    }

    #[inline(always)]
    fn verb(&self, at: usize) -> Verb {
        self.operations.verb(at)
    }

    #[inline(always)]
    fn id(&self, at: usize) -> I {
        self.operations.id(at)
    }

    #[inline(always)]
    fn is_anywhere(&self, at: usize) -> bool {
        !I::KEYED && self.verb(at) == Verb::Insert
    }

    #[inline(always)]
    fn fill(&self, at: usize, cells: &mut [u64]) {
        if self.verb(at).brings_row() {
            cells.copy_from_slice(self.operations.row(at));
        }
    }

    #[inline(always)]
    fn done(&mut self, at: usize, code: Code, id: u64, cells: &[u64]) {
        match self.operations.verb(at) {
            Verb::Select if code == Code::Done => {
                R::view(cells, |row| (self.visit)(at, Outcome::Selected(row)));
            }
            verb => (self.visit)(at, Outcome::without_row(verb, code, id, cells[0])),
        }
    }
}

/// The first error of a batch, if any.
pub(super) fn first(error: Option<Error>) -> Result<()> {
    error.map_or(Ok(()), Err)
}
