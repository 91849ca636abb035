//! Transactions: all of their changes happen, or none.
//!
//! # In one shard
//! A shard runs one transaction at a time to its end, so nobody sees it half done; the [`undo`] log
//! takes its changes back if it fails.
//!
//! # Over several shards: the ordered chain
//! A client reads without locks and keeps its writes to itself. To commit, it sends a
//! [`Proposal`] on its way: it visits the participants in ascending order, leaves an *intent* in each
//! ([`intents`]), and the last one decides. Then it goes back the same way, each participant applies
//! the changes and drops the intent, and the first one tells the client.
//!
//! ```text
//! client -> A: intent -> B: intent -> C: intent, decide, apply -> B: apply -> A: apply -> client
//! ```
//! Whoever holds the proposal ([`Baton`]) is the only one who touches it, so nothing in it is shared,
//! and what travels is one pointer.
//!
//! **No deadlock.** An intent waits only for intents that came to the same shard before, and those
//! wait, if at all, at a higher shard: on every edge of a circle the shard would have to grow.
//! **Serializable.** What a transaction has read is checked once its intents stand everywhere up to
//! that shard, and stays as it is until the decision; so all of its reads and writes happen at the
//! decision. **Nobody waits for a client**: no code of a client runs while intents stand, but for a
//! transaction that failed so often that it was given a lease, which ends by itself.
//!
//! The order of participants instead of a lock manager is what Orthrus (Ren, Faleiro, Abadi, SIGMOD
//! 2016) does between its lock threads; validation of what was read is Kung's and Robinson's (TODS
//! 1981).

mod baton;
mod intents;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod mutant;
pub(crate) mod node;
mod ordering;
mod proposal;
#[cfg(all(test, not(loom)))]
mod test;
mod undo;

pub(crate) use baton::{Baton, Stub};
pub(crate) use intents::{Added, EntryId, Intents, IntentsFull, Mode, RowKey};
pub(crate) use proposal::{
    Action, Cause, Expected, Found, NEVER, Operation, Part, Phase, Proposal, Purpose, Spot, Target,
    Ticket, Verdict,
};
pub(crate) use undo::{Changed, Tables, UndoLog};
