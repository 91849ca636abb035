//! The C interface of Ancile.
//!
//! `include/ancile.h` is made of this source (`tests/header.rs`), its first page of `cbindgen.toml`;
//! `include/ancile.hpp` is a C++17 face of it, written by hand.
//!
//! # How it works
//! `handle` turns values into opaque pointers, and pointers that were given back into values, with a
//! tag before each that tells its kind. `status` is the one way into a function: it runs the body,
//! catches what panics, and turns each error into a status and a sentence. A `session` keeps its open
//! transaction, so that the same verbs work inside and outside of one. `rows`, `batches` and
//! `globals` are these verbs; `cells` is the row type of all tables, which borrows the caller's memory.
//!
//! # What is absent on purpose
//! Records, asynchronous sessions and code that runs inside shards: they are Rust's.

mod batches;
mod builder;
mod cells;
mod engine;
mod globals;
mod handle;
mod key;
mod order;
mod rows;
mod scan;
mod session;
mod status;
mod transaction;

pub use batches::*;
pub use builder::*;
pub use engine::*;
pub use globals::*;
pub use handle::{Bytes, ancile_bytes_free};
pub use key::*;
pub use order::*;
pub use rows::*;
pub use scan::*;
pub use session::*;
pub use status::*;
pub use transaction::*;
