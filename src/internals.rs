//! Single rooms of the engine for the bench package: not part of the API, and free to change.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::arena::{Arena, Heap, MapOptions};
use crate::error::Result;
use crate::fork::Home;
use crate::id::{DirectId, TableKey};
use crate::index::{HashIndex, Keys, Probe};
use crate::ring::{Consumer, Producer, ring};
use crate::session::{Link, Peers};
use crate::shard::{Content, Inbox, Mailbox, Request, Shard, TableShape};
use crate::table::{Fixed, PartName, Single, TablePart, Verb};

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
