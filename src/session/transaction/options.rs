//! How a transaction is to be run.

use std::time::Duration;

/// What a transaction may see of others that run at the same time.
///
/// | | `ReadCommitted` | `Serializable` |
/// |---|---|---|
/// | its own changes | seen | seen |
/// | what others have not committed (G0, G1a, G1b, G1c) | never | never |
/// | a row between two changes of one transaction | never | never |
/// | two reads of one row differ (fuzzy read) | allowed | prevented |
/// | rows from before and after one commit together (read skew, OTV, PMP, G-single) | allowed | prevented |
/// | a change overwrites one that it has not seen (lost update, P4) | allowed; `update_if` prevents it | prevented |
/// | two transactions each rely on what the other changes (write skew, G2-item, G2) | allowed | prevented |
/// | reads wait for others | never | never; the commit may, for microseconds |
///
/// `Serializable` is strict: a transaction that begins after another has returned comes after it in
/// the order as well. It prevents what it says among transactions that use it; those that read
/// committed, and single operations, are to it like transactions of one row each. Reads of these never
/// wait, so they may see one row of a commit a moment before another row of it.
///
/// The anomalies' names are those of Adya's thesis (MIT, 1999) and of the Hermitage tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each read sees what is committed at its moment.
    #[default]
    ReadCommitted,
    /// As if transactions ran one after the other.
    Serializable,
}

/// How a transaction is run: [`Verbs::transaction_with`](crate::Verbs::transaction_with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    pub(super) isolation: Isolation,
    pub(super) is_read_only: bool,
    pub(super) tries: u32,
    pub(super) timeout: Option<Duration>,
}

impl TransactionOptions {
    /// Of this isolation, tried at most 100 times, for as long as that takes.
    pub fn new(isolation: Isolation) -> Self {
        Self {
            isolation,
            is_read_only: false,
            tries: 100,
            timeout: None,
        }
    }

    /// Changes are refused with [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// How often it is tried before [`Error::Conflict`](crate::Error::Conflict) is returned; at least
    /// once. In the ninth try, and in every second one from then on, a transaction has the rows that
    /// it used before to itself, for five milliseconds and, if that was too short, up to 160, so that
    /// it comes through however busy they are.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// How long it may take, with all its tries, before [`Error::TimedOut`](crate::Error::TimedOut)
    /// is returned. Nothing has happened then. A transaction that is being decided is waited for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self::new(Isolation::default())
    }
}
