//! `ancile restore`: a database from a backup.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::backup::Report;
use super::progress::{Progress, bytes_of};
use super::{Done, print};

const LONG: &str = "\
Copies the backup in DIR into PATH, which is made for that. Each file is compared with the length and the \
checksum that the backup lists; then the database is opened once, and checked as `ancile check` does. If \
anything is wrong, nothing is left in PATH. The backup stays as it is.

Exit codes: 0 restored and whole, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The backup's directory
    dir: PathBuf,
    /// The database's directory, which must not exist
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let mut progress = Progress::new("copied");
    let made = ancile::restore_with(&arguments.dir, &arguments.path, |done, all| {
        progress.tell(|| bytes_of(done, all));
    });
    drop(progress);
    let made = made?;
    let report = Report {
        from: &arguments.dir,
        to: &arguments.path,
        epoch: made.epoch,
        bytes: made.bytes,
    };
    print(&report.to_text(arguments.json)?)?;
    Ok(Done::Good)
}
