//! Single rooms of the engine for the bench package: not part of the API, and free to change.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::arena::{Arena, Heap, MapOptions};
use crate::error::Result;
use crate::fork::Home;
use crate::id::{DirectId, TableKey};
use crate::index::{HashIndex, Keys, Probe};
use crate::ring::{Consumer, Producer, ring};
use crate::session::{Acknowledge, Link, Peers};
use crate::shard::{Content, Inbox, Mailbox, Request, Shard, TableShape};
use crate::table::{Fixed, PartName, Single, TablePart, Verb};
use crate::tree::{Direction, Tree, TreeName};

const NAME: PartName = PartName {
    place: 0,
    serial: 1,
};

fn arena(bytes: u64) -> Arena {
    let options = MapOptions {
        bytes,
        node: None,
        huge_pages: true,
    };
    Arena::new(&options).unwrap_or_else(|error| panic!("no memory for a bench: {error}"))
}

/// A ring between two ends of one thread.
pub struct RingHop {
    producer: Producer<[u64; 7]>,
    consumer: Consumer<[u64; 7]>,
}

impl RingHop {
    /// A ring of so many messages.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (producer, consumer) = ring(capacity);
        Self { producer, consumer }
    }

    /// Sends so many messages and receives them; the sum of what came.
    pub fn hop(&mut self, messages: u64) -> u64 {
        for message in 0..messages {
            if self.producer.push([message; 7]).is_err() {
                break;
            }
        }
        std::iter::from_fn(|| self.consumer.pop())
            .map(|message| message[6])
            .sum()
    }
}

/// A table of ten columns in one arena.
pub struct ArenaSlot {
    arena: Arena,
    table: TablePart,
}

impl ArenaSlot {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let mut arena = arena(1 << 30);
        let table = TablePart::new(&mut arena, NAME, 0, 10, false, 0);
        Self {
            table: table.unwrap_or_else(|full| panic!("{full}")),
            arena,
        }
    }

    /// Inserts a row and deletes it again; the number of its slot.
    pub fn reuse(&mut self, row: &[u64; 10]) -> Result<u64> {
        let fill = |cells: &mut [u64]| cells.copy_from_slice(row);
        let place = self
            .table
            .insert(&mut self.arena, Fixed::<10>, None, &mut Single, fill)?;
        let id = self.table.id(place);
        self.table.delete(&mut self.arena, place, &mut Single);
        Ok(id.to_u64())
    }
}

impl Default for ArenaSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// An index over an array of keys.
pub struct IndexProbe {
    index: HashIndex,
    keys: Array,
    /// Holds the index's memory.
    _arena: Arena,
}

struct Array(Vec<u64>);

impl Keys for Array {
    fn is(&self, slot: u32, key: u64) -> bool {
        self.0.get(slot as usize) == Some(&key)
    }

    fn probe(&self, slot: u32) -> Option<Probe> {
        Some(Probe::new(*self.0.get(slot as usize)?))
    }

    fn prefetch(&self, _slot: u32) {}
}

impl IndexProbe {
    /// An index of these keys, which are all different.
    #[must_use]
    pub fn new(keys: Vec<u64>) -> Self {
        let mut arena = arena(1 << 30);
        let index = HashIndex::new(&mut arena, 1, keys.len() as u64);
        let mut index = index.unwrap_or_else(|full| panic!("{full}"));
        let keys = Array(keys);
        for (slot, &key) in keys.0.iter().enumerate() {
            let probe = Probe::new(key);
            if let Err(vacancy) = index.seek(probe, &keys) {
                let added = index.insert(&mut arena, probe, vacancy, slot as u32, &keys);
                added.unwrap_or_else(|full| panic!("{full}"));
            }
        }
        Self {
            index,
            keys,
            _arena: arena,
        }
    }

    /// The slot of a key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<u32> {
        self.index.find(Probe::new(key), &self.keys)
    }
}

/// A shard that is stepped by hand, and a client of it.
pub struct Tick {
    shard: Shard,
    inbox: Inbox,
    link: Link,
    key: TableKey,
    ids: Vec<u64>,
}

impl Tick {
    /// A shard with a table of ten columns and so many rows.
    #[must_use]
    pub fn new(rows: u64) -> Self {
        let mailbox = Arc::new(Mailbox::new());
        let peers = Arc::new(Peers {
            epochs: None,
            acknowledge: Acknowledge::Executed,
            mailboxes: vec![Arc::clone(&mailbox)],
            block_operations: 64,
            lane_requests: 4,
            clock: Arc::new(|| 0),
            home: Home::here(),
            open: AtomicUsize::new(1),
        });
        let heap = Heap::new(None, 1 << 20);
        let (mailboxes, clock) = (&peers.mailboxes, Arc::clone(&peers.clock));
        let mut shard = Shard::new(0, mailboxes, clock, arena(1 << 30), &heap);
        let key = TableKey { index: 0, stamp: 1 };
        let shape = TableShape {
            key,
            serial: 1,
            content: Content::Rows {
                columns: 10,
                keyed: false,
            },
        };
        shard
            .catalog
            .create(&shape, 0, 0)
            .unwrap_or_else(|full| panic!("{full}"));
        let mut ids = Vec::new();
        if let Ok((table, arena)) = shard.catalog.table(key) {
            for row in 0..rows {
                let fill = |cells: &mut [u64]| cells.fill(row);
                if let Ok(place) = table.insert(arena, Fixed::<10>, None, &mut Single, fill) {
                    ids.push(table.id(place).to_u64());
                }
            }
        }
        Self {
            shard,
            inbox: Inbox::new(mailbox),
            link: Link::new(peers, 0),
            key,
            ids,
        }
    }

    /// Sends a block of 64 selects, lets the shard take a step, and reads the answer; the sum of the
    /// first cells.
    pub fn select_64(&mut self, from: usize) -> Result<u64> {
        self.link.open(0, 10, 64)?;
        for at in 0..64 {
            let id = self.ids[(from + at) % self.ids.len()];
            if let Some(block) = self.link.block(0) {
                block.push(Verb::Select, id, at as u32);
            }
        }
        let key = self.key;
        self.link.send(0, |block| {
            Request::block::<Fixed<10>, DirectId>(key, Fixed, block)
        })?;
        self.shard.tick(&mut self.inbox);
        let mut sum = 0;
        self.link
            .take_answers(|block, _| block.results(|_, _, _, _, row| sum += row[0]));
        Ok(sum)
    }
}

/// An ordered tree in one arena.
pub struct OrderedKeys {
    arena: Arena,
    tree: Tree,
}

impl OrderedKeys {
    /// An empty tree, in an arena of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let mut arena = arena(bytes);
        let tree = Tree::new(&mut arena, TreeName { owner: 1, tree: 0 });
        Self {
            tree: tree.unwrap_or_else(|error| panic!("{error}")),
            arena,
        }
    }

    /// Inserts an entry; whether there was one.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> bool {
        let result = self.tree.insert(&mut self.arena, key, value);
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Inserts entries; how many keys were there.
    pub fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, entries: &[(K, V)]) -> u64 {
        let mut replaced = 0;
        let done = |_, result| replaced += u64::from(result == Ok(true));
        let result = self.tree.insert_each(&mut self.arena, entries, done);
        result.unwrap_or_else(|error| panic!("{error}"));
        replaced
    }

    /// Fills the empty tree with sorted entries.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> u64 {
        let result = self.tree.load(&mut self.arena, entries);
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let result = self.tree.remove(&mut self.arena, key);
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The first byte of a value.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<u8> {
        let value = self.tree.get(&self.arena, key);
        let value = value.unwrap_or_else(|error| panic!("{error}"))?;
        value.inline()?.first().copied()
    }

    /// The sum of the first bytes of many values.
    #[must_use]
    pub fn get_each<K: AsRef<[u8]>>(&self, keys: &[K]) -> u64 {
        let mut sum = 0;
        let result = self.tree.get_each(&self.arena, keys, |_, value| {
            let value = value.and_then(|value| value.inline());
            sum += u64::from(value.and_then(<[u8]>::first).copied().unwrap_or(0));
        });
        result.unwrap_or_else(|error| panic!("{error}"));
        sum
    }

    /// Visits all entries in order; the sum of the last bytes of keys and the first ones of values.
    #[must_use]
    pub fn scan(&self) -> u64 {
        let mut sum = 0;
        let visit = |key: &[u8], value: crate::tree::Value<'_>| {
            let value = value.inline().and_then(<[u8]>::first);
            sum += u64::from(*key.last().unwrap_or(&0)) + u64::from(*value.unwrap_or(&0));
            ControlFlow::Continue(())
        };
        let result = self
            .tree
            .scan(&self.arena, &[], None, Direction::Forward, visit);
        result.unwrap_or_else(|error| panic!("{error}"));
        sum
    }

    /// Bytes that the tree has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.tree.bytes(&self.arena);
        bytes.unwrap_or_else(|error| panic!("{error}"))
    }
}
