//! Faults that a test can put into what keeps a file whole, to show that they would be noticed.
//!
//! Each breaks one promise about crashes. Outside of tests none is there, and nothing of this is
//! compiled in; but with the feature `internals` a whole process can be made to keep no before-images,
//! as the control of the kill loop.

/// A fault, by what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// No before-image is kept.
    #[cfg(test)]
    UndoUnkept,
    /// Before-images are put back in the order in which they were kept.
    UndoForwards,
    /// The scope ends before the heads of its tables were saved.
    HeadsUnsaved,
    /// The ledger is changed without a before-image.
    LedgerUntold,
    /// Extents that were given back are given out again in the same scope.
    ReusedTooSoon,
    /// What a participant is to do does not outlive the process.
    PartsUnprepared,
    /// The last participant does not note what was decided.
    DecisionUnnoted,
    /// Decisions are forgotten before every shard has followed them.
    ForgottenTooSoon,
    /// What was taken back before the crash is taken back again.
    GenerationsUnchecked,
    /// Places that clients have reserved are not listed.
    PlacesUnnoted,
    /// Frozen pages are changed before the checkpoint has them.
    FrozenUnkept,
    /// Changes do not count as differences from the last checkpoint.
    PagesUnmarked,
    /// Changes are stamped with the epoch that the shard knew of last.
    ClockUnread,
    /// Every fifth range that is told does not get into the journal.
    RangesForgotten,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is(_mutant: Mutant) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    /// The fault that this thread runs with.
    pub(crate) static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

/// Whether no before-image is to be kept.
#[cfg(test)]
pub(super) fn keeps_nothing() -> bool {
    is(Mutant::UndoUnkept)
}

/// Whether no before-image is to be kept, because the environment says so.
#[cfg(all(feature = "internals", not(test)))]
pub(super) fn keeps_nothing() -> bool {
    static NOTHING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *NOTHING.get_or_init(|| std::env::var_os("ANCILE_CONTROL_WITHOUT_UNDO").is_some())
}

#[cfg(not(any(feature = "internals", test)))]
#[inline(always)]
pub(super) const fn keeps_nothing() -> bool {
    false
}
