//! The rows of all tables: as many cells as the table has columns, in memory of the caller's or their own.

#![expect(
    unsafe_code,
    reason = "rows are borrowed from C for the length of a call"
)]

use std::ptr::NonNull;

use ancile::{Dynamic, Kind, Row};

use crate::handle::slice;
use crate::status::Failure;

/// The cells of a row.
pub(crate) enum Cells {
    /// Memory of its own.
    Own(Box<[u64]>),
    /// Somebody else's, who keeps it unchanged for as long as this row lives; it is made for the length
    /// of a call only, and its clones have memory of their own.
    Lent(NonNull<u64>, usize),
}

// SAFETY: what is lent is read only, and outlives the row wherever it is.
unsafe impl Send for Cells {}
// SAFETY: as before.
unsafe impl Sync for Cells {}

impl Cells {
    pub(crate) fn as_slice(&self) -> &[u64] {
        match self {
            Self::Own(cells) => cells,
            // SAFETY: whoever lent it keeps it for as long as the row lives.
            Self::Lent(start, count) => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *count)
            },
        }
    }

    fn lend(cells: &[u64]) -> Self {
        Self::Lent(NonNull::from(cells).cast(), cells.len())
    }

    /// Rows that lie one behind the other.
    ///
    /// # Safety
    /// The pointer is null or leads to so many rows, which nobody changes while the result lives.
    pub(crate) unsafe fn rows(
        start: *const u64,
        count: usize,
        columns: usize,
    ) -> Result<Vec<Self>, Failure> {
        let cells = count.checked_mul(columns);
        let cells = cells.ok_or_else(|| Failure::misuse("there cannot be so many rows"))?;
        // SAFETY: the caller says so.
        let cells = unsafe { slice(start, cells, "rows")? };
        Ok(cells.chunks_exact(columns).map(Self::lend).collect())
    }

    /// A row.
    ///
    /// # Safety
    /// The pointer is null or leads to a row, which nobody changes while the result lives.
    pub(crate) unsafe fn row(start: *const u64, columns: usize) -> Result<Self, Failure> {
        // SAFETY: the caller says so.
        let cells = unsafe { slice(start, columns, "row")? };
        Ok(Self::lend(cells))
    }
}

impl Clone for Cells {
    fn clone(&self) -> Self {
        Self::Own(self.as_slice().into())
    }
}

impl Row for Cells {
    type Width = Dynamic;

    fn fields() -> Option<&'static [(&'static str, Kind)]> {
        None
    }

    fn columns(&self) -> usize {
        self.as_slice().len()
    }

    #[inline]
    fn store(&self, cells: &mut [u64]) {
        cells.copy_from_slice(self.as_slice());
    }

    fn load(cells: &[u64]) -> Self {
        Self::Own(cells.into())
    }

    #[inline]
    fn view<T>(cells: &[u64], look: impl FnOnce(&Self) -> T) -> T {
        look(&Self::lend(cells))
    }
}
