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
//! when nobody asks for it any more.
//!
//! # Places
//! Slots that clients have reserved are listed, so that they are free again when their client is gone
//! with the process. An entry whose slot has become a row, or was given back, says nothing.

#![expect(unsafe_code, reason = "records lie in arena memory")]

use std::ptr::NonNull;

use hashbrown::HashMap;

use super::{Shard, TableShape};
use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::{ArenaFull, Result};
use crate::id::{DirectId, ShardIndex};
use crate::limits::PAGE_BYTES;
use crate::table::{Dynamic, RecordPart, TablePart, Together};
use crate::transaction::{Action, Baton, Part, Spot, Ticket};

/// Decisions of one extent.
const DECIDED: u32 = (PAGE_BYTES / size_of::<u64>()) as u32;

/// Places of one extent.
const RESERVED: usize = PAGE_BYTES / (2 * size_of::<u64>());

const HEAD_WORDS: usize = 3;
const OPERATION_WORDS: usize = 3;

/// A part so large that it is applied in several scopes.
const LARGE_BYTES: usize = 512 << 10;

/// What an operation comes down to, once it was checked.
const NOTHING: u64 = 0;
const REPLACE: u64 = 1;
const SET: u64 = 2;
const DELETE: u64 = 3;

const SPOT_FOUND: u64 = 1;
const SPOT_RESERVED: u64 = 2;

/// The lists of one shard.
#[derive(Default)]
pub(super) struct Kept {
    /// How often each ticket was given out.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Where the decisions about another shard's tickets are.
    decided: HashMap<(ShardIndex, u32), NonNull<u64>>,
    reserved: Option<(Extent, usize)>,
    remains: Remains,
}

/// The decisions of all shards: by the shard that decided and the ticket, a bit for each member that
/// committed.
pub(crate) type Decisions = HashMap<(ShardIndex, Ticket), u32>;

/// A decision, as an opened arena tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) ticket: Ticket,
    /// A bit for each member that committed.
    pub(crate) members: u32,
}

/// What an opened arena has of transactions.
#[derive(Default)]
struct Remains {
    prepared: Vec<Extent>,
    reserved: Vec<Extent>,
    others: Vec<Extent>,
    decisions: Vec<Decision>,
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
            }
        }
        bytes > LARGE_BYTES
    }

    /// Keeps what a proposal's part at hand is to do, before it goes on.
    pub(super) fn prepare_part(&mut self, baton: &mut Baton) -> Result<()> {
        if !self.catalog.arena().is_logged() {
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
            let (serial, id) = self.catalog.name_of(operation.table, slot);
            let (code, start, count) = match operation.action {
                Action::Check => (NOTHING, 0, 0),
                Action::Delete => (DELETE, 0, 0),
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
        let arena = self.catalog.arena();
        if !arena.is_logged() {
            return Ok(());
        }
        let (extent, used) = match self.kept.reserved {
            Some((extent, used)) if used < RESERVED => (extent, used),
            _ => {
                self.drop_stale_places();
                let arena = self.catalog.arena();
                let use_ = ExtentUse::new(0, ExtentKind::Reserved, 0);
                let extent = arena.allocate(PAGE_BYTES, use_)?;
                // SAFETY: the extent is a page of ours.
                unsafe { arena.address(extent).write_bytes(0, PAGE_BYTES) };
                arena.fresh(arena.address(extent), PAGE_BYTES);
                (extent, 0)
            }
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

    /// Closes the list of reserved places in use, or reuses it if none of its places is waited for.
    fn drop_stale_places(&mut self) {
        let Some((extent, used)) = self.kept.reserved.take() else {
            return;
        };
        let waits = (0..used).any(|at| {
            // SAFETY: entries below `used` were written.
            let [serial, id] = unsafe {
                self.catalog
                    .arena()
                    .address(extent)
                    .cast::<[u64; 2]>()
                    .add(at)
                    .read()
            };
            self.catalog
                .by_serial(serial as u32)
                .is_some_and(|(table, _)| table.is_reserved(DirectId::from_u64(id)))
        });
        if !waits {
            self.catalog.arena().release(extent);
        }
    }

    /// Takes the tables of an opened arena from its extents, and what it has of transactions, which
    /// [`resolve`](Self::resolve) brings to its end.
    pub(crate) fn open(
        &mut self,
        tables: &[TableShape],
        entries: Vec<Entry>,
    ) -> Result<(), String> {
        let own = self.catalog.open(tables, self.index, entries)?;
        self.kept.remains = self.find_remains(&own)?;
        Ok(())
    }

    /// The decisions that an opened arena has.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.kept.remains.decisions.clone()
    }

    /// Closes the file that the shard's arena lives in, if it does.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        let index = self.index;
        self.catalog
            .arena()
            .close()
            .map_err(|error| format!("the file of shard {index} could not be written: {error}"))
    }

    /// Waits until all that was done is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        let index = self.index;
        self.catalog
            .arena()
            .sync()
            .map_err(|error| format!("the file of shard {index} could not be written: {error}"))
    }

    fn find_remains(&mut self, entries: &[Entry]) -> Result<Remains, String> {
        let mut remains = Remains::default();
        for Entry { extent, use_ } in entries {
            match use_.kind {
                ExtentKind::Prepared => remains.prepared.push(*extent),
                ExtentKind::Reserved => remains.reserved.push(*extent),
                ExtentKind::Decided => {
                    remains.read_decisions(self.catalog.arena(), *extent, use_.number);
                    remains.others.push(*extent);
                }
                _ => return Err("an extent of the shard itself is of a table's kind".to_owned()),
            }
        }
        Ok(remains)
    }

    /// Brings to its end what a crash has interrupted, with the decisions of all shards; says how many
    /// parts were applied, and how many were taken back.
    pub(crate) fn resolve(&mut self, decisions: &Decisions) -> Result<(usize, usize), String> {
        let remains = std::mem::take(&mut self.kept.remains);
        let (mut applied, mut taken_back) = (0, 0);
        for &extent in &remains.prepared {
            let record = Prepared::read(self.catalog.arena(), extent)
                .ok_or("a prepared part of a transaction cannot be read")?;
            let members = decisions.get(&(record.decider, record.ticket)).copied();
            let members = members.unwrap_or(0);
            for operation in &record.operations {
                self.conclude_prepared(operation, &record.cells, members)?;
            }
            self.catalog.arena().release(extent);
            self.catalog.end_scope();
            if members == 0 {
                taken_back += 1;
            } else {
                applied += 1;
            }
        }
        for &extent in &remains.reserved {
            self.free_places(extent);
            self.catalog.arena().release(extent);
            self.catalog.end_scope();
        }
        for &extent in &remains.others {
            self.catalog.arena().release(extent);
        }
        self.catalog.end_scope();
        Ok((applied, taken_back))
    }

    fn conclude_prepared(
        &mut self,
        operation: &PreparedOperation,
        cells: &[u64],
        members: u32,
    ) -> Result<(), String> {
        let PreparedOperation { serial, member, .. } = *operation;
        let is_committed = member < 32 && members >> member & 1 == 1;
        // A table that was dropped since takes nothing.
        let concluded = if let Some((table, arena)) = self.catalog.by_serial(serial) {
            conclude_row(table, arena, operation, cells, is_committed)
        } else if let Some((table, arena)) = self.catalog.records_by_serial(serial) {
            conclude_record(table, arena, operation, cells, is_committed)
        } else {
            Some(())
        };
        concluded.ok_or("a prepared operation names what is not there")?;
        if self.catalog.arena().is_scope_long() {
            self.catalog.end_scope();
        }
        Ok(())
    }

    /// Gives back the places of a list, whose clients are gone.
    fn free_places(&mut self, extent: Extent) {
        for at in 0..RESERVED {
            // SAFETY: the extent has room for so many entries, and any bytes make numbers.
            let [serial, id] = unsafe {
                self.catalog
                    .arena()
                    .address(extent)
                    .cast::<[u64; 2]>()
                    .add(at)
                    .read()
            };
            if let Some((table, arena)) = self.catalog.by_serial(serial as u32) {
                table.cancel_place(arena, DirectId::from_u64(id));
            }
        }
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

impl Remains {
    fn read_decisions(&mut self, arena: &Arena, extent: Extent, number: u32) {
        let (shard, piece) = ((number >> 20) as usize, number & 0xf_ffff);
        for at in 0..DECIDED {
            // SAFETY: an extent has at least a page, and any bytes make numbers.
            let word = unsafe { arena.address(extent).cast::<u64>().add(at as usize).read() };
            if word != 0 {
                let ticket = Ticket {
                    shard,
                    number: piece * DECIDED + at,
                    generation: word as u32,
                };
                let members = (word >> 32) as u32;
                self.decisions.push(Decision { ticket, members });
            }
        }
    }
}

/// Brings an operation on a row to its end; what was done before the crash is done once. `None` if it
/// names what is not there.
fn conclude_row(
    table: &mut TablePart,
    arena: &mut Arena,
    operation: &PreparedOperation,
    cells: &[u64],
    is_committed: bool,
) -> Option<()> {
    let PreparedOperation {
        code,
        slot,
        spot,
        start,
        count,
        ..
    } = *operation;
    if spot == SPOT_RESERVED {
        match table.find_reserved(operation.id) {
            None => {}
            Some(place) if is_committed => table.confirm_row(arena, place),
            Some(place) => table.cancel_reserved(arena, place),
        }
        return Some(());
    }
    if spot != SPOT_FOUND || !is_committed {
        return Some(());
    }
    let place = (slot < table.slots_end()).then(|| table.place(slot))?;
    if !table.is_live(place) {
        return Some(());
    }
    let (start, count, columns) = (start as usize, count as usize, table.columns());
    match code {
        DELETE => table.delete(arena, place, &mut Together),
        REPLACE => {
            let row = cells.get(start..start + columns)?;
            table.update(arena, Dynamic(columns), place, &mut Together, |cells| {
                cells.copy_from_slice(row)
            });
        }
        SET => {
            let pairs = cells.get(start..start + 2 * count)?;
            if pairs.chunks_exact(2).any(|pair| pair[0] >= columns as u64) {
                return None;
            }
            table.update(arena, Dynamic(columns), place, &mut Together, |row| {
                for pair in pairs.chunks_exact(2) {
                    row[pair[0] as usize] = pair[1];
                }
            });
        }
        _ => {}
    }
    Some(())
}

/// As [`conclude_row`], of a record.
fn conclude_record(
    table: &mut RecordPart,
    arena: &mut Arena,
    operation: &PreparedOperation,
    cells: &[u64],
    is_committed: bool,
) -> Option<()> {
    let PreparedOperation {
        code,
        slot,
        spot,
        start,
        ..
    } = *operation;
    if spot == SPOT_RESERVED {
        match table.find_reserved(operation.id) {
            None => {}
            Some(place) if is_committed => table.confirm(arena, place),
            Some(place) => table.cancel(arena, place),
        }
        return Some(());
    }
    if spot != SPOT_FOUND {
        return Some(());
    }
    let place = (slot < table.slots_end()).then(|| table.place(slot))?;
    if !table.is_live(place) {
        return Some(());
    }
    match code {
        DELETE if is_committed => table.delete(arena, place, &mut Together),
        REPLACE => {
            let start = start as usize + 1;
            let prepared = cells.get(start..start + table.shape().cells)?;
            if is_committed {
                table.apply_update(arena, place, prepared);
            } else {
                table.abandon_update(arena, place, prepared);
            }
        }
        _ => {}
    }
    Some(())
}

/// A prepared part, as it was read.
struct Prepared {
    ticket: Ticket,
    decider: ShardIndex,
    operations: Vec<PreparedOperation>,
    cells: Vec<u64>,
}

struct PreparedOperation {
    serial: u32,
    member: u32,
    code: u64,
    slot: u32,
    spot: u64,
    start: u32,
    count: u32,
    /// Of a reserved slot.
    id: DirectId,
}

impl Prepared {
    fn read(arena: &Arena, extent: Extent) -> Option<Self> {
        let length = usize::try_from(extent.bytes).ok()? / size_of::<u64>();
        // SAFETY: the extent is in use for this record alone, and any bytes make numbers.
        let words =
            unsafe { std::slice::from_raw_parts(arena.address(extent).cast().as_ptr(), length) };
        let words: &[u64] = words;
        let (&[ticket, counts, cells], rest) = words.split_first_chunk::<HEAD_WORDS>()?;
        let operations = counts as u32 as usize;
        let (operations, rest) = rest.split_at_checked(operations.checked_mul(OPERATION_WORDS)?)?;
        let cells = rest.get(..usize::try_from(cells).ok()?)?;
        let operation = |words: &[u64]| PreparedOperation {
            serial: words[0] as u32,
            member: (words[0] >> 32) as u32 & 0xffff,
            code: words[0] >> 48,
            slot: words[1] as u32,
            spot: words[1] >> 32,
            start: words[2] as u32,
            count: (words[2] >> 32) as u32,
            id: DirectId::from_u64(words[2]),
        };
        Some(Self {
            ticket: Ticket::from_word(ticket),
            decider: (counts >> 32) as usize,
            operations: operations
                .chunks_exact(OPERATION_WORDS)
                .map(operation)
                .collect(),
            cells: cells.to_vec(),
        })
    }
}
