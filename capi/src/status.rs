//! What became of a call: a status, and an error with a sentence.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::any::Any;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use ancile::{BackupError, KeyError, OpenError, TableError};

use crate::handle::{Handle, borrow, give, release};

/// What became of a call. Numbers are never given another meaning; there may be more of them one day.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The call itself is wrong: a null pointer, a handle of another kind, an unknown constant. Nothing
    /// has happened.
    Misuse = 1,
    /// The session or key is in use by another thread, or by the caller of this callback. Nothing has
    /// happened.
    Busy = 2,
    /// Not possible while a transaction of the session is open.
    InTransaction = 3,
    /// There is no open transaction.
    NoTransaction = 4,
    /// The library met a bug of its own; its thread lives on. Please report it.
    Panicked = 5,
    /// The engine is closed, or was while the operation was under way (then it may have happened).
    Closed = 6,
    /// The engine belongs to the process that this one was forked from.
    Forked = 7,
    /// A setting is out of its bounds, or the machine does not have what it asks for.
    Setting = 10,
    /// Another engine has the database open.
    InUse = 11,
    /// The directory is no database, or has another durability or another number of shards.
    NoDatabase = 12,
    /// The database has another file format.
    Version = 13,
    /// The database was open when the system went down: `ancile salvage` saves what is whole.
    NeedsSalvage = 14,
    /// A file is damaged: `ancile salvage` saves what is whole.
    Damaged = 15,
    /// A file could not be read or written, or the system refused memory or a thread.
    System = 16,
    /// A table of this name exists.
    TableExists = 20,
    /// There is no table of this name, or it was dropped.
    TableMissing = 21,
    /// A name or schema is not legal, or not that of the table.
    Schema = 22,
    /// A row with this key exists.
    Duplicate = 30,
    /// The table has no keys, or the row needs one.
    Keyed = 31,
    /// There is no such column.
    Column = 32,
    /// A key of globals is not legal.
    Key = 33,
    /// A value is too long.
    TooLong = 34,
    /// A shard's memory, or a table's places in it, are used up.
    Full = 40,
    /// The disk has no room for more of the journal; free some, and writing goes on by itself.
    JournalFull = 41,
    /// The journal cannot be written any more; reading goes on.
    JournalBroken = 42,
    /// Done, but not known to be on the disk.
    NotDurable = 43,
    /// The database, or the transaction, is for reading only.
    ReadOnly = 44,
    /// Others changed what the transaction relies on. Nothing has happened: try it again.
    Conflict = 50,
    /// The transaction's time was over. Nothing has happened.
    TimedOut = 51,
    /// Too many transactions are under way. Nothing has happened: try it again later.
    TooManyTransactions = 52,
    /// A shard has stopped on a bug. Close the engine, and please report it.
    ShardFailed = 60,
    /// Another error; its sentence says which.
    Other = 99,
}

/// An error: its status and a sentence for people. Made by a call that failed, freed by the caller with
/// `ancile_error_free`.
pub struct Error {
    _opaque: [u8; 0],
}

/// What an error is.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: CString,
}

impl Handle for Error {
    type Value = Failure;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.err");
    const NAME: &str = "error";
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<Vec<u8>>) -> Self {
        let mut message = message.into();
        message.retain(|&byte| byte != 0);
        let message = CString::new(message).unwrap_or_default();
        Self { status, message }
    }

    pub(crate) fn misuse(message: impl Into<Vec<u8>>) -> Self {
        Self::new(Status::Misuse, message)
    }
}

/// Runs the body of a function: what it returns, or panics with, becomes a status and an error.
///
/// # Safety
/// `error` is null or may be written.
pub(crate) unsafe fn enter(
    error: *mut *mut Error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> Status {
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|panic| Err(panicked(&*panic)));
    let (status, made) = match result {
        Ok(()) => (Status::Ok, null_mut()),
        Err(failure) if error.is_null() => (failure.status, null_mut()),
        Err(failure) => (failure.status, give(failure)),
    };
    if !error.is_null() {
        // SAFETY: the caller says so of what is not null.
        unsafe { error.write(made) };
    }
    status
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    let message = message.unwrap_or("no message");
    Failure::new(Status::Panicked, format!("the library panicked: {message}"))
}

/// The status of an error; `ANCILE_STATUS_OK` of null.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_error_status(error: *const Error) -> Status {
    if error.is_null() {
        return Status::Ok;
    }
    // SAFETY: the caller gives a live handle.
    unsafe { borrow(error) }.map_or(Status::Misuse, |failure| failure.status)
}

/// The sentence of an error, with a NUL behind it, valid until the error is freed; of null an empty one.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_error_message(error: *const Error) -> *const c_char {
    if error.is_null() {
        return c"".as_ptr();
    }
    // SAFETY: the caller gives a live handle.
    unsafe { borrow(error) }.map_or(c"this is no error".as_ptr(), |failure| {
        failure.message.as_ptr()
    })
}

/// Frees an error; null is nothing to free.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_error_free(error: *mut Error) {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { release(error) };
}

/// The version of the library, as MAJOR.MINOR.PATCH; never freed.
#[unsafe(no_mangle)]
pub extern "C" fn ancile_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

impl From<ancile::Error> for Failure {
    fn from(error: ancile::Error) -> Self {
        use ancile::Error::*;
        let status = match &error {
            Closed => Status::Closed,
            Forked => Status::Forked,
            TableGone => Status::TableMissing,
            ArenaFull(_) | SlotsFull { .. } => Status::Full,
            Damaged { .. } => Status::Damaged,
            DatabaseReadOnly | ReadOnly => Status::ReadOnly,
            JournalFull => Status::JournalFull,
            JournalBroken => Status::JournalBroken,
            NotDurable(_) => Status::NotDurable,
            Storage(_) => Status::System,
            Duplicate { .. } => Status::Duplicate,
            Key(_) => Status::Key,
            ValueTooLong { .. } => Status::TooLong,
            NotKeyed | KeyNeeded => Status::Keyed,
            Width { .. } | Column { .. } => Status::Column,
            Lengths { .. } => Status::Misuse,
            TooManyIntents { .. } => Status::TooManyTransactions,
            Conflict { .. } => Status::Conflict,
            TimedOut => Status::TimedOut,
            Panicked { .. } => Status::Panicked,
            ShardFailed { .. } => Status::ShardFailed,
            _ => Status::Other,
        };
        Self::new(status, error.to_string())
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        let status = match &error {
            TableError::Exists(_) => Status::TableExists,
            TableError::Missing(_) => Status::TableMissing,
            TableError::ArenaFull { .. } | TableError::TooMany => Status::Full,
            TableError::ReadOnly => Status::ReadOnly,
            TableError::Storage(_) => Status::System,
            TableError::Closed => Status::Closed,
            TableError::Forked => Status::Forked,
            TableError::Name(_) | TableError::Columns(_) | TableError::Shape { .. } => {
                Status::Schema
            }
            _ => Status::Other,
        };
        Self::new(status, error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        use OpenError::*;
        let status = match &error {
            Placement(_) | Setting { .. } => Status::Setting,
            Memory { .. } | Directory { .. } | Thread { .. } => Status::System,
            InUse { .. } => Status::InUse,
            NoDatabase { .. } | NoJournals { .. } | ShardCount { .. } | OtherDurability { .. } => {
                Status::NoDatabase
            }
            Version { .. } => Status::Version,
            NeedsSalvage { .. } => Status::NeedsSalvage,
            Damaged { .. } | Recovery(_) => Status::Damaged,
            _ => Status::Other,
        };
        Self::new(status, error.to_string())
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let status = match &error {
            BackupError::Closed => Status::Closed,
            BackupError::ReadOnly => Status::ReadOnly,
            BackupError::Files(_) => Status::System,
            BackupError::Damaged { .. } => Status::Damaged,
            _ => Status::Other,
        };
        Self::new(status, error.to_string())
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::new(Status::Key, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let mut error = null_mut();
        // SAFETY: the place of the error is a variable.
        let status = unsafe { enter(&raw mut error, || panic!("the {} broke", "vase")) };
        assert_eq!(status, Status::Panicked);
        // SAFETY: the error was given just now.
        let message = unsafe { std::ffi::CStr::from_ptr(ancile_error_message(error)) };
        assert_eq!(message, c"the library panicked: the vase broke");
        // SAFETY: as before, and nobody uses it any more.
        unsafe { ancile_error_free(error) };
        // SAFETY: nobody wants the error.
        let status = unsafe { enter(null_mut(), || panic!()) };
        assert_eq!(status, Status::Panicked);
    }
}
