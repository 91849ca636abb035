//! The engine as programs use it: real threads, the public API, and nothing else.

mod edges;
