//! What the crate promises, tried on a collection of machines and under real restrictions.
//!
//! The collection and a small wrapper program lie beside the repository; where they are absent,
//! the tests that need them say so and pass.

mod collection;
mod copies;
mod files;
mod matrix;
mod plans;
mod process;
mod reports;
