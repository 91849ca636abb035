//! The client's side: sessions of application threads, residents inside shards, and their verbs.
//!
//! [`verbs`] is what a program calls. Each verb is a set of [`operations`], which [`drive`] carries
//! to their shards through the client's [`link`]; what the client does meanwhile is its [`host`].

mod call;
mod drive;
mod globals;
mod host;
mod link;
mod operations;
mod pipeline;
mod polled;
mod records;
mod resident;
mod settle;
mod transaction;
mod verbs;

use std::sync::Arc;

use crate::error::{Error, Result};
pub use globals::GlobalVerbs;
use host::Application;
#[cfg(test)]
pub(crate) use host::Host;
pub(crate) use host::{Inside, Patience, enter_shard, is_inside_shard, with_waker};
#[cfg(test)]
pub(crate) use link::Lane;
pub(crate) use link::{Link, Peers};
pub use pipeline::{Pipeline, Ticket};
pub use polled::{AsyncSession, AsyncTransaction};
pub use records::RecordVerbs;
pub use resident::Resident;
pub use settle::Acknowledge;
pub(crate) use settle::poll_durable;
pub use transaction::{
    Isolation, Savepoint, Transaction, TransactionGlobals, TransactionOptions, TransactionOutcome,
    TransactionRecords, Transactions,
};
#[cfg(not(test))]
use verbs::Port;
#[cfg(test)]
pub(crate) use verbs::Port;
pub use verbs::Verbs;

/// A thread's access to an engine.
///
/// Its verbs ([`Verbs`]) wait for their result. A session may be moved to another thread, and each
/// thread that works at the same time has its own. Dropping one is always safe: what it has sent is
/// executed, and its memory is kept until then. Sessions may outlive their engine; their calls then
/// return [`Error::Closed`].
pub struct Session {
    link: Link,
    host: Application,
}

impl Session {
    pub(crate) fn new(peers: Arc<Peers>, turn: usize, patience: Patience) -> Self {
        let host = Application {
            patience,
            home: peers.home,
        };
        Self {
            link: Link::new(peers, turn),
            host,
        }
    }
}

impl Session {
    /// Sets when changes count as done for whoever makes them here; at first, when the engine's
    /// [`Durability`](crate::Durability) says. Only a database with a journal can wait for its disk.
    pub fn set_acknowledge(&mut self, when: Acknowledge) {
        self.link.set_acknowledge(when);
    }
}

impl Port for Session {
    type Host<'a> = &'a mut Application;

    fn port(&mut self) -> Result<(&mut Link, &mut Application)> {
        if is_inside_shard() {
            return Err(Error::InsideShard);
        }
        self.link.peers().check_home()?;
        Ok((&mut self.link, &mut self.host))
    }
}
