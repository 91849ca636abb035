//! What a shard keeps of transactions in an arena that lives in a file, so that a crash leaves each
//! of them whole.
//!
//! # Proposals
//! A shard that has checked its part of a proposal *prepares* it: what is to be done goes into an
//! extent of its own before the proposal goes on. The last shard notes the decision in the same scope
//! in which it applies its own part. Whoever opens the database after a crash asks, for each part that
//! is prepared and not yet applied, whether the shard that decides has decided; what it has not, never
//! happens. What is found is complete: a message is sent after what it tells is in the sender's file.
//!
//! ```text
//! prepared | ticket 8 | decider 4, operations 4 | cells 8 | operation 24 x n | cells 8 x n |
//! operation | serial 4, member 2, code 2 | slot 4, spot 4 | start 4, count 4, or direct id 8 |
//! decided  | generation 4, members that committed 4 |  x 512, one for each ticket of a shard
//! reserved | serial 8 | direct id 8 |  x 256
//! ```
//! A *ticket* names a proposal under way: the shard where its way begins, a number, and how often the
//! number was given out. It is given back when the proposal is home, so a decision is overwritten only
//! when nobody asks for it any more. For the same reason whoever opens the database forgets the
//! decisions only when every shard has followed them ([`resolve`]).
//!
//! # Places
//! Slots that clients have reserved are listed, so that they are free again when their client is gone
//! with the process. An entry whose slot has become a row, or was given back, says nothing.

#![expect(unsafe_code, reason = "records lie in arena memory")]

mod resolve;

use std::collections::VecDeque;
use std::ptr::NonNull;

use hashbrown::HashMap;

use super::Shard;
use crate::arena::mutant::{self, Mutant};
use crate::arena::{Extent, ExtentKind, ExtentUse};
use crate::error::{ArenaFull, Result};
use crate::id::{DirectId, ShardIndex};
use crate::limits::PAGE_BYTES;
use crate::transaction::{Action, Baton, Part, Spot, Target, Ticket, node};
pub(crate) use resolve::Decisions;
use resolve::Remains;

/// Decisions of one extent.
const DECIDED: u32 = (PAGE_BYTES / size_of::<u64>()) as u32;

/// Places of one extent.
const RESERVED: usize = if cfg!(test) {
    4
} else {
    PAGE_BYTES / (2 * size_of::<u64>())
};

const HEAD_WORDS: usize = 3;
const OPERATION_WORDS: usize = 3;

/// Before-images of setting a node, or of removing a subtree beside its pages.
const NODE_BYTES: usize = 2 << 10;

/// A part so large that it is applied in several scopes.
const LARGE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 512 << 10 };

/// What an operation comes down to, once it was checked.
const NOTHING: u64 = 0;
const REPLACE: u64 = 1;
const SET: u64 = 2;
const DELETE: u64 = 3;
const SET_NODE: u64 = 4;
const KILL: u64 = 5;

const SPOT_FOUND: u64 = 1;
const SPOT_RESERVED: u64 = 2;
/// A node of globals, or a subtree.
const SPOT_NODE: u64 = 3;

/// The lists of one shard.
#[derive(Default)]
pub(super) struct Kept {
    /// How often each ticket was given out.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Where the decisions about another shard's tickets are.
    decided: HashMap<(ShardIndex, u32), NonNull<u64>>,
    /// The list of reserved places in use, and how many it has.
    reserved: Option<(Extent, usize)>,
    /// Full lists, of which a place was still waited for when they were last looked at.
    waiting: VecDeque<Extent>,
    remains: Remains,
}

impl Shard {
    /// Whether a part is better applied in several scopes.
    pub(super) fn is_large(&mut self, part: &Part) -> bool {
        if !self.catalog.arena().is_logged() {
            return false;
        }
        let mut bytes = 0;
        for operation in part.operations.iter().filter(|one| one.action.changes()) {
            if let Ok((table, _)) = self.catalog.table(operation.table) {
                bytes += table.row_bytes() + 256;
            } else if let Ok((table, _)) = self.catalog.records(operation.table) {
                bytes += table.record_bytes();
            } else if let Target::Node { start } | Target::Subtree { start } = operation.target {
                let node = node::read(&part.cells, start);
                bytes += NODE_BYTES + node.map_or(0, |node| 2 * node.value.len());
            }
        }
        bytes > LARGE_BYTES
    }

    /// Keeps what a proposal's part at hand is to do, before it goes on.
    pub(super) fn prepare_part(&mut self, baton: &mut Baton) -> Result<()> {
        if !self.catalog.arena().is_logged() || mutant::is(Mutant::PartsUnprepared) {
            return Ok(());
        }
        let ticket = match baton.ticket {
            Some(ticket) => ticket,
            None => self.kept.take_ticket(self.index),
        };
        baton.ticket = Some(ticket);
        let proposal = &mut **baton;
        let decider = proposal.parts.last().map_or(0, |part| part.shard);
        let part = &mut proposal.parts[proposal.step];
        let words = self.words_of(ticket, decider, part);
        let arena = self.catalog.arena();
        arena.prepare(0)?;
        let use_ = ExtentUse::new(0, ExtentKind::Prepared, 0);
        let extent = arena.allocate(size_of_val(&*words), use_)?;
        let address = arena.address(extent);
        // SAFETY: the extent is ours, and long enough for the words.
        unsafe {
            address
                .cast::<u64>()
                .copy_from_nonoverlapping(NonNull::from(&words[..]).cast(), words.len());
        }
        arena.fresh(address, size_of_val(&*words));
        part.kept = Some(extent);
        Ok(())
    }

    fn words_of(&mut self, ticket: Ticket, decider: ShardIndex, part: &Part) -> Vec<u64> {
        let Part {
            operations,
            cells,
            spots,
            ..
        } = part;
        let mut words =
            Vec::with_capacity(HEAD_WORDS + operations.len() * OPERATION_WORDS + cells.len());
        words.push(ticket.to_word());
        words.push((decider as u64) << 32 | operations.len() as u64);
        words.push(cells.len() as u64);
        for (operation, &spot) in operations.iter().zip(spots) {
            let (spot, slot) = match spot {
                Spot::Nowhere => (0, 0),
                Spot::Found(slot) => (SPOT_FOUND, slot),
                Spot::Reserved(slot) => (SPOT_RESERVED, slot),
            };
            let is_node = matches!(
                operation.target,
                Target::Node { .. } | Target::Subtree { .. }
            );
            let (spot, slot) = if is_node {
                (SPOT_NODE, 0)
            } else {
                (spot, slot)
            };
            let (serial, id) = self.catalog.name_of(operation.table, slot);
            let (code, start, count) = match operation.action {
                Action::Check => (NOTHING, 0, 0),
                Action::Delete => match operation.target {
                    Target::Subtree { start } => (KILL, start, 0),
                    _ => (DELETE, 0, 0),
                },
                Action::Upsert { start } if is_node => (SET_NODE, start, 0),
                Action::Set { start, count } => (SET, start, count),
                Action::Update { start } | Action::Insert { start } | Action::Upsert { start } => {
                    (REPLACE, start, 0)
                }
            };
            words.push(u64::from(serial) | u64::from(operation.member) << 32 | code << 48);
            words.push(u64::from(slot) | spot << 32);
            words.push(if spot == SPOT_RESERVED {
                id.to_u64()
            } else {
                u64::from(start) | u64::from(count) << 32
            });
        }
        words.extend_from_slice(cells);
        words
    }

    /// Makes room for the decision about a proposal.
    pub(super) fn expect_decision(&mut self, ticket: Ticket) -> Result<(), ArenaFull> {
        let piece = (ticket.shard, ticket.number / DECIDED);
        if self.kept.decided.contains_key(&piece) {
            return Ok(());
        }
        let arena = self.catalog.arena();
        arena.prepare(0)?;
        let number = ((ticket.shard as u32) << 20) | (ticket.number / DECIDED);
        let extent = arena.allocate(PAGE_BYTES, ExtentUse::new(0, ExtentKind::Decided, number))?;
        let address = arena.address(extent);
        // SAFETY: the extent is a page of ours.
        unsafe { address.write_bytes(0, PAGE_BYTES) };
        arena.fresh(address, PAGE_BYTES);
        self.kept.decided.insert(piece, address.cast());
        Ok(())
    }

    /// Notes which members of a proposal are committed, in the scope that applies the decider's part.
    pub(super) fn note_decision(&mut self, baton: &Baton) {
        let Some(ticket) = baton.ticket else { return };
        if mutant::is(Mutant::DecisionUnnoted) {
            return;
        }
        let piece = (ticket.shard, ticket.number / DECIDED);
        let Some(&first) = self.kept.decided.get(&piece) else {
            return;
        };
        let members = baton
            .verdicts
            .iter()
            .enumerate()
            .filter(|(_, verdict)| verdict.is_committed())
            .fold(0_u32, |members, (member, _)| members | 1 << member);
        // SAFETY: the piece has a word for each ticket of its range.
        let word = unsafe { first.add((ticket.number % DECIDED) as usize) };
        self.catalog.arena().before(word.cast(), size_of::<u64>());
        // SAFETY: as above.
        unsafe { word.write(u64::from(ticket.generation) | u64::from(members) << 32) };
    }

    /// Notes that a part is applied, or never will be.
    pub(super) fn forget_part(&mut self, kept: Option<Extent>) {
        if let Some(extent) = kept {
            self.catalog.arena().release(extent);
        }
    }

    /// Notes a place that a client has reserved.
    pub(super) fn note_reserved(&mut self, serial: u32, id: DirectId) -> Result<(), ArenaFull> {
        if !self.catalog.arena().is_logged() || mutant::is(Mutant::PlacesUnnoted) {
            return Ok(());
        }
        let (extent, used) = match self.kept.reserved {
            Some((extent, used)) if used < RESERVED => (extent, used),
            _ => (self.next_list()?, 0),
        };
        let arena = self.catalog.arena();
        // SAFETY: `used` is below the entries of the extent.
        let entry = unsafe { arena.address(extent).cast::<[u64; 2]>().add(used) };
        arena.before(entry.cast(), size_of::<[u64; 2]>());
        // SAFETY: as above.
        unsafe { entry.write([u64::from(serial), id.to_u64()]) };
        self.kept.reserved = Some((extent, used + 1));
        Ok(())
    }

    /// An empty list of reserved places. The one that is full waits for its last place; of those that
    /// wait, two are looked at, so that they do not become more than the places that are reserved.
    fn next_list(&mut self) -> Result<Extent, ArenaFull> {
        let use_ = ExtentUse::new(0, ExtentKind::Reserved, 0);
        let arena = self.catalog.arena();
        let next = arena.allocate(PAGE_BYTES, use_)?;
        // SAFETY: the extent is a page of ours.
        unsafe { arena.address(next).write_bytes(0, PAGE_BYTES) };
        arena.fresh(arena.address(next), PAGE_BYTES);
        let full = self.kept.reserved.take();
        self.kept.waiting.extend(full.map(|(extent, _)| extent));
        for _ in 0..self.kept.waiting.len().min(2) {
            if let Some(list) = self.kept.waiting.pop_front() {
                if self.is_waited_for(list) {
                    self.kept.waiting.push_back(list);
                } else {
                    self.catalog.arena().release(list);
                }
            }
        }
        Ok(next)
    }

    /// Whether a place of a list is still reserved.
    fn is_waited_for(&mut self, list: Extent) -> bool {
        (0..RESERVED).any(|at| {
            let [serial, id] = self.reserved_place(list, at);
            self.catalog
                .by_serial(serial as u32)
                .is_some_and(|(table, _)| table.is_reserved(DirectId::from_u64(id)))
        })
    }

    /// An entry of a list of reserved places.
    fn reserved_place(&mut self, list: Extent, at: usize) -> [u64; 2] {
        debug_assert!(at < RESERVED);
        let first = self.catalog.arena().address(list).cast::<[u64; 2]>();
        // SAFETY: the extent has room for so many entries, and any bytes make numbers.
        unsafe { first.add(at).read() }
    }
}

impl Kept {
    fn take_ticket(&mut self, shard: ShardIndex) -> Ticket {
        let number = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        let generation = &mut self.generations[number as usize];
        *generation = generation.wrapping_add(1).max(1);
        Ticket {
            shard,
            number,
            generation: *generation,
        }
    }

    /// Takes a ticket back whose proposal is home.
    pub(super) fn give_back(&mut self, ticket: Ticket) {
        self.free.push(ticket.number);
    }
}
