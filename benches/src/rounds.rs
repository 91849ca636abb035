//! Interleaved rounds and what is left of them.
//!
//! A machine changes its speed by the minute. Subjects that are to be compared therefore take
//! turns (A B A B ...) in many short slices, and each is summed up by its median: a slice that a
//! neighbour disturbed moves neither the median nor the comparison.

use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::subject::{Budget, Slice, Subject};
use crate::workload::Operation;

/// After a slice its threads spin, yield and park; the next subject starts when they have.
const SETTLE: Duration = Duration::from_micros(1_500);

/// Smallest, median, largest and the median distance from the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Smallest value.
    pub min: f64,
    /// Middle value.
    pub median: f64,
    /// Median of the distances from the median.
    pub mad: f64,
    /// Largest value.
    pub max: f64,
    /// How many values.
    pub count: usize,
}

impl Summary {
    /// Sums up `values`, of which there must be at least one.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "nothing to sum up");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = middle(&sorted);
        let mut distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Self {
            min: sorted[0],
            median,
            mad: middle(&distances),
            max: sorted[sorted.len() - 1],
            count: sorted.len(),
        }
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// What one subject did in all its slices of a cell.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Operations per second of all threads together, over slices.
    pub rate: Summary,
    /// Sum of what was read, so that nothing can be left out.
    pub checksum: u64,
    /// Operations in all slices.
    pub operations: u64,
}

/// Lets `subjects` take turns at `operation` for `rounds` rounds of slices of `budget` each.
///
/// # Errors
/// The first subject that fails, or that has no slice long enough to count.
pub fn interleave(
    subjects: &mut [&mut dyn Subject],
    operation: Operation,
    rounds: usize,
    budget: Budget,
) -> Result<Vec<Measured>, Failure> {
    let mut slices: Vec<Vec<Slice>> = subjects.iter().map(|_| Vec::new()).collect();
    let mut spent = vec![true; subjects.len()];
    for _ in 0..rounds {
        for (index, subject) in subjects.iter_mut().enumerate() {
            if spent[index] {
                subject.prepare(operation)?;
            }
            if !budget.checked {
                thread::sleep(SETTLE);
            }
            let slice = subject.slice(operation, budget)?;
            spent[index] = slice.spent;
            slices[index].push(slice);
        }
    }
    subjects
        .iter_mut()
        .zip(&slices)
        .map(|(subject, slices)| {
            subject.settle(operation)?;
            measured(slices, budget)
                .ok_or_else(|| Failure::new(format!("{} did nothing", subject.name())))
        })
        .collect()
}

/// Slices that ran out of rows early say little; they count only where there are no others.
fn measured(slices: &[Slice], budget: Budget) -> Option<Measured> {
    let long: Vec<f64> = slices
        .iter()
        .filter(|slice| slice.nanos_min() >= budget.nanos / 3)
        .map(Slice::rate)
        .collect();
    let every: Vec<f64> = slices
        .iter()
        .filter(|slice| slice.operations() > 0)
        .map(Slice::rate)
        .collect();
    let rates = if long.is_empty() { every } else { long };
    (!rates.is_empty()).then(|| Measured {
        rate: Summary::of(&rates),
        checksum: slices
            .iter()
            .fold(0, |sum, slice| sum.wrapping_add(slice.checksum())),
        operations: slices.iter().map(Slice::operations).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_not_moved_by_one_wild_value() {
        let summary = Summary::of(&[5.0, 4.0, 6.0, 5.0, 900.0]);
        assert_eq!(summary.median, 5.0);
        assert_eq!(summary.mad, 1.0);
        assert_eq!((summary.min, summary.max, summary.count), (4.0, 900.0, 5));
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(Summary::of(&[1.0, 2.0, 4.0, 8.0]).median, 3.0);
    }
}
