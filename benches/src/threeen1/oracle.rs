//! What has to come out.
//!
//! For some ranges the longest sequence, the highest integer and the number of stored steps are
//! published; for others that are not too large they are computed here, by a walk that has nothing
//! in common with the one that is measured. Some facts hold for every range and every order of the
//! streams, and are checked always.

use std::collections::HashSet;

use crate::failure::Failure;
use crate::threeen1::contestants::Ran;
use crate::threeen1::input::Line;
use crate::threeen1::walk::next;

/// Ranges up to this many integers are computed where they are not known: a second, 100 MB.
const COMPUTED_STARTS_MAX: u64 = 1_000_000;

/// What a range has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Steps of the longest sequence.
    pub longest: u64,
    /// Highest integer met after a start.
    pub highest: u64,
    /// Integers above 1 that are met: steps that are stored.
    pub nodes: u64,
}

/// First, last, longest, highest, nodes.
const KNOWN: [[u64; 5]; 5] = [
    [1, 10, 19, 52, 21],
    [1, 10_000, 261, 27_114_424, 21_663],
    [1, 100_000, 350, 1_570_824_736, 217_211],
    [1, 1_000_000, 524, 56_991_483_520, 2_168_610],
    [1, 10_000_000, 685, 60_342_610_919_632, 21_730_848],
];

impl Expected {
    /// Known or computed; `None` for a range that is neither known nor small.
    pub fn of(line: &Line) -> Option<Self> {
        let known = KNOWN
            .iter()
            .find(|[first, last, ..]| (*first, *last) == (line.first, line.last));
        match known {
            Some(&[_, _, longest, highest, nodes]) => Some(Self {
                longest,
                highest,
                nodes,
            }),
            None if line.starts() <= COMPUTED_STARTS_MAX => Some(Self::compute(line)),
            None => None,
        }
    }

    /// Follows every sequence to its end.
    fn compute(line: &Line) -> Self {
        let mut met = HashSet::new();
        let mut expected = Self {
            longest: 0,
            highest: 0,
            nodes: 0,
        };
        for start in line.first..=line.last {
            let (mut integer, mut steps) = (start, 0);
            while integer != 1 {
                met.insert(integer);
                integer = next(integer).expect("sequences of a checked range fit 64 bits");
                expected.highest = expected.highest.max(integer);
                steps += 1;
            }
            expected.longest = expected.longest.max(steps);
        }
        expected.nodes = met.len() as u64;
        expected
    }
}

/// Compares a run that began with an empty database with what is expected, and with itself.
///
/// # Errors
/// The first difference.
pub fn check(line: &Line, expected: Option<&Expected>, ran: &Ran) -> Result<(), Failure> {
    let must = |holds: bool, sentence: String| match holds {
        true => Ok(()),
        false => Err(Failure::new(format!("{line}: {sentence}"))),
    };
    let Ran {
        longest,
        highest,
        reads,
        updates,
        nodes,
        ..
    } = *ran;
    if let Some(wanted) = expected {
        let found = Expected {
            longest,
            highest,
            nodes,
        };
        must(found == *wanted, format!("{found:?}, expected {wanted:?}"))?;
    }
    must(
        reads == updates + line.starts(),
        format!(
            "{reads} reads and {updates} updates do not differ by {}",
            line.starts()
        ),
    )?;
    must(
        updates >= nodes,
        format!("{updates} updates cannot have made {nodes} nodes"),
    )?;
    // Every start is stored, but for 1.
    let stored = line.starts() - u64::from(line.first == 1);
    must(
        nodes >= stored && longest > 0,
        format!("{nodes} nodes, but {stored} starts"),
    )?;
    // After the largest odd start comes three times as much.
    let odd = line.last - u64::from(line.last.is_multiple_of(2));
    must(
        odd < line.first || odd == 1 || highest > 3 * odd,
        format!("highest is {highest}, but {odd} was a start"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(first: u64, last: u64) -> Line {
        Line::new(first, last, 1, 0).unwrap()
    }

    #[test]
    fn published_ranges_are_computed_as_published() {
        for [first, last, ..] in &KNOWN[..3] {
            let line = line(*first, *last);
            assert_eq!(Some(Expected::compute(&line)), Expected::of(&line));
        }
    }

    #[test]
    fn a_range_of_two_counts_what_comes_after_a_start() {
        let expected = Expected::of(&line(1, 2)).unwrap();
        assert_eq!(
            expected,
            Expected {
                longest: 1,
                highest: 1,
                nodes: 1
            }
        );
        let ran = ran(&expected, 1);
        check(&line(1, 2), Some(&expected), &Ran { reads: 3, ..ran }).unwrap();
    }

    #[test]
    fn large_ranges_are_known_or_checked_by_structure_alone() {
        assert!(Expected::of(&line(1, 10_000_000)).is_some());
        assert!(Expected::of(&line(2, 10_000_000)).is_none());
    }

    #[test]
    fn every_wrong_count_is_found() {
        let line = line(1, 10);
        let expected = Expected::of(&line).unwrap();
        let right = ran(&expected, 21);
        check(&line, Some(&expected), &right).unwrap();
        check(&line, None, &right).unwrap();
        check(
            &line,
            None,
            &Ran {
                updates: 22,
                reads: 32,
                ..right
            },
        )
        .unwrap();
        let wrong = [
            Ran {
                longest: 18,
                ..right
            },
            Ran {
                highest: 53,
                ..right
            },
            Ran { nodes: 20, ..right },
            Ran { reads: 30, ..right },
            Ran {
                updates: 20,
                reads: 30,
                ..right
            },
        ];
        for ran in wrong {
            assert!(check(&line, Some(&expected), &ran).is_err(), "{ran:?}");
        }
        let wrong = [
            Ran {
                longest: 0,
                ..right
            },
            Ran {
                highest: 27,
                ..right
            },
            Ran { nodes: 8, ..right },
            Ran { nodes: 22, ..right },
        ];
        for ran in wrong {
            assert!(check(&line, None, &ran).is_err(), "{ran:?}");
        }
    }

    fn ran(expected: &Expected, updates: u64) -> Ran {
        Ran {
            longest: expected.longest,
            highest: expected.highest,
            nodes: expected.nodes,
            updates,
            reads: updates + 10,
            seconds: 1.0,
            raw_bytes: None,
            stored_bytes: None,
        }
    }
}
