//! Whether a database is whole.

use std::path::Path;

use super::{Survey, SurveyedShard};
use crate::arena::ExtentKind;
use crate::engine::directory::Directory;
use crate::engine::journaled::disks;
use crate::engine::{TableSchema, entry_tables, indexed_table};
use crate::error::{Faults, OpenError};
use crate::id::{ShardIndex, TableKey, shard_of};
use crate::journal;
use crate::shard::TableShape;
use crate::table::{Shape, hash_of};

/// Something in a database's files that should not be so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The shard whose file it is in.
    pub shard: ShardIndex,
    /// The table, if it belongs to one.
    pub table: Option<String>,
    /// Where it is.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// What [`check`] has looked at, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Shards.
    pub shards: usize,
    /// The tables, by name.
    pub tables: Vec<CheckedTable>,
    /// What should not be so: of each table and shard at most a thousand.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more_findings: u64,
    /// What is not as it was left, but takes nothing away: it is there twice, or is brought in order when
    /// the database is opened next.
    pub harmless: Vec<Finding>,
    /// Extents of tables that are not there: left over from an interrupted creation or drop, and given
    /// back when the database is opened next. That is as it should be.
    pub leftovers: u64,
}

/// A table that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedTable {
    /// The table.
    pub table: String,
    /// Its rows, or records.
    pub rows: u64,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }

    /// Checks the files of a database with journals; gives the parts that they are.
    fn check_journals(
        &mut self,
        directory: &Directory,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<usize, OpenError> {
        if !directory.has_journal() {
            return Ok(0);
        }
        let disks = disks(directory, self.shards, false)?;
        let files = (0..self.shards).flat_map(|shard| directory.journal_files(shard));
        let bytes: u64 = files.map(|(_, bytes)| bytes).sum();
        let all = (bytes >> PART_SHIFT) as usize;
        let mut done = 0;
        let found = journal::check(&disks, &mut |bytes| {
            done += bytes;
            progress(((done >> PART_SHIFT) as usize).min(all), all);
        });
        let found = found.map_err(|error| OpenError::Recovery(error.to_string()))?;
        for finding in found {
            let list = match finding.is_harmless {
                true => &mut self.harmless,
                false => &mut self.findings,
            };
            if list.len() >= FILE_FINDINGS_MAX {
                self.more_findings += u64::from(!finding.is_harmless);
                continue;
            }
            list.push(Finding {
                shard: finding.shard,
                table: None,
                place: "journal".to_owned(),
                what: finding.text,
            });
        }
        Ok(all)
    }

    fn add(&mut self, shard: ShardIndex, table: Option<&str>, faults: Faults) {
        let (kept, more) = faults.into_parts();
        self.more_findings += more;
        self.findings
            .extend(kept.into_iter().map(|(place, what)| Finding {
                shard,
                table: table.map(str::to_owned),
                place,
                what,
            }));
    }
}

/// A MiB.
const PART_SHIFT: u32 = 20;
/// Findings about the files of journals that are kept.
const FILE_FINDINGS_MAX: usize = 1000;

/// Looks whether the database in a directory is whole: every extent, every slot, every key of every
/// index and every row in every index, every text; of databases with journals, also every page of the
/// images, every block of the journals, and what is kept of the past. Nothing is changed. An error means that nothing
/// could be looked at: it is no database, or in use.
///
/// What a crash has interrupted is brought to its end on a private copy first, as opening would do.
///
/// ```
/// use ancile::{Engine, Schema};
///
/// # let directory = std::env::temp_dir().join(format!("ancile-check-{}", std::process::id()));
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).open(&directory)?;
/// engine.create_table::<[u64; 2]>("accounts", Schema::cells(2).keyed())?;
/// engine.close()?;
/// assert!(ancile::check(&directory)?.is_whole());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenError> {
    check_with(path, |_, _| ())
}

/// As [`check`], and tells how many parts of how many are checked: tables in each shard, and, of
/// databases with journals, each MiB of their files before them.
pub fn check_with(
    path: impl AsRef<Path>,
    mut progress: impl FnMut(usize, usize),
) -> Result<CheckReport, OpenError> {
    let directory = Survey::directory(path.as_ref())?;
    let mut report = CheckReport {
        shards: directory.shards().unwrap_or(0),
        ..CheckReport::default()
    };
    let files = report.check_journals(&directory, &mut progress)?;
    let mut survey = match Survey::of(directory) {
        Ok(survey) => survey,
        // Why is among what was found.
        Err(OpenError::Recovery(_)) if !report.is_whole() => return Ok(report),
        Err(error) => return Err(error),
    };
    let count = survey.shards.len();
    let all = files + count * survey.tables.len();
    let mut rows = vec![0; survey.tables.len()];
    for (index, surveyed) in survey.shards.iter_mut().enumerate() {
        report.leftovers += surveyed.leftovers(survey.tables.iter().map(|(_, shape)| shape));
        report.add(index, None, std::mem::take(&mut surveyed.faults));
        for (number, (table, shape)) in survey.tables.iter().enumerate() {
            let mut faults = Faults::default();
            surveyed.check_extents(shape, &table.schema, &mut faults);
            let unsound = surveyed.unsound.iter().find(|(other, _)| *other == number);
            match (&surveyed.shard, unsound) {
                (_, Some((_, reason))) => faults.note("extents", reason),
                (Some(shard), None) => {
                    rows[number] += shard.catalog.check(shape.key, (index, count), &mut faults);
                }
                (None, None) => {}
            }
            report.add(index, Some(&shown(&table.name)), faults);
            progress(files + index * survey.tables.len() + number + 1, all);
        }
    }
    survey.check_uniques(&mut report);
    for ((table, _), rows) in survey.tables.iter().zip(rows) {
        if indexed_table(&table.name).is_none() {
            report.tables.push(CheckedTable {
                table: table.name.clone(),
                rows,
            });
        }
    }
    report
        .tables
        .sort_by(|one, other| one.table.cmp(&other.table));
    Ok(report)
}

/// The name of a table, for people: that of a unique index's entries has odd letters.
fn shown(name: &str) -> String {
    match indexed_table(name) {
        None => name.to_owned(),
        Some(table) => {
            let index = name.rsplit('\0').next().unwrap_or_default();
            format!("{table}, unique index {index}")
        }
    }
}

impl SurveyedShard {
    /// Extents of tables that are not there.
    fn leftovers<'a>(&self, tables: impl Iterator<Item = &'a TableShape> + Clone) -> u64 {
        let entries = self.entries.iter().filter(|entry| entry.use_.owner != 0);
        let orphans = entries.filter(|entry| !tables.clone().any(|table| table.owns(entry)));
        orphans.count() as u64
    }

    /// Tells of extents of kinds that such a table has not.
    fn check_extents(&self, shape: &TableShape, schema: &TableSchema, faults: &mut Faults) {
        let has_texts = matches!(schema, TableSchema::Records(_));
        for entry in self.entries.iter().filter(|entry| shape.owns(entry)) {
            let is_fit = match entry.use_.kind {
                ExtentKind::Part | ExtentKind::Slab | ExtentKind::FreeSlots => {
                    entry.use_.owner == shape.serial
                }
                ExtentKind::Segment => has_texts || shape.is_keyed(),
                ExtentKind::Text => has_texts && entry.use_.owner == shape.serial,
                ExtentKind::Links => has_texts && entry.use_.owner != shape.serial,
                ExtentKind::Tree => match schema {
                    TableSchema::Rows(_) => false,
                    TableSchema::Records(_) => entry.use_.owner != shape.serial,
                    TableSchema::Globals(_) => true,
                },
                _ => false,
            };
            if !is_fit {
                let place = format!("extent at {}", entry.extent.offset);
                let kind = entry.use_.kind;
                faults.note(
                    place,
                    format!("it is of a kind that the table has not: {kind:?}"),
                );
            }
        }
    }
}

impl Survey {
    fn key_of(&self, name: &str) -> Option<TableKey> {
        let mut tables = self.tables.iter();
        let (_, shape) = tables.find(|(table, _)| table.name == name)?;
        Some(shape.key)
    }

    /// Whether every record has its entry in every unique index, and every entry its record.
    fn check_uniques(&self, report: &mut CheckReport) {
        for (table, shape) in &self.tables {
            let TableSchema::Records(schema) = &table.schema else {
                continue;
            };
            for (unique, (name, entries)) in entry_tables(&table.name, schema).enumerate() {
                let Some(entries_key) = self.key_of(&name) else {
                    let mut faults = Faults::default();
                    faults.note("unique index", format!("{:?} is missing", shown(&name)));
                    report.add(0, Some(&table.name), faults);
                    continue;
                };
                let pair = Pair {
                    records: shape.key,
                    own: &Shape::new(schema),
                    unique,
                    entries: entries_key,
                    shape: &Shape::new(&entries),
                };
                // Where a part could not be opened, all of its records would be missing.
                if self
                    .shards
                    .iter()
                    .all(|shard| shard.has(pair.records) && shard.has(pair.entries))
                {
                    self.check_unique(&pair, &shown(&name), report);
                }
            }
        }
    }

    fn check_unique(&self, pair: &Pair<'_>, name: &str, report: &mut CheckReport) {
        let count = self.shards.len();
        let at = |index: ShardIndex, key: TableKey| {
            let shard = self.shards.get(index)?.shard.as_ref()?;
            shard.catalog.records_to_look_at(key)
        };
        for index in 0..count {
            let mut faults = Faults::default();
            if let Some((part, arena)) = at(index, pair.records) {
                part.unique_entries(arena, pair.unique, pair.shape, |slot, entry| {
                    let owner = shard_of(hash_of(&pair.shape.key, entry), count);
                    let has =
                        at(owner, pair.entries).is_some_and(|(part, arena)| part.has(arena, entry));
                    if !has {
                        faults.note(format!("record in slot {slot}"), "it has no entry");
                    }
                });
            }
            if let Some((part, arena)) = at(index, pair.entries) {
                part.indexed_keys(arena, pair.own, |slot, entry, key| {
                    let owner = shard_of(hash_of(&pair.own.key, key), count);
                    let has = at(owner, pair.records).is_some_and(|(part, arena)| {
                        part.has_entry(arena, key, pair.unique, (pair.shape, entry))
                    });
                    if !has {
                        faults.note(format!("entry in slot {slot}"), "it has no record");
                    }
                });
            }
            report.add(index, Some(name), faults);
        }
    }
}

impl SurveyedShard {
    fn has(&self, key: TableKey) -> bool {
        let shard = self.shard.as_ref();
        shard.is_some_and(|shard| shard.catalog.records_to_look_at(key).is_some())
    }
}

/// A table and one of its unique indexes.
struct Pair<'a> {
    records: TableKey,
    own: &'a Shape,
    unique: usize,
    entries: TableKey,
    shape: &'a Shape,
}
