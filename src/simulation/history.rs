//! What clients did and were told, as they themselves know it: the checker compares it with what the
//! shards did.
//!
//! Every value written is unique, so what was read tells whose it was. A *node* is one transaction, a
//! single operation, or a shipped closure. Moments are places in the list of what happened in all
//! shards ([`watch`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::id::hash;
use crate::table::watch::{self, RowName};

/// A row: its unique value, something that depends on it, and the value of the last change that wrote
/// all columns.
pub(super) type Cells = [u64; 3];

pub(super) fn row_of(value: u64) -> Cells {
    [value, hash(value), value]
}

/// The columns that a change of some columns sets.
pub(super) fn columns_of(value: u64) -> [(usize, u64); 2] {
    [(0, value), (1, hash(value))]
}

/// The unique value of a row that was read.
pub(super) fn value_of(cells: Cells) -> u64 {
    assert_eq!(cells[1], hash(cells[0]), "a row is torn: {cells:?}");
    cells[0]
}

/// What a node promises, and is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What it has read is current at its decision; if it only reads, when its reads are done.
    Serializable,
    /// Each read is current at its own moment; what it relies on, at its decision.
    ReadCommitted,
    /// Happens at one moment: a single change, or a shipped closure.
    Atomic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Told to have happened.
    Committed,
    /// Told not to have happened, or never asked for.
    Failed,
    /// Nobody was told.
    Unknown,
}

/// A read of a row, between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) row: RowName,
    pub(super) seen: Option<u64>,
    pub(super) from: usize,
    pub(super) to: usize,
    /// The node relies on it: it is current when the node happens.
    pub(super) is_relied_on: bool,
}

/// What a node makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Whether there was a row, if that is known.
    pub(super) was_there: Option<bool>,
    pub(super) value: Option<u64>,
    /// The third column: set by this node, or left as it was.
    pub(super) whole: Option<u64>,
    /// The direct id by which the row was found, if it was.
    pub(super) place: Option<u64>,
}

impl Write {
    /// Whether it is a change at all: not if a row came and went.
    pub(super) fn is_change(&self) -> bool {
        self.was_there != Some(false) || self.value.is_some()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) actor: u64,
    pub(super) kind: Kind,
    pub(super) fate: Fate,
    pub(super) begin: usize,
    /// Its begin and its answer in the order of all begins and answers.
    pub(super) turns: (u64, u64),
    /// When its own code was done: what it has read was read by then.
    pub(super) sent: usize,
    pub(super) end: usize,
    pub(super) reads: Vec<Read>,
    pub(super) writes: BTreeMap<RowName, Write>,
    /// Values of rows that it inserts, where it is not told the place.
    pub(super) placed: Vec<u64>,
}

/// All nodes, and what clients tell each other.
#[derive(Clone, Default)]
pub(super) struct Book {
    pub(super) nodes: RefCell<Vec<Node>>,
    next_value: Cell<u64>,
    next_turn: Cell<u64>,
}

impl Book {
    pub(super) fn new_value(&self) -> u64 {
        self.next_value.update(|next| next + 1);
        self.next_value.get()
    }

    pub(super) fn new_turn(&self) -> u64 {
        self.next_turn.update(|next| next + 1);
        self.next_turn.get()
    }

    /// Begins a node that ends untold unless it is told.
    pub(super) fn begin(&self, kind: Kind) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node {
            actor: watch::actor(),
            kind,
            fate: Fate::Unknown,
            begin: watch::moment(),
            turns: (self.new_turn(), u64::MAX),
            sent: usize::MAX,
            end: usize::MAX,
            reads: Vec::new(),
            writes: BTreeMap::new(),
            placed: Vec::new(),
        });
        nodes.len() - 1
    }

    /// Notes what a node has seen and wants.
    pub(super) fn send(&self, node: usize, draft: &Draft) {
        let node = &mut self.nodes.borrow_mut()[node];
        node.sent = watch::moment();
        node.reads.clone_from(&draft.reads);
        node.writes.clone_from(&draft.writes);
        node.placed.clone_from(&draft.placed);
    }

    /// Notes what a node was told.
    pub(super) fn end(&self, node: usize, fate: Fate) {
        let node = &mut self.nodes.borrow_mut()[node];
        node.fate = fate;
        node.turns.1 = self.new_turn();
        node.end = watch::moment();
    }

    /// A node that is begun, sent and answered.
    pub(super) fn note(&self, node: usize, draft: &Draft, fate: Fate) {
        self.send(node, draft);
        self.end(node, fate);
    }
}

/// A node as its client puts it together: what it has seen, and how it sees the rows itself.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) begin: usize,
    pub(super) reads: Vec<Read>,
    pub(super) writes: BTreeMap<RowName, Write>,
    pub(super) placed: Vec<u64>,
    /// What a serializable transaction must go on to see.
    first: BTreeMap<RowName, Option<u64>>,
}

impl Draft {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            begin: watch::moment(),
            reads: Vec::new(),
            writes: BTreeMap::new(),
            placed: Vec::new(),
            first: BTreeMap::new(),
        }
    }

    /// The row as changed by this node, if it was.
    pub(super) fn own(&self, row: RowName) -> Option<Option<u64>> {
        self.writes.get(&row).map(|write| write.value)
    }

    /// Notes that a row was read; it must be what the node itself made of it, and in serializable
    /// transactions what it was before.
    pub(super) fn saw(&mut self, row: RowName, seen: Option<u64>, from: usize) {
        let is_serializable = self.kind == Kind::Serializable;
        if let Some(own) = self.own(row) {
            assert_eq!(seen, own, "{row:?}: a node does not see its own change");
            return;
        }
        if let Some(&first) = self.first.get(&row) {
            assert_eq!(seen, first, "{row:?}: a second read differs");
            return;
        }
        if is_serializable {
            self.first.insert(row, seen);
        }
        self.reads.push(Read {
            row,
            seen,
            // It may have been read by an earlier verb, unseen by us.
            from: if is_serializable { self.begin } else { from },
            to: watch::moment(),
            is_relied_on: self.kind != Kind::ReadCommitted,
        });
    }

    /// Notes a value that must still be there when the node happens.
    pub(super) fn relies_on(&mut self, row: RowName, seen: u64, from: usize) {
        if self.kind == Kind::Serializable {
            // It relies on all that it has seen, and has seen this.
            return;
        }
        self.reads.push(Read {
            row,
            seen: Some(seen),
            from,
            to: watch::moment(),
            is_relied_on: true,
        });
    }

    /// Notes a change. `whole` if it wrote all columns.
    pub(super) fn made(&mut self, row: RowName, was_there: bool, value: Option<u64>, whole: bool) {
        let before = self.writes.get(&row).copied();
        if let Some(before) = before {
            assert_eq!(before.value.is_some(), was_there, "{row:?}: seen otherwise");
        }
        let whole = match (whole, before) {
            (true, _) => value,
            (false, Some(before)) => before.whole,
            (false, None) => None,
        };
        let was_there = before.map_or(Some(was_there), |before| before.was_there);
        let write = Write {
            was_there,
            value,
            whole,
            place: before.and_then(|before| before.place),
        };
        self.writes.insert(row, write);
    }

    /// Notes a change of a row of which it is not known whether it is there.
    pub(super) fn wants(
        &mut self,
        row: RowName,
        was_there: Option<bool>,
        value: Option<u64>,
        whole: bool,
    ) {
        let write = Write {
            was_there,
            value,
            whole: value.filter(|_| whole),
            place: None,
        };
        self.writes.insert(row, write);
    }

    /// Notes by which direct id a row was found that this node has just changed.
    pub(super) fn made_at(&mut self, row: RowName, place: u64) {
        if let Some(write) = self.writes.get_mut(&row) {
            write.place = Some(place);
        }
    }

    /// Notes that a verb found a row, or none, where it is known whether there is one.
    pub(super) fn found(&self, row: RowName, is_there: bool) {
        let known = self.own(row).or_else(|| self.first.get(&row).copied());
        if let Some(known) = known {
            assert_eq!(known.is_some(), is_there, "{row:?}: seen otherwise");
        }
    }
}
