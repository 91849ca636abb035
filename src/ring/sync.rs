//! The atomics of a ring, and which ordering publishes what to whom.
//!
//! Built normally these are the standard library's. Built with `--cfg loom` they are loom's, which
//! runs every interleaving and every value that a load may legally return; then each ordering can
//! also be weakened by name, so that the models can show that they would notice.

#[cfg(not(loom))]
pub(super) use self::plain::UnsafeCell;
#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU32},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32},
};

/// The orderings by what they are for. Each is one half of a pair.
pub(super) mod ordering {
    use std::sync::atomic::Ordering;

    /// Producer, after filling a slot: the message is complete for the consumer that reads this
    /// stamp with [`receive`].
    #[inline(always)]
    pub(in crate::ring) fn publish() -> Ordering {
        pick("publish", Ordering::Release)
    }

    /// Consumer, before reading a slot: pairs with [`publish`].
    #[inline(always)]
    pub(in crate::ring) fn receive() -> Ordering {
        pick("receive", Ordering::Acquire)
    }

    /// Consumer, after reading a slot: the reading is over for the producer that sees this stamp
    /// with [`reclaim`] and overwrites the message.
    #[inline(always)]
    pub(in crate::ring) fn give_back() -> Ordering {
        pick("give_back", Ordering::Release)
    }

    /// Producer, before filling a slot: pairs with [`give_back`].
    #[inline(always)]
    pub(in crate::ring) fn reclaim() -> Ordering {
        pick("reclaim", Ordering::Acquire)
    }

    /// An end that is being dropped: all that it did to the ring comes before its farewell, for
    /// the peer that sees it with [`see_farewell`].
    #[inline(always)]
    pub(in crate::ring) fn say_farewell() -> Ordering {
        pick("say_farewell", Ordering::Release)
    }

    /// The peer of a dropped end: pairs with [`say_farewell`].
    #[inline(always)]
    pub(in crate::ring) fn see_farewell() -> Ordering {
        pick("see_farewell", Ordering::Acquire)
    }

    /// Both ends are gone: the `Arc`'s last decrement has ordered everything, nobody else looks.
    #[inline(always)]
    pub(in crate::ring) fn alone() -> Ordering {
        Ordering::Relaxed
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn pick(_name: &str, ordering: Ordering) -> Ordering {
        ordering
    }

    #[cfg(loom)]
    fn pick(name: &str, ordering: Ordering) -> Ordering {
        if WEAKENED.get() == Some(name) {
            Ordering::Relaxed
        } else {
            ordering
        }
    }

    #[cfg(loom)]
    std::thread_local! {
        /// The ordering that the model on this thread runs without. loom runs the threads of a
        /// model as coroutines of one thread, so they all see the same.
        pub(in crate::ring) static WEAKENED: std::cell::Cell<Option<&'static str>> =
            const { std::cell::Cell::new(None) };
    }
}

#[cfg(not(loom))]
mod plain {
    /// The standard cell in the form that loom can watch: access is lent to a closure.
    #[repr(transparent)]
    pub(in crate::ring) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::ring) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(in crate::ring) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub(in crate::ring) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}
