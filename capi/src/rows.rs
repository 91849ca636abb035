//! Rows, one at a time: by themselves, or within the open transaction.

#![expect(unsafe_code, reason = "the functions are called from C")]

use ancile::{DirectId, SurrogateId, Verbs};

use crate::cells::Cells;
use crate::engine::{Table, width};
use crate::handle::{borrow, must_have, put, slice, slice_mut};
use crate::session::{Session, Way, client};
use crate::status::{Error, Failure, Status, enter};

/// A row's id is its place, as an insert has given it: valid until the row is deleted; afterwards it
/// finds nothing.
pub const BY_PLACE: u32 = 0;
/// A row's id is its key, in tables that have keys.
pub const BY_KEY: u32 = 1;

/// How a row is named.
pub(crate) enum By {
    Place,
    Key,
}

impl By {
    pub(crate) fn of(by: u32) -> Result<Self, Failure> {
        match by {
            BY_PLACE => Ok(Self::Place),
            BY_KEY => Ok(Self::Key),
            other => Err(Failure::misuse(format!("{other} is no way to name rows"))),
        }
    }
}

/// Does something with an id of either kind.
macro_rules! with_id {
    ($by:expr, $id:ident, $work:expr) => {
        match $crate::rows::By::of($by)? {
            $crate::rows::By::Place => {
                let $id = ancile::DirectId::from_u64($id);
                $work
            }
            $crate::rows::By::Key => {
                let $id = ancile::SurrogateId($id);
                $work
            }
        }
    };
}

/// Does something by itself, or within the transaction: both have verbs of the same names.
macro_rules! with_way {
    ($client:expr, $verbs:ident, $work:expr) => {
        match $client.way() {
            $crate::session::Way::Alone($verbs) => $work,
            $crate::session::Way::Within($verbs) => $work,
        }
    };
}
pub(crate) use with_way;

/// Adds a row to a table without keys: `row` leads to as many cells as the table has columns. `*place` is
/// where it is.
///
/// Errors: `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change (see the head of this header).
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_insert(
    session: *mut Session,
    table: *const Table,
    row: *const u64,
    place: *mut u64,
    error: *mut *mut Error,
) -> Status {
    let insert = || {
        // SAFETY: the caller gives live handles, and a row.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let row = unsafe { Cells::row(row, width(table))? };
        let id = with_way!(client, verbs, verbs.insert(table, &row)?);
        // SAFETY: null, or the caller's to be written.
        unsafe { put(place, id.to_u64()) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, insert) }
}

/// Adds a row with a key.
///
/// Errors: `DUPLICATE` if there is one, `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_insert_keyed(
    session: *mut Session,
    table: *const Table,
    key: u64,
    row: *const u64,
    error: *mut *mut Error,
) -> Status {
    let insert = || {
        // SAFETY: the caller gives live handles, and a row.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let row = unsafe { Cells::row(row, width(table))? };
        match client.way() {
            Way::Alone(session) => drop(session.insert_keyed(table, SurrogateId(key), &row)?),
            Way::Within(open) => open.insert_keyed(table, SurrogateId(key), &row)?,
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, insert) }
}

/// Replaces the row of a key, or adds it; `*was_there`, if wanted, says which.
///
/// Errors: `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_upsert(
    session: *mut Session,
    table: *const Table,
    key: u64,
    row: *const u64,
    was_there: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let upsert = || {
        // SAFETY: the caller gives live handles, and a row.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let row = unsafe { Cells::row(row, width(table))? };
        let key = SurrogateId(key);
        let found = with_way!(client, verbs, verbs.upsert(table, key, &row)?);
        // SAFETY: null, or the caller's to be written.
        unsafe { put(was_there, found) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, upsert) }
}

/// Copies a row to `row`, if there is one, which `*found` says. `by` is `ANCILE_BY_PLACE` or
/// `ANCILE_BY_KEY`.
///
/// Errors: `KEYED`, `TABLE_MISSING`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_select(
    session: *mut Session,
    table: *const Table,
    by: u32,
    id: u64,
    row: *mut u64,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let select = || {
        must_have(found, "found")?;
        // SAFETY: the caller gives live handles, and a place for a row.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let row = unsafe { slice_mut(row, width(table), "row")? };
        let is_there = with_id!(by, id, select(client.way(), table, id, row)?);
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(found, is_there) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, select) }
}

fn select<I: ancile::RowId>(
    way: Way<'_>,
    table: &ancile::Table<Cells>,
    id: I,
    row: &mut [u64],
) -> ancile::Result<bool> {
    let mut is_there = false;
    let mut copy = |cells: Option<&Cells>| {
        if let Some(cells) = cells {
            row.copy_from_slice(cells.as_slice());
            is_there = true;
        }
    };
    match way {
        Way::Alone(session) => session.select_each(table, &[id], |_, cells| copy(cells))?,
        Way::Within(open) => copy(open.select(table, id)?.as_ref()),
    }
    Ok(is_there)
}

/// Replaces a row; `*found`, if wanted, says whether there was one.
///
/// Errors: `KEYED`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_update(
    session: *mut Session,
    table: *const Table,
    by: u32,
    id: u64,
    row: *const u64,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let update = || {
        // SAFETY: the caller gives live handles, and a row.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: as before.
        let row = unsafe { Cells::row(row, width(table))? };
        let is_there = with_id!(
            by,
            id,
            with_way!(client, verbs, verbs.update(table, id, &row)?)
        );
        // SAFETY: null, or the caller's to be written.
        unsafe { put(found, is_there) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, update) }
}

/// Sets `count` columns of a row, by number, counted from 0, to `values`, and leaves the others;
/// `*found`, if wanted, says whether there was a row.
///
/// Errors: `COLUMN`, `KEYED`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_update_columns(
    session: *mut Session,
    table: *const Table,
    by: u32,
    id: u64,
    columns: *const usize,
    values: *const u64,
    count: usize,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let update = || {
        // SAFETY: the caller gives live handles.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        // SAFETY: the caller gives so many of both.
        let (columns, values) = unsafe {
            let columns = slice(columns, count, "columns")?;
            (columns, slice(values, count, "values")?)
        };
        let changes: Vec<(usize, u64)> = columns
            .iter()
            .copied()
            .zip(values.iter().copied())
            .collect();
        let is_there = with_id!(
            by,
            id,
            with_way!(client, verbs, verbs.update_columns(table, id, &changes)?)
        );
        // SAFETY: null, or the caller's to be written.
        unsafe { put(found, is_there) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, update) }
}

/// Removes a row; `*found`, if wanted, says whether there was one.
///
/// Errors: `KEYED`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_delete(
    session: *mut Session,
    table: *const Table,
    by: u32,
    id: u64,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let delete = || {
        // SAFETY: the caller gives live handles.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        let is_there = with_id!(by, id, with_way!(client, verbs, verbs.delete(table, id)?));
        // SAFETY: null, or the caller's to be written.
        unsafe { put(found, is_there) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, delete) }
}

/// Counts the rows of a table. Rows that others add or remove meanwhile may be counted or not.
///
/// Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_count(
    session: *mut Session,
    table: *const Table,
    rows: *mut u64,
    error: *mut *mut Error,
) -> Status {
    let count = || {
        must_have(rows, "rows")?;
        // SAFETY: the caller gives live handles.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        let counted = client.alone()?.count(table)?;
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(rows, counted) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, count) }
}

/// Ids of a batch.
pub(crate) fn places(ids: &[u64]) -> Vec<DirectId> {
    ids.iter().copied().map(DirectId::from_u64).collect()
}

/// Keys of a batch.
pub(crate) fn keys(ids: &[u64]) -> Vec<SurrogateId> {
    ids.iter().copied().map(SurrogateId).collect()
}
