//! Moments between two changes of a file, for tests that look at what a crash would leave there.

use std::cell::RefCell;

/// Something that a test is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The process could end here.
    Between,
    /// A scope of the arena of this shard has ended.
    Ended(u32),
}

type Hook = Box<dyn FnMut(Moment)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Has this thread's changes of arenas in files told from now on.
pub(crate) fn watch(hook: impl FnMut(Moment) + 'static) {
    HOOK.set(Some(Box::new(hook)));
}

/// Nobody is told any more.
pub(crate) fn unwatch() {
    HOOK.take();
}

/// Tells whoever watches; nobody is told of what that one does itself.
pub(super) fn tell(moment: Moment) {
    if let Some(mut hook) = HOOK.take() {
        hook(moment);
        HOOK.set(Some(hook));
    }
}
