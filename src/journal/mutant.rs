//! Faults that a test can put into the room, to show that they would be noticed.
//!
//! Each breaks one rule. Outside of tests none is there, and nothing of this is compiled in.

/// A fault, by the rule that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The image is written while its before-images may still be lost.
    BeforeImagesUnsynced,
    /// The superblock names an image that may still be lost.
    ImageUnsynced,
    /// A superblock slot lies in two sectors, each valid by itself.
    TwoSectorSuperblock,
    /// There is one superblock slot, written over.
    SingleSlot,
    /// A seal names its own shard only.
    SealWithoutDirtySet,
    /// After recovery the last segment is written on behind its valid end.
    StaleTailReused,
    /// Before-images are taken for what their number says, whatever past they belong to.
    LineageUnchecked,
    /// The segment that voids the tail after recovery may still be lost.
    SegmentHeaderUnsynced,
    /// A segment is read on behind the end that its successor names.
    EndLimitIgnored,
    /// A block is not bound to the one before it, nor to the life of its segment.
    Unchained,
    /// The work after a recovery uses the numbers of the epochs that were lost.
    EpochsReused,
    /// Recovery builds on what it has read, though that may still be lost.
    ReadUnsynced,
    /// A checkpoint begins though the epoch of what it holds is not durable.
    CheckpointTooSoon,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is(_mutant: Mutant) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    /// The fault that this thread runs with.
    pub(super) static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}
