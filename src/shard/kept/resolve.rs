//! What an opened arena has of transactions that a crash has interrupted, brought to its end.
//!
//! Every step may itself be interrupted, and is then done again: what has happened already is told by
//! the generation of its slot. Decisions are forgotten last, when no shard asks for them any more.

#![expect(unsafe_code, reason = "records lie in arena memory")]

use hashbrown::HashMap;

use super::{
    DECIDED, DELETE, HEAD_WORDS, KILL, OPERATION_WORDS, REPLACE, RESERVED, SET, SET_NODE,
    SPOT_FOUND, SPOT_NODE, SPOT_RESERVED,
};
use crate::arena::mutant::{self, Mutant};
use crate::arena::{Arena, Entry, Extent, ExtentKind};
use crate::id::{DirectId, ShardIndex};
use crate::shard::nodes::kill;
use crate::shard::{Shard, TableShape};
use crate::table::{Dynamic, GlobalPart, RecordPart, TablePart, Together};
use crate::transaction::{Ticket, node};

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
pub(super) struct Remains {
    prepared: Vec<Extent>,
    reserved: Vec<Extent>,
    decided: Vec<Extent>,
    decisions: Vec<Decision>,
}

impl Shard {
    /// Takes the tables of an opened arena from its extents, and what it has of transactions, which
    /// [`resolve`](Self::resolve) brings to its end.
    pub(crate) fn open(
        &mut self,
        tables: &[TableShape],
        entries: Vec<Entry>,
    ) -> Result<(), String> {
        let own = self.catalog.open(tables, self.index, entries)?;
        self.find_noted_tables(&own);
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
        self.catalog.end_scope();
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
                    remains.decided.push(*extent);
                }
                ExtentKind::Tables => {}
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
                if self.catalog.arena().is_scope_long() {
                    self.catalog.end_scope();
                }
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
        self.kept.remains.decided = remains.decided;
        if mutant::is(Mutant::ForgottenTooSoon) {
            self.forget_decisions();
        }
        Ok((applied, taken_back))
    }

    /// Forgets the decisions of before, which every shard has followed.
    pub(crate) fn forget_decisions(&mut self) {
        let remains = std::mem::take(&mut self.kept.remains);
        for &extent in &remains.decided {
            self.catalog.arena().release_in_turn(extent);
        }
        self.catalog.end_scope();
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
        } else if let Some((globals, arena)) = self.catalog.globals_by_serial(serial) {
            conclude_node(globals, arena, operation, cells, is_committed)?
        } else {
            Some(())
        };
        concluded.ok_or("a prepared operation names what is not there")?;
        Ok(())
    }

    /// Gives back the places of a list, whose clients are gone.
    fn free_places(&mut self, list: Extent) {
        for at in 0..RESERVED {
            let [serial, id] = self.reserved_place(list, at);
            if let Some((table, arena)) = self.catalog.by_serial(serial as u32) {
                table.cancel_place(arena, DirectId::from_u64(id));
            }
        }
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
        let any = mutant::is(Mutant::GenerationsUnchecked) && slot < table.slots_end();
        let any = any.then(|| table.place(slot));
        let reserved = table.find_reserved(operation.id);
        match reserved.or(any.filter(|&place| !table.is_live(place))) {
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

/// As [`conclude_row`], of a node of globals, or a subtree. Doing all of a part once more comes to the
/// same.
fn conclude_node(
    globals: &mut GlobalPart,
    arena: &mut Arena,
    operation: &PreparedOperation,
    cells: &[u64],
    is_committed: bool,
) -> Result<Option<()>, String> {
    let PreparedOperation {
        code, spot, start, ..
    } = *operation;
    if spot != SPOT_NODE || !is_committed || !matches!(code, SET_NODE | KILL) {
        return Ok(Some(()));
    }
    let Some(node) = node::read(cells, start) else {
        return Ok(None);
    };
    let done = if code == KILL {
        kill(globals, arena, node)
    } else {
        globals.set(arena, node.key, node.value).map(drop)
    };
    done.map(Some).map_err(|error| error.to_string())
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
