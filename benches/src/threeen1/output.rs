//! What is printed: the columns of the original for each contestant, and one JSON line.
//!
//! The original prints `first last streams block longest highest seconds updates reads updates/s
//! reads/s` for a line, thousands with commas, whole seconds. Here seconds have fractions, and
//! contestant, durability, the fastest round and the size of the database's files stand beside.

use serde::Serialize;

use crate::machine::Machine;
use crate::report::Table;
use crate::rounds::Summary;
use crate::threeen1::contestants::{Contestant, Durability, Ran, Wanted};
use crate::threeen1::input::Line;
use crate::threeen1::published::Published;

const HEAD: [&str; 14] = [
    "contestant",
    "durability",
    "first",
    "last",
    "streams",
    "block",
    "longest",
    "highest",
    "seconds",
    "updates",
    "reads",
    "updates/s",
    "reads/s",
    "best s",
];

/// A contestant's rounds of one line, as a JSON line.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The bench.
    pub bench: &'static str,
    /// Who ran.
    pub contestant: String,
    /// What survives.
    pub durability: Durability,
    /// How that is done.
    pub setting: String,
    /// `words` or `digits`.
    pub spelling: &'static str,
    /// `update` or `path`: what one transaction is.
    pub transaction: &'static str,
    /// `threads` or `processes`: what streams are.
    pub streams_are: &'static str,
    /// More streams were running than there are cores.
    pub oversubscribed: bool,
    /// First integer.
    pub first: u64,
    /// Last integer.
    pub last: u64,
    /// Parallel streams.
    pub streams: u64,
    /// Integers in a block, as used.
    pub block: u64,
    /// Integers in a block, as asked for; zero when not.
    pub block_asked: u64,
    /// Steps of the longest sequence.
    pub longest: u64,
    /// Highest integer met.
    pub highest: u64,
    /// Steps that are stored.
    pub nodes: u64,
    /// Of the median round, as what follows; of two in the middle the faster one.
    pub seconds: f64,
    /// Steps set.
    pub updates: u64,
    /// Look-ups.
    pub reads: u64,
    /// Steps set in a second.
    pub updates_per_second: f64,
    /// Look-ups in a second.
    pub reads_per_second: f64,
    /// Of the fastest round.
    pub seconds_min: f64,
    /// Of the slowest round.
    pub seconds_max: f64,
    /// Median distance from the median.
    pub seconds_mad: f64,
    /// How often the line was run.
    pub rounds: usize,
    /// Bytes of all keys and values that were set, null where nobody counted.
    pub raw_bytes: Option<u64>,
    /// Bytes of the database's files, null in memory.
    pub stored_bytes: Option<u64>,
    /// Published seconds of this line, null where there are none.
    pub reference_seconds: Option<u64>,
    /// Round trip of a cache line between two cores, before the line.
    pub line_round_trip_ns: Option<f64>,
    /// The machine.
    #[serde(flatten)]
    pub machine: Machine,
}

impl Cell {
    /// Sums up the rounds of a contestant, of which there must be at least one.
    pub fn new(
        contestant: &dyn Contestant,
        line: &Line,
        wanted: &Wanted,
        machine: &Machine,
        rounds: &[Ran],
    ) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let median = sorted[(sorted.len() - 1) / 2];
        let seconds: Vec<f64> = sorted.iter().map(|ran| ran.seconds).collect();
        let summary = Summary::of(&seconds);
        Self {
            bench: "threeen1",
            contestant: contestant.name().to_owned(),
            durability: contestant.durability(),
            setting: contestant.setting().to_owned(),
            spelling: wanted.spelling.name(),
            transaction: wanted.unit.name(),
            streams_are: contestant.streams(),
            oversubscribed: line.streams > machine.cores as u64,
            first: line.first,
            last: line.last,
            streams: line.streams,
            block: line.block,
            block_asked: line.block_asked,
            longest: median.longest,
            highest: median.highest,
            nodes: median.nodes,
            seconds: median.seconds,
            updates: median.updates,
            reads: median.reads,
            updates_per_second: median.updates as f64 / median.seconds,
            reads_per_second: median.reads as f64 / median.seconds,
            seconds_min: summary.min,
            seconds_max: summary.max,
            seconds_mad: summary.mad,
            rounds: rounds.len(),
            raw_bytes: median.raw_bytes,
            stored_bytes: median.stored_bytes,
            reference_seconds: Published::of(line).map(|published| published.seconds),
            line_round_trip_ns: None,
            machine: machine.clone(),
        }
    }
}

/// The table of one line.
pub fn table(line: &Line, cells: &[Cell]) -> String {
    let mut head = HEAD.to_vec();
    head.push("MB");
    let mut table = Table::new(&head);
    for cell in cells {
        let megabytes = cell
            .stored_bytes
            .map_or_else(|| "-".to_owned(), |bytes| thousands(bytes / 1_000_000));
        let mut row = vec![cell.contestant.clone(), cell.durability.name().to_owned()];
        row.extend(line_columns(line, cell.longest, cell.highest));
        row.push(format!("{:.3}", cell.seconds));
        row.extend([cell.updates, cell.reads].map(thousands));
        row.extend([cell.updates_per_second, cell.reads_per_second].map(whole));
        row.extend([format!("{:.3}", cell.seconds_min), megabytes]);
        table.push(row);
    }
    if let (Some(published), Some(cell)) = (Published::of(line), cells.first()) {
        let mut row = vec!["GT.M V5.4, laptop of 2010".to_owned(), "epoch".to_owned()];
        row.extend(line_columns(line, cell.longest, cell.highest));
        let Published {
            seconds,
            updates,
            reads,
        } = published;
        row.extend([seconds, updates, reads, updates / seconds, reads / seconds].map(thousands));
        table.push(row);
    }
    table.render()
}

fn line_columns(line: &Line, longest: u64, highest: u64) -> [String; 6] {
    [
        thousands(line.first),
        thousands(line.last),
        thousands(line.streams),
        line.block_shown(),
        thousands(longest),
        thousands(highest),
    ]
}

/// A rate without fractions.
fn whole(rate: f64) -> String {
    thousands(rate as u64)
}

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        let shown = [0, 999, 1_000, 56_991_483_520].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "56,991,483,520"]);
    }
}
