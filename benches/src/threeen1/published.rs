//! The published figures: GT.M V5.4 on a laptop of 2010 (Core2 Duo of 2.2 GHz, 4 GB, one disk of
//! 7,200 revolutions), typical of three runs with blocks of 5,000 integers.

use crate::threeen1::input::Line;

/// First, last, streams, seconds, updates, reads.
const RUNS: [[u64; 6]; 4] = [
    [1, 100_000, 4, 5, 217_350, 317_350],
    [1, 100_000, 8, 7, 218_379, 318_379],
    [1, 1_000_000, 4, 52, 2_169_141, 3_169_141],
    [1, 1_000_000, 8, 46, 2_169_919, 3_169_919],
];

const BLOCK: u64 = 5_000;

/// What was published of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Whole seconds.
    pub seconds: u64,
    /// Steps set.
    pub updates: u64,
    /// Look-ups.
    pub reads: u64,
}

impl Published {
    /// The figures of this very line, if there are any.
    pub fn of(line: &Line) -> Option<Self> {
        let asked = [line.first, line.last, line.streams];
        let run = RUNS.iter().find(|run| run[..3] == asked)?;
        (line.block == BLOCK).then_some(Self {
            seconds: run[3],
            updates: run[4],
            reads: run[5],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_counts_differ_by_the_integers_of_their_range() {
        for [first, last, streams, ..] in RUNS {
            let line = Line::new(first, last, streams, BLOCK).unwrap();
            let published = Published::of(&line).unwrap();
            assert_eq!(published.reads - published.updates, line.starts());
        }
    }

    #[test]
    fn other_lines_were_not_published() {
        for (last, streams, block) in [(99_999, 4, BLOCK), (100_000, 2, BLOCK), (100_000, 4, 1)] {
            let line = Line::new(1, last, streams, block).unwrap();
            assert_eq!(Published::of(&line), None);
        }
    }
}
