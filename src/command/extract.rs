//! `ancile extract`: what the journals of a database hold.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use ancile::Journals;
use anyhow::{Context, Result};
use clap::Args;

use super::Done;
use super::progress::Progress;

const LONG: &str = "\
Writes the records of the journals as JSON lines, shard by shard, in the order in which they were made, \
from the oldest that is kept. A record is a range of a shard's memory that was changed:

  shard, epoch  where and when; `ancile rollback --list` tells when epochs ended
  first         whether a unit of change begins with it: what comes up to the next one happened together
  table, part   whose memory it is, and what it is used for: rows, index, texts, heads (a table's counts),
                free_rows, transactions, tables, memory (what memory is used for), unused
  row           of rows: the number of the place in the shard where the change begins
  offset        where in the shard's memory it is
  bytes         the new content, hexadecimal: of rows, 8 bytes of header, 8 of the key in tables with keys,
                and 8 a column, little-endian, from where the change begins

Whose memory it is, is told as of the last of the epochs that are asked for, or of the last checkpoint if \
that is later: a record of a table that was dropped before then names no table, or the one that was given \
its memory next. Nothing is changed; others may read meanwhile.

Exit codes: 0 written, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Only records of this epoch and later ones
    #[arg(long, value_name = "EPOCH", default_value_t = 0)]
    from: u64,
    /// Only records of this epoch and earlier ones
    #[arg(long, value_name = "EPOCH", default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let journals = Journals::read_only(&arguments.path)?;
    let out: Box<dyn Write> = match &arguments.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            Box::new(file.with_context(|| format!("{} could not be made", path.display()))?)
        }
    };
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let mut progress = Progress::new("records written");
    let mut written = Ok(());
    let mut records = 0_u64;
    journals.extract(arguments.from..=arguments.to, |record| {
        written = writeln!(out, "{record}");
        records += 1;
        progress.tell(|| records.to_string());
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    match written.and_then(|()| out.flush()) {
        // A reader who has seen enough is no fault.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the records could not be written")
        }
        _ => Ok(Done::Good),
    }
}
