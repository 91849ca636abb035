//! The published figures of CompleteDB Embedded, 14 pinned threads on two Xeon E5530.

use crate::workload::{Access, Operation};

/// Rows in the published runs.
pub const ROWS: u64 = 100_000_000;

/// Threads in the published runs.
pub const THREADS: usize = 14;

/// Published operations per second of all threads; `None` for widths that were not published.
pub fn operations_per_second(operation: Operation, access: Access, columns: usize) -> Option<f64> {
    let column = match (columns, access) {
        (10, Access::Direct) => 0,
        (10, Access::Surrogate) => 1,
        (25, Access::Direct) => 2,
        (25, Access::Surrogate) => 3,
        _ => return None,
    };
    let millions: [f64; 4] = match operation {
        Operation::Insert => [7.43, 4.43, 3.32, 2.76],
        Operation::Select => [38.5, 22.3, 27.5, 15.9],
        Operation::Update => [19.4, 14.6, 18.3, 13.4],
        Operation::Delete => [22.1, 11.3, 19.8, 9.79],
        Operation::Mixed => [40.6, 16.5, 26.9, 12.8],
    };
    Some(millions[column] * 1e6)
}
