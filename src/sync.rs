//! The atomics of what crosses threads without a lock, in a form that loom can watch.
//!
//! Built normally these are the standard library's. Built with `--cfg loom` they are loom's, which
//! runs every interleaving and every value that a load may legally return; then each ordering can
//! also be weakened by name ([`pick`]), so that the models can show that they would notice. Which
//! ordering publishes what to whom stands with its users: `ring/ordering.rs`,
//! `transaction/ordering.rs`.

#[cfg(not(loom))]
pub(crate) use self::plain::{UnsafeCell, pick};
#[cfg(loom)]
pub(crate) use self::watched::{WEAKENED, pick};
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32},
    sync::{Arc, Mutex},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32},
};

#[cfg(not(loom))]
mod plain {
    use std::sync::atomic::Ordering;

    /// The ordering that goes by a name.
    #[inline(always)]
    pub(crate) fn pick(_name: &str, ordering: Ordering) -> Ordering {
        ordering
    }

    /// The standard cell in the form that loom can watch: access is lent to a closure.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
mod watched {
    use std::sync::atomic::Ordering;

    /// The ordering that goes by a name, or none where a model runs without it.
    pub(crate) fn pick(name: &str, ordering: Ordering) -> Ordering {
        if WEAKENED.get() == Some(name) {
            Ordering::Relaxed
        } else {
            ordering
        }
    }

    std::thread_local! {
        /// The ordering that the model on this thread runs without. loom runs the threads of a
        /// model as coroutines of one thread, so they all see the same.
        pub(crate) static WEAKENED: std::cell::Cell<Option<&'static str>> =
            const { std::cell::Cell::new(None) };
    }
}
