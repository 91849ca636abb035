//! A lane: the memory that one client and one shard share.
//!
//! ```text
//! ring      | request | request | ..           client -> shard, one line each
//! replies   | word on its own line | ..        shard -> client, one for each request under way
//! payload   | block | block | ..               the client's memory; the shard writes results into it
//! ```
//! Requests are answered in order. The client owns everything but a request under way: between
//! sending it and seeing its reply, the block belongs to the shard. Both ends keep the memory alive,
//! so either may go first.
//!
//! The reply word also carries the client's wish to be woken: a client that is about to park swaps
//! [`Status::PENDING`] for [`Status::WAITING`], and the shard, whose answer is a swap too, sees it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crossbeam_utils::CachePadded;

use super::request::{Payload, Request};
use super::{Parcel, Shard};
use crate::ring::Consumer;
use crate::table::Rolling;
#[cfg(test)]
use crate::table::watch;
use crate::transaction::{EntryId, IntentsFull};

/// The state of a request, as its reply word shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u32);

impl Status {
    /// Sent; not answered yet.
    pub(crate) const PENDING: Self = Self(0);
    /// As pending; the client wants to be woken.
    const WAITING: Self = Self(1);
    /// Executed.
    pub(crate) const DONE: Self = Self(2);
    /// Not executed: the table is gone.
    pub(crate) const TABLE_GONE: Self = Self(3);
    /// Not executed: the shard has ended.
    pub(crate) const ENDED: Self = Self(4);
    /// Not executed: the database is open for reading only.
    pub(crate) const READ_ONLY: Self = Self(5);
    /// Not executed: there is no room for more of the journal.
    pub(crate) const JOURNAL_FULL: Self = Self(6);
    /// Not executed: the journal cannot be written any more.
    pub(crate) const JOURNAL_BROKEN: Self = Self(7);

    pub(crate) fn is_answer(self) -> bool {
        self.0 > Self::WAITING.0
    }
}

/// What both ends of a lane share beside the ring.
pub(crate) struct LaneMemory {
    replies: Box<[CachePadded<AtomicU32>]>,
    payload: Payload,
    /// Whom to wake when a waiting request is answered.
    waiter: Mutex<Option<Waker>>,
    /// A call whose client has gone; dropped when the shard's end is gone, too.
    kept: Mutex<Option<Parcel>>,
}

impl LaneMemory {
    pub(crate) fn new(requests_max: usize, payload_bytes: usize) -> Self {
        Self {
            replies: (0..requests_max)
                .map(|_| CachePadded::new(AtomicU32::new(Status::PENDING.0)))
                .collect(),
            payload: Payload::new(payload_bytes),
            waiter: Mutex::new(None),
            kept: Mutex::new(None),
        }
    }

    pub(crate) fn payload(&self) -> &Payload {
        &self.payload
    }

    fn reply(&self, number: u64) -> &AtomicU32 {
        &self.replies[(number % self.replies.len() as u64) as usize]
    }

    /// Client: before request `number` is sent, whose word was last used by an answered request.
    pub(crate) fn expect_reply(&self, number: u64) {
        // The ring's publication of the request makes this visible to the shard.
        self.reply(number)
            .store(Status::PENDING.0, Ordering::Relaxed);
    }

    /// Client: the state of request `number`; with an answer, all that the shard wrote is visible.
    #[inline]
    pub(crate) fn status(&self, number: u64) -> Status {
        // Acquire pairs with the release in `answer`.
        Status(self.reply(number).load(Ordering::Acquire))
    }

    /// Client: asks to be woken by the answer to `number`. Says whether to sleep: not if it is here.
    pub(crate) fn wait_for(&self, number: u64, waker: &Waker) -> bool {
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        // Release shows the waiter to the shard that sees WAITING; acquire as in `status`.
        let from = Status::PENDING.0;
        match self.reply(number).compare_exchange(
            from,
            Status::WAITING.0,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => true,
            Err(now) => !Status(now).is_answer(),
        }
    }

    /// Client, before it goes: keeps a call that is not answered.
    pub(crate) fn keep(&self, parcel: Parcel) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(parcel);
    }

    /// Shard: answers request `number`.
    #[inline]
    fn answer(&self, number: u64, status: Status) {
        // Release publishes what was written into the block; acquire sees the waiter's name.
        let before = self.reply(number).swap(status.0, Ordering::AcqRel);
        if before == Status::WAITING.0 {
            self.wake();
        }
    }

    /// Shard: wakes the client, if it ever waited.
    #[cold]
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waiter.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}

/// A shard's end of a lane.
pub(crate) struct ServerLane {
    requests: Consumer<Request>,
    memory: Arc<LaneMemory>,
    answered: u64,
    /// What the oldest request waits for: rows that transactions have intents for.
    claim: Option<EntryId>,
    /// Whom a test's watch sees at work.
    #[cfg(test)]
    author: u64,
}

impl ServerLane {
    pub(crate) fn new(requests: Consumer<Request>, memory: Arc<LaneMemory>) -> Self {
        Self {
            requests,
            memory,
            answered: 0,
            claim: None,
            #[cfg(test)]
            author: watch::actor(),
        }
    }

    /// Whether a request is there that does not wait for its turn.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.claim.is_none() && self.requests.is_ready()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.requests.waiting()
    }

    /// Refuses every request that waits; says how many.
    pub(super) fn refuse(&mut self) -> usize {
        let mut refused = 0;
        while self.requests.pop().is_some() {
            self.answer(Status::ENDED);
            refused += 1;
        }
        refused
    }

    /// Runs and answers the oldest request, if there is one and it need not wait for intents. One that
    /// waits keeps those behind it waiting, so that a client's requests stay in order.
    #[inline]
    pub(super) fn run_next(&mut self, shard: &mut Shard) -> bool {
        if !shard.is_unclaimed() && self.has_to_wait(shard) {
            return false;
        }
        let Some(request) = self.requests.pop() else {
            return false;
        };
        let next = self
            .requests
            .peek()
            .map_or(&[][..], |next| request.continued_by(next));
        let rolling = Rolling {
            next,
            ..Rolling::ALONE
        };
        #[cfg(test)]
        watch::act_for(self.author);
        let status = request.run(shard, rolling);
        self.answer(status);
        true
    }

    #[cold]
    fn has_to_wait(&mut self, shard: &mut Shard) -> bool {
        if let Some(claim) = self.claim {
            if !shard.is_granted(claim) {
                return true;
            }
            self.claim = None;
            shard.take_turn(claim);
            return false;
        }
        // One that comes after this look has claimed nothing, and must not be taken.
        let Some(request) = self.requests.peek() else {
            return true;
        };
        match request.claim(shard) {
            Ok(None) => false,
            Ok(Some(claim)) => {
                self.claim = Some(claim);
                true
            }
            Err(IntentsFull) => true,
        }
    }

    /// Answers the oldest request that was popped and not answered.
    #[inline]
    fn answer(&mut self, status: Status) {
        self.memory.answer(self.answered, status);
        self.answered += 1;
    }

    /// Whether the client is gone and nothing of it is left to do.
    pub(super) fn is_over(&self) -> bool {
        // The flag first: what was sent before it was set is then seen by `is_ready`.
        self.requests.is_abandoned() && !self.requests.is_ready()
    }

    pub(super) fn memory(&self) -> &LaneMemory {
        &self.memory
    }
}
