//! Visits of all rows of a table.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_void;
use std::ops::ControlFlow;

use ancile::Verbs;

use crate::engine::Table;
use crate::handle::borrow;
use crate::rows::By;
use crate::session::{Session, client};
use crate::status::{Error, Failure, Status, enter};

/// A function of the caller's that visits a row: its id, its cells, which are there for this call only,
/// and how many; says whether to go on. It is called by the thread that scans, must return, and cannot
/// use the same session.
pub type VisitRow = Option<
    unsafe extern "C" fn(context: *mut c_void, id: u64, row: *const u64, columns: usize) -> bool,
>;

/// Visits every row, shard by shard, until `visit` says no; ids are places or keys, as `by` says.
/// `context` is handed to it. Others work on meanwhile: a row that is there throughout is visited once,
/// with the values of one moment; a row that comes or goes may be visited or not.
///
/// Errors: `KEYED`, `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_scan(
    session: *mut Session,
    table: *const Table,
    by: u32,
    visit: VisitRow,
    context: *mut c_void,
    error: *mut *mut Error,
) -> Status {
    let scan = || {
        let visit = visit.ok_or_else(|| Failure::misuse("no function to visit rows was given"))?;
        // SAFETY: the caller gives live handles.
        let (mut client, table) = unsafe { (client(session)?, borrow(table)?) };
        let visit = |id: u64, row: &[u64]| {
            // SAFETY: the caller's function, called as it is declared.
            match unsafe { visit(context, id, row.as_ptr(), row.len()) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let session = client.alone()?;
        match By::of(by)? {
            By::Place => session.scan(table, |_, id, row| visit(id.to_u64(), row.as_slice()))?,
            By::Key => session.scan_keyed(table, |_, key, row| visit(key.0, row.as_slice()))?,
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, scan) }
}
