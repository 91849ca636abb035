//! How a thread that has nothing to do is woken by those who bring it something.
//!
//! Whoever is about to sleep says so first, then looks once more, then sleeps; whoever brings
//! something publishes first, then looks whether the other said so. The two fences make it impossible
//! that both look too early.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    parked: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Doorbell {
    /// Who wakes the thread: to be told before the first [`Doorbell::park`].
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.waker.get_or_init(|| waker);
    }

    /// Wakes the thread if it sleeps. To be called after publishing.
    #[inline]
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `park`: either we see `parked`, or the thread sees what we published.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.parked.swap(false, Ordering::Relaxed)
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
    }

    /// The thread: sleeps until woken, or for no reason, unless there is something to do.
    pub(crate) fn park(&self, is_ready: impl Fn() -> bool, sleep: impl FnOnce()) {
        self.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_ready() {
            sleep();
        }
        self.parked.store(false, Ordering::Relaxed);
    }
}
