//! Streams as threads: blocks are claimed in the database, the clock runs from all ready to the last
//! one done.
//!
//! Threads are not pinned, as the processes of the original are not: there are more of them than
//! cores, and the system shares them out.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::threeen1::contestants::Ran;
use crate::threeen1::globals::{Globals, Name, Stream};
use crate::threeen1::input::Line;
use crate::threeen1::walk::{Unit, Walk};
use crate::threeen1::words::Spelling;

/// What of a run is not in its line.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How numbers are stored.
    pub spelling: Spelling,
    /// What is one transaction.
    pub unit: Unit,
    /// How long an epoch lasts, where there are any.
    pub epoch: Option<Duration>,
}

/// Runs a line. Steps, result and highest integer that are there at the start are taken as partial
/// results of a run that was cut off; they and those of this run are still there at the end.
///
/// # Errors
/// The first that a stream met.
pub fn run<G: Globals>(globals: &G, line: &Line, terms: &Terms) -> Result<Ran, Failure> {
    prepare(globals, line)?;
    let streams = line.streams as usize;
    let gate = Barrier::new(streams + 1);
    let failed = AtomicBool::new(false);
    let (finish, finished) = channel();
    let (start, ended, epochs) = thread::scope(|scope| {
        let (gate, failed) = (&gate, &failed);
        let ticker = terms
            .epoch
            .map(|epoch| scope.spawn(move || end_epochs(globals, epoch, &finished)));
        let handles: Vec<_> = (0..streams)
            .map(|_| scope.spawn(move || stream(globals, terms, gate, failed)))
            .collect();
        gate.wait();
        let start = Instant::now();
        let ended: Vec<_> = handles.into_iter().map(joined).collect();
        drop(finish);
        (start, ended, ticker.map(joined))
    });
    epochs.transpose()?;
    let mut last = start;
    let mut raw_bytes = 0;
    for stream in ended {
        let stream = stream?;
        last = last.max(stream.finish);
        raw_bytes += stream.bytes;
    }
    let [longest, highest, reads, updates] = totals(globals)?;
    Ok(Ran {
        longest,
        highest,
        reads,
        updates,
        nodes: globals.nodes()?,
        seconds: (last - start).as_secs_f64(),
        raw_bytes: Some(raw_bytes),
        stored_bytes: globals.stored_bytes(),
    })
}

/// Longest, highest, reads and updates.
fn totals<G: Globals>(globals: &G) -> Result<[u64; 4], Failure> {
    let mut stream = globals.stream()?;
    let mut totals = [0; 4];
    let names = [Name::Result, Name::Highest, Name::Reads, Name::Updates];
    for (total, name) in totals.iter_mut().zip(names) {
        *total = stream.read(name)?.unwrap_or(0);
    }
    Ok(totals)
}

/// Puts the blocks into the database, unclaimed, and an end behind them.
fn prepare<G: Globals>(globals: &G, line: &Line) -> Result<(), Failure> {
    let mut stream = globals.stream()?;
    let limits = std::iter::once(line.first - 1).chain(line.limits());
    let ends = limits.chain(std::iter::once(0));
    for (block, end) in (0..).zip(ends) {
        stream.change([Name::Limit(block), Name::Claim(block)], |names| {
            *names = [end, 0];
        })?;
    }
    stream.change([Name::Reads, Name::Updates], |counts| *counts = [0, 0])?;
    Ok(())
}

/// What a stream says at its end.
struct Ended {
    finish: Instant,
    bytes: u64,
}

/// One stream: takes blocks until none is left.
fn stream<G: Globals>(
    globals: &G,
    terms: &Terms,
    gate: &Barrier,
    failed: &AtomicBool,
) -> Result<Ended, Failure> {
    let stream = globals.stream();
    // One that could not be made does not keep the others waiting.
    gate.wait();
    let mut walk = Walk::new(terms.spelling, terms.unit);
    let done = stream.and_then(|mut stream| {
        blocks(&mut stream, &mut walk, failed)?;
        stream.add_counts(walk.counts())
    });
    // Relaxed: the others only stop early; nothing is passed to them.
    failed.fetch_or(done.is_err(), Ordering::Relaxed);
    done.map(|()| Ended {
        finish: Instant::now(),
        bytes: walk.bytes(),
    })
}

fn blocks<S: Stream>(stream: &mut S, walk: &mut Walk, failed: &AtomicBool) -> Result<(), Failure> {
    let mut before = stream.read(Name::Limit(0))?.unwrap_or(0);
    for block in 1.. {
        let limit = stream.read(Name::Limit(block))?.unwrap_or(0);
        if limit == 0 || failed.load(Ordering::Relaxed) {
            break;
        }
        if stream.increment(Name::Claim(block))? == 1 {
            for start in before + 1..=limit {
                walk.from(stream, start)?;
            }
        }
        before = limit;
    }
    Ok(())
}

/// Ends epochs beside the streams until they have finished.
fn end_epochs<G: Globals>(
    globals: &G,
    epoch: Duration,
    finished: &Receiver<()>,
) -> Result<(), Failure> {
    while finished.recv_timeout(epoch) == Err(RecvTimeoutError::Timeout) {
        globals.end_epoch()?;
    }
    Ok(())
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    match handle.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
