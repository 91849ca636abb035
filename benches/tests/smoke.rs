//! Every bench at smoke size: the workload code of the full runs, every answer compared with a model.

use ancile_benches::{completedb, latency, peers_bench, persist, threeen1};
use clap::Parser;

#[derive(Debug, Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    options: A,
}

#[test]
fn every_cell_of_completedb_agrees_with_the_model() {
    let line = Line::<completedb::Options>::parse_from(["completedb", "--smoke"]);
    completedb::run(&line.options).unwrap();
}

#[test]
fn single_calls_of_completedb_agree_with_the_model() {
    let words = ["completedb", "--smoke", "--batch", "1", "--remote", "90"];
    let line = Line::<completedb::Options>::parse_from(words);
    completedb::run(&line.options).unwrap();
}

#[test]
fn every_peer_agrees_with_the_model() {
    let line = Line::<peers_bench::Options>::parse_from(["peers", "--smoke"]);
    peers_bench::run(&line.options).unwrap();
}

#[test]
fn every_call_whose_latency_is_told_is_answered() {
    let line = Line::<latency::Options>::parse_from(["latency", "--smoke"]);
    latency::run(&line.options).unwrap();
}

#[test]
fn every_phone_book_holds_and_gives_back_what_was_stored() {
    let line = Line::<persist::Options>::parse_from(["persist", "--smoke"]);
    persist::run(&line.options).unwrap();
}

#[test]
fn every_store_agrees_with_the_oracle_of_threeen1_at_every_durability() {
    for durability in ["none", "process", "epoch", "commit"] {
        threeen1_agrees(&["--durability", durability]);
    }
}

#[test]
fn every_store_agrees_with_the_oracle_of_threeen1_in_transactions_of_a_path() {
    for durability in ["none", "process", "epoch", "commit"] {
        threeen1_agrees(&["--durability", durability, "--transaction", "path"]);
    }
}

#[test]
fn every_store_agrees_with_the_oracle_of_threeen1_on_plain_digits() {
    threeen1_agrees(&["--plain", "--epoch-seconds", "0.002"]);
}

/// At smoke size: 1..10, 1..1,000 and 7..1,000; to 30 where commits wait for the disk.
fn threeen1_agrees(words: &[&str]) {
    let start = ["threeen1", "--smoke"];
    let line = Line::<threeen1::Options>::parse_from(start.iter().chain(words));
    threeen1::run(&line.options).unwrap();
}

#[test]
fn every_database_that_was_closed_or_killed_is_found_whole() {
    // It opens itself in other processes, so it is run as a program.
    let bench = std::process::Command::new(env!("CARGO_BIN_EXE_ancile-bench"))
        .args(["reopen", "--smoke"])
        .output()
        .unwrap();
    assert!(bench.status.success(), "{bench:?}");
}
