//! Globals, as sessions and residents use them: keys are grouped by shard and travel there together;
//! what is spread over shards is asked for everywhere at once.

mod batch;
mod merge;
mod scan;

use super::call::{call, call_each};
use super::verbs::Verbs;
use crate::collation::{EntryList, GlobalKey, KeyList, Number};
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::limits::VALUE_BYTES_MAX;
use crate::shard::{Context, LocalTree, Reach, Step, span_of};
use crate::table::{Data, Direction, Globals, Span, Strings, key_hash, siblings};
use batch::Loads;

/// The verbs of a set of globals: made by [`Verbs::globals`].
///
/// Every operation is a transaction of its own, in the shard that its key decides
/// ([`Routing`](crate::Routing)), and acknowledged when it returns. What reaches over several shards
/// ([`kill`](Self::kill), [`merge`](Self::merge) and batches, where keys are spread) happens in each of
/// them by itself; within a transaction ([`Transaction::globals`](crate::Transaction::globals)) it
/// happens at once. Limits are checked before anything is written.
///
/// ```
/// use ancile::{Engine, Verbs, key};
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let store = engine.globals()?;
/// let mut session = engine.session()?;
/// let mut globals = session.globals(&store);
/// globals.set(&key!["city", "AT", 1010]?, "Wien")?;
/// globals.set(&key!["city", "AT", 5020]?, "Salzburg")?;
/// globals.set(&key!["city", "CH", 8000]?, "Zürich")?;
///
/// let next = globals.next(&key!["city", "AT", 1010]?)?;
/// assert_eq!(next, Some(key!["city", "AT", 5020]?));
/// assert_eq!(globals.increment(&key!["count"]?, 3)?.to_i64(), Some(3));
/// assert_eq!(globals.kill(&key!["city", "AT"]?)?, 2);
/// assert_eq!(globals.data(&key!["city"]?)?.to_number(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GlobalVerbs<'s, S: Verbs> {
    client: &'s mut S,
    globals: &'s Globals,
    shards: usize,
    loads: Loads,
}

impl<'s, S: Verbs> GlobalVerbs<'s, S> {
    pub(super) fn new(client: &'s mut S, globals: &'s Globals) -> Self {
        let shards = client.port().map_or(1, |(link, _)| link.peers().shards());
        Self {
            client,
            globals,
            shards,
            loads: Loads::new(shards),
        }
    }

    /// Runs work on the globals of a shard.
    #[inline]
    fn at<T: Send>(
        &mut self,
        shard: ShardIndex,
        reach: Reach,
        work: impl FnOnce(&mut LocalTree<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let key = self.globals.key();
        let (link, mut host) = self.client.port()?;
        call(link, &mut host, shard, reach, |context| {
            work(&mut context.tree(key)?)
        })
    }

    /// Runs work on the globals of one shard or, where there is none that has all that counts, of all
    /// shards at the same time.
    fn at_home<T: Send>(
        &mut self,
        home: Option<ShardIndex>,
        reach: Reach,
        work: impl Fn(&mut LocalTree<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        if let Some(shard) = home {
            let done = self.at(shard, reach, |tree| work(tree))?;
            return Ok(vec![done]);
        }
        let key = self.globals.key();
        let (link, mut host) = self.client.port()?;
        let work = &work;
        let calls = (0..self.shards)
            .map(|shard| {
                let closure = move |context: &mut Context<'_>| work(&mut context.tree(key)?);
                (shard, closure)
            })
            .collect();
        call_each(link, &mut host, reach, calls)
            .into_iter()
            .collect()
    }

    /// The shard that has all keys which begin with some components, if one has.
    fn home(&self, components: &[u8]) -> Option<ShardIndex> {
        self.globals.routing().home(components, self.shards)
    }

    fn shard_of(&self, key: &GlobalKey) -> ShardIndex {
        let routing = self.globals.routing();
        routing.shard_of(key.as_bytes(), self.shards)
    }

    /// What a change of one node waits for: transactions that are about to change it.
    fn reach_of(&self, key: &GlobalKey) -> Reach {
        Reach::Node {
            table: self.globals.key(),
            hash: key_hash(key.as_bytes()),
        }
    }

    /// The value of a node: `$GET`.
    pub fn get(&mut self, key: &GlobalKey) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Looks at the value of a node where it lies, in its shard.
    pub fn get_with<T: Send>(
        &mut self,
        key: &GlobalKey,
        look: impl FnOnce(Option<&[u8]>) -> T + Send,
    ) -> Result<T> {
        let shard = self.shard_of(key);
        self.at(shard, Reach::Reads, |tree| tree.get(key.as_bytes(), look))
    }

    /// What the value of a node is worth as a number ([`Number::of_value`]), if it has one.
    pub fn get_number(&mut self, key: &GlobalKey) -> Result<Option<Number>> {
        let worth = self.get_with(key, |value| value.map(Number::of_value))?;
        Ok(worth.transpose()?)
    }

    /// The value of a node as text; what is no UTF-8 is replaced by U+FFFD.
    pub fn get_text(&mut self, key: &GlobalKey) -> Result<Option<String>> {
        self.get_with(key, |value| {
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        })
    }

    /// Looks at the values of nodes, with the key's number in `keys`; not in order.
    pub fn get_each<K: KeyList + ?Sized>(
        &mut self,
        keys: &K,
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        batch::get_each(self, keys, visit)
    }

    /// The value of each node, in order.
    pub fn get_batch<K: KeyList + ?Sized>(&mut self, keys: &K) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.get_each(keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// Sets a node; says whether it had a value before.
    pub fn set(&mut self, key: &GlobalKey, value: impl AsRef<[u8]>) -> Result<bool> {
        let value = value.as_ref();
        check_value(value)?;
        let (shard, reach) = (self.shard_of(key), self.reach_of(key));
        self.at(shard, reach, |tree| tree.set(key.as_bytes(), value))
    }

    /// Sets a node to a number's canonical text; says whether it had a value before.
    pub fn set_number(&mut self, key: &GlobalKey, number: impl Into<Number>) -> Result<bool> {
        self.set(key, number.into().to_string())
    }

    /// Sets nodes, each for itself; of two entries with one key, the later one stays. After an error
    /// some may have been set, but not after one about a limit.
    pub fn set_batch<E: EntryList + ?Sized>(&mut self, entries: &E) -> Result<()> {
        batch::set_batch(self, entries)
    }

    /// Adds to the number that a node is worth, in one step; says what it is then: `$INCREMENT`. The
    /// value before is read as [`Number::of_value`] does, so that no node, and any text, count for what
    /// they begin with; sums have eighteen significant digits.
    pub fn increment(&mut self, key: &GlobalKey, by: impl Into<Number>) -> Result<Number> {
        let by = by.into();
        let (shard, reach) = (self.shard_of(key), self.reach_of(key));
        self.at(shard, reach, |tree| tree.increment(key.as_bytes(), by))
    }

    /// Adds the same to nodes, each in one step; `visit` is told what they are then, not in order.
    pub fn increment_batch<K: KeyList + ?Sized>(
        &mut self,
        keys: &K,
        by: impl Into<Number>,
        visit: impl FnMut(usize, Number),
    ) -> Result<()> {
        batch::increment_batch(self, keys, by.into(), visit)
    }

    /// Removes a node and all below it; says how many nodes there were.
    ///
    /// In a shard all of them go at once. Memory comes back to the shard; what is there is not read, so
    /// that it takes little time for many nodes.
    pub fn kill(&mut self, key: &GlobalKey) -> Result<u64> {
        let range = key.subtree();
        let home = self.home(key.prefix());
        let killed = self.at_home(home, Reach::All, |tree| tree.kill(span_of(&range)))?;
        Ok(killed.iter().sum())
    }

    /// What there is at a key: `$DATA`.
    pub fn data(&mut self, key: &GlobalKey) -> Result<Data> {
        let home = self.home(key.prefix());
        let told = self.at_home(home, Reach::Reads, |tree| tree.data(key.as_bytes()))?;
        Ok(told
            .into_iter()
            .fold(Data::default(), |all, here| all.or(here)))
    }

    /// The next key of the same level, which has a value or descendants: `$ORDER`. To begin, give a
    /// key with the empty subscript, or ask for the [`first`](Self::first) one. Of keys without
    /// subscripts these are the names.
    ///
    /// The cost is a call in each shard that the level is spread over, at the same time.
    pub fn next(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(Step::Next, key)
    }

    /// The key before this one of the same level: `$ORDER` backwards.
    pub fn previous(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(Step::Previous, key)
    }

    /// The first key of the level below.
    pub fn first(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(Step::First, key)
    }

    /// The last key of the level below.
    pub fn last(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(Step::Last, key)
    }

    fn step(&mut self, step: Step, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        let above = match step {
            Step::First | Step::Last => key.prefix(),
            Step::Next | Step::Previous => siblings::parent(key.prefix()),
        };
        let home = self.home(above);
        let found = self.at_home(home, Reach::Reads, |tree| {
            let (mut found, mut bound) = (key.as_bytes().to_vec(), Vec::new());
            if !tree.step(step, &mut found, &mut bound)? {
                return Ok(None);
            }
            tree.key_of(&found).map(Some)
        })?;
        let found = found.into_iter().flatten();
        Ok(match step {
            Step::Next | Step::First => found.min(),
            Step::Previous | Step::Last => found.max(),
        })
    }

    /// The next node with a value, in the order of all nodes of the same name, and its value: `$QUERY`.
    pub fn query(&mut self, key: &GlobalKey) -> Result<Option<(GlobalKey, Vec<u8>)>> {
        self.query_to(key, Direction::Forward)
    }

    /// The node with a value before this one: `$QUERY` backwards.
    pub fn query_back(&mut self, key: &GlobalKey) -> Result<Option<(GlobalKey, Vec<u8>)>> {
        self.query_to(key, Direction::Backward)
    }

    fn query_to(
        &mut self,
        key: &GlobalKey,
        direction: Direction,
    ) -> Result<Option<(GlobalKey, Vec<u8>)>> {
        let name = key.prefix_of(0);
        let (mut start, mut end) = (Vec::new(), Vec::new());
        let span = match direction {
            Direction::Forward => {
                start.extend_from_slice(key.as_bytes());
                start.push(0);
                let end = siblings::behind(name, &mut end);
                Span { start: &start, end }
            }
            Direction::Backward => Span {
                start: name,
                end: Some(key.as_bytes()),
            },
        };
        let home = self.home(name);
        let found = self.at_home(home, Reach::Reads, |tree| {
            let mut found = Strings::default();
            tree.collect(span, direction, (1, 1), &mut found)?;
            if found.len() == 0 {
                return Ok(None);
            }
            Ok(Some((tree.key_of(found.get(0))?, found.get(1).to_vec())))
        })?;
        let found = found.into_iter().flatten();
        Ok(match direction {
            Direction::Forward => found.min(),
            Direction::Backward => found.max(),
        })
    }

    /// Nodes that begin with a key, itself included.
    pub fn count(&mut self, key: &GlobalKey) -> Result<u64> {
        let range = key.subtree();
        let home = self.home(key.prefix());
        let told = self.at_home(home, Reach::Reads, |tree| tree.count(span_of(&range)))?;
        Ok(told.iter().sum())
    }

    /// All nodes.
    pub fn len(&mut self) -> Result<u64> {
        let told = self.at_home(None, Reach::Reads, |tree| tree.len())?;
        Ok(told.iter().sum())
    }

    /// Whether there is no node.
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Bytes of memory of all nodes.
    pub fn bytes(&mut self) -> Result<u64> {
        let told = self.at_home(None, Reach::Reads, |tree| tree.bytes())?;
        Ok(told.iter().sum())
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes: value.len() });
    }
    Ok(())
}
