//! `ancile salvage`: what is whole of a database that cannot be opened.

use std::path::PathBuf;

use ancile::{Salvage, TableSchema};
use anyhow::Result;
use clap::Args;

use super::Done;
use super::dump::{Sink, finish};
use super::format::{Extra, Format, Layout};

const LONG: &str = "\
Writes what is whole of a database as a dump (jsonl, see `ancile dump --help`), which `ancile load` makes \
a new database from. It reads what is refused otherwise: databases that were open when the system went \
down, and damaged ones; nothing is changed. Indexes are not trusted: rows are taken from where they lie, \
and each must be whole in itself: its key belongs to its shard, no other row has it, and its texts lie \
where they should and name it. Nodes of globals are taken from the pages where they lie; a page is left out \
whole if anything in it does not fit, but for values. Rows of tables without keys, texts, and values of globals \
cannot tell whether they are whole; compare them with what you know.

Of a database with journals, shards whose journals are whole are taken as they were at the end of the same epoch; one whose journal is damaged as it was at the end of the last epoch before the damage, so that transactions over it and others may be there in part. Pages of images that do not have their checksums are left out.

What was left out is told on standard error: what of the files cannot be read, and how many rows, by table and reason.

Exit codes: 0 all is whole, 1 something was left out, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let mut salvage = Salvage::open(&arguments.path)?;
    let mut sink = Sink::new(arguments.output.as_ref(), Format::Jsonl)?;
    let mut told = String::new();
    for lost in salvage.lost() {
        told += &format!("shard {}: {}: {}\n", lost.shard, lost.place, lost.what);
    }
    let written = write_all(&mut salvage, &mut sink, &mut told);
    let rows = sink.rows;
    finish(written, sink)?;
    eprint!("{told}");
    eprintln!("{rows} rows saved");
    Ok(if told.is_empty() {
        Done::Good
    } else {
        Done::Found
    })
}

fn write_all(salvage: &mut Salvage, sink: &mut Sink, told: &mut String) -> Result<()> {
    for table in salvage.tables() {
        let layout = Layout::new(&table.name, &table.schema)?;
        sink.begin(&layout)?;
        let mut written = Ok(());
        let count = if layout.is_globals() {
            salvage.nodes(&table.name, |key, value| {
                if written.is_ok() {
                    written = sink.node(&layout, key, value);
                }
            })?
        } else {
            salvage.rows(&table.name, |row| {
                let extra = match (row.key, &table.schema) {
                    (Some(key), _) => Extra::Key(key.0),
                    (None, TableSchema::Rows(_)) => Extra::Id(row.id.to_u64()),
                    _ => Extra::Nothing,
                };
                if written.is_ok() {
                    written = sink.row(&layout, extra, &row.values);
                }
            })?
        };
        written?;
        for (why, count) in count.left_out {
            *told += &format!("table {:?}: left out: {why}: {count}\n", table.name);
        }
    }
    Ok(())
}
