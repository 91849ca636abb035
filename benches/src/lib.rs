//! Benches of Ancile: the reference workloads, the limit of the hardware, and the peers.
//!
//! # How a figure comes about
//! Every subject (the engine, the hardware limit, a peer) stands behind [`subject::Subject`] and runs
//! the same [`workload`]: the same rows, the same ids in the same order, as many threads. Subjects
//! take turns in slices of a few milliseconds ([`rounds`]); a cell's figure is the median slice.
//! What is slow and not asked for (loading, emptying, first touch of memory) is never under the clock.
//!
//! # What a figure is worth
//! Every cell carries the machine it was made on ([`machine`]), the round trip of a cache line
//! between its cores ([`mod@line`]), and whether more threads than cores were running. Wrong answers end
//! the run. A debug build refuses to report.

pub mod columns;
pub mod completedb;
pub mod durability;
pub mod engine;
pub mod failure;
pub mod globals;
pub mod indexes;
pub mod latency;
pub mod limit;
pub mod line;
pub mod machine;
pub mod memory;
pub mod oracle;
pub mod page;
pub mod peers;
pub mod peers_bench;
pub mod persist;
pub mod random;
pub mod reference;
pub mod region;
pub mod reopen;
pub mod report;
pub mod rounds;
pub mod setup;
pub mod subject;
pub mod sweep;
pub mod team;
pub mod threeen1;
pub mod transactions;
pub mod workload;
