//! The published figures of Persist (2003): seconds for all four phases with one index, by name.
//!
//! A Pentium 4 of 2.4 GHz with 512 MB, Linux 2.4, gcc 3.2, MySQL 3.23 asked in SQL text. At ten million
//! rows Persist failed, and nothing was published for the others.

/// Seconds of the three for one row count.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Rows.
    pub rows: u64,
    /// MySQL 3.23.
    pub mysql: f64,
    /// The standard library's map in Persist's mapped file.
    pub persist: f64,
    /// The standard library's map in memory.
    pub stl: f64,
}

const ALL: [Published; 5] = [
    published(100, 0.044, 0.005, 0.005),
    published(1_000, 0.424, 0.017, 0.017),
    published(10_000, 4.465, 0.169, 0.156),
    published(100_000, 48.823, 1.798, 1.82),
    published(1_000_000, 575.214, 20.392, 20.098),
];

/// What was published for this many rows.
pub fn of(rows: u64) -> Option<Published> {
    ALL.into_iter().find(|published| published.rows == rows)
}

const fn published(rows: u64, mysql: f64, persist: f64, stl: f64) -> Published {
    Published {
        rows,
        mysql,
        persist,
        stl,
    }
}
