//! A call in memory of its own, for clients that may be gone before it is answered.
//!
//! A client that waits on its stack ships a call from there. One that is polled cannot: its future may
//! be dropped at any moment. So the call lies in a parcel, and whoever has the parcel keeps it until
//! the answer is there: the client's end of the lane, and after it the memory of the lane itself,
//! which goes when both ends are gone.

#![expect(
    unsafe_code,
    reason = "a call is used by its shard, and then by its client"
)]

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::panic_message;
use super::request::{Call, Request};

/// A call on its way, and its result on the way back.
pub(crate) struct Parcel {
    memory: NonNull<u8>,
    /// Drops what is in the memory, and the memory.
    release: unsafe fn(NonNull<u8>),
    kind: TypeId,
}

// SAFETY: it owns its memory, which holds a call that is `Send`.
unsafe impl Send for Parcel {}

impl Parcel {
    pub(crate) fn new<C: Call + Send + 'static>(call: C) -> Self {
        let memory = NonNull::from(Box::leak(Box::new(call)));
        Self {
            memory: memory.cast(),
            release: release::<C>,
            kind: TypeId::of::<C>(),
        }
    }

    /// A request to make the call.
    ///
    /// # Safety
    /// `C` is what the parcel was made of, and the parcel is neither opened nor dropped before the
    /// request is answered or the shard has ended.
    pub(crate) unsafe fn request<C: Call + 'static>(&self) -> Request {
        debug_assert_eq!(self.kind, TypeId::of::<C>());
        // SAFETY: by the contract, which is the same.
        unsafe { Request::call_at(self.memory.cast::<C>()) }
    }

    /// What became of the call. Nobody else uses it any more.
    ///
    /// # Panics
    /// Panics if it was made of something else.
    pub(crate) fn open<C: Call + 'static>(self) -> C {
        assert_eq!(
            self.kind,
            TypeId::of::<C>(),
            "a parcel is opened as it was made"
        );
        let memory = self.memory.cast::<C>();
        std::mem::forget(self);
        // SAFETY: made from a box of this type, and given up by `self` just now.
        *unsafe { Box::from_raw(memory.as_ptr()) }
    }
}

/// # Safety
/// The memory is a box of `C`, which is not used any more.
unsafe fn release<C>(memory: NonNull<u8>) {
    // SAFETY: by the contract.
    drop(unsafe { Box::from_raw(memory.cast::<C>().as_ptr()) });
}

impl Drop for Parcel {
    /// What nobody asks for any more ends here, also its panics.
    fn drop(&mut self) {
        // SAFETY: made together with the memory, which is the parcel's own.
        let release = || unsafe { (self.release)(self.memory) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(release)) {
            panic_message(payload);
        }
    }
}
