//! `ancile stat`: what a database is, and what its files are used for.

use std::fmt::Write as _;
use std::path::PathBuf;

use ancile::{Engine, ShardSpace, TableSpace};
use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::format::{Layout, SchemaEntry};
use super::{Done, open_for_reading, print};

const LONG: &str = "\
Shows shards, format, tables with their schemas, rows, and the bytes of rows, texts and indexes; for \
each shard the bytes of its file, in use and free; and warnings. The database is opened for reading \
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
}

#[derive(Serialize)]
struct Table {
    table: String,
    rows: u64,
    rows_by_shard: Vec<u64>,
    row_bytes: u64,
    text_bytes: u64,
    index_bytes: u64,
    schema: SchemaEntry,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let engine = open_for_reading(&arguments.path)?;
    let report = Report::new(arguments.path.clone(), &engine)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.to_text()
    };
    print(&text)?;
    Ok(Done::Good)
}

impl Report {
    fn new(path: PathBuf, engine: &Engine) -> Result<Self> {
        let space = engine.space()?;
        let layouts = Layout::of_engine(engine, &[])?;
        let (major, minor) = Engine::FORMAT;
        Ok(Self {
            path,
            format: format!("{major}.{minor}"),
            shards: space.iter().map(Shard::new).collect(),
            tables: layouts
                .iter()
                .map(|layout| Table::new(layout, &space))
                .collect(),
            warnings: engine.warnings(),
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "{}: format {}, {} shards, {} tables\n\n",
            self.path.display(),
            self.format,
            self.shards.len(),
            self.tables.len()
        );
        let line = |shard: &str, file: &str, used: &str, free: &str| {
            format!("{shard:>5}  {file:>10}  {used:>10}  {free:>10}\n")
        };
        text += &line("shard", "file", "in use", "free");
        for shard in &self.shards {
            let [file, used, free] =
                [shard.file_bytes, shard.used_bytes, shard.free_bytes].map(bytes);
            text += &line(&shard.shard.to_string(), &file, &used, &free);
        }
        for table in &self.tables {
            table.write(&mut text);
        }
        for warning in &self.warnings {
            text += &format!("\nwarning: {warning}\n");
        }
        text
    }
}

impl Shard {
    fn new(space: &ShardSpace) -> Self {
        Self {
            shard: space.shard,
            file_bytes: space.file_bytes.unwrap_or(0),
            used_bytes: space.used_bytes,
            free_bytes: space.free_bytes,
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
