//! The epochs' clock: what all threads of a process know of them.
//!
//! # One counter for all
//! [`epochs`](super::epochs) asks that whatever happened before an event of an epoch is of that epoch
//! or an earlier one. Within one process no message has to carry an epoch for that: a change is stamped
//! with the counter as it is when the change is appended, and whoever is told of it reads the same
//! counter later, and finds it no lower. The counter is written once an epoch, so reading it costs as
//! much as any line that is in the cache.
//!
//! # Shards at rest
//! A shard flags itself before it stamps its first change that is not sealed; the one who closes an
//! epoch raises the counter before looking at the flags. So either the flag is seen, or the change is
//! of a later epoch; and shards without a flag need not be asked. The others can seal at once: whatever
//! they change afterwards is of the new epoch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::doorbell::Doorbell;

/// What threads share of the epochs.
#[derive(Debug)]
pub(crate) struct EpochClock {
    open: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    /// The newest durable epoch that shards have sealed: one without changes leaves no trace.
    sealed: AtomicU64,
    /// The epoch before the first one of this life.
    before: u64,
    /// The newest epoch that somebody waits for.
    wanted: CachePadded<AtomicU64>,
    unsealed: Box<[CachePadded<AtomicBool>]>,
    waiters: Mutex<Waiters>,
    has_failed: AtomicBool,
    /// Of the thread that closes epochs.
    pub(crate) bell: Doorbell,
}

#[derive(Debug, Default)]
struct Waiters {
    wakers: Vec<(u64, Waker)>,
    failure: Option<String>,
}

/// What has become of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// It is on the disk.
    Yes,
    /// Not yet.
    NotYet,
    /// It never will be known to be: the journal could not be written.
    Never(String),
}

impl EpochClock {
    /// `open` is the first epoch of this life.
    pub(crate) fn new(shards: usize, open: u64) -> Self {
        let padded = |value| CachePadded::new(AtomicU64::new(value));
        Self {
            open: padded(open),
            durable: padded(open - 1),
            sealed: AtomicU64::new(0),
            before: open - 1,
            wanted: padded(0),
            unsealed: (0..shards).map(|_| CachePadded::default()).collect(),
            waiters: Mutex::default(),
            has_failed: AtomicBool::new(false),
            bell: Doorbell::default(),
        }
    }

    /// Whether nothing becomes durable any more.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The open epoch: no event from now on is of an earlier one.
    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Opens the epoch behind `epoch`.
    pub(crate) fn close(&self, epoch: u64) {
        self.open.store(epoch + 1, Ordering::Release);
        // Pairs with the fence in `flag`.
        fence(Ordering::SeqCst);
    }

    /// A shard tells that it is about to have something to seal, before it stamps it.
    #[cold]
    pub(crate) fn flag(&self, shard: usize) {
        self.unsealed[shard].store(true, Ordering::Relaxed);
        // Pairs with the fence in `close`: either the flag is seen there, or the new epoch here.
        fence(Ordering::SeqCst);
    }

    /// A shard tells that everything is sealed.
    pub(crate) fn unflag(&self, shard: usize) {
        self.unsealed[shard].store(false, Ordering::Release);
    }

    /// Whether a shard may have something to seal.
    pub(crate) fn is_flagged(&self, shard: usize) -> bool {
        self.unsealed[shard].load(Ordering::Acquire)
    }

    /// The newest durable epoch.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// The newest durable epoch that shards have sealed in this life; 0 if there is none.
    pub(crate) fn sealed(&self) -> u64 {
        self.sealed.load(Ordering::Acquire)
    }

    /// The newest durable epoch whose number no later life has: the numbers of those without changes,
    /// which leave no trace, are given out again.
    pub(crate) fn lasting(&self) -> u64 {
        self.sealed().max(self.before)
    }

    /// The newest epoch that somebody waits for.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Asks that an epoch become durable soon; whether it is.
    pub(crate) fn ask(&self, epoch: u64) -> Durable {
        if epoch <= self.durable() {
            return Durable::Yes;
        }
        if self.wanted.fetch_max(epoch, Ordering::AcqRel) < epoch {
            self.bell.ring();
        }
        self.look(epoch)
    }

    /// As [`ask`](Self::ask); if it is not yet, wakes whoever waits when it is, or never will be.
    pub(crate) fn wait(&self, epoch: u64, waker: &Waker) -> Durable {
        let answer = self.ask(epoch);
        if answer != Durable::NotYet {
            return answer;
        }
        let mut waiters = self.waiters();
        let answer = self.answer(epoch, &waiters);
        if answer == Durable::NotYet {
            let is_there =
                |(other, known): &(u64, Waker)| *other == epoch && known.will_wake(waker);
            if !waiters.wakers.iter().any(is_there) {
                waiters.wakers.push((epoch, waker.clone()));
            }
        }
        answer
    }

    /// What has become of an epoch.
    pub(crate) fn look(&self, epoch: u64) -> Durable {
        if epoch <= self.durable() {
            return Durable::Yes;
        }
        if !self.has_failed() {
            return Durable::NotYet;
        }
        self.answer(epoch, &self.waiters())
    }

    fn answer(&self, epoch: u64, waiters: &Waiters) -> Durable {
        if epoch <= self.durable() {
            return Durable::Yes;
        }
        match &waiters.failure {
            Some(reason) => Durable::Never(reason.clone()),
            None => Durable::NotYet,
        }
    }

    /// Tells that an epoch is durable in all shards, and whether any has sealed it.
    pub(crate) fn set_durable(&self, epoch: u64, is_sealed: bool) {
        if is_sealed {
            self.sealed.store(epoch, Ordering::Release);
        }
        self.durable.store(epoch, Ordering::Release);
        let woken = {
            let mut waiters = self.waiters();
            let (woken, rest) = std::mem::take(&mut waiters.wakers)
                .into_iter()
                .partition::<Vec<_>, _>(|(wanted, _)| *wanted <= epoch);
            waiters.wakers = rest;
            woken
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Tells that nothing becomes durable any more.
    pub(crate) fn fail(&self, reason: String) {
        let woken = {
            let mut waiters = self.waiters();
            waiters.failure.get_or_insert(reason);
            self.has_failed.store(true, Ordering::Release);
            std::mem::take(&mut waiters.wakers)
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Why nothing becomes durable any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.waiters().failure.clone()
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
