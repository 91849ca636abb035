//! The bench command: `ancile-bench completedb`, `sweep`, `peers`, `persist`, `threeen1` and more.

use std::process::ExitCode;

use ancile_benches::failure::Failure;
use ancile_benches::{
    completedb, durability, globals, indexes, latency, line, machine, memory, page, peers_bench,
    persist, reopen, sweep, threeen1, transactions,
};
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
    /// MIXED on 1, 2, 3 .. shards: rate, efficiency, and what an operation costs.
    Sweep(sweep::Options),
    /// One chunk of MIXED in each shard, to be run under callgrind by the sweep.
    #[command(hide = true)]
    Count(sweep::count::Options),
    /// The same workload on other stores, in turns with the engine.
    Peers(peers_bench::Options),
    /// A phone book in maps and stores, next to the figures published for Persist.
    Persist(persist::Options),
    /// One contestant's turn at the phone book, in a process of its own.
    #[command(hide = true)]
    PersistTurn(persist::turn::Options),
    /// The 3n+1 benchmark of GT.M; lines "first last streams block" from standard input.
    Threeen1(threeen1::Options),
    /// Rates of the ordered store's verbs, beside an ordered map and ordered stores.
    Globals(globals::Options),
    /// What an index of each kind costs, and what it finds.
    Indexes(indexes::Options),
    /// Bytes a row, and the longest insert while a table grows.
    Memory(memory::Options),
    /// Transactions over two shards, beside those that stay in one.
    Transactions(transactions::Options),
    /// What it costs that changes outlive the process, or the system.
    Durability(durability::Options),
    /// How long it takes to open a database again.
    Reopen(reopen::Options),
    /// A process that changes rows until it closes or is killed.
    #[command(hide = true)]
    ReopenChange(reopen::Change),
    /// Percentiles of single blocking calls.
    Latency(latency::Options),
    /// One page, and CSV, of what scripts/report has measured.
    Page(page::Options),
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
        Bench::Sweep(options) => sweep::run(&options),
        Bench::Count(options) => sweep::count::run(&options),
        Bench::Peers(options) => peers_bench::run(&options),
        Bench::Persist(options) => persist::run(&options),
        Bench::PersistTurn(options) => persist::turn::run(&options),
        Bench::Threeen1(options) => threeen1::run(&options),
        Bench::Globals(options) => globals::run(&options),
        Bench::Indexes(options) => indexes::run(&options),
        Bench::Memory(options) => memory::run(&options),
        Bench::Transactions(options) => transactions::run(&options),
        Bench::Durability(options) => durability::run(&options),
        Bench::Reopen(options) => reopen::run(&options),
        Bench::ReopenChange(options) => reopen::change(&options),
        Bench::Latency(options) => latency::run(&options),
        Bench::Page(options) => page::run(&options),
        Bench::Line { rounds } => {
            for _ in 0..rounds {
                println!("{}", machine::describe_line(line::round_trip().as_ref()));
            }
            Ok(())
        }
    }
}
