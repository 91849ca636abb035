//! The checker, checked: each fault that is put into the protocol is noticed within a few seeds.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

use super::chain::run_seed;
use super::scripts::Focus;
use crate::transaction::mutant::{CURRENT, Mutant};

/// Seeds within which every fault must be noticed.
const SEEDS: u64 = 20_000;

const ALL: [(Mutant, Focus); 18] = [
    (Mutant::Overtaking, Focus::Writers),
    (Mutant::ReadsUnguarded, Focus::Any),
    (Mutant::VersionsUnchecked, Focus::Any),
    (Mutant::AbsenceUnchecked, Focus::Any),
    (Mutant::AbsenceUnguarded, Focus::Readers),
    (Mutant::ConditionUnchecked, Focus::Any),
    (Mutant::DecidedTooSoon, Focus::Any),
    (Mutant::Unordered, Focus::Any),
    (Mutant::InsertsKept, Focus::Any),
    (Mutant::AnsweredTooSoon, Focus::Any),
    (Mutant::SinglesUnguarded, Focus::Any),
    (Mutant::ClosuresUnguarded, Focus::Any),
    (Mutant::LeaseEndless, Focus::Any),
    (Mutant::LeaseUncovered, Focus::Writers),
    (Mutant::SavepointForgets, Focus::Any),
    (Mutant::ValidationUnguarded, Focus::Readers),
    (Mutant::LoneReadUnguarded, Focus::Readers),
    (Mutant::PlacesUnguarded, Focus::Any),
];

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something whose panics are not shown.
pub(super) fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                before(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let result = run();
    IS_QUIET.set(false);
    result
}

/// The first seed at which something is wrong, and what.
fn first_failure(mutant: Mutant, focus: Focus) -> Option<(u64, String)> {
    CURRENT.set(Some(mutant));
    let failure =
        quietly(|| (0..SEEDS).find_map(|seed| Some((seed, run_seed(seed, Some(focus)).err()?))));
    CURRENT.set(None);
    failure
}

#[test]
fn every_fault_in_the_protocol_is_noticed() {
    let mut missed = Vec::new();
    for (mutant, focus) in ALL {
        match first_failure(mutant, focus) {
            Some((seed, failure)) => {
                let line = failure.lines().next().unwrap_or_default();
                let line: String = line.chars().take(100).collect();
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
