//! The bench command: `ancile-bench completedb`, `peers`, `line`, `memory`.

use std::process::ExitCode;

use ancile_benches::failure::Failure;
use ancile_benches::{completedb, latency, line, machine, memory, peers_bench};
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Benches of Ancile.
#[derive(Debug, Parser)]
#[command(name = "ancile-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The CompleteDB workload next to its published figures and the limit of this machine.
    Completedb(completedb::Options),
    /// The same workload on other stores, in turns with the engine.
    Peers(peers_bench::Options),
    /// Bytes a row, and the longest insert while a table grows.
    Memory(memory::Options),
    /// Percentiles of single blocking calls.
    Latency(latency::Options),
    /// The round trip of a cache line between two cores.
    Line {
        /// How many times to measure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ancile-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Completedb(options) => completedb::run(&options),
        Bench::Peers(options) => peers_bench::run(&options),
        Bench::Memory(options) => memory::run(&options),
        Bench::Latency(options) => latency::run(&options),
        Bench::Line { rounds } => {
            for _ in 0..rounds {
                println!("{}", machine::describe_line(line::round_trip().as_ref()));
            }
            Ok(())
        }
    }
}
