//! The `ancile` command.
//!
//! Exit codes: 0 good, 1 cannot (with one line on stderr), 2 wrong usage.

mod command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    // Wrong usage ends here, with clap's message and exit code 2.
    let result = match Arguments::parse().command {
        Command::Topology(arguments) => command::topology::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ancile: {error:#}");
            ExitCode::from(1)
        }
    }
}
