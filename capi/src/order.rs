//! Globals in their order: steps from key to key, and scans. They are no parts of transactions.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use ancile::Verbs;

use crate::globals::Globals;
use crate::handle::{Bytes, borrow, give, must_have, put, put_bytes, release};
use crate::key::{Key, lock};
use crate::session::{Session, client};
use crate::status::{Error, Failure, Status, enter};

/// The next key of the same level.
pub const NEXT: u32 = 0;
/// The key before it of the same level.
pub const PREVIOUS: u32 = 1;
/// The first key of the level below.
pub const FIRST: u32 = 2;
/// The last key of the level below.
pub const LAST: u32 = 3;

/// Makes a key the one that `step` leads to, which has a value or nodes below it: `ANCILE_NEXT`,
/// `ANCILE_PREVIOUS`, `ANCILE_FIRST` or `ANCILE_LAST`. `*found` says whether there is one; if not, the
/// key stays as it is.
///
/// Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_step(
    session: *mut Session,
    globals: *const Globals,
    step: u32,
    key: *mut Key,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let go = || {
        must_have(found, "found")?;
        // SAFETY: the caller gives live handles.
        let (mut client, globals, mut key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let mut globals = client.alone()?.globals(globals);
        let other = match step {
            NEXT => globals.next(&key)?,
            PREVIOUS => globals.previous(&key)?,
            FIRST => globals.first(&key)?,
            LAST => globals.last(&key)?,
            other => return Err(Failure::misuse(format!("{other} is no step"))),
        };
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(found, other.is_some()) };
        if let Some(other) = other {
            *key = other;
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, go) }
}

/// Makes a key that of the next node with a value, in the order of all nodes of its name, and gives that
/// value (see `ancile_bytes`), if one is wanted. `*found` says whether there is one; if not, both stay as
/// they are.
///
/// Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_query(
    session: *mut Session,
    globals: *const Globals,
    key: *mut Key,
    value: *mut Bytes,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let go = || {
        must_have(found, "found")?;
        // SAFETY: the caller gives live handles.
        let (mut client, globals, mut key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let other = client.alone()?.globals(globals).query(&key)?;
        // SAFETY: looked at before, and the caller's to be written; bytes of ours or none.
        unsafe {
            put(found, other.is_some());
            if let Some((other, bytes)) = other {
                put_bytes(value, &bytes);
                *key = other;
            }
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, go) }
}

/// Counts the nodes with a value that begin with a key, itself included.
///
/// Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_count(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    nodes: *mut u64,
    error: *mut *mut Error,
) -> Status {
    let count = || {
        must_have(nodes, "nodes")?;
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let counted = client.alone()?.globals(globals).count(&key)?;
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(nodes, counted) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, count) }
}

/// A function of the caller's that visits a node: its key, which may be looked at and copied, and its
/// value, both there for this call only; says whether to go on. It is called by the thread that scans,
/// must return, and cannot use the same session.
pub type VisitNode = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const Key,
        value: *const u8,
        length: usize,
    ) -> bool,
>;

/// Visits the nodes that begin with a key, itself included, in order (or, with `is_backward`, from the
/// last to the first), until `visit` says no. `context` is handed to it. Others work on meanwhile: a node
/// that is there throughout is visited once; one that comes or goes may be visited or not.
///
/// Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_scan(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    is_backward: bool,
    visit: VisitNode,
    context: *mut c_void,
    error: *mut *mut Error,
) -> Status {
    let scan = || {
        let visit = visit.ok_or_else(|| Failure::misuse("no function to visit nodes was given"))?;
        // SAFETY: the caller gives live handles.
        let (mut client, globals, from) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?.clone()) };
        let shown = Shown(give(Mutex::new(from.clone())));
        let mut failed = None;
        let look = |key: ancile::GlobalKeyRef<'_>, value: &[u8]| {
            let key = key
                .to_key()
                .map_err(Failure::from)
                .and_then(|key| shown.show(key));
            if let Err(failure) = key {
                failed = Some(failure);
                return ControlFlow::Break(());
            }
            // SAFETY: the caller's function, called as it is declared.
            match unsafe { visit(context, shown.0, value.as_ptr(), value.len()) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let mut globals = client.alone()?.globals(globals);
        match is_backward {
            false => globals.scan(&from, look)?,
            true => globals.scan_back(&from, look)?,
        }
        failed.map_or(Ok(()), Err)
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, scan) }
}

/// The handle of the key that a scan shows.
struct Shown(*mut Key);

impl Shown {
    fn show(&self, key: ancile::GlobalKey) -> Result<(), Failure> {
        // SAFETY: made by this scan, and freed with it.
        let shown = unsafe { borrow(self.0.cast_const())? };
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: made by the scan, which has ended.
        unsafe { release(self.0) };
    }
}
