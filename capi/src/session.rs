//! Sessions, and the transaction that one may have open.

#![expect(
    unsafe_code,
    reason = "the functions are called from C, and an open transaction borrows the session beside it"
)]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, TryLockError};

use ancile::{Acknowledge, Savepoint, Transaction, TransactionOptions, Verbs};

use crate::engine::Engine;
use crate::handle::{Handle, borrow, give, must_have, put, release};
use crate::status::{Error, Failure, Status, enter};

/// A thread's access to an engine. May be moved between threads, and is used by one at a time.
pub struct Session {
    _opaque: [u8; 0],
}

impl Handle for Session {
    type Value = Mutex<Client>;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.ses");
    const NAME: &str = "session";
}

pub(crate) type Open = Transaction<'static, ancile::Session>;

/// A session, and what it has begun.
pub(crate) struct Client {
    /// Borrows the session for as long as it is there; gone before it, so it stands before it.
    transaction: Option<Open>,
    savepoints: Vec<Savepoint>,
    session: Owned,
}

/// A session that stays where it is, reached by pointer, so that a transaction may borrow it.
struct Owned(NonNull<ancile::Session>);

// SAFETY: it is a box in all but name, and what is in it may be sent.
unsafe impl Send for Owned where ancile::Session: Send {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made of a box, and the transaction that borrowed it is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// How a verb is done: by itself, or as a part of the open transaction.
pub(crate) enum Way<'a> {
    Alone(&'a mut ancile::Session),
    Within(&'a mut Open),
}

impl Client {
    fn new(session: ancile::Session) -> Self {
        Self {
            transaction: None,
            savepoints: Vec::new(),
            session: Owned(NonNull::from(Box::leak(Box::new(session)))),
        }
    }

    pub(crate) fn way(&mut self) -> Way<'_> {
        match &mut self.transaction {
            Some(transaction) => Way::Within(transaction),
            // SAFETY: no transaction borrows the session, and this borrows all of the client.
            None => Way::Alone(unsafe { self.session.0.as_mut() }),
        }
    }

    /// The session, for what cannot be a part of a transaction.
    pub(crate) fn alone(&mut self) -> Result<&mut ancile::Session, Failure> {
        match self.way() {
            Way::Alone(session) => Ok(session),
            Way::Within(_) => Err(Failure::new(
                Status::InTransaction,
                "this cannot be done while the session has a transaction open",
            )),
        }
    }

    pub(crate) fn open(&mut self) -> Result<(&mut Open, &mut Vec<Savepoint>), Failure> {
        match &mut self.transaction {
            Some(transaction) => Ok((transaction, &mut self.savepoints)),
            None => Err(no_transaction()),
        }
    }

    pub(crate) fn begin(&mut self, options: TransactionOptions) -> Result<(), Failure> {
        self.alone()?;
        // SAFETY: nothing borrows the session. It lives until after the transaction, which is dropped
        // first, and nobody reaches it meanwhile, as `way` and `alone` look for a transaction.
        let session: &'static mut ancile::Session = unsafe { &mut *self.session.0.as_ptr() };
        self.transaction = Some(session.begin(options)?);
        self.savepoints.clear();
        Ok(())
    }

    /// Ends the transaction: whoever gets it commits it, or drops it.
    pub(crate) fn end(&mut self) -> Result<Open, Failure> {
        self.transaction.take().ok_or_else(no_transaction)
    }
}

fn no_transaction() -> Failure {
    let message = "the session has no transaction open";
    Failure::new(Status::NoTransaction, message)
}

/// The client of a session, for this thread alone.
///
/// # Safety
/// As of [`borrow`].
pub(crate) unsafe fn client<'a>(
    session: *const Session,
) -> Result<MutexGuard<'a, Client>, Failure> {
    // SAFETY: the caller says so.
    let client = unsafe { borrow(session)? };
    match client.try_lock() {
        Ok(client) => Ok(client),
        // A panic was caught; what it has left is what an error leaves.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            Status::Busy,
            "the session is in use, by another thread or by the caller of this callback",
        )),
    }
}

/// A new session. `*session` is freed with `ancile_session_free`.
///
/// Errors: `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_session(
    engine: *const Engine,
    session: *mut *mut Session,
    error: *mut *mut Error,
) -> Status {
    let begin = || {
        must_have(session, "session")?;
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let begun = Engine::with(engine, |engine| Ok(engine.session()?))?;
            put(session, give(Mutex::new(Client::new(begun))));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, begin) }
}

/// Frees a session; null is nothing to free. A transaction that is open is rolled back; what was done
/// outside of one stays done. Nobody may use the session meanwhile.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_session_free(session: *mut Session) {
    let free = || {
        // SAFETY: the caller gives a live handle, or null.
        unsafe { release(session) };
        Ok(())
    };
    // SAFETY: no error is wanted.
    unsafe { enter(std::ptr::null_mut(), free) };
}

/// Whether the session's changes, of a database with journals, are waited for until they are on the disk
/// (with `ANCILE_DURABILITY_COMMIT` they are), or return when they have happened, and are on the disk a
/// little later: see `ancile_session_flush`.
///
/// Errors: `IN_TRANSACTION`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_session_wait_for_disk(
    session: *mut Session,
    waits: bool,
    error: *mut *mut Error,
) -> Status {
    let when = if waits {
        Acknowledge::Durable
    } else {
        Acknowledge::Executed
    };
    let set = || {
        // SAFETY: the caller gives a live handle.
        let mut client = unsafe { client(session)? };
        client.alone()?.set_acknowledge(when);
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, set) }
}

/// Waits until all that has happened so far is on the disk, of a database with journals.
///
/// Errors: `NOT_DURABLE`, `CLOSED`, `IN_TRANSACTION`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_session_flush(
    session: *mut Session,
    error: *mut *mut Error,
) -> Status {
    let flush = || {
        // SAFETY: the caller gives a live handle.
        let mut client = unsafe { client(session)? };
        Ok(client.alone()?.flush()?)
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, flush) }
}
