//! `ancile stat`: what a database is, and what its files are used for.

use std::fmt::Write as _;
use std::path::PathBuf;

use ancile::{Engine, JournalSpace, Journals, OpenError, ShardSpace, TableSpace, TreeShape};
use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::format::{Layout, SchemaEntry};
use super::rollback::ReachEntry;
use super::{Done, open_for_reading, print};

const LONG: &str = "\
Shows shards, format, tables with their schemas, rows, and the bytes of rows, texts and indexes; of globals, \
whose nodes are counted as rows, how they lie in their pages; for \
each shard the bytes of its files, in use and free; and warnings. Of databases with journals also: the \
epochs that they can go back to, the last checkpoint of each shard, and the bytes of images, journals and \
the past. The database is opened for reading \
only, and nobody may have it open for changes meanwhile.

Exit codes: 0 shown, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: PathBuf,
    format: String,
    /// What its files are: `mapped files` or `journals`.
    durability: &'static str,
    reach: Option<ReachEntry>,
    shards: Vec<Shard>,
    tables: Vec<Table>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Shard {
    shard: usize,
    file_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    journal: Option<Journal>,
}

#[derive(Serialize)]
struct Journal {
    checkpoint: u64,
    checkpoint_epoch: u64,
    image_bytes: u64,
    journal_bytes: u64,
    past_bytes: u64,
}

#[derive(Serialize)]
struct Table {
    table: String,
    rows: u64,
    rows_by_shard: Vec<u64>,
    row_bytes: u64,
    text_bytes: u64,
    index_bytes: u64,
    /// Of globals.
    tree: Option<Tree>,
    schema: SchemaEntry,
}

/// How globals lie in their pages, over all shards.
#[derive(Serialize)]
struct Tree {
    levels_max: u32,
    pages: u64,
    free_pages: u64,
    fill_percent: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let past = match Journals::read_only(&arguments.path) {
        Ok(journals) => Some(Past {
            reach: ReachEntry::new(&journals.reach()?, false),
            space: journals.space()?,
        }),
        Err(OpenError::NoJournals { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let engine = open_for_reading(&arguments.path)?;
    let report = Report::new(arguments.path.clone(), &engine, past)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.to_text()
    };
    print(&text)?;
    Ok(Done::Good)
}

/// What a database with journals is more.
struct Past {
    reach: ReachEntry,
    space: Vec<JournalSpace>,
}

impl Report {
    fn new(path: PathBuf, engine: &Engine, past: Option<Past>) -> Result<Self> {
        let space = engine.space()?;
        let layouts = Layout::of_engine(engine, &[])?;
        let (major, minor) = Engine::FORMAT;
        Ok(Self {
            path,
            format: format!("{major}.{minor}"),
            durability: match &past {
                None => "mapped files",
                Some(_) => "journals",
            },
            shards: space
                .iter()
                .map(|space| Shard::new(space, past.as_ref()))
                .collect(),
            reach: past.map(|past| past.reach),
            tables: layouts
                .iter()
                .map(|layout| Table::new(layout, &space))
                .collect(),
            warnings: engine.warnings(),
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "{}: format {}, {}, {} shards, {} tables\n",
            self.path.display(),
            self.format,
            self.durability,
            self.shards.len(),
            self.tables.len()
        );
        if let Some(reach) = &self.reach {
            text += &format!(
                "at the end of epoch {}; can go back to epoch {}\n",
                reach.newest, reach.oldest
            );
        }
        text += "\n";
        let line = |shard: &str, file: &str, used: &str, free: &str| {
            format!("{shard:>5}  {file:>10}  {used:>10}  {free:>10}\n")
        };
        text += &line("shard", "file", "in use", "free");
        for shard in &self.shards {
            let [file, used, free] =
                [shard.file_bytes, shard.used_bytes, shard.free_bytes].map(bytes);
            text += &line(&shard.shard.to_string(), &file, &used, &free);
        }
        text += &self.journals();
        for table in &self.tables {
            table.write(&mut text);
        }
        for warning in &self.warnings {
            text += &format!("\nwarning: {warning}\n");
        }
        text
    }
}

impl Report {
    /// A table of the journals, if there are any.
    fn journals(&self) -> String {
        let mut text = String::new();
        for shard in &self.shards {
            let Some(journal) = &shard.journal else {
                continue;
            };
            if text.is_empty() {
                text += "\nshard  checkpoint    of epoch       image     journal        past\n";
            }
            let [image, own, past] = [
                journal.image_bytes,
                journal.journal_bytes,
                journal.past_bytes,
            ]
            .map(bytes);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:>5}  {:>10}  {:>10}  {image:>10}  {own:>10}  {past:>10}",
                shard.shard, journal.checkpoint, journal.checkpoint_epoch
            );
        }
        text
    }
}

impl Shard {
    fn new(space: &ShardSpace, past: Option<&Past>) -> Self {
        let journal = past.and_then(|past| past.space.get(space.shard));
        let journal = journal.map(|space| Journal {
            checkpoint: space.checkpoint,
            checkpoint_epoch: space.checkpoint_epoch,
            image_bytes: space.image_bytes,
            journal_bytes: space.journal_bytes,
            past_bytes: space.past_bytes,
        });
        let own =
            |journal: &Journal| journal.image_bytes + journal.journal_bytes + journal.past_bytes;
        Self {
            shard: space.shard,
            file_bytes: space.file_bytes.or(journal.as_ref().map(own)).unwrap_or(0),
            used_bytes: space.used_bytes,
            free_bytes: space.free_bytes,
            journal,
        }
    }
}

impl Table {
    fn new(layout: &Layout, space: &[ShardSpace]) -> Self {
        let parts: Vec<&TableSpace> = space
            .iter()
            .flat_map(|shard| &shard.tables)
            .filter(|part| part.table == layout.table)
            .collect();
        let sum = |of: fn(&TableSpace) -> u64| parts.iter().map(|part| of(part)).sum();
        Self {
            table: layout.table.clone(),
            rows: sum(|part| part.rows),
            rows_by_shard: parts.iter().map(|part| part.rows).collect(),
            row_bytes: sum(|part| part.row_bytes),
            text_bytes: sum(|part| part.text_bytes),
            index_bytes: sum(|part| part.index_bytes),
            tree: Tree::new(&parts),
            schema: layout.schema_json(),
        }
    }

    fn write(&self, text: &mut String) {
        let (rows, texts) = (bytes(self.row_bytes), bytes(self.text_bytes));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\ntable {:?}: {} rows; rows {rows}, texts {texts}, indexes {}",
            self.table,
            self.rows,
            bytes(self.index_bytes)
        );
        let _ = match &self.schema {
            SchemaEntry::Globals { routing } => {
                let _ = writeln!(text, "  globals, routed by {routing}");
                self.tree.iter().try_for_each(|tree| {
                    writeln!(
                        text,
                        "  levels: {}; pages of 4 KiB: {}, of which {} are free; leaves about {} % full",
                        tree.levels_max, tree.pages, tree.free_pages, tree.fill_percent
                    )
                })
            }
            SchemaEntry::Rows { keyed, columns } => {
                let keyed = if *keyed { "keyed, " } else { "" };
                let columns = columns.iter().map(ToString::to_string);
                writeln!(
                    text,
                    "  {keyed}columns {}",
                    columns.collect::<Vec<_>>().join(", ")
                )
            }
            SchemaEntry::Records {
                fields,
                key,
                indexes,
            } => {
                for field in fields {
                    let _ = writeln!(text, "  field {field}");
                }
                for index in indexes {
                    let _ = writeln!(text, "  index {index}");
                }
                writeln!(text, "  key {}", key.join(", "))
            }
        };
    }
}

impl Tree {
    fn new(parts: &[&TableSpace]) -> Option<Self> {
        let trees = || parts.iter().filter_map(|part| part.tree.as_ref());
        // Parts with more pages tell more about all.
        let used = |tree: &TreeShape| tree.pages.saturating_sub(tree.free_pages);
        let weighted = trees().map(|tree| u64::from(tree.fill_percent) * used(tree));
        Some(Self {
            levels_max: trees().map(|tree| tree.levels).max()?,
            pages: trees().map(|tree| tree.pages).sum(),
            free_pages: trees().map(|tree| tree.free_pages).sum(),
            fill_percent: weighted.sum::<u64>() / trees().map(used).sum::<u64>().max(1),
        })
    }
}

/// A number of bytes, for people.
fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{number} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}
