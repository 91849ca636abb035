//! Intents: who is about to change or rely on which row, in the order of their coming.
//!
//! # Shape
//! An *entry* is one transaction's part in this shard, or a request that waits for one. It stands in
//! a queue for each of its rows, and in the queue of the shard as a whole. In a queue, readers pass
//! readers; everybody else waits for all who came before. An entry is granted when it waits in none
//! of its queues, and never before: whoever is granted keeps its place until it is released.
//!
//! ```text
//! row 7   | A write | B read | C read |     A is granted here, B and C wait
//! row 9   | B write |                       B is granted here, but not as a whole
//! shard   | A read | B read | C read |      somebody who wants the shard alone would wait for all
//! ```
//! Letting late entries overtake waiting ones would lose the order that keeps shards from waiting
//! for each other in a circle.

use std::collections::VecDeque;

use allocator_api2::vec::Vec;
use hashbrown::HashTable;

use super::mutant::{self, Mutant};
use crate::arena::Heap;
use crate::id::hash;

const NOBODY: u32 = u32::MAX;

/// Places of the filter; a power of two, several times the rows that usually have intents.
const FILTER_PLACES: usize = 4096;

/// A row, by what it is called in this shard whichever way it is looked for: its key, or its slot in
/// tables without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub(crate) table: u32,
    pub(crate) row: u64,
}

/// What an entry wants of a row, or of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// That nobody changes it.
    Read,
    /// That nobody else reads or changes it.
    Write,
}

/// An entry; the stamp tells it from later ones at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    index: u32,
    stamp: u32,
}

impl EntryId {
    /// No entry has this id.
    pub(crate) const NONE: Self = Self {
        index: NOBODY,
        stamp: 0,
    };
}

/// What adding a row to an entry came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Alone,
    /// Another member of the same entry has it already, and one of the two writes.
    Clashes,
}

/// There is no memory for one more intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntentsFull;

/// All intents of a shard. `H` is what an entry holds for its owner.
pub(crate) struct Intents<H> {
    /// Of rows that somebody wants; found by the row's hash, which each node keeps.
    queues: HashTable<Queue, Heap>,
    /// How many of these rows have a hash that ends like this: most rows that nobody wants are known
    /// by one look here.
    filter: Box<[u32; FILTER_PLACES]>,
    whole: Queue,
    nodes: Vec<Node, Heap>,
    free_node: u32,
    entries: Vec<Entry<H>, Heap>,
    free_entry: u32,
    /// Entries granted since they were last taken.
    granted: VecDeque<u32>,
    standing: usize,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    key: RowKey,
    head: u32,
    tail: u32,
    writers: u32,
}

impl Queue {
    const fn empty(key: RowKey) -> Self {
        Self {
            key,
            head: NOBODY,
            tail: NOBODY,
            writers: 0,
        }
    }
}

/// An entry's place in one queue.
struct Node {
    /// `None` for the shard as a whole.
    key: Option<RowKey>,
    hash: u64,
    mode: Mode,
    waits: bool,
    entry: u32,
    /// Which transaction of the entry wants it.
    member: u16,
    next: u32,
    previous: u32,
    /// The entry's next node, or the next free one.
    sibling: u32,
}

struct Entry<H> {
    stamp: u32,
    nodes: u32,
    /// Queues in which it waits, and one more while it is being written.
    waits: u32,
    holder: Option<H>,
    next_free: u32,
}

impl<H> Intents<H> {
    pub(crate) fn new(heap: &Heap) -> Self {
        Self {
            queues: HashTable::new_in(heap.clone()),
            filter: Box::new([0; FILTER_PLACES]),
            whole: Queue::empty(RowKey { table: 0, row: 0 }),
            nodes: Vec::new_in(heap.clone()),
            free_node: NOBODY,
            entries: Vec::new_in(heap.clone()),
            free_entry: NOBODY,
            granted: VecDeque::new(),
            standing: 0,
        }
    }

    /// Whether no intent stands: then nothing in the shard can conflict.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.standing == 0
    }

    /// Entries that stand.
    pub(crate) fn standing(&self) -> usize {
        self.standing
    }

    /// Whether somebody else's intent is in the way of changing a row.
    #[inline]
    pub(crate) fn bars_write(&self, key: Option<RowKey>) -> bool {
        let is_wanted =
            |key: RowKey| self.filter[place_of(key.hash())] > 0 && self.queue(key).is_some();
        self.whole.writers > 0 || key.is_some_and(is_wanted)
    }

    /// Whether somebody has the intent to change a row.
    #[inline]
    pub(crate) fn is_about_to_change(&self, key: RowKey) -> bool {
        !self.is_empty() && self.queue(key).is_some_and(|queue| queue.writers > 0)
    }

    /// Whether somebody else's intent is in the way of having the shard alone.
    #[inline]
    pub(crate) fn bars_alone(&self) -> bool {
        self.whole.head != NOBODY
    }

    /// Begins an entry; it is granted at the earliest by [`seal`](Self::seal). `mode` is what it
    /// wants of the shard as a whole.
    pub(crate) fn begin(&mut self, mode: Mode) -> Result<EntryId, IntentsFull> {
        self.entries.try_reserve(1).map_err(|_| IntentsFull)?;
        self.nodes.try_reserve(1).map_err(|_| IntentsFull)?;
        let index = if self.free_entry == NOBODY {
            self.entries.push(Entry {
                stamp: 0,
                nodes: NOBODY,
                waits: 0,
                holder: None,
                next_free: NOBODY,
            });
            (self.entries.len() - 1) as u32
        } else {
            self.free_entry
        };
        let entry = &mut self.entries[index as usize];
        self.free_entry = entry.next_free;
        entry.next_free = NOBODY;
        entry.stamp = entry.stamp.wrapping_add(1);
        entry.waits = 1;
        let stamp = entry.stamp;
        self.standing += 1;
        let node = Node::new(None, 0, mode, index, 0);
        let Self {
            whole,
            nodes,
            free_node,
            entries,
            ..
        } = self;
        append(whole, nodes, free_node, &mut entries[index as usize], node);
        Ok(EntryId { index, stamp })
    }

    fn queue(&self, key: RowKey) -> Option<&Queue> {
        self.queues.find(key.hash(), |queue| queue.key == key)
    }

    /// Adds a row to an entry that is not sealed yet.
    pub(crate) fn add(
        &mut self,
        id: EntryId,
        key: RowKey,
        mode: Mode,
        member: u16,
    ) -> Result<Added, IntentsFull> {
        let rehash = |queue: &Queue| queue.key.hash();
        self.queues
            .try_reserve(1, rehash)
            .map_err(|_| IntentsFull)?;
        self.nodes.try_reserve(1).map_err(|_| IntentsFull)?;
        let Self {
            queues,
            filter,
            nodes,
            free_node,
            entries,
            ..
        } = self;
        let entry = &mut entries[id.index as usize];
        let hash = key.hash();
        let mut queue = queues
            .entry(hash, |queue| queue.key == key, rehash)
            .or_insert_with(|| {
                filter[place_of(hash)] += 1;
                Queue::empty(key)
            });
        let queue = queue.get_mut();
        // Nobody came after this entry, so its own node is the last one.
        let own = (queue.tail != NOBODY).then(|| &mut nodes[queue.tail as usize]);
        let Some(node) = own.filter(|node| node.entry == id.index) else {
            let node = Node::new(Some(key), hash, mode, id.index, member);
            append(queue, nodes, free_node, entry, node);
            return Ok(Added::Alone);
        };
        let writes = mode == Mode::Write || node.mode == Mode::Write;
        let clashes = writes && node.member != member;
        if mode == Mode::Write && node.mode == Mode::Read {
            node.mode = Mode::Write;
            queue.writers += 1;
            if !node.waits && queue.head != queue.tail {
                node.waits = true;
                entry.waits += 1;
            }
        }
        Ok(if clashes {
            Added::Clashes
        } else {
            Added::Alone
        })
    }

    /// Ends the writing of an entry, which is granted as soon as it waits nowhere.
    pub(crate) fn seal(&mut self, id: EntryId, holder: H) {
        self.entries[id.index as usize].holder = Some(holder);
        self.stop_waiting(id.index);
    }

    fn stop_waiting(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.waits -= 1;
        if entry.waits == 0 {
            self.granted.push_back(index);
        }
    }

    /// Whether somebody was granted since it was last asked.
    #[inline(always)]
    pub(crate) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// The next entry that was granted since the last call.
    pub(crate) fn next_granted(&mut self) -> Option<EntryId> {
        let index = self.granted.pop_front()?;
        let stamp = self.entries[index as usize].stamp;
        Some(EntryId { index, stamp })
    }

    /// What an entry holds; `None` if it was released.
    pub(crate) fn holder(&mut self, id: EntryId) -> Option<&mut H> {
        let entry = self.entries.get_mut(id.index as usize)?;
        (entry.stamp == id.stamp && entry.nodes != NOBODY)
            .then_some(entry.holder.as_mut())
            .flatten()
    }

    /// Whether an entry stands and is granted.
    pub(crate) fn is_granted(&self, id: EntryId) -> bool {
        self.entries.get(id.index as usize).is_some_and(|entry| {
            entry.stamp == id.stamp && entry.nodes != NOBODY && entry.waits == 0
        })
    }

    /// The rows that an entry waits for.
    pub(crate) fn waits_for(&self, id: EntryId) -> impl Iterator<Item = RowKey> {
        let entry = self.entries.get(id.index as usize);
        let mut at = entry
            .filter(|entry| entry.stamp == id.stamp)
            .map_or(NOBODY, |entry| entry.nodes);
        let nodes = std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.sibling;
            Some(node)
        });
        nodes.filter(|node| node.waits).filter_map(|node| node.key)
    }

    /// Whether an entry that stands covers a row.
    pub(crate) fn covers(&self, id: EntryId, key: RowKey, mode: Mode) -> bool {
        let mut at = self.queue(key).map_or(NOBODY, |queue| queue.head);
        while at != NOBODY {
            let node = &self.nodes[at as usize];
            if node.entry == id.index {
                return node.mode == Mode::Write || mode == Mode::Read;
            }
            at = node.next;
        }
        false
    }

    /// Removes an entry, and gives back what it held; those who waited for it may be granted now.
    pub(crate) fn release(&mut self, id: EntryId) -> Option<H> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.stamp != id.stamp || entry.nodes == NOBODY {
            return None;
        }
        let holder = entry.holder.take();
        let mut at = std::mem::replace(&mut entry.nodes, NOBODY);
        let was_granted = entry.waits == 0;
        entry.next_free = self.free_entry;
        self.free_entry = id.index;
        self.standing -= 1;
        if was_granted {
            self.granted.retain(|&granted| granted != id.index);
        }
        while at != NOBODY {
            let sibling = self.nodes[at as usize].sibling;
            self.leave(at);
            self.nodes[at as usize].sibling = self.free_node;
            self.free_node = at;
            at = sibling;
        }
        holder
    }

    /// Takes a node out of its queue.
    fn leave(&mut self, at: u32) {
        let Node {
            key,
            hash,
            mode,
            next,
            previous,
            ..
        } = self.nodes[at as usize];
        let head = match key {
            None => {
                unlink(&mut self.whole, &mut self.nodes, (previous, next), mode);
                self.whole.head
            }
            Some(key) => {
                let Ok(mut found) = self.queues.find_entry(hash, |queue| queue.key == key) else {
                    unreachable!("a node's queue is there")
                };
                let queue = found.get_mut();
                unlink(queue, &mut self.nodes, (previous, next), mode);
                let head = queue.head;
                if head == NOBODY {
                    found.remove();
                    self.filter[place_of(hash)] -= 1;
                }
                head
            }
        };
        self.advance(head);
    }

    /// Lets those at the head of a queue go on: one writer, or all readers before the next writer.
    fn advance(&mut self, mut head: u32) {
        let mut at = head;
        while at != NOBODY {
            let node = &mut self.nodes[at as usize];
            if node.mode == Mode::Write && at != head {
                return;
            }
            let (was_waiting, is_writer) = (node.waits, node.mode == Mode::Write);
            let (entry, next) = (node.entry, node.next);
            node.waits = false;
            if was_waiting {
                self.stop_waiting(entry);
            }
            if is_writer {
                if !mutant::is(Mutant::Overtaking) || self.entries[entry as usize].waits == 0 {
                    return;
                }
                head = next;
            }
            at = next;
        }
    }

    /// Every entry that stands.
    pub(crate) fn all(&self) -> impl Iterator<Item = EntryId> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.nodes != NOBODY)
            .map(|(index, entry)| EntryId {
                index: index as u32,
                stamp: entry.stamp,
            })
    }
}

/// The place in the filter.
#[inline(always)]
fn place_of(hash: u64) -> usize {
    hash as usize % FILTER_PLACES
}

impl RowKey {
    /// A node of globals, by the hash of its key.
    pub(crate) fn node(table: u32, hash: u64) -> Self {
        // One that is not the name of all is as good as the one that is.
        let row = hash.min(u64::MAX - 1);
        Self { table, row }
    }

    /// All nodes of globals: whoever changes one of them reads this, and whoever needs a range of them
    /// to stay as it is, or changes one, writes it.
    pub(crate) fn all(table: u32) -> Self {
        let row = u64::MAX;
        Self { table, row }
    }

    /// Mixed as the tables mix their keys.
    fn hash(self) -> u64 {
        hash(self.row ^ u64::from(self.table) << 40)
    }
}

impl Node {
    fn new(key: Option<RowKey>, hash: u64, mode: Mode, entry: u32, member: u16) -> Self {
        Self {
            key,
            hash,
            mode,
            waits: false,
            entry,
            member,
            next: NOBODY,
            previous: NOBODY,
            sibling: NOBODY,
        }
    }
}

/// Puts an entry's node at the end of a queue. There is room for it.
#[inline]
fn append<H>(
    queue: &mut Queue,
    nodes: &mut Vec<Node, Heap>,
    free_node: &mut u32,
    entry: &mut Entry<H>,
    mut node: Node,
) {
    node.waits = match node.mode {
        Mode::Read => queue.writers > 0,
        Mode::Write => queue.head != NOBODY,
    };
    node.previous = queue.tail;
    node.sibling = entry.nodes;
    entry.waits += u32::from(node.waits);
    queue.writers += u32::from(node.mode == Mode::Write);
    let at = match *free_node {
        NOBODY => {
            nodes.push(node);
            (nodes.len() - 1) as u32
        }
        at => {
            *free_node = nodes[at as usize].sibling;
            nodes[at as usize] = node;
            at
        }
    };
    entry.nodes = at;
    match queue.tail {
        NOBODY => queue.head = at,
        tail => nodes[tail as usize].next = at,
    }
    queue.tail = at;
}

/// Takes the node between two others out of its queue.
#[inline]
fn unlink(
    queue: &mut Queue,
    nodes: &mut Vec<Node, Heap>,
    (previous, next): (u32, u32),
    mode: Mode,
) {
    match previous {
        NOBODY => queue.head = next,
        previous => nodes[previous as usize].next = next,
    }
    match next {
        NOBODY => queue.tail = previous,
        next => nodes[next as usize].previous = previous,
    }
    queue.writers -= u32::from(mode == Mode::Write);
}
