//! Every bench at smoke size: the workload code of the full runs, every answer compared with a model.

use ancile_benches::{completedb, peers_bench, persist};
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
fn every_phone_book_holds_and_gives_back_what_was_stored() {
    let line = Line::<persist::Options>::parse_from(["persist", "--smoke"]);
    persist::run(&line.options).unwrap();
}
