//! The atomics of a hand-over, and which ordering publishes what to whom.
//!
//! Built normally these are the standard library's, built with `--cfg loom` they are loom's: as for
//! rings.

#[cfg(not(loom))]
pub(super) use self::plain::UnsafeCell;
#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::AtomicU32,
    sync::{Arc, Mutex},
};
#[cfg(not(loom))]
pub(super) use std::sync::{Arc, Mutex, atomic::AtomicU32};

/// The orderings by what they are for.
pub(super) mod ordering {
    use std::sync::atomic::Ordering;

    /// Baton, at the end: all that was done to the proposal is complete for the stub that sees the end
    /// with [`see_end`]; and whoever finds that it is awaited sees the waker set before [`wait`].
    #[inline(always)]
    pub(in crate::transaction) fn end() -> Ordering {
        pick("end", Ordering::AcqRel)
    }

    /// Stub, before it takes the proposal: pairs with [`end`].
    #[inline(always)]
    pub(in crate::transaction) fn see_end() -> Ordering {
        pick("see_end", Ordering::Acquire)
    }

    /// Stub, after it has set its waker: pairs with [`end`].
    #[inline(always)]
    pub(in crate::transaction) fn wait() -> Ordering {
        Ordering::AcqRel
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
        /// The ordering that the model on this thread runs without.
        pub(in crate::transaction) static WEAKENED: std::cell::Cell<Option<&'static str>> =
            const { std::cell::Cell::new(None) };
    }
}

#[cfg(not(loom))]
mod plain {
    /// The standard cell in the form that loom can watch: access is lent to a closure.
    #[repr(transparent)]
    pub(in crate::transaction) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::transaction) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(in crate::transaction) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub(in crate::transaction) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}
