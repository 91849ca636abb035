//! Two doors to a table with the same verbs: a shard's own rows, and the verbs that route.
//!
//! The workload is written once against them. A refusal by the engine ends the run by a panic,
//! which the shard turns into the task's error.

use ancile::{Batch, DirectId, Outcome, Resident, Result, RowId, Rows, SurrogateId, Table, Verbs};

use crate::workload::{Cycle, INSERTS, Identity, UPDATES};

/// What a batch knows of its neighbours, so that short batches roll into each other.
pub(super) struct Ahead<'a, I> {
    /// The batch that comes next; none at the end.
    pub(super) next: &'a [I],
}

impl<I> Ahead<'_, I> {
    /// No neighbours.
    pub(super) fn alone() -> Self {
        Self { next: &[] }
    }
}

/// A way to the rows of one table.
pub(super) trait Door<const N: usize> {
    fn select<I: RowId>(&mut self, id: I) -> Option<[u64; N]>;
    /// Hints at rows that are needed soon.
    fn prepare<I: RowId>(&mut self, ids: &[I]);
    fn update<I: RowId>(&mut self, id: I, row: &[u64; N]) -> bool;
    fn delete<I: RowId>(&mut self, id: I) -> bool;
    fn insert(&mut self, row: &[u64; N]) -> DirectId;
    fn insert_keyed(&mut self, key: SurrogateId, row: &[u64; N]);
    fn select_each<I: RowId>(
        &mut self,
        ids: &[I],
        ahead: Ahead<'_, I>,
        visit: impl FnMut(usize, Option<&[u64; N]>),
    );
    fn update_batch<I: RowId>(
        &mut self,
        ids: &[I],
        ahead: Ahead<'_, I>,
        rows: &[[u64; N]],
    ) -> usize;
    fn delete_batch<I: RowId>(&mut self, ids: &[I], ahead: Ahead<'_, I>) -> usize;
    fn insert_batch(&mut self, rows: &[[u64; N]], ids: &mut Vec<DirectId>);
    fn insert_keyed_batch(
        &mut self,
        keys: &[SurrogateId],
        ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
    ) -> usize;
    fn run_each<I: RowId>(
        &mut self,
        batch: &Batch<[u64; N], I>,
        next: &Batch<[u64; N], I>,
        visit: impl FnMut(usize, Outcome<&[u64; N]>),
    );
}

/// What a door has agreed to.
pub(super) fn sure<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the engine refused: {error}"),
    }
}

/// A shard's own rows, between batches of which the shard serves others.
pub(super) struct Own<'a, 'r, const N: usize> {
    pub(super) resident: &'a mut Resident<'r>,
    pub(super) table: &'a Table<[u64; N]>,
}

impl<const N: usize> Own<'_, '_, N> {
    #[inline(always)]
    fn rows(&mut self) -> Rows<'_, [u64; N]> {
        sure(self.resident.rows(self.table))
    }

    #[inline(always)]
    fn rolling<'b, I: RowId>(&'b mut self, ahead: &Ahead<'b, I>) -> Rows<'b, [u64; N]> {
        self.rows().followed_by(ahead.next)
    }
}

impl<const N: usize> Door<N> for Own<'_, '_, N> {
    #[inline(always)]
    fn prepare<I: RowId>(&mut self, ids: &[I]) {
        sure(self.resident.rows(self.table)).prepare(ids);
    }

    #[inline(always)]
    fn select<I: RowId>(&mut self, id: I) -> Option<[u64; N]> {
        self.rows().select(id)
    }

    #[inline(always)]
    fn update<I: RowId>(&mut self, id: I, row: &[u64; N]) -> bool {
        sure(self.rows().update(id, row))
    }

    #[inline(always)]
    fn delete<I: RowId>(&mut self, id: I) -> bool {
        sure(self.rows().delete(id))
    }

    #[inline(always)]
    fn insert(&mut self, row: &[u64; N]) -> DirectId {
        sure(self.rows().insert(row))
    }

    #[inline(always)]
    fn insert_keyed(&mut self, key: SurrogateId, row: &[u64; N]) {
        sure(self.rows().insert_keyed(key, row));
    }

    #[inline(always)]
    fn select_each<I: RowId>(
        &mut self,
        ids: &[I],
        ahead: Ahead<'_, I>,
        visit: impl FnMut(usize, Option<&[u64; N]>),
    ) {
        self.rolling(&ahead).select_each(ids, visit);
    }

    #[inline(always)]
    fn update_batch<I: RowId>(
        &mut self,
        ids: &[I],
        ahead: Ahead<'_, I>,
        rows: &[[u64; N]],
    ) -> usize {
        sure(self.rolling(&ahead).update_batch(ids, rows))
    }

    #[inline(always)]
    fn delete_batch<I: RowId>(&mut self, ids: &[I], ahead: Ahead<'_, I>) -> usize {
        sure(self.rolling(&ahead).delete_batch(ids))
    }

    #[inline(always)]
    fn insert_batch(&mut self, rows: &[[u64; N]], ids: &mut Vec<DirectId>) {
        sure(self.rows().insert_batch(rows, ids));
    }

    #[inline(always)]
    fn insert_keyed_batch(
        &mut self,
        keys: &[SurrogateId],
        ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
    ) -> usize {
        sure(self.rolling(&ahead).insert_keyed_batch(keys, rows))
    }

    #[inline(always)]
    fn run_each<I: RowId>(
        &mut self,
        batch: &Batch<[u64; N], I>,
        next: &Batch<[u64; N], I>,
        visit: impl FnMut(usize, Outcome<&[u64; N]>),
    ) {
        sure(self.rows().followed_by_batch(next).run_each(batch, visit));
    }
}

/// The verbs of a session or a resident.
pub(super) struct Routed<'a, V, const N: usize> {
    pub(super) verbs: &'a mut V,
    pub(super) table: &'a Table<[u64; N]>,
}

impl<V: Verbs, const N: usize> Door<N> for Routed<'_, V, N> {
    fn prepare<I: RowId>(&mut self, _ids: &[I]) {}

    #[inline(always)]
    fn select<I: RowId>(&mut self, id: I) -> Option<[u64; N]> {
        sure(self.verbs.select(self.table, id))
    }

    #[inline(always)]
    fn update<I: RowId>(&mut self, id: I, row: &[u64; N]) -> bool {
        sure(self.verbs.update(self.table, id, row))
    }

    #[inline(always)]
    fn delete<I: RowId>(&mut self, id: I) -> bool {
        sure(self.verbs.delete(self.table, id))
    }

    #[inline(always)]
    fn insert(&mut self, row: &[u64; N]) -> DirectId {
        sure(self.verbs.insert(self.table, row))
    }

    #[inline(always)]
    fn insert_keyed(&mut self, key: SurrogateId, row: &[u64; N]) {
        sure(self.verbs.insert_keyed(self.table, key, row));
    }

    #[inline(always)]
    fn select_each<I: RowId>(
        &mut self,
        ids: &[I],
        _ahead: Ahead<'_, I>,
        visit: impl FnMut(usize, Option<&[u64; N]>),
    ) {
        sure(self.verbs.select_each(self.table, ids, visit));
    }

    #[inline(always)]
    fn update_batch<I: RowId>(
        &mut self,
        ids: &[I],
        _ahead: Ahead<'_, I>,
        rows: &[[u64; N]],
    ) -> usize {
        sure(self.verbs.update_batch(self.table, ids, rows))
    }

    #[inline(always)]
    fn delete_batch<I: RowId>(&mut self, ids: &[I], _ahead: Ahead<'_, I>) -> usize {
        sure(self.verbs.delete_batch(self.table, ids))
    }

    #[inline(always)]
    fn insert_batch(&mut self, rows: &[[u64; N]], ids: &mut Vec<DirectId>) {
        sure(self.verbs.insert_batch(self.table, rows, ids));
    }

    #[inline(always)]
    fn insert_keyed_batch(
        &mut self,
        keys: &[SurrogateId],
        _ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
    ) -> usize {
        sure(self.verbs.insert_keyed_batch(self.table, keys, rows))
    }

    #[inline(always)]
    fn run_each<I: RowId>(
        &mut self,
        batch: &Batch<[u64; N], I>,
        _next: &Batch<[u64; N], I>,
        visit: impl FnMut(usize, Outcome<&[u64; N]>),
    ) {
        sure(self.verbs.run_each(batch, visit));
    }
}

/// Where the two kinds of ids differ: how rows are inserted.
pub(super) trait Kind<const N: usize>: RowId + Identity {
    /// Inserts a row; the id by which the walk knows it.
    fn insert(door: &mut impl Door<N>, key: u64, row: &[u64; N]) -> Self;
    /// Inserts rows, `next` being the keys of the batch after this one; appends their ids.
    fn insert_batch(
        door: &mut impl Door<N>,
        keys: &[SurrogateId],
        ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
        ids: &mut Vec<Self>,
    );
    /// Hints at all rows that a cycle writes.
    fn prepare_writes(door: &mut impl Door<N>, cycle: &Cycle<Self>);
    /// Adds an insert to a batch.
    fn push_insert(batch: &mut Batch<[u64; N], Self>, key: u64, row: &[u64; N]);
    /// The walk's id of a row that a batch inserted.
    fn inserted(id: DirectId, key: u64) -> Self;
}

impl<const N: usize> Kind<N> for DirectId {
    #[inline(always)]
    fn insert(door: &mut impl Door<N>, _key: u64, row: &[u64; N]) -> Self {
        door.insert(row)
    }

    #[inline(always)]
    fn insert_batch(
        door: &mut impl Door<N>,
        _keys: &[SurrogateId],
        _ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
        ids: &mut Vec<Self>,
    ) {
        door.insert_batch(rows, ids);
    }

    #[inline(always)]
    fn prepare_writes(door: &mut impl Door<N>, cycle: &Cycle<Self>) {
        let mut ids = [cycle.delete; 1 + UPDATES];
        ids[1..].copy_from_slice(&cycle.updates);
        door.prepare(&ids);
    }

    #[inline(always)]
    fn push_insert(batch: &mut Batch<[u64; N], Self>, _key: u64, row: &[u64; N]) {
        sure(batch.insert(row));
    }

    #[inline(always)]
    fn inserted(id: DirectId, _key: u64) -> Self {
        id
    }
}

impl<const N: usize> Kind<N> for SurrogateId {
    #[inline(always)]
    fn insert(door: &mut impl Door<N>, key: u64, row: &[u64; N]) -> Self {
        door.insert_keyed(Self(key), row);
        Self(key)
    }

    #[inline(always)]
    fn insert_batch(
        door: &mut impl Door<N>,
        keys: &[SurrogateId],
        ahead: Ahead<'_, SurrogateId>,
        rows: &[[u64; N]],
        ids: &mut Vec<Self>,
    ) {
        let inserted = door.insert_keyed_batch(keys, ahead, rows);
        assert_eq!(inserted, rows.len(), "the engine refused new keys");
        ids.extend_from_slice(keys);
    }

    #[inline(always)]
    fn prepare_writes(door: &mut impl Door<N>, cycle: &Cycle<Self>) {
        let mut ids = [cycle.delete; 1 + UPDATES + INSERTS];
        ids[1..=UPDATES].copy_from_slice(&cycle.updates);
        ids[1 + UPDATES..].copy_from_slice(&cycle.inserts.map(Self));
        door.prepare(&ids);
    }

    #[inline(always)]
    fn push_insert(batch: &mut Batch<[u64; N], Self>, key: u64, row: &[u64; N]) {
        sure(batch.insert(Self(key), row));
    }

    #[inline(always)]
    fn inserted(_id: DirectId, key: u64) -> Self {
        Self(key)
    }
}
