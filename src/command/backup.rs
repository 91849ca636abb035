//! `ancile backup`: a copy of a database with journals, while it is in use.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::progress::{Progress, bytes_of};
use super::{Done, print};

const LONG: &str = "\
Copies the database in PATH into DIR, which is made for that: all that was durable when the command was \
started, transactions whole. While a process has the database open, that process makes the copy, as its \
own user and without stopping its work; this command asks it to, through the socket CONTROL in PATH, and \
tells how far it is. If nobody has it open this command opens it, as any program would. Databases with \
mapped files, which have no journals, are copied with cp when they are closed.

The copy is synced before this ends. One that was interrupted has no file MANIFEST, and is refused by \
`ancile restore`. A backup can be read where it lies (`ancile check`, `dump`, `stat`); it is restored \
before it is changed. The past that the database could go back to is not copied.

Exit codes: 0 copied, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// The backup's directory, which must not exist
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was copied.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) from: &'a PathBuf,
    pub(super) to: &'a PathBuf,
    pub(super) epoch: u64,
    pub(super) bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let mut progress = Progress::new("copied");
    let made = ancile::backup(&arguments.path, &arguments.dir, |done, all| {
        progress.tell(|| bytes_of(done, all));
    });
    drop(progress);
    let made = made?;
    let report = Report {
        from: &arguments.path,
        to: &arguments.dir,
        epoch: made.epoch,
        bytes: made.bytes,
    };
    print(&report.to_text(arguments.json)?)?;
    Ok(Done::Good)
}

impl Report<'_> {
    pub(super) fn to_text(&self, is_json: bool) -> Result<String> {
        if is_json {
            return Ok(serde_json::to_string_pretty(self)? + "\n");
        }
        Ok(format!(
            "{}: copied from {}, {} bytes, the end of epoch {}\n",
            self.to.display(),
            self.from.display(),
            self.bytes,
            self.epoch
        ))
    }
}
