//! Finds out how a machine is built and what a process may use of it, plans where the shards of a
//! shard-per-core program sit, pins their threads, and shows all of it.
//!
//! ```
//! use ancile_topology::{Machine, Plan, Policy};
//!
//! let machine = Machine::discover();
//! let plan = Plan::new(&machine, &Policy::from_env()?)?;
//! assert!(!plan.seats.is_empty() && plan.seats.len() <= machine.allowed_pus.len());
//! # Ok::<(), ancile_topology::PlanError>(())
//! ```
//!
//! # The way through
//! [`Machine`] is plain data, discovered once, before any thread is pinned. [`Policy`] says what
//! is wanted. [`Plan::new`] is a pure function of the two and gives every shard a [`Seat`]: a
//! logical processor (PU) and a NUMA node. [`pin_current_thread`] pins and reads back. A
//! [`Report`] shows machine, plan, restrictions and, where the engine fills it in, a
//! [`Verification`] of what was asked and what was got: as text, JSON or SVG.
//!
//! # Promises
//! - Discovery never fails, never panics, prints nothing, and leaves the affinity and the memory
//!   policy of the calling thread as they are.
//! - A default plan never puts two shards on a PU and never uses one that the process may not.
//! - Only the calling thread is ever pinned, and a pin counts when it was read back.
//!
//! # Several processes on one machine
//! Each plans for itself and would take the same PUs. Give each its own: [`Shards::Pus`], or
//! `taskset`, or a cgroup's cpuset.
//!
//! # Absent on purpose
//! Binding memory: the engine maps its arenas itself and binds them to the seat's node.

mod cgroup;
mod discover;
mod error;
mod files;
#[cfg(feature = "hwloc")]
mod hwloc;
mod machine;
mod memory;
mod pin;
mod plan;
mod policy;
mod report;
mod select;
mod set;
mod sysfs;
mod system;
mod xml;

pub use error::{MachineError, PinError, PlanError};
pub use machine::{
    Cache, Core, Counts, CpuKind, Machine, NumaNode, Package, Pu, Restriction, RestrictionKind,
    Source, SourceKind,
};
pub use pin::{current_affinity, current_pu, pin_current_thread, set_current_affinity};
pub use plan::{Plan, Seat};
pub use policy::{KindChoice, Order, Policy, SHARDS_VARIABLE, Shards};
pub use report::{NodePages, Report, ShardVerification, Verification};
pub use set::NumberSet;

/// The example of the readme is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
