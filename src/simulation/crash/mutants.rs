//! The checkers, checked: each fault in what keeps files whole is noticed within a few seeds.

use super::points::run_seed;
use crate::arena::mutant::{CURRENT, Mutant};
use crate::simulation::mutants::quietly;

/// Seeds within which every fault must be noticed.
const SEEDS: u64 = 100;

/// Faults, with the seed to begin with, and of how many moments the opening is looked at.
const ALL: [(Mutant, u64, u64); 10] = [
    (Mutant::UndoUnkept, 0, u64::MAX),
    (Mutant::UndoForwards, 0, u64::MAX),
    (Mutant::HeadsUnsaved, 0, u64::MAX),
    (Mutant::LedgerUntold, 0, u64::MAX),
    (Mutant::ReusedTooSoon, 18, u64::MAX),
    (Mutant::PartsUnprepared, 0, u64::MAX),
    (Mutant::DecisionUnnoted, 0, u64::MAX),
    (Mutant::PlacesUnnoted, 0, u64::MAX),
    (Mutant::ForgottenTooSoon, 0, 3),
    (Mutant::GenerationsUnchecked, 24, 3),
];

#[test]
fn every_fault_in_the_files_is_noticed() {
    let mut missed = Vec::new();
    for (mutant, from, openings) in ALL {
        CURRENT.set(Some(mutant));
        let found = quietly(|| {
            (from..from + SEEDS).find_map(|seed| Some((seed, run_seed(seed, openings).err()?)))
        });
        CURRENT.set(None);
        match found {
            Some((seed, failure)) => {
                let line: String = failure
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(100)
                    .collect();
                println!("{mutant:?}: seed {seed}: {line}");
            }
            None => missed.push(mutant),
        }
    }
    assert!(
        missed.is_empty(),
        "not noticed in {SEEDS} seeds: {missed:?}"
    );
}
