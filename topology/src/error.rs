//! Errors of discovery, planning and pinning: each `Display` is one sentence.

use std::path::PathBuf;

use crate::set::NumberSet;

/// Why a machine's description could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The file or directory cannot be read; check its path and rights.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The file is no XML; give one written by `lstopo --of xml FILE`.
    #[error("{} is not XML ({reason}); give a file written by `lstopo --of xml`", path.display())]
    NotXml {
        /// The path as given.
        path: PathBuf,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// The file is XML of something else; give one written by `lstopo --of xml FILE`.
    #[error("{} holds no topology (its root element is `{root}`); give a file written by `lstopo --of xml`", path.display())]
    NotTopology {
        /// The path as given.
        path: PathBuf,
        /// The name of the root element.
        root: String,
    },
    /// The file was written by hwloc 3 or later; write it again with hwloc 2.
    #[error("{} is hwloc XML version {version} and versions up to 2 can be read: write it again with `lstopo --of xml` of hwloc 2", path.display())]
    TooNew {
        /// The path as given.
        path: PathBuf,
        /// The version in the file.
        version: String,
    },
    /// The synthetic description is not understood; see the hwloc manual, "Synthetic topologies".
    #[error(
        "hwloc does not understand the description `{description}`: {reason}; an example is `pack:2 [numa(memory=49000000000)] core:4 pu:2`"
    )]
    BadSynthetic {
        /// The description as given.
        description: String,
        /// The library's reason.
        reason: String,
    },
    /// The directory or file holds no machine. A directory must contain `sys/devices/system/cpu`.
    #[error("{} holds no machine: {reason}", path.display())]
    NoMachine {
        /// The path as given.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The crate was built without the `hwloc` feature, which this input needs.
    #[error("{what} needs hwloc, and this program was built without it")]
    WithoutHwloc {
        /// The kind of input.
        what: &'static str,
    },
}

/// Why no plan could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The process may use no PU of the machine, so there is nothing to place on.
    #[error("no processor of this machine is allowed to this process (permitted: {permitted})")]
    NoAllowedPu {
        /// What the kernel would permit.
        permitted: NumberSet,
    },
    /// No shard was asked for; ask for at least one.
    #[error("a plan needs at least one shard")]
    NoShards,
    /// A listed PU does not exist here or is not permitted; list others.
    #[error("PU {pu} cannot be used by this process; it may use {permitted}")]
    PuNotPermitted {
        /// The PU that was listed.
        pu: u32,
        /// What may be listed.
        permitted: NumberSet,
    },
    /// A PU is listed twice; list each one once.
    #[error("PU {pu} is listed twice")]
    PuTwice {
        /// The PU that was listed.
        pu: u32,
    },
    /// The machine has no such kind of core, or no allowed PU of it.
    #[error("no allowed processor is of the kind `{kind}`; this machine has {kinds}")]
    NoSuchKind {
        /// The kind that was asked for.
        kind: String,
        /// The kinds there are.
        kinds: String,
    },
    /// A value of the environment or of an option cannot be read.
    #[error("{name} is `{value}`, but {expected}")]
    BadValue {
        /// The variable or option.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
}

/// Why a thread is not pinned. It goes on unpinned, with the affinity that it had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The system refused.
    #[error("cannot pin to PU {pu}: {reason} (errno {errno}); allowed: {allowed}")]
    Refused {
        /// The PU asked for.
        pu: u32,
        /// The thread's affinity.
        allowed: NumberSet,
        /// The system's error number.
        errno: i32,
        /// The system's reason.
        reason: String,
    },
    /// The system agreed, but the affinity that was read back is another one.
    #[error("asked for PU {pu}, but the thread may run on {got}")]
    NotInForce {
        /// The PU asked for.
        pu: u32,
        /// What was read back.
        got: NumberSet,
    },
    /// The plan is for another machine than this one.
    #[error(
        "the plan is for another machine ({source_detail}); threads are pinned on this one only"
    )]
    ForeignMachine {
        /// Where the planned machine came from.
        source_detail: String,
    },
    /// The plan has no such shard.
    #[error("the plan has {shards} shards and no shard {shard}")]
    NoSuchShard {
        /// The shard asked for.
        shard: usize,
        /// How many there are.
        shards: usize,
    },
}
