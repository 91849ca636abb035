//! Many rows in one call: they travel to their shards together.

#![expect(unsafe_code, reason = "the functions are called from C")]

use ancile::{RowId, Verbs};

use crate::cells::Cells;
use crate::engine::{Table, width};
use crate::handle::{borrow, put, slice, slice_mut};
use crate::rows::{By, keys as keys_of, places as places_of};
use crate::session::{Session, Way, client};
use crate::status::{Error, Failure, Status, enter};

/// Does something with ids of either kind.
macro_rules! with_ids {
    ($by:expr, $ids:ident, $work:expr) => {
        match By::of($by)? {
            By::Place => {
                let $ids = places_of($ids);
                $work
            }
            By::Key => {
                let $ids = keys_of($ids);
                $work
            }
        }
    };
}

/// Adds `count` rows to a table without keys. `rows` leads to their cells, one row behind the other;
/// `places`, if wanted, to room for as many places. After an error some may have been added, and
/// `places` says nothing.
///
/// Errors: as `ancile_insert`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_insert_batch(
    session: *mut Session,
    table: *const Table,
    rows: *const u64,
    count: usize,
    places: *mut u64,
    error: *mut *mut Error,
) -> Status {
    let insert = || {
        // SAFETY: the caller gives live handles, and rows.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let rows = unsafe { Cells::rows(rows, count, width(table))? };
        let mut ids = Vec::with_capacity(count);
        match client.way() {
            Way::Alone(session) => session.insert_batch(table, &rows, &mut ids)?,
            Way::Within(open) => {
                for row in &rows {
                    ids.push(open.insert(table, row)?);
                }
            }
        }
        if !places.is_null() {
            // SAFETY: not null, and room for so many.
            let places = unsafe { slice_mut(places, count, "places")? };
            let ids = ids.iter().map(|id| id.to_u64());
            places
                .iter_mut()
                .zip(ids)
                .for_each(|(place, id)| *place = id);
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, insert) }
}

/// Adds `count` rows with keys; `*added`, if wanted, says how many were. Rows whose key exists are left
/// out; within a transaction they are `DUPLICATE`.
///
/// Errors: as `ancile_insert_keyed`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_insert_keyed_batch(
    session: *mut Session,
    table: *const Table,
    keys: *const u64,
    rows: *const u64,
    count: usize,
    added: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let insert = || {
        // SAFETY: the caller gives live handles, keys and rows.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let (keys, rows) = unsafe {
            let keys = slice(keys, count, "keys")?;
            (keys_of(keys), Cells::rows(rows, count, width(table))?)
        };
        let inserted = match client.way() {
            Way::Alone(session) => session.insert_keyed_batch(table, &keys, &rows)?,
            Way::Within(open) => {
                for (&key, row) in keys.iter().zip(&rows) {
                    open.insert_keyed(table, key, row)?;
                }
                count
            }
        };
        // SAFETY: null, or the caller's to be written.
        unsafe { put(added, inserted) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, insert) }
}

/// Replaces the rows of `count` keys, or adds them; `*added`, if wanted, says how many were added.
///
/// Errors: as `ancile_upsert`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_upsert_batch(
    session: *mut Session,
    table: *const Table,
    keys: *const u64,
    rows: *const u64,
    count: usize,
    added: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let upsert = || {
        // SAFETY: the caller gives live handles, keys and rows.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let (keys, rows) = unsafe {
            let keys = slice(keys, count, "keys")?;
            (keys_of(keys), Cells::rows(rows, count, width(table))?)
        };
        let inserted = upsert_all(client.way(), table, &keys, &rows)?;
        // SAFETY: null, or the caller's to be written.
        unsafe { put(added, inserted) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, upsert) }
}

fn upsert_all(
    way: Way<'_>,
    table: &ancile::Table<Cells>,
    keys: &[ancile::SurrogateId],
    rows: &[Cells],
) -> Result<usize, Failure> {
    let mut inserted = 0;
    match way {
        Way::Within(open) => {
            for (&key, row) in keys.iter().zip(rows) {
                inserted += usize::from(!open.upsert(table, key, row)?);
            }
        }
        Way::Alone(session) => {
            let mut batch = ancile::Batch::new(table, keys.len());
            for (&key, row) in keys.iter().zip(rows) {
                batch.upsert(key, row)?;
            }
            let mut failed = None;
            session.run_each(&batch, |_, outcome| match outcome {
                ancile::Outcome::Inserted(_) => inserted += 1,
                ancile::Outcome::Failed(error) => failed = Some(error),
                _ => {}
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
    }
    Ok(inserted)
}

/// Copies the rows of `count` ids to `rows`, one behind the other in the order of the ids. `found` leads
/// to as many flags: where one is false, there is no such row, and its cells stay as they are.
///
/// Errors: as `ancile_select`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_select_batch(
    session: *mut Session,
    table: *const Table,
    by: u32,
    ids: *const u64,
    count: usize,
    rows: *mut u64,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let select = || {
        // SAFETY: the caller gives live handles, and ids.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        let columns = width(table);
        let cells = count.checked_mul(columns);
        let cells = cells.ok_or_else(|| Failure::misuse("there cannot be so many rows"))?;
        // SAFETY: the caller gives ids, and room for as many rows and flags.
        let (ids, rows, found) = unsafe {
            let ids = slice(ids, count, "ids")?;
            let rows = slice_mut(rows, cells, "rows")?;
            if count > 0 && found.is_null() {
                return Err(Failure::misuse("found is null"));
            }
            // What is there may be no flags yet.
            (0..count).for_each(|at| found.add(at).write(false));
            (ids, rows, slice_mut(found, count, "found")?)
        };
        let copy = |at: usize, row: Option<&Cells>| {
            if let Some(row) = row {
                rows[at * columns..][..columns].copy_from_slice(row.as_slice());
                found[at] = true;
            }
        };
        with_ids!(by, ids, select_all(client.way(), table, &ids, copy)?);
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, select) }
}

fn select_all<I: RowId>(
    way: Way<'_>,
    table: &ancile::Table<Cells>,
    ids: &[I],
    mut visit: impl FnMut(usize, Option<&Cells>),
) -> ancile::Result<()> {
    match way {
        Way::Alone(session) => session.select_each(table, ids, visit),
        Way::Within(open) => {
            let rows = open.select_batch(table, ids)?;
            rows.iter()
                .enumerate()
                .for_each(|(at, row)| visit(at, row.as_ref()));
            Ok(())
        }
    }
}

/// Replaces the rows of `count` ids; `*updated`, if wanted, says how many there were.
///
/// Errors: as `ancile_update`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_update_batch(
    session: *mut Session,
    table: *const Table,
    by: u32,
    ids: *const u64,
    rows: *const u64,
    count: usize,
    updated: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let update = || {
        // SAFETY: the caller gives live handles, ids and rows.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let (ids, rows) = unsafe {
            let ids = slice(ids, count, "ids")?;
            (ids, Cells::rows(rows, count, width(table))?)
        };
        let changed = with_ids!(by, ids, update_all(client.way(), table, &ids, &rows)?);
        // SAFETY: null, or the caller's to be written.
        unsafe { put(updated, changed) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, update) }
}

fn update_all<I: RowId>(
    way: Way<'_>,
    table: &ancile::Table<Cells>,
    ids: &[I],
    rows: &[Cells],
) -> ancile::Result<usize> {
    match way {
        Way::Alone(session) => session.update_batch(table, ids, rows),
        Way::Within(open) => {
            let updates = ids.iter().zip(rows);
            let updates = updates.map(|(&id, row)| open.update(table, id, row).map(usize::from));
            updates.sum()
        }
    }
}

/// Removes the rows of `count` ids; `*deleted`, if wanted, says how many there were.
///
/// Errors: as `ancile_delete`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_delete_batch(
    session: *mut Session,
    table: *const Table,
    by: u32,
    ids: *const u64,
    count: usize,
    deleted: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let delete = || {
        // SAFETY: the caller gives live handles, and ids.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let ids = unsafe { slice(ids, count, "ids")? };
        let removed = with_ids!(by, ids, delete_all(client.way(), table, &ids)?);
        // SAFETY: null, or the caller's to be written.
        unsafe { put(deleted, removed) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, delete) }
}

fn delete_all<I: RowId>(
    way: Way<'_>,
    table: &ancile::Table<Cells>,
    ids: &[I],
) -> ancile::Result<usize> {
    match way {
        Way::Alone(session) => session.delete_batch(table, ids),
        Way::Within(open) => {
            let deletes = ids
                .iter()
                .map(|&id| open.delete(table, id).map(usize::from));
            deletes.sum()
        }
    }
}
