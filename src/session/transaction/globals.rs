//! Globals in a transaction.

use super::Transaction;
use super::nodes::Known;
use crate::collation::{GlobalKey, Number};
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::limits::VALUE_BYTES_MAX;
use crate::session::verbs::Verbs;
use crate::shard::Reach;
use crate::table::{Data, Globals, key_hash};

/// A set of globals, as a transaction sees it: made by [`Transaction::globals`].
///
/// A [`set`](Self::set) and a [`kill`](Self::kill) read nothing. While a transaction that removes a
/// subtree commits, others that change or rely on the same globals wait in the shards where the
/// subtree may be; so does, where transactions are serializable, one that has asked for
/// [`data`](Self::data).
pub struct TransactionGlobals<'t, 's, S: Verbs> {
    transaction: &'t mut Transaction<'s, S>,
    globals: &'t Globals,
    shards: usize,
}

impl<'s, S: Verbs> Transaction<'s, S> {
    /// A set of globals. Changes are part of the transaction.
    ///
    /// ```
    /// use ancile::{Engine, Verbs, key};
    /// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
    /// let store = engine.globals()?;
    /// let mut session = engine.session()?;
    /// session.transaction(|transaction| {
    ///     let mut globals = transaction.globals(&store);
    ///     globals.increment(&key!["reads"]?, 7)?;
    ///     globals.increment(&key!["updates"]?, 2)?;
    ///     globals.kill(&key!["draft"]?)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn globals<'t>(&'t mut self, globals: &'t Globals) -> TransactionGlobals<'t, 's, S> {
        let port = self.session.port();
        let shards = port.map_or(1, |(link, _)| link.peers().shards());
        TransactionGlobals {
            transaction: self,
            globals,
            shards,
        }
    }
}

impl<S: Verbs> TransactionGlobals<'_, '_, S> {
    fn shard_of(&self, key: &GlobalKey) -> ShardIndex {
        let routing = self.globals.routing();
        routing.shard_of(key.as_bytes(), self.shards)
    }

    /// The shards where what is below a key may be, and the key itself.
    fn shards_below(&self, key: &GlobalKey) -> std::ops::Range<ShardIndex> {
        match self.globals.routing().home(key.prefix(), self.shards) {
            Some(shard) => shard..shard + 1,
            None => 0..self.shards,
        }
    }

    /// The value of a node, as this transaction sees it.
    pub fn get(&mut self, key: &GlobalKey) -> Result<Option<Vec<u8>>> {
        let value = self.look(key)?;
        Ok(value.map(<[u8]>::to_vec))
    }

    /// What the value of a node is worth as a number, if it has one.
    pub fn get_number(&mut self, key: &GlobalKey) -> Result<Option<Number>> {
        let value = self.look(key)?;
        Ok(value.map(Number::of_value).transpose()?)
    }

    fn look(&mut self, key: &GlobalKey) -> Result<Option<&[u8]>> {
        self.transaction.check_time()?;
        let (globals, bytes) = (self.globals, key.as_bytes());
        let isolation = self.transaction.draft.isolation();
        let nodes = &self.transaction.draft.log.nodes;
        if matches!(nodes.known(globals, bytes, isolation), Known::Nothing) {
            let (shard, table) = (self.shard_of(key), globals.key());
            let hash = key_hash(bytes);
            let seen = self.transaction.ask(shard, Reach::Reads, move |context| {
                context.fetch_node(table, hash, bytes)
            })?;
            let nodes = &mut self.transaction.draft.log.nodes;
            nodes.learn(globals, shard, bytes, seen);
        }
        let nodes = &self.transaction.draft.log.nodes;
        // Whatever the isolation, what was just read is what is seen.
        match nodes.known(globals, bytes, super::Isolation::Serializable) {
            Known::Value(value) => Ok(value),
            Known::Nothing => Ok(None),
        }
    }

    /// What there is at a key, as this transaction sees it.
    pub fn data(&mut self, key: &GlobalKey) -> Result<Data> {
        let has_value = self.look(key)?.is_some();
        let (globals, bytes) = (self.globals, key.as_bytes());
        let nodes = &self.transaction.draft.log.nodes;
        let mut has_descendants = nodes.has_set_below(globals, bytes);
        if !has_descendants && !nodes.is_killed(globals, bytes) {
            let without = nodes.kills_below(globals, bytes);
            let left_out: Vec<&[u8]> = without.iter().map(|without| &**without).collect();
            let (table, left_out) = (globals.key(), &left_out[..]);
            for shard in self.shards_below(key) {
                let is_there = self.transaction.ask(shard, Reach::Reads, move |context| {
                    context.has_below(table, bytes, left_out)
                })?;
                let nodes = &mut self.transaction.draft.log.nodes;
                nodes.learn_below(globals, shard, bytes, &without, is_there);
                has_descendants |= is_there;
            }
        }
        Ok(Data {
            has_value,
            has_descendants,
        })
    }

    /// Sets a node.
    pub fn set(&mut self, key: &GlobalKey, value: impl AsRef<[u8]>) -> Result<()> {
        self.put(key, value.as_ref(), false)
    }

    fn put(&mut self, key: &GlobalKey, value: &[u8], is_derived: bool) -> Result<()> {
        self.transaction.draft.check_change()?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { bytes: value.len() });
        }
        let shard = self.shard_of(key);
        let log = &mut self.transaction.draft.log;
        log.nodes
            .set(self.globals, shard, key.as_bytes(), value, is_derived);
        log.note_nodes(1);
        Ok(())
    }

    /// Adds to the number that a node is worth; says what it is then. That nobody else changes it
    /// meanwhile is checked when the transaction commits, at every isolation.
    pub fn increment(&mut self, key: &GlobalKey, by: impl Into<Number>) -> Result<Number> {
        self.transaction.draft.check_change()?;
        let worth = Number::of_value(self.look(key)?.unwrap_or_default())?;
        let sum = worth.plus(by.into())?;
        self.put(key, sum.to_string().as_bytes(), true)?;
        Ok(sum)
    }

    /// Removes a node and all below it.
    pub fn kill(&mut self, key: &GlobalKey) -> Result<()> {
        self.transaction.draft.check_change()?;
        let shards = self.shards_below(key);
        let log = &mut self.transaction.draft.log;
        let changes = log.nodes.kill(self.globals, key.as_bytes(), shards);
        log.note_nodes(changes);
        Ok(())
    }
}
