//! Reports: one JSON line a cell, and tables to read.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;

use ancile::topology::ShardVerification;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::rounds::Measured;

/// One measured cell. Rates are operations per second of all threads together.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Bench: `completedb` or `peers`.
    pub bench: &'static str,
    /// What was measured: the engine or a peer.
    pub subject: String,
    /// Kind of operation.
    pub op: &'static str,
    /// `direct` or `surrogate`.
    pub access: &'static str,
    /// Columns of 8 bytes.
    pub columns: usize,
    /// Rows of the full table.
    pub rows: usize,
    /// Shards of the engine; parts of the limit.
    pub shards: usize,
    /// Threads that issued operations.
    pub threads: usize,
    /// `local`, `routed` (from inside the shards) or `session` (from client threads).
    pub route: &'static str,
    /// Per cent of the operations that went to another shard; null where nobody can say.
    pub remote_percent: Option<f64>,
    /// Operations a batch; 1 means single calls.
    pub batch: usize,
    /// Batches a call.
    pub window: usize,
    /// Median over slices.
    pub ops_per_second: f64,
    /// Slowest slice.
    pub ops_per_second_min: f64,
    /// Fastest slice.
    pub ops_per_second_max: f64,
    /// Median distance from the median.
    pub ops_per_second_mad: f64,
    /// Slices that count.
    pub slices: usize,
    /// Operations in all slices.
    pub operations: u64,
    /// Published rate, null where none is.
    pub reference_ops_per_second: Option<f64>,
    /// Median rate of the bare loops in the same run, null where not measured.
    pub limit_ops_per_second: Option<f64>,
    /// Its slowest slice.
    pub limit_ops_per_second_min: Option<f64>,
    /// Its fastest slice.
    pub limit_ops_per_second_max: Option<f64>,
    /// Whether the limit's slices took turns with the subject's.
    pub limit_interleaved: bool,
    /// Prefetch distances of the limit: row ahead of operation, bucket ahead of row.
    pub limit_distances: Option<(usize, usize)>,
    /// Sum of everything read.
    pub checksum: u64,
    /// Whether every thread was pinned.
    pub pinned: bool,
    /// Whether all row memory was verified to be on its shard's node; null for peers.
    pub node_bound: Option<bool>,
    /// Whether rows lie on huge pages; null where nobody can say.
    pub huge_pages: Option<bool>,
    /// Shard by shard, processor and pages by node as read back after loading; empty for peers.
    pub arenas: Vec<ShardVerification>,
    /// Median round trip of a cache line between two cores, just before the cell.
    pub line_round_trip_ns: Option<f64>,
    /// More threads were running than there are cores.
    pub oversubscribed: bool,
    /// What of a commit survives which failure.
    pub durability: &'static str,
    /// How ids are drawn.
    pub id_distribution: &'static str,
    /// Every answer was compared with a model; such rates mean nothing.
    pub checked: bool,
    /// The machine.
    #[serde(flatten)]
    pub machine: Machine,
}

impl Cell {
    /// Enters what was measured.
    pub fn enter(&mut self, measured: &Measured) {
        self.ops_per_second = measured.rate.median;
        self.ops_per_second_min = measured.rate.min;
        self.ops_per_second_max = measured.rate.max;
        self.ops_per_second_mad = measured.rate.mad;
        self.slices = measured.rate.count;
        self.operations = measured.operations;
        self.checksum = measured.checksum;
    }

    /// Enters what the limit did in the same cell.
    pub fn enter_limit(&mut self, measured: &Measured) {
        self.limit_ops_per_second = Some(measured.rate.median);
        self.limit_ops_per_second_min = Some(measured.rate.min);
        self.limit_ops_per_second_max = Some(measured.rate.max);
    }
}

/// The file of JSON lines, if one was asked for.
pub struct Journal {
    file: Option<BufWriter<File>>,
}

impl Journal {
    /// Creates the file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: Option<&Path>) -> Result<Self, Failure> {
        let file = match path {
            Some(path) => Some(BufWriter::new(File::create(path).map_err(|error| {
                Failure::new(format!("cannot create {}: {error}", path.display()))
            })?)),
            None => None,
        };
        Ok(Self { file })
    }

    /// Writes one line, at once: a run that is stopped keeps what it has.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, record: &impl Serialize) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            serde_json::to_writer(&mut *file, record)?;
            file.write_all(b"\n")?;
            file.flush()?;
        }
        Ok(())
    }
}

/// A table of right-aligned columns, the first one left-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with its head.
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&word| word.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table as text.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                if column == 0 {
                    text += &format!("{cell:<width$}", width = widths[0]);
                } else {
                    text += &format!("  {cell:>width$}", width = widths[column]);
                }
            }
            text = text.trim_end().to_owned() + "\n";
        }
        text
    }
}

/// Millions with the digits that mean something.
pub fn millions(rate: f64) -> String {
    let millions = rate / 1e6;
    match millions {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// A ratio, or a dash.
pub fn ratio(part: f64, whole: Option<f64>) -> String {
    whole.map_or_else(|| "-".to_owned(), |whole| format!("{:.2}", part / whole))
}

/// A progress bar on standard error: shown on a terminal, silent otherwise.
pub fn progress(steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns() {
        let mut table = Table::new(&["op", "rate"]);
        table.push(vec!["select".to_owned(), "1.0".to_owned()]);
        assert_eq!(table.render(), "op      rate\nselect   1.0\n");
    }
}
