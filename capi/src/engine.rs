//! Engines and tables.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_char;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use ancile::Schema;

use crate::cells::Cells;
use crate::handle::{Handle, borrow, give, must_have, put, release, text};
use crate::status::{Error, Failure, Status, enter};

/// An open engine. May be used by many threads at once.
pub struct Engine {
    _opaque: [u8; 0],
}

impl Handle for Engine {
    type Value = RwLock<Option<ancile::Engine>>;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.eng");
    const NAME: &str = "engine";
}

/// A table of columns of eight bytes. May be used by many threads at once.
pub struct Table {
    _opaque: [u8; 0],
}

impl Handle for Table {
    type Value = ancile::Table<Cells>;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.tab");
    const NAME: &str = "table";
}

impl Engine {
    pub(crate) fn give(engine: ancile::Engine) -> *mut Self {
        give(RwLock::new(Some(engine)))
    }

    /// Uses an engine, which is not closed meanwhile.
    ///
    /// # Safety
    /// As of [`borrow`].
    pub(crate) unsafe fn with<T>(
        engine: *const Self,
        work: impl FnOnce(&ancile::Engine) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // SAFETY: the caller says so.
        let engine = unsafe { borrow(engine)? };
        let engine: RwLockReadGuard<'_, _> = engine.read().unwrap_or_else(PoisonError::into_inner);
        work(engine.as_ref().ok_or(ancile::Error::Closed)?)
    }
}

/// How many columns the rows of a table have.
pub(crate) fn width(table: &ancile::Table<Cells>) -> usize {
    table.schema().columns().len()
}

/// Closes an engine: what was sent is executed, its threads end, and files are written and marked as
/// closed. Waits for other calls that use the engine. From then on all calls with it, and with its
/// sessions, return `CLOSED`. Closing it again is `CLOSED`, too.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_close(
    engine: *mut Engine,
    error: *mut *mut Error,
) -> Status {
    let close = || {
        // SAFETY: the caller gives a live handle.
        let engine = unsafe { borrow(engine.cast_const())? };
        let engine = engine
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Ok(engine.ok_or(ancile::Error::Closed)?.close()?)
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, close) }
}

/// Frees an engine; null is nothing to free. One that is open is closed, and cannot tell of a file that
/// could not be written. Sessions, tables and globals of it may be freed before or after it.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_free(engine: *mut Engine) {
    // Nobody is told of a panic here: what it leaves is found by whoever opens the database next.
    let free = || {
        // SAFETY: the caller gives a live handle, or null.
        unsafe { release(engine) };
        Ok(())
    };
    // SAFETY: no error is wanted.
    unsafe { enter(std::ptr::null_mut(), free) };
}

/// The number of shards.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_shards(
    engine: *const Engine,
    shards: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let ask = || {
        must_have(shards, "shards")?;
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            put(shards, Engine::with(engine, |engine| Ok(engine.shards()))?);
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, ask) }
}

/// Waits until all that has happened so far is on the disk, of a database with journals.
///
/// Errors: `NOT_DURABLE`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_flush(
    engine: *const Engine,
    error: *mut *mut Error,
) -> Status {
    // SAFETY: the caller gives a live handle, and the place of the error.
    unsafe { enter(error, || Engine::with(engine, |engine| Ok(engine.flush()?))) }
}

/// Copies a database with journals, while it is in use, into a directory that is made for that. Everything
/// is synced when this returns. `ancile restore` makes a database of it.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_backup(
    engine: *const Engine,
    directory: *const c_char,
    error: *mut *mut Error,
) -> Status {
    let backup = || {
        // SAFETY: the caller gives a string, or null.
        let directory = unsafe { text(directory, "directory")? };
        // SAFETY: the caller gives a live handle.
        unsafe { Engine::with(engine, |engine| Ok(engine.backup(directory)?))? };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, backup) }
}

/// Creates a table of 1 to 1,024 columns. With keys, its rows are found by a key of 64 bits, too.
/// `rows_expected` is how much memory is laid out for at first; 0 if that is not known. `*table` is freed
/// with `ancile_table_free`. A table that was created is durable, if the engine is.
///
/// Errors: `TABLE_EXISTS`, `SCHEMA`, `FULL`, `READ_ONLY`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_create_table(
    engine: *const Engine,
    name: *const c_char,
    columns: usize,
    is_keyed: bool,
    rows_expected: u64,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> Status {
    let create = || {
        must_have(table, "table")?;
        // SAFETY: the caller gives a string, or null.
        let name = unsafe { text(name, "name")? };
        // The bound is the library's to tell, but so many columns would have to be listed first.
        let schema = Schema::cells(columns.min(1 << 16)).expect_rows(rows_expected);
        let schema = if is_keyed { schema.keyed() } else { schema };
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let made = Engine::with(engine, |engine| Ok(engine.create_table(name, schema)?))?;
            put(table, give(made));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, create) }
}

/// Opens a table of columns that exists. `*table` is freed with `ancile_table_free`.
///
/// Errors: `TABLE_MISSING`, `SCHEMA` if it has records or globals, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_open_table(
    engine: *const Engine,
    name: *const c_char,
    table: *mut *mut Table,
    error: *mut *mut Error,
) -> Status {
    let open = || {
        must_have(table, "table")?;
        // SAFETY: the caller gives a string, or null.
        let name = unsafe { text(name, "name")? };
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let opened = Engine::with(engine, |engine| Ok(engine.open_table(name)?))?;
            put(table, give(opened));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, open) }
}

/// Drops a table, or a set of globals, with all that is in it. Handles of it find nothing from then on
/// (`TABLE_MISSING`), and are still to be freed.
///
/// Errors: `TABLE_MISSING`, `READ_ONLY`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_drop_table(
    engine: *const Engine,
    name: *const c_char,
    error: *mut *mut Error,
) -> Status {
    let drop = || {
        // SAFETY: the caller gives a string, or null.
        let name = unsafe { text(name, "name")? };
        // SAFETY: the caller gives a live handle.
        unsafe { Engine::with(engine, |engine| Ok(engine.drop_table(name)?)) }
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, drop) }
}

/// How many columns the rows of a table have; 0 of what is no table.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_table_columns(table: *const Table) -> usize {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { borrow(table) }.map_or(0, width)
}

/// Whether the rows of a table have keys; false of what is no table.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_table_is_keyed(table: *const Table) -> bool {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { borrow(table) }.is_ok_and(|table| table.schema().is_keyed())
}

/// Frees the handle of a table, which stays where it is; null is nothing to free.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_table_free(table: *mut Table) {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { release(table) };
}
