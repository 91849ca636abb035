//! One file a subcommand, and what they share.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod extract;
mod format;
pub(crate) mod load;
mod progress;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod salvage;
pub(crate) mod stat;
mod time;
pub(crate) mod topology;

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use ancile::Engine;
use anyhow::{Context, Result};

/// How a command ended that did what it was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Good,
    /// Something is not as it should be, and was told.
    Found,
}

/// Opens a database for reading only.
fn open_for_reading(path: &Path) -> Result<Engine> {
    let settings = Engine::builder().read_only(true).pin(false);
    Ok(settings.open(path)?)
}

/// Writes to standard output; a reader who has seen enough is no fault.
fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output could not be written"),
    }
}
