//! The hand-over of a proposal: from its client to one shard after the other, and back.
//!
//! A proposal has one owner at a time. While it is under way, that is whoever holds its [`Baton`];
//! the client keeps the [`Stub`], with which it sees the end and takes the proposal back. A client
//! may go away meanwhile: the proposal goes on to its end.

#![expect(
    unsafe_code,
    reason = "one proposal is used in turn by shards and by its client"
)]

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::task::Waker;

use crossbeam_utils::CachePadded;

use super::Proposal;
use super::ordering;
use crate::arena::prefetch_range;
use crate::error::Error;
use crate::sync::{Arc, AtomicU32, Mutex, UnsafeCell};

/// On its way; its baton is the owner.
const UNDER_WAY: u32 = 0;
/// As before, and the client wants to be woken.
const AWAITED: u32 = 1;
/// At its end; its stub is the owner.
const ENDED: u32 = 2;

struct Shared {
    /// On lines of its own: the client looks at it while others work on the proposal.
    state: CachePadded<AtomicU32>,
    waker: Mutex<Option<Waker>>,
    proposal: UnsafeCell<Proposal>,
}

// SAFETY: `proposal` is touched only by its owner of the moment, which the state tells.
unsafe impl Sync for Shared {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Proposal>();
};

/// The right and the duty to bring a proposal to its end. If it is dropped, what has not been
/// decided has failed.
pub(crate) struct Baton {
    shared: Arc<Shared>,
}

/// The client's hold on a proposal that is under way.
pub(crate) struct Stub {
    shared: Arc<Shared>,
}

impl Baton {
    /// Sends a proposal on its way.
    pub(crate) fn new(proposal: Proposal) -> (Self, Stub) {
        let shared = Arc::new(Shared {
            state: CachePadded::new(AtomicU32::new(UNDER_WAY)),
            waker: Mutex::new(None),
            proposal: UnsafeCell::new(proposal),
        });
        let stub = Stub {
            shared: Arc::clone(&shared),
        };
        (Self { shared }, stub)
    }
}

impl Baton {
    /// Starts reading a proposal that another core has written.
    pub(crate) fn ask(&self) {
        let ask =
            |proposal: *const Proposal| prefetch_range(proposal.cast(), size_of::<Proposal>());
        self.shared.proposal.with(ask);
    }
}

impl Deref for Baton {
    type Target = Proposal;

    fn deref(&self) -> &Proposal {
        // SAFETY: the baton is the proposal's owner until it is dropped; there is one.
        self.shared.proposal.with(|proposal| unsafe { &*proposal })
    }
}

impl DerefMut for Baton {
    fn deref_mut(&mut self) -> &mut Proposal {
        // SAFETY: as above, and borrowed exclusively.
        let lend = |proposal: *mut Proposal| unsafe { &mut *proposal };
        self.shared.proposal.with_mut(lend)
    }
}

impl Drop for Baton {
    /// Ends the way: the client sees the verdicts.
    fn drop(&mut self) {
        self.fail(&Error::Closed);
        if self.shared.state.swap(ENDED, ordering::end()) == AWAITED {
            let waker = self
                .shared
                .waker
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Stub {
    /// The verdicts as soon as one is to commit, though not everybody has heard of it: only for a test
    /// that shows what that would do, and in which nobody has the proposal in use at this moment.
    #[cfg(test)]
    pub(crate) fn peek(&self) -> Option<Vec<super::Verdict>> {
        use super::mutant::{self, Mutant};
        if !mutant::is(Mutant::AnsweredTooSoon) || self.is_ended() {
            return None;
        }
        // SAFETY: by what is said above: one thread runs all, and its baton is at rest.
        let verdicts = |proposal: *const Proposal| unsafe { (*proposal).verdicts.clone() };
        let verdicts = self.shared.proposal.with(verdicts);
        verdicts
            .contains(&super::Verdict::Committed)
            .then_some(verdicts)
    }

    /// Whether the way has ended.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.shared.state.load(ordering::see_end()) == ENDED
    }

    /// Takes the proposal back, if its way has ended.
    pub(crate) fn take(self) -> Result<Proposal, Self> {
        if !self.is_ended() {
            return Err(self);
        }
        // SAFETY: the way has ended, so the stub is the owner; nobody comes after it.
        let take = |proposal: *mut Proposal| unsafe { std::mem::take(&mut *proposal) };
        Ok(self.shared.proposal.with_mut(take))
    }

    /// Asks to be woken at the end. Says whether to sleep: not if the end is there.
    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        *self
            .shared
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        let (to, from) = (ordering::wait(), ordering::see_end());
        let state = &self.shared.state;
        let seen = state.compare_exchange(UNDER_WAY, AWAITED, to, from);
        seen != Err(ENDED)
    }
}
