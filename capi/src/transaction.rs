//! Transactions: begun, taken back in part, and ended.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::time::Duration;

use ancile::{Isolation, TransactionOptions};

use crate::handle::{must_have, put};
use crate::session::{Session, client};
use crate::status::{Error, Failure, Status, enter};

/// Each read sees what is committed at its moment.
pub const READ_COMMITTED: u32 = 0;
/// As if transactions ran one after the other.
pub const SERIALIZABLE: u32 = 1;

/// Begins a transaction: until it is committed or rolled back, the verbs of the session are parts of it,
/// over any tables, globals and shards. Its changes are seen by itself alone until then. Nobody waits for
/// it meanwhile. `isolation` is `ANCILE_READ_COMMITTED` or `ANCILE_SERIALIZABLE`; after `timeout_micros`,
/// if that is not 0, its calls return `TIMED_OUT`, and it is to be rolled back.
///
/// Errors: `IN_TRANSACTION` if one is open, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_begin(
    session: *mut Session,
    isolation: u32,
    timeout_micros: u64,
    error: *mut *mut Error,
) -> Status {
    let begin = || {
        let options = TransactionOptions::new(match isolation {
            READ_COMMITTED => Isolation::ReadCommitted,
            SERIALIZABLE => Isolation::Serializable,
            other => return Err(Failure::misuse(format!("{other} is no isolation"))),
        });
        let options = match timeout_micros {
            0 => options,
            micros => options.timeout(Duration::from_micros(micros)),
        };
        // SAFETY: the caller gives a live handle.
        unsafe { client(session)? }.begin(options)
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, begin) }
}

/// Makes all changes of the transaction happen, or none. It has ended then, whatever is returned. Durable
/// as single changes are.
///
/// Errors: `CONFLICT` (begin anew, and do all of it again), `TIMED_OUT`, `FULL`, `NOT_DURABLE` (it has
/// happened), `NO_TRANSACTION`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_commit(session: *mut Session, error: *mut *mut Error) -> Status {
    let commit = || {
        // SAFETY: the caller gives a live handle.
        let mut client = unsafe { client(session)? };
        Ok(client.end()?.commit()?)
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, commit) }
}

/// Ends the transaction without any change.
///
/// Errors: `NO_TRANSACTION`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_roll_back(session: *mut Session, error: *mut *mut Error) -> Status {
    let roll_back = || {
        // SAFETY: the caller gives a live handle.
        unsafe { client(session)? }.end()?.roll_back();
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, roll_back) }
}

/// Marks this moment of the transaction, to come back to with `ancile_roll_back_to`.
///
/// Errors: `NO_TRANSACTION`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_savepoint(
    session: *mut Session,
    savepoint: *mut usize,
    error: *mut *mut Error,
) -> Status {
    let mark = || {
        must_have(savepoint, "savepoint")?;
        // SAFETY: the caller gives a live handle.
        let mut client = unsafe { client(session)? };
        let (transaction, savepoints) = client.open()?;
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(savepoint, savepoints.len()) };
        savepoints.push(transaction.savepoint());
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, mark) }
}

/// Takes back every change of the transaction since a savepoint, and the savepoints since then; this one
/// stays. What was read stays read.
///
/// Errors: `NO_TRANSACTION`, `MISUSE` if the transaction has no such savepoint.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_roll_back_to(
    session: *mut Session,
    savepoint: usize,
    error: *mut *mut Error,
) -> Status {
    let take_back = || {
        // SAFETY: the caller gives a live handle.
        let mut client = unsafe { client(session)? };
        let (transaction, savepoints) = client.open()?;
        let Some(&moment) = savepoints.get(savepoint) else {
            return Err(Failure::misuse("the transaction has no such savepoint"));
        };
        transaction.roll_back_to(moment);
        savepoints.truncate(savepoint + 1);
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, take_back) }
}
