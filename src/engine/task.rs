//! Resident work from the outside: its result, when it is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::{Error, Result};
use crate::fork::Home;
use crate::session::{Resident, is_inside_shard};
use crate::shard::panic_message;

/// Work under way in a shard. Dropping it lets the work go on, unwatched.
#[derive(Debug)]
pub struct Task<T> {
    result: Receiver<Result<T>>,
    home: Home,
}

/// Work that waits for its shard.
pub(super) type Work = Box<dyn FnOnce(&mut Resident<'_>) + Send>;

impl<T: Send + 'static> Task<T> {
    pub(super) fn new<F>(work: F) -> (Self, Work)
    where
        F: FnOnce(&mut Resident<'_>) -> T + Send + 'static,
    {
        let (sender, result): (SyncSender<Result<T>>, _) = sync_channel(1);
        let run = move |resident: &mut Resident<'_>| {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(resident)));
            let outcome = outcome.map_err(|payload| Error::Panicked {
                message: panic_message(payload),
            });
            // Nobody may be waiting; then the result ends here, which may panic once more.
            if let Err(unsent) = sender.send(outcome)
                && let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(unsent)))
            {
                panic_message(payload);
            }
        };
        let home = Home::here();
        (Self { result, home }, Box::new(run))
    }

    /// Waits for the work to end. A panic in it is an error here, and only here; what it did before
    /// stays done.
    pub fn join(self) -> Result<T> {
        if is_inside_shard() {
            return Err(Error::InsideShard);
        }
        if self.home.is_elsewhere() {
            return Err(Error::Forked);
        }
        self.result.recv().unwrap_or(Err(Error::Closed))
    }

    /// The result, if the work has ended; else the task again.
    pub fn try_join(self) -> Result<Result<T>, Self> {
        match self.result.try_recv() {
            Ok(result) => Ok(result),
            Err(std::sync::mpsc::TryRecvError::Empty) => Err(self),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => Ok(Err(Error::Closed)),
        }
    }
}
