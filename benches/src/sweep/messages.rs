//! Hops and cache lines an operation, by accounting of the messages that routed work sends.
//!
//! Nothing is run: MIXED is drawn, each operation's row lies in any shard with equal chance, and the
//! blocks that this makes are counted as the engine forms and lays them out. A call of `run_each`
//! fills one block a shard, which is sent when it is full, and all are sent at the end; operations on
//! the own shard send nothing.
//!
//! A line is counted when one side writes it and the other reads it:
//!
//! ```text
//! there: request (1), ids (8 bytes an operation), verbs where they differ (1 byte), rows of
//!        updates and inserts
//! back:  reply (1), outcomes (1 byte an operation), ids of inserted rows, rows of selects
//! ```
//! Each of the parts begins on a line of its own. Lines that only change owner are not counted.
//!
//! Callgrind, which counts the blocks that shards really execute, found 0.0152, 0.0236 and 0.0392
//! hops an operation by place on 2, 4 and 14 shards; the accounting says 0.0151, 0.0235 and 0.0392.

use std::collections::BTreeSet;

use crate::random::XorShift;
use crate::workload::{Access, CYCLE, INSERTS, UPDATES};

const LINE_BYTES: usize = 64;

/// Calls that are counted; more change nothing in the third digit.
const CALLS: usize = 2_000;

/// What an operation costs on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Crossings from one thread to another.
    pub hops: f64,
    /// Cache lines that cross.
    pub lines: f64,
}

/// The shape of routed work.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Columns of 8 bytes.
    pub columns: usize,
    /// How rows are found.
    pub access: Access,
    /// Shards, over which the rows are spread evenly.
    pub shards: usize,
    /// Operations of a block.
    pub block: usize,
    /// Operations of a call.
    pub call: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Select,
    Update,
    Insert,
    Delete,
}

/// Counts the messages of MIXED from inside a shard.
pub fn of_mixed(shape: &Shape) -> Traffic {
    let mut random = XorShift::new(shape.shards as u64);
    let mut blocks: Vec<Vec<Kind>> = vec![Vec::new(); shape.shards];
    let (mut sent, mut lines, mut drawn) = (0_usize, 0_usize, 0_usize);
    for _ in 0..CALLS {
        for _ in 0..shape.call {
            let kind = kind_of(drawn % CYCLE);
            drawn += 1;
            let shard = random.below(shape.shards);
            // Rows without keys are inserted where the work is.
            let is_own = shard == 0 || kind == Kind::Insert && shape.access == Access::Direct;
            if is_own {
                continue;
            }
            blocks[shard].push(kind);
            if blocks[shard].len() == shape.block {
                sent += 1;
                lines += lines_of(&blocks[shard], shape.columns);
                blocks[shard].clear();
            }
        }
        for block in blocks.iter_mut().filter(|block| !block.is_empty()) {
            sent += 1;
            lines += lines_of(block, shape.columns);
            block.clear();
        }
    }
    Traffic {
        hops: 2.0 * sent as f64 / drawn as f64,
        lines: lines as f64 / drawn as f64,
    }
}

/// What stands at a place of MIXED's cycle.
fn kind_of(place: usize) -> Kind {
    if place == 0 {
        Kind::Delete
    } else if place <= UPDATES {
        Kind::Update
    } else if place <= UPDATES + INSERTS {
        Kind::Insert
    } else {
        Kind::Select
    }
}

/// Lines of a request and its reply.
fn lines_of(block: &[Kind], columns: usize) -> usize {
    let of_bytes = |bytes: usize| bytes.div_ceil(LINE_BYTES);
    let is_mixed = block.iter().any(|kind| *kind != block[0]);
    let verbs = if is_mixed { of_bytes(block.len()) } else { 0 };
    // Operations whose part of so many bytes is written by one of these kinds.
    let touched = |bytes: usize, kinds: &[Kind]| {
        let mut lines = BTreeSet::new();
        for at in (0..block.len()).filter(|at| kinds.contains(&block[*at])) {
            lines.extend(at * bytes / LINE_BYTES..((at + 1) * bytes).div_ceil(LINE_BYTES));
        }
        lines.len()
    };
    let there =
        1 + of_bytes(block.len() * 8) + verbs + touched(columns * 8, &[Kind::Update, Kind::Insert]);
    let back = 1
        + of_bytes(block.len())
        + touched(8, &[Kind::Insert])
        + touched(columns * 8, &[Kind::Select]);
    there + back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(shards: usize, access: Access) -> Shape {
        Shape {
            columns: 10,
            access,
            shards,
            block: 64,
            call: 1_024,
        }
    }

    #[test]
    fn lines_of_a_block_are_those_of_its_layout() {
        // Request, 8 lines of ids; reply, outcomes, 64 rows of 80 bytes.
        assert_eq!(lines_of(&[Kind::Select; 64], 10), 1 + 8 + 1 + 1 + 80);
        assert_eq!(lines_of(&[Kind::Update; 64], 10), 1 + 8 + 80 + 1 + 1);
        assert_eq!(lines_of(&[Kind::Insert; 64], 10), 1 + 8 + 80 + 1 + 1 + 8);
        assert_eq!(lines_of(&[Kind::Delete; 64], 10), 1 + 8 + 1 + 1);
        // The verbs differ; the two rows of 80 bytes share a line, which goes both ways.
        assert_eq!(
            lines_of(&[Kind::Select, Kind::Update], 10),
            (1 + 1 + 1 + 2) + (1 + 1 + 2)
        );
    }

    #[test]
    fn one_shard_sends_nothing() {
        let traffic = of_mixed(&shape(1, Access::Surrogate));
        assert_eq!((traffic.hops, traffic.lines), (0.0, 0.0));
    }

    #[test]
    fn full_blocks_of_far_shards_cost_two_hops_for_64_operations() {
        let traffic = of_mixed(&shape(2, Access::Surrogate));
        let least = 2.0 / 64.0 * 0.5;
        assert!((least..least * 1.2).contains(&traffic.hops), "{traffic:?}");
        let by_place = of_mixed(&shape(2, Access::Direct));
        assert!(by_place.lines < traffic.lines, "{by_place:?}, {traffic:?}");
    }
}
