//! What a client does while it waits, and the shard that it may itself be.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;

use super::link::Lane;
use crate::fork::Home;
use crate::id::ShardIndex;
use crate::journal::{Durable, EpochClock};
use crate::limits::OPERATIONS_UNSERVED_MAX;
use crate::shard::{Claim, Inbox, Shard};
use crate::transaction::{IntentsFull, Stub};

/// Where a client runs.
pub(crate) trait Host {
    /// The shard that the client's code runs in.
    fn own(&self) -> Option<ShardIndex>;
    /// Uses that shard, if there is one.
    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T>;
    /// Lets others have their turn: called after each block sent.
    fn serve(&mut self);
    /// Lets others have their turn now and then: called after operations on the own shard.
    fn worked(&mut self, operations: usize) {
        let _ = operations;
        self.serve();
    }
    /// Called while code in a shard waits for its turn in that shard, with a counter as below.
    fn wait_turn(&mut self, round: u32);
    /// Called while a proposal is on its way, with a counter as below; `may_sleep` unless its end has
    /// to be looked for.
    fn await_end(&mut self, round: u32, stub: &Stub, may_sleep: bool);
    /// Called while an epoch is to become durable, with a counter as below; what has become of it.
    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable;
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
    fn worked(&mut self, operations: usize) {
        (**self).worked(operations);
    }

    fn wait_turn(&mut self, round: u32) {
        (**self).wait_turn(round);
    }

    fn await_end(&mut self, round: u32, stub: &Stub, may_sleep: bool) {
        (**self).await_end(round, stub, may_sleep);
    }

    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        (**self).await_epoch(round, clock, epoch)
    }

    #[inline]
    fn pause(&mut self, round: u32, lane: &Lane) {
        (**self).pause(round, lane);
    }
}

/// Waits until no transaction's intents are in the way of what code in a shard does next, before it
/// serves anybody again.
#[inline]
pub(super) fn await_turn(host: &mut impl Host, claim: impl FnMut(&mut Shard) -> Claim) {
    if host.with_shard(|shard| shard.is_unclaimed()) == Some(false) {
        await_claimed(host, claim);
    }
}

#[cold]
fn await_claimed(host: &mut impl Host, mut claim: impl FnMut(&mut Shard) -> Claim) {
    let mut rounds = 0;
    let mut wait = |host: &mut _| {
        Host::wait_turn(host, rounds);
        rounds += 1;
    };
    let claim = loop {
        match host.with_shard(&mut claim) {
            None | Some(Ok(None)) => return,
            Some(Ok(Some(claim))) => break claim,
            // There is no memory to wait in order: try again when others have gone on.
            Some(Err(IntentsFull)) => wait(host),
        }
    };
    while host.with_shard(|shard| shard.is_granted(claim)) == Some(false) {
        wait(host);
    }
    host.with_shard(|shard| shard.take_turn(claim));
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
    /// The process that the shards are in.
    pub(crate) home: Home,
}

impl Host for Application {
    fn own(&self) -> Option<ShardIndex> {
        None
    }

    fn with_shard<T>(&mut self, _work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        None
    }

    fn serve(&mut self) {}

    fn wait_turn(&mut self, round: u32) {
        if self.patience.pause(round) {
            std::thread::yield_now();
        }
    }

    fn await_end(&mut self, round: u32, stub: &Stub, may_sleep: bool) {
        if self.patience.pause(round) && may_sleep && with_waker(|waker| stub.wait(waker)) {
            std::thread::park();
        }
    }

    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        if clock.durable() >= epoch {
            return Durable::Yes;
        }
        if !self.patience.pause(round) {
            return Durable::NotYet;
        }
        let answer = with_waker(|waker| clock.wait(epoch, waker));
        if answer == Durable::NotYet {
            std::thread::park();
        }
        answer
    }

    #[inline]
    fn pause(&mut self, round: u32, lane: &Lane) {
        if !self.patience.pause(round) {
            return;
        }
        if self.home.is_elsewhere() {
            lane.give_up();
        } else {
            with_waker(|waker| lane.park(waker, std::thread::park));
        }
    }
}

/// A shard's own thread: it serves others while it waits, so that two shards may wait for each other.
pub(crate) struct Inside<'a> {
    pub(crate) shard: &'a mut Shard,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) patience: Patience,
    /// Operations since others were last served.
    pub(crate) unserved: usize,
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
        self.unserved = 0;
        self.shard.tick(self.inbox);
    }

    #[inline]
    fn worked(&mut self, operations: usize) {
        self.unserved += operations;
        if self.unserved >= OPERATIONS_UNSERVED_MAX {
            self.serve();
            // The writer may need this thread's processor.
            while self.shard.is_held_up() {
                self.wait_turn(u32::MAX);
            }
        }
    }

    fn wait_turn(&mut self, round: u32) {
        if self.shard.tick(self.inbox) == 0 && self.patience.pause(round) {
            std::thread::yield_now();
        }
    }

    fn await_end(&mut self, round: u32, _stub: &Stub, _may_sleep: bool) {
        self.wait_turn(round);
    }

    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        self.wait_turn(round);
        clock.look(epoch)
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
