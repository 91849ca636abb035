//! Closing the gaps of a run that was cut off.
//!
//! The steps of a path are set in one batch, and a batch has a part in each shard: a run that is killed
//! between two of them, or thrown back to an epoch that saw one of them only, leaves integers behind
//! which others are missing. Later walks stop at the first that they find, so they would never get to
//! those. What is missing follows from what is there: the next integer takes a step less.

use std::ops::ControlFlow;

use ancile::{GlobalEntries, GlobalKey, GlobalKeys, GlobalVerbs, Verbs};

use super::team::{push_entry, push_key};
use crate::failure::Failure;
use crate::threeen1::walk::next;
use crate::threeen1::words::Spelling;

/// Integers that are looked up at once.
const BATCH: usize = 1024;

/// An integer, and the steps that it takes.
type Step = (u64, u64);

/// Sets what is missing behind the steps that are there.
///
/// # Errors
/// Those of the engine; a key or a value that is no number.
pub(super) fn close<S: Verbs>(
    globals: &mut GlobalVerbs<'_, S>,
    step: &GlobalKey,
    spelling: Spelling,
) -> Result<(), Failure> {
    let mut steps = read(globals, step, spelling)?;
    while !steps.is_empty() {
        let mut missing = Vec::new();
        for steps in steps.chunks(BATCH) {
            missing.extend(missing_after(globals, step, spelling, steps)?);
        }
        let (mut entries, mut text) = (GlobalEntries::new(), Vec::new());
        for &(integer, steps) in &missing {
            push_entry(&mut entries, step, spelling, (integer, steps), &mut text)?;
        }
        globals.set_batch(&entries)?;
        steps = missing;
    }
    Ok(())
}

fn read<S: Verbs>(
    globals: &mut GlobalVerbs<'_, S>,
    step: &GlobalKey,
    spelling: Spelling,
) -> Result<Vec<Step>, Failure> {
    let mut read = Ok(Vec::new());
    globals.scan(step, |key, value| {
        let integer = key.last().map(|last| match spelling {
            Spelling::Words => spelling.decode(&last.to_bytes()),
            Spelling::Digits => last
                .to_i64()
                .and_then(|integer| integer.try_into().ok())
                .ok_or_else(|| Failure::new("a key that is no count")),
        });
        let found = integer
            .unwrap_or_else(|| Err(Failure::new("a step of no integer")))
            .and_then(|integer| Ok((integer, spelling.decode(value)?)));
        match (found, &mut read) {
            (Ok(found), Ok(read)) => read.push(found),
            (Err(failure), _) => read = Err(failure),
            (Ok(_), Err(_)) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    })?;
    read
}

/// Those after the given ones that are not there.
fn missing_after<S: Verbs>(
    globals: &mut GlobalVerbs<'_, S>,
    step: &GlobalKey,
    spelling: Spelling,
    steps: &[Step],
) -> Result<Vec<Step>, Failure> {
    let mut after = Vec::new();
    let (mut keys, mut text) = (GlobalKeys::new(), Vec::new());
    for &(integer, steps) in steps {
        let next = next(integer).ok_or_else(|| Failure::new("a sequence leaves 64 bits"))?;
        let before = steps
            .checked_sub(1)
            .ok_or_else(|| Failure::new(format!("{integer} takes no step")))?;
        if next != 1 {
            after.push((next, before));
            push_key(&mut keys, step, spelling, next, &mut text)?;
        }
    }
    let mut is_there = vec![false; after.len()];
    globals.get_each(&keys, |at, value| is_there[at] = value.is_some())?;
    let mut is_there = is_there.into_iter();
    after.retain(|_| is_there.next() == Some(false));
    Ok(after)
}
