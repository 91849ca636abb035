//! Looking at a database that is not trusted, without its engine: [`check()`] and [`Salvage`].
//!
//! Each shard's file is opened as a private copy, with whatever is wrong in it told; the tables' parts
//! that can be opened are, and what a crash has interrupted is brought to its end, as an engine would
//! do. All on the calling thread: nothing here is in a hurry.

mod check;
mod salvage;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use check::{CheckReport, CheckedTable, Finding, check, check_with};
pub use salvage::{Salvage, SalvageCount, SalvagedRow};

use super::directory::{Directory, Opening, StoredTable};
use super::journaled::Recovered;
use super::registry::Registry;
use crate::arena::{Access, Entry, Heap, MapOptions, Surveyed};
use crate::error::{Faults, OpenError};
use crate::id::ShardIndex;
use crate::limits::HEAP_BYTES;
use crate::shard::{Decisions, Mailbox, Shard, TableShape};

/// A database that is looked at.
struct Survey {
    /// The tables, those of unique indexes' entries among them, with what their shards know of them.
    tables: Vec<(StoredTable, TableShape)>,
    shards: Vec<SurveyedShard>,
    /// Held while the files are looked at.
    _directory: Directory,
}

/// A shard of a database that is looked at.
struct SurveyedShard {
    /// None, if its file could not be opened at all.
    shard: Option<Shard>,
    entries: Vec<Entry>,
    /// What is wrong with the file as a whole.
    faults: Faults,
    /// What is wrong with parts of tables that could not be opened: by the table's number.
    unsound: Vec<(usize, String)>,
}

impl Survey {
    /// Opens what there is, whatever is wrong with it; with what cannot be read at all.
    fn salvage(path: &Path) -> Result<(Self, Vec<Finding>), OpenError> {
        let directory = Self::directory(path)?;
        let (mut survey, journals) = if directory.has_journal() {
            let shards = directory.shards().unwrap_or(0);
            let (recovered, faults) = Recovered::rescue(&directory, shards);
            (Self::with(directory, Some(&recovered))?, faults)
        } else {
            (Self::of(directory)?, Vec::new())
        };
        let mut lost = Vec::new();
        let mut find = |shard, place: &str, what| {
            let (table, place) = (None, place.to_owned());
            lost.push(Finding {
                shard,
                table,
                place,
                what,
            });
        };
        for (shard, faults) in journals.into_iter().enumerate() {
            faults
                .into_iter()
                .for_each(|what| find(shard, "journal", what));
        }
        for (shard, surveyed) in survey.shards.iter_mut().enumerate() {
            if surveyed.shard.is_none() {
                let (faults, _) = std::mem::take(&mut surveyed.faults).into_parts();
                faults
                    .into_iter()
                    .for_each(|(place, what)| find(shard, &place, what));
            }
        }
        Ok((survey, lost))
    }

    /// The directory of a database, to be looked at.
    fn directory(path: &Path) -> Result<Directory, OpenError> {
        Directory::open(Opening {
            path: path.to_owned(),
            access: Access::Copy,
            is_salvage: true,
            has_journal: false,
            may_create: false,
            patience: Duration::ZERO,
        })
    }

    fn of(directory: Directory) -> Result<Self, OpenError> {
        let count = directory.shards().unwrap_or(0);
        let recovered = if directory.has_journal() {
            let map = MapOptions {
                bytes: 0,
                node: None,
                huge_pages: false,
            };
            Some(Recovered::look(&directory, &vec![map; count])?)
        } else {
            None
        };
        Self::with(directory, recovered.as_ref())
    }

    fn with(directory: Directory, recovered: Option<&Recovered>) -> Result<Self, OpenError> {
        let count = directory.shards().unwrap_or(0);
        let stored = directory.tables();
        let names = stored.iter().map(|table| (&*table.name, &table.schema));
        let (_, keys) =
            Registry::of(names).map_err(|error| OpenError::Placement(error.to_string()))?;
        let shapes = stored.iter().zip(keys);
        let shapes: Vec<TableShape> = shapes.map(|(table, key)| table.shape(key)).collect();
        let mailboxes: Vec<Arc<Mailbox>> = (0..count).map(|_| Arc::new(Mailbox::new())).collect();
        let shards = (0..count)
            .map(|shard| {
                let surveyed = surveyed(&directory, recovered, shard);
                SurveyedShard::open(surveyed, shard, &shapes, &mailboxes)
            })
            .collect();
        let mut survey = Self {
            tables: stored.into_iter().zip(shapes).collect(),
            shards,
            _directory: directory,
        };
        survey.resolve();
        Ok(survey)
    }

    /// Brings transactions that a crash has interrupted to their end.
    fn resolve(&mut self) {
        let mut decisions = Decisions::new();
        for (index, surveyed) in self.shards.iter().enumerate() {
            for decision in surveyed.shard.iter().flat_map(Shard::decisions) {
                decisions.insert((index, decision.ticket), decision.members);
            }
        }
        for surveyed in &mut self.shards {
            if let Some(shard) = &mut surveyed.shard
                && let Err(reason) = shard.resolve(&decisions)
            {
                surveyed.faults.note("transactions", reason);
            }
        }
    }
}

/// What a shard's files hold.
fn surveyed(
    directory: &Directory,
    recovered: Option<&Recovered>,
    shard: ShardIndex,
) -> Result<Surveyed, String> {
    match recovered {
        None => directory
            .arena(shard)
            .survey()
            .map_err(|error| error.to_string()),
        Some(recovered) => {
            let memory = recovered.take(shard);
            let (arena, _) = memory.ok_or("nothing of its files can be read")?;
            arena.survey(directory.identity(shard))
        }
    }
}

impl SurveyedShard {
    fn open(
        surveyed: Result<Surveyed, String>,
        index: ShardIndex,
        tables: &[TableShape],
        mailboxes: &[Arc<Mailbox>],
    ) -> Self {
        match surveyed {
            Ok(surveyed) => Self::of(surveyed, index, tables, mailboxes),
            Err(error) => {
                let mut faults = Faults::default();
                faults.note("file", error);
                Self {
                    shard: None,
                    entries: Vec::new(),
                    faults,
                    unsound: Vec::new(),
                }
            }
        }
    }

    fn of(
        surveyed: Surveyed,
        index: ShardIndex,
        tables: &[TableShape],
        mailboxes: &[Arc<Mailbox>],
    ) -> Self {
        let Surveyed {
            arena,
            entries,
            mut faults,
        } = surveyed;
        let heap = Heap::new(None, HEAP_BYTES);
        let mut shard = Shard::new(index, mailboxes, Arc::new(|| 0), arena, &heap);
        let mut unsound = Vec::new();
        let (mut sound, mut left) = (Vec::new(), entries.clone());
        for (number, table) in tables.iter().enumerate() {
            match shard.catalog.try_open(table, index, &entries) {
                Ok(()) => sound.push(table.clone()),
                Err(reason) => {
                    // What is not understood is not given back as left over.
                    left.retain(|entry| !table.owns(entry));
                    unsound.push((number, reason));
                }
            }
        }
        if let Err(reason) = shard.open(&sound, left) {
            faults.note("transactions", reason);
        }
        Self {
            shard: Some(shard),
            entries,
            faults,
            unsound,
        }
    }
}
