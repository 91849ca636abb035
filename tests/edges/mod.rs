//! Hard edges: what happens at the ends of lives, in small rings, in full memory, after panics and
//! with wrong handles. Each test's name is the claim.
//!
//! Nothing here asserts a time. What would hang is ended by a watchdog, which names the test.

mod altered;
mod asynchronous;
mod backup;
mod book;
mod brittle;
mod cancelled;
mod command;
mod compact;
mod cut_off;
mod damage;
mod database;
mod dump;
mod executor;
mod flood;
mod flushed;
mod forgotten;
mod forked;
mod full;
mod globals;
mod golden;
mod handle;
mod idle;
mod journaled;
mod journals;
mod kept;
mod kill;
mod life;
mod memory;
mod model;
mod ordered;
mod panic;
mod past;
mod policy;
mod power;
mod records;
mod rescued;
mod ruined;
mod salvage;
mod scan;
mod setting;
mod soak;
mod stats;
mod support;
mod transactions;
mod values;
mod woken;
