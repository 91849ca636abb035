//! What a client does while it waits, and the shard that it may itself be.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;

use super::link::Lane;
use crate::id::ShardIndex;
use crate::shard::{Inbox, Shard};

/// Where a client runs.
pub(crate) trait Host {
    /// The shard that the client's code runs in.
    fn own(&self) -> Option<ShardIndex>;
    /// Uses that shard, if there is one.
    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T>;
    /// Lets others have their turn: called after each block sent.
    fn serve(&mut self);
    /// Called while nothing can go on, with a counter that restarts at 0 whenever something did;
    /// `lane` has a request that is not answered.
    fn pause(&mut self, round: u32, lane: &Lane);
}

impl<H: Host> Host for &mut H {
    #[inline]
    fn own(&self) -> Option<ShardIndex> {
        (**self).own()
    }

    #[inline]
    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        (**self).with_shard(work)
    }

    #[inline]
    fn serve(&mut self) {
        (**self).serve();
    }

    #[inline]
    fn pause(&mut self, round: u32, lane: &Lane) {
        (**self).pause(round, lane);
    }
}

/// How long to look for work before giving up the processor, in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Rounds of plain polling.
    pub(crate) spins: u32,
    /// Rounds that let another thread of this processor go first.
    pub(crate) yields: u32,
}

impl Patience {
    /// With a processor for each thread: a hand-over while both spin takes a tenth of a
    /// microsecond, waking a parked thread forty, so it pays to spin about that long.
    pub(crate) const ALONE: Self = Self {
        spins: 2_000,
        yields: 40,
    };
    /// With more threads than processors: whoever spins keeps the one it waits for from running.
    pub(crate) const CROWDED: Self = Self {
        spins: 50,
        yields: 10,
    };

    /// Spins or yields; says when it is time to park instead.
    #[inline]
    pub(crate) fn pause(self, round: u32) -> bool {
        if round < self.spins {
            std::hint::spin_loop();
        } else if round < self.spins + self.yields {
            std::thread::yield_now();
        } else {
            return true;
        }
        false
    }
}

/// A thread of the program.
pub(crate) struct Application {
    pub(crate) patience: Patience,
}

impl Host for Application {
    fn own(&self) -> Option<ShardIndex> {
        None
    }

    fn with_shard<T>(&mut self, _work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        None
    }

    fn serve(&mut self) {}

    #[inline]
    fn pause(&mut self, round: u32, lane: &Lane) {
        if self.patience.pause(round) {
            with_waker(|waker| lane.park(waker, std::thread::park));
        }
    }
}

/// A shard's own thread: it serves others while it waits, so that two shards may wait for each other.
pub(crate) struct Inside<'a> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) patience: Patience,
}

impl Host for Inside<'_> {
    fn own(&self) -> Option<ShardIndex> {
        Some(self.shard.index)
    }

    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        Some(work(self.shard))
    }

    #[inline]
    fn serve(&mut self) {
        self.shard.tick(self.inbox);
    }

    #[inline]
    fn pause(&mut self, round: u32, _lane: &Lane) {
        if self.shard.tick(self.inbox) == 0 && self.patience.pause(round) {
            // Never parked: what this thread waits for and what it has to serve come by different
            // ways. Others run first, and a shard that waits is busy in any case.
            std::thread::yield_now();
        }
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    static IS_SHARD: Cell<bool> = const { Cell::new(false) };
}

/// Lends what wakes the calling thread.
pub(crate) fn with_waker<T>(lend: impl FnOnce(&Waker) -> T) -> T {
    WAKER.with(lend)
}

/// Marks the calling thread as a shard's.
pub(crate) fn enter_shard() {
    IS_SHARD.set(true);
}

/// Whether the calling thread is a shard's.
pub(crate) fn is_inside_shard() -> bool {
    IS_SHARD.get()
}
