//! Instructions an operation, by callgrind: a fact that does not depend on the machine's load.
//!
//! A child process loads a small table and runs one chunk of MIXED in each shard; callgrind collects
//! inside of `timed_chunk` only, so loading, waiting and idling are left out. What is counted is what
//! runs under the clock elsewhere: the workload's own drawing of ids and rows, and the engine.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::completedb::AccessChoice;
use crate::engine;
use crate::failure::Failure;
use crate::setup::{Route, Setup};
use crate::subject::Budget;
use crate::with_columns;
use crate::workload::{Access, CYCLE, Operation};

/// Rows of each shard: the same for any number of shards, so that nothing else changes.
const ROWS: usize = 4_096;

/// Operations of each shard.
const OPERATIONS: usize = 50 * CYCLE;

/// Operations a batch, as in the bench.
const BATCH: usize = 64;

/// What a child is to run.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Columns of 8 bytes.
    #[arg(long)]
    pub columns: usize,
    /// How rows are found.
    #[arg(long, value_enum)]
    pub access: AccessChoice,
    /// Shards.
    #[arg(long)]
    pub shards: usize,
}

/// Runs a chunk in each shard and prints how many operations that were.
///
/// # Errors
/// What the engine reports, or wrong answers.
pub fn run(options: &Options) -> Result<(), Failure> {
    for access in options.access.list() {
        let operations =
            with_columns!(options.columns, N => chunk::<N>(*access, options.shards.max(1)))?;
        println!("{operations}");
    }
    Ok(())
}

fn chunk<const N: usize>(access: Access, shards: usize) -> Result<u64, Failure> {
    let setup = Setup {
        access,
        route: Route::Local,
        remote_percent: None,
        rows: ROWS * shards,
        shards,
        batch: BATCH,
        window: 1,
        checked: false,
    };
    let mut subject = engine::open::<N>(&setup)?.subject;
    subject.prepare(Operation::Mixed)?;
    // The first chunk passes any time: there is exactly one.
    let budget = Budget {
        nanos: 1,
        chunk: OPERATIONS,
        checked: false,
    };
    Ok(subject.slice(Operation::Mixed, budget)?.operations())
}

/// Name and version of what counts.
///
/// # Errors
/// When valgrind cannot be run.
pub fn counter() -> Result<String, Failure> {
    let output = Command::new("valgrind").arg("--version").output();
    match output {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout);
            Ok(format!("callgrind ({})", version.trim()))
        }
        _ => Err(Failure::new(
            "instructions are counted by callgrind, and valgrind cannot be run: install it (package \
             valgrind), or leave them out with --skip-instructions",
        )),
    }
}

/// Instructions an operation of MIXED by one kind of access, counted in a child of `program`.
///
/// # Errors
/// When the child cannot be run, or its count cannot be read.
pub fn instructions(
    program: &Path,
    folder: &Path,
    columns: usize,
    access: Access,
    shards: usize,
) -> Result<f64, Failure> {
    let profile = folder.join(format!("callgrind.{}.{shards}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*timed_chunk*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args(["count", "--access", access.name()])
        .args(["--columns", &columns.to_string()])
        .args(["--shards", &shards.to_string()])
        .output()
        .map_err(|error| Failure::new(format!("valgrind cannot be run: {error}")))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let text = fs::read_to_string(&profile).unwrap_or_default();
    // A profile that was not written is told below.
    let _ = fs::remove_file(&profile);
    let counted = collected(&text);
    let operations = printed.trim().parse::<u64>();
    match (output.status.success(), operations, counted) {
        (true, Ok(operations), Some(counted)) if operations > 0 && counted > 0 => {
            Ok(counted as f64 / operations as f64)
        }
        _ => Err(Failure::new(format!(
            "no instructions were counted for {shards} shards ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// The sum at a profile's end.
fn collected(profile: &str) -> Option<u64> {
    let line = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_sum_of_a_profile_is_found() {
        let profile = "version: 1\nevents: Ir\n\nfn=(1) f\n1 5\n\ntotals: 1234\n";
        assert_eq!(collected(profile), Some(1_234));
        assert_eq!(collected("events: Ir\n"), None);
    }
}
