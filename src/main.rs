//! The `ancile` command.
//!
//! Exit codes: 0 good, 1 something was found that should not be (`check`, `salvage`), 2 cannot (with
//! one line on stderr), or wrong usage.

mod command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use command::Done;

/// Allocator of the command; the library leaves that choice to the program.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A NUMA-aware, shard-per-core, embedded transactional database engine
#[derive(Parser)]
#[command(name = "ancile", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the machine, where shards would sit on it, and what restricts them
    Topology(command::topology::Arguments),
    /// Show what a database is, and what its files are used for
    Stat(command::stat::Arguments),
    /// Write all rows of a database as text
    Dump(command::dump::Arguments),
    /// Make a database from a dump, or add one to it
    Load(command::load::Arguments),
    /// Look whether a database is whole
    Check(command::check::Arguments),
    /// Write what is whole of a database that cannot be opened as text
    Salvage(command::salvage::Arguments),
    /// Bring what a crash has left of a database with journals to its end
    Recover(command::recover::Arguments),
    /// Take a database with journals back in time
    Rollback(command::rollback::Arguments),
    /// Write what the journals of a database hold as text
    Extract(command::extract::Arguments),
    /// Copy a database with journals, also while a process has it open
    Backup(command::backup::Arguments),
    /// Make a database from a backup
    Restore(command::restore::Arguments),
}

fn main() -> ExitCode {
    // Wrong usage ends here, with clap's message and exit code 2.
    let result = match Arguments::parse().command {
        Command::Topology(arguments) => command::topology::run(&arguments),
        Command::Stat(arguments) => command::stat::run(&arguments),
        Command::Dump(arguments) => command::dump::run(&arguments),
        Command::Load(arguments) => command::load::run(&arguments),
        Command::Check(arguments) => command::check::run(&arguments),
        Command::Salvage(arguments) => command::salvage::run(&arguments),
        Command::Recover(arguments) => command::recover::run(&arguments),
        Command::Rollback(arguments) => command::rollback::run(&arguments),
        Command::Extract(arguments) => command::extract::run(&arguments),
        Command::Backup(arguments) => command::backup::run(&arguments),
        Command::Restore(arguments) => command::restore::run(&arguments),
    };
    match result {
        Ok(Done::Good) => ExitCode::SUCCESS,
        Ok(Done::Found) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ancile: {}", told(&error));
            ExitCode::from(2)
        }
    }
}

/// An error with its causes, but for those that it names itself.
fn told(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |told, cause| {
        if told.contains(&cause) {
            told
        } else {
            format!("{told}: {cause}")
        }
    })
}
