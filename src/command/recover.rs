//! `ancile recover`: what a crash has left is brought to its end.

use std::path::PathBuf;

use ancile::Journals;
use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{Done, print};

const LONG: &str = "\
Opening a database does this by itself; the command is for those who want it done now, and for rollbacks \
that were interrupted. The journals are read from the last checkpoint on, transactions that were under way \
are brought to their end, and the database is closed, so that the next opening is quick. Databases with \
mapped files have no journals and need none of this.

Exit codes: 0 recovered, 2 cannot: no database, in use, or damaged (`ancile check` tells more).";

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
struct Report<'a> {
    path: &'a PathBuf,
    epoch: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let path = &arguments.path;
    let epoch = Journals::open(path)?.recover()?.epoch;
    let text = if arguments.json {
        serde_json::to_string_pretty(&Report { path, epoch })? + "\n"
    } else {
        format!(
            "{}: at the end of epoch {epoch}, and closed\n",
            path.display()
        )
    };
    print(&text)?;
    Ok(Done::Good)
}
