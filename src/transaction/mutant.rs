//! Faults that a test can put into the protocol, to show that they would be noticed.
//!
//! Each breaks one invariant. Outside of tests none is there, and nothing of this is compiled in.

/// A fault, by what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Who wants a row passes a writer that still waits for another row.
    Overtaking,
    /// What a transaction has only read may be changed before it is decided.
    ReadsUnguarded,
    /// Rows that were changed since they were read are not noticed.
    VersionsUnchecked,
    /// Rows that were absent when they were looked for, and are there now, are not noticed.
    AbsenceUnchecked,
    /// A transaction that only reads may take a row for absent that came and went.
    AbsenceUnguarded,
    /// The condition of a conditional change is not looked at again.
    ConditionUnchecked,
    /// The first participant decides.
    DecidedTooSoon,
    /// Participants are visited in any order.
    #[cfg(test)]
    Unordered,
    /// Reserved inserts are not taken back.
    InsertsKept,
    /// The client is told of the decision before everybody has heard of it.
    #[cfg(test)]
    AnsweredTooSoon,
    /// Single changes do not wait for intents.
    SinglesUnguarded,
    /// Shipped closures do not wait for intents.
    ClosuresUnguarded,
    /// A lease lasts for ever.
    LeaseEndless,
    /// A transaction under a lease is not held to what it has leased.
    LeaseUncovered,
    /// The last change since a savepoint is not taken back.
    SavepointForgets,
    /// Transactions that only read do not wait for those that are about to write.
    ValidationUnguarded,
    /// A single row that was read counts as current, though it is about to be changed.
    LoneReadUnguarded,
    /// Places are given back while their transaction may still be under way.
    PlacesUnguarded,
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

#[cfg(test)]
impl super::Proposal {
    /// As it is sent: half of all go the wrong way, if that is the fault.
    pub(crate) fn mutated(mut self, chance: u64) -> Self {
        if is(Mutant::Unordered) && crate::id::hash(chance).is_multiple_of(2) {
            self.parts.reverse();
        }
        self
    }
}
