//! Waiting until what was done is on the disk.
//!
//! An operation is seen by others as soon as it has happened in its shard. Who acknowledges it only
//! when it is durable waits here, after it has happened, for the epoch that was open then: whatever it
//! has changed is of that epoch or an earlier one. Many who wait at the same time are served by one
//! epoch, and so by one flush of each shard's disk.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::host::Host;
use super::link::Link;
use crate::error::{Error, Result};
use crate::journal::{Durable, EpochClock};

/// When a session's changes count as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Acknowledge {
    /// When they have happened. A crash of the system may take back the latest of them, all that
    /// happened after some moment.
    Executed,
    /// When they are on the disk, with all that they may have come from.
    Durable,
}

/// Waits until all that has happened is durable, if the client wants that.
pub(super) fn settle(link: &Link, host: &mut impl Host) -> Result<()> {
    match link.awaited() {
        None => Ok(()),
        Some(clock) => wait(clock, host, clock.open()),
    }
}

/// Waits until an epoch is durable.
pub(super) fn wait(clock: &EpochClock, host: &mut impl Host, epoch: u64) -> Result<()> {
    let mut rounds = 0;
    let mut answer = clock.ask(epoch);
    while answer == Durable::NotYet {
        answer = host.await_epoch(rounds, clock, epoch);
        rounds += 1;
    }
    told(answer)
}

/// As [`settle`], of a client that is polled and waits for these epochs, if for any.
pub(super) async fn settled(awaited: Option<Arc<EpochClock>>) -> Result<()> {
    let Some(clock) = awaited else {
        return Ok(());
    };
    let epoch = clock.open();
    poll_fn(|task| poll_durable(&clock, epoch, task.waker())).await
}

/// What became of an epoch; as long as that is not known, sees to it that the waker is woken when it is.
pub(crate) fn poll_durable(clock: &EpochClock, epoch: u64, waker: &Waker) -> Poll<Result<()>> {
    match clock.wait(epoch, waker) {
        Durable::NotYet => Poll::Pending,
        answer => Poll::Ready(told(answer)),
    }
}

fn told(answer: Durable) -> Result<()> {
    match answer {
        Durable::Never(reason) => Err(Error::NotDurable(reason)),
        Durable::Yes | Durable::NotYet => Ok(()),
    }
}
