//! Code that runs in a shard as one transaction.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::chain::Holder;
use super::request::Call;
use super::{Claim, Local, LocalGlobals, LocalRecords, LocalTree, Rows, Shard};
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId, TableKey};
use crate::table::{Dynamic, Globals, Image, Record, Records, Row, Table, write_row};
use crate::transaction::{Intents, RowKey};

/// What a closure shipped to a shard works with: the shard's tables, in one transaction.
///
/// The closure's changes are visible to others only when it has returned `Ok`; after an `Err` or a
/// panic none of them has happened. It runs to its end without interruption, so it should be short:
/// everybody else's work on this shard waits for it.
pub struct Context<'a> {
    shard: &'a mut Shard,
}

impl Context<'_> {
    /// The shard.
    pub fn shard(&self) -> ShardIndex {
        self.shard.index
    }

    /// The records of a table in this shard. Changes are part of the transaction.
    pub fn records<'a, R: Record>(
        &'a mut self,
        records: &'a Records<R>,
    ) -> Result<LocalRecords<'a, R>> {
        let Shard {
            catalog,
            undo,
            index,
            shards,
            ..
        } = &mut *self.shard;
        let table = records.key();
        let undo = Some((undo, table.index));
        let local = Local::new(catalog.records(table)?, undo, *index, *shards);
        Ok(LocalRecords::new(local, records))
    }

    /// Globals in this shard. Changes are part of the transaction: of each node that is changed, also by
    /// [`kill`](LocalGlobals::kill), what was there before is kept in memory until it ends.
    pub fn globals<'a>(&'a mut self, globals: &'a Globals) -> Result<LocalGlobals<'a>> {
        let Shard {
            catalog,
            undo,
            shards,
            ..
        } = &mut *self.shard;
        let table = globals.key();
        let undo = Some((undo, table.index));
        let tree = LocalTree::new(catalog.globals(table)?, undo);
        Ok(LocalGlobals::new(tree, globals, *shards))
    }

    pub(super) fn intents(&self) -> &Intents<Holder> {
        &self.shard.intents
    }

    /// Whether there is a node below a key, but for those of some subtrees.
    pub(crate) fn has_below(
        &mut self,
        table: TableKey,
        key: &[u8],
        without: &[&[u8]],
    ) -> Result<bool> {
        self.shard.has_below(table, key, without)
    }

    /// Globals in this shard; each change is a transaction of its own.
    pub(crate) fn tree(&mut self, table: TableKey) -> Result<LocalTree<'_>> {
        self.shard.tree(table)
    }

    /// The records of a table in this shard; each change is a transaction of its own.
    pub(crate) fn local(&mut self, table: TableKey) -> Result<Local<'_>> {
        self.shard.local(table)
    }

    /// The rows of a table in this shard. Changes are part of the transaction.
    pub fn rows<R: Row>(&mut self, table: &Table<R>) -> Result<Rows<'_, R>> {
        let Shard {
            catalog,
            undo,
            index,
            shards,
            ..
        } = &mut *self.shard;
        Rows::new(
            table,
            catalog.table(table.key())?,
            Some(undo),
            *index,
            *shards,
        )
    }
}

/// A row as a transaction has read it.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    /// The row's key, or its slot in a table without keys.
    pub(crate) number: u64,
    pub(crate) slot: u32,
    pub(crate) header: u64,
    pub(crate) cells: Box<[u64]>,
}

/// What a transaction has found when it looked for a row.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) row: Option<Fetched>,
    /// Nobody was about to change the row, so nothing was decided about it that was not to be seen yet.
    pub(crate) is_settled: bool,
}

impl Context<'_> {
    /// Reads rows, with what tells whether they have changed since.
    pub(crate) fn fetch<I: RowId>(&mut self, table: TableKey, ids: &[I]) -> Result<Vec<Sighting>> {
        let (part, _) = self.shard.catalog.table(table)?;
        let intents = &self.shard.intents;
        let fetch = |id: &I| {
            let place = part.find(*id);
            let row = place.map(|place| {
                let (slot, header) = part.version(place);
                Fetched {
                    number: part.number(place),
                    slot,
                    header,
                    cells: part.cells(Dynamic(part.columns()), place).into(),
                }
            });
            let number = match &row {
                Some(row) => Some(row.number),
                None if I::KEYED => Some(id.raw()),
                None => part.row_number(DirectId::from_u64(id.raw())),
            };
            let is_settled = number.is_none_or(|row| {
                let table = table.index;
                !intents.is_about_to_change(RowKey { table, row })
            });
            Sighting { row, is_settled }
        };
        Ok(ids.iter().map(fetch).collect())
    }

    /// Reads the record of a key, with what tells whether it has changed since.
    pub(crate) fn fetch_record(
        &mut self,
        table: TableKey,
        hash: u64,
        wanted: &[u64],
    ) -> Result<Sighting> {
        let (part, arena) = self.shard.catalog.records(table)?;
        let (wanted, _) = Image::split(wanted).ok_or(Error::KeyShape)?;
        let row = part.find(arena, hash, &wanted).map(|place| {
            let (slot, header) = part.version(place);
            let mut image = Vec::new();
            write_row(part.shape(), &part.values(arena, place), &mut image);
            Fetched {
                number: hash,
                slot,
                header,
                cells: image.into(),
            }
        });
        let key = RowKey {
            table: table.index,
            row: hash,
        };
        let is_settled = !self.shard.intents.is_about_to_change(key);
        Ok(Sighting { row, is_settled })
    }

    /// Reserves a place for a row of a table without keys.
    pub(crate) fn reserve_place(&mut self, table: TableKey) -> Result<DirectId> {
        let (part, arena) = self.shard.catalog.table(table)?;
        let id = part.reserve_place(arena)?;
        let serial = part.serial();
        if let Err(full) = self.shard.note_reserved(serial, id) {
            self.shard.cancel_place(table, id);
            return Err(full.into());
        }
        Ok(id)
    }

    /// Gives back a reserved place.
    pub(crate) fn cancel_place(&mut self, table: TableKey, id: DirectId) {
        self.shard.cancel_place(table, id);
    }
}

/// A closure on its way to a shard, and its result on the way back.
pub(crate) struct Shipped<F, T> {
    state: State<F, T>,
    reach: Reach,
}

/// What a closure touches, so that it waits for no more than it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anything in the shard.
    All,
    /// It only reads, and what it reads is each for itself.
    Reads,
    /// One row, by key or place.
    Key {
        table: TableKey,
        key: u64,
    },
    Place {
        table: TableKey,
        id: DirectId,
    },
    /// The record whose key has this hash.
    Record {
        table: TableKey,
        hash: u64,
    },
    /// The node of globals whose key has this hash.
    Node {
        table: TableKey,
        hash: u64,
    },
}

impl Reach {
    /// The reach of whoever changes one row.
    pub(crate) fn row<I: RowId>(table: TableKey, id: I) -> Self {
        let raw = id.raw();
        if I::KEYED {
            Self::Key { table, key: raw }
        } else {
            let id = DirectId::from_u64(raw);
            Self::Place { table, id }
        }
    }

    /// Asks the shard for it.
    pub(crate) fn claim(self, shard: &mut Shard) -> Claim {
        match self {
            Self::All => shard.claim_all(),
            Self::Reads => Ok(None),
            Self::Record { table, hash } => shard.claim_record(table, hash),
            Self::Node { table, hash } => shard.claim_node(table, hash),
            Self::Key { table, key } => shard.claim::<SurrogateId>(table, std::iter::once(key)),
            Self::Place { table, id } => {
                shard.claim::<DirectId>(table, std::iter::once(id.to_u64()))
            }
        }
    }
}

enum State<F, T> {
    Waiting(F),
    Running,
    Done(Result<T>),
}

impl<F, T, E> Shipped<F, Result<T, E>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E>,
{
    pub(crate) fn new(closure: F, reach: Reach) -> Self {
        Self {
            state: State::Waiting(closure),
            reach,
        }
    }

    /// What the closure returned, or that it panicked; once the call has run.
    pub(crate) fn into_result(self) -> Option<Result<Result<T, E>>> {
        match self.state {
            State::Done(result) => Some(result),
            State::Waiting(_) | State::Running => None,
        }
    }
}

impl<F, T, E> Call for Shipped<F, Result<T, E>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E>,
{
    fn claim(&self, shard: &mut Shard) -> Claim {
        self.reach.claim(shard)
    }

    fn run(&mut self, shard: &mut Shard) {
        if let State::Waiting(closure) = std::mem::replace(&mut self.state, State::Running) {
            self.state = State::Done(shard.transact(closure));
        }
    }
}

impl Shard {
    /// Gives back a reserved place.
    pub(crate) fn cancel_place(&mut self, table: TableKey, id: DirectId) {
        if let Ok((part, arena)) = self.catalog.table(table) {
            part.cancel_place(arena, id);
            part.end_scope(arena);
        }
    }

    /// Runs a closure as one transaction; an error of the outer kind is a panic of the closure.
    pub(crate) fn transact<T, E>(
        &mut self,
        closure: impl FnOnce(&mut Context<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            closure(&mut Context { shard: &mut *self })
        }));
        self.tally.closures += 1;
        let result = result.map_err(|payload| Error::Panicked {
            message: panic_message(payload),
        });
        let undone = match result {
            Ok(Ok(_)) => {
                self.undo.commit(&mut self.catalog);
                Ok(())
            }
            Ok(Err(_)) | Err(_) => self.undo.roll_back(&mut self.catalog),
        };
        self.catalog.end_scope();
        undone.and(result)
    }
}

/// The text of a panic. The payload may panic again when it is dropped; that ends with it.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let message = match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "of a type that is not text".to_owned(),
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    message
}
