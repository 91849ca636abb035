//! The book of the engine: how it is built, what it promises, and how it is looked after.
//!
//! The tour is on the first page of this documentation ([`crate`]). The chapters:
//! - [`architecture`]: the rooms of the source, and the life of one insert.
//! - [`durability`]: what survives what.
//! - [`isolation`]: what transactions see of each other.
//! - [`operations`]: running it: containers, memory, sizes, who waits for whom, the command.
//! - [`limits`]: how much of everything there can be.
//! - [`format`](mod@format): the bytes on the disk.
//! - [`upgrades`]: versions of the format, of the crate and of the compiler.
//!
//! Its snippets are run, its commands too, and its names and numbers are compared with the source
//! (`tests/edges/book.rs`, and the tests of `src/limits.rs`).

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("durability.md")]
pub mod durability {}

#[doc = include_str!("isolation.md")]
pub mod isolation {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("limits.md")]
pub mod limits {}

#[doc = include_str!("format.md")]
pub mod format {}

#[doc = include_str!("upgrades.md")]
pub mod upgrades {}
