//! The model of a machine: plain data, free of the library that found it.
//!
//! # What it holds
//! Everything that could be seen, allowed to this process or not, in the order of the hardware
//! tree: neighbours in `pus` share more than distant ones do. Objects refer to each other by
//! position (`Core::package` is an index into `packages`), to the operating system by its numbers
//! (`os_index`). Nothing may assume that numbers start at 0, are dense or follow the tree.
//!
//! # Shapes that are legal
//! No packages, no cores, a PU in no NUMA node or in several, a node with memory and no PU, a node
//! with PUs and no memory, memory of unknown size (`None`), more than 1,024 PUs.
//!
//! # Absent on purpose
//! Devices, instruction caches, and anything that only the library's own types could express.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::MachineError;
use crate::set::NumberSet;

/// A machine as this process sees it, or one read from a file or a description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `true` if this is the machine that the process runs on; only then threads can be pinned.
    pub is_this_system: bool,
    /// Where the description came from.
    pub source: Source,
    /// The processor's name, where one was found.
    pub processor: Option<String>,
    /// Memory of the whole machine in bytes by the kernel's count; the nodes' sizes may disagree.
    pub memory_bytes: Option<u64>,
    /// Processor packages (sockets). May be empty.
    pub packages: Vec<Package>,
    /// NUMA nodes in tree order. May be empty.
    pub numa_nodes: Vec<NumaNode>,
    /// Data and unified caches, largest level first.
    pub caches: Vec<Cache>,
    /// Physical cores in tree order. May be empty.
    pub cores: Vec<Core>,
    /// Kinds of core, least able first; empty where the machine does not tell kinds apart.
    pub cpu_kinds: Vec<CpuKind>,
    /// Logical processors in tree order.
    pub pus: Vec<Pu>,
    /// PUs that a plan uses by itself: permitted, and in the process's affinity at its start.
    pub allowed_pus: NumberSet,
    /// PUs that the kernel lets this process run on if asked: online and in the cgroup's cpuset.
    pub permitted_pus: NumberSet,
    /// NUMA nodes that this process may take memory from.
    pub allowed_nodes: NumberSet,
    /// CPU time in processors that the cgroup grants (0.5 is half of one), if it sets a limit.
    pub cpu_quota: Option<f64>,
    /// Bytes of memory that the cgroup grants, if it sets a limit.
    pub memory_limit_bytes: Option<u64>,
    /// All that narrows what the process may use, each with its value and where it was read.
    pub restrictions: Vec<Restriction>,
    /// Remarks of the discovery, one sentence each.
    pub notes: Vec<String>,
}

/// Where a machine's description came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The reader.
    pub kind: SourceKind,
    /// The file, directory, description or library version.
    pub detail: String,
}

/// The reader of a machine's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The hwloc library, on this system.
    Hwloc,
    /// The system's own files under `/sys` and `/proc`.
    SystemFiles,
    /// Only the affinity mask of the process: one node, one core a PU.
    Affinity,
    /// An XML file that hwloc wrote.
    Xml,
    /// An hwloc synthetic description.
    Synthetic,
    /// A directory that holds another machine's `sys/` and `proc/`.
    Directory,
}

/// A processor package (socket).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The system's number; it may be absent, and two packages may share one.
    pub os_index: Option<u32>,
    /// Its PUs.
    pub pus: NumberSet,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The system's number.
    pub os_index: u32,
    /// Its memory in bytes; `None` if it has none or its size is not known.
    pub memory_bytes: Option<u64>,
    /// PUs that are local to it. May be empty, and may overlap another node's.
    pub pus: NumberSet,
    /// Relative distances to each node, in the order of `Machine::numa_nodes`; empty if not known.
    pub distances: Vec<u64>,
    /// Access latency from its local PUs in nanoseconds, where the firmware tells.
    pub latency_nanos: Option<u64>,
    /// What kind of memory it is (`DRAM`, `HBM`, ...), where known.
    pub subtype: Option<String>,
}

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2, 3 ...
    pub level: u32,
    /// Its size in bytes, where known.
    pub size_bytes: Option<u64>,
    /// Bytes of a line, where known.
    pub line_bytes: Option<u32>,
    /// PUs that share it.
    pub pus: NumberSet,
}

/// A physical core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The system's number, which is often only unique within a package.
    pub os_index: Option<u32>,
    /// Index into `Machine::packages`.
    pub package: Option<usize>,
    /// Index into `Machine::cpu_kinds`.
    pub kind: Option<usize>,
    /// Its PUs: one, or its SMT siblings.
    pub pus: NumberSet,
}

/// A kind of core on a machine that mixes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuKind {
    /// Rank by ability, 0 for the least able; `None` if the ranks are not known.
    pub rank: Option<u32>,
    /// What tells it apart, for example `CoreType=IntelAtom`.
    pub name: String,
    /// Its PUs.
    pub pus: NumberSet,
}

/// A logical processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pu {
    /// The system's number.
    pub os_index: u32,
    /// Index into `Machine::cores`.
    pub core: Option<usize>,
    /// Index into `Machine::packages`.
    pub package: Option<usize>,
    /// System numbers of the NUMA nodes that are local to it: none, one or several.
    pub nodes: Vec<u32>,
    /// Index into `Machine::cpu_kinds`.
    pub kind: Option<usize>,
}

/// One thing that narrows what the process may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// What narrows.
    pub kind: RestrictionKind,
    /// The value in force, in the system's own form.
    pub value: String,
    /// The file or call that told.
    pub source: String,
}

/// What narrows a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestrictionKind {
    /// The affinity mask of the process (`taskset`).
    Affinity,
    /// The calling thread is pinned more narrowly than its process; it does not count.
    ThreadAffinity,
    /// PUs of the cgroup's cpuset.
    Cpuset,
    /// NUMA nodes of the cgroup's cpuset.
    MemoryNodes,
    /// CPU time of the cgroup.
    CpuQuota,
    /// Memory of the cgroup.
    MemoryLimit,
    /// A memory policy that the process inherited (`numactl`).
    MemoryPolicy,
    /// PUs that are switched off.
    Offline,
    /// PUs that the kernel keeps away from the scheduler (`isolcpus`).
    Isolated,
    /// PUs or nodes that a foreign machine's description marks as not allowed.
    Disallowed,
    /// PUs that the plan leaves to the system.
    Reserve,
}

/// How many of each object a process may use; what the heading of a report says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packages with an allowed PU or an allowed node.
    pub packages: usize,
    /// Allowed nodes with memory.
    pub nodes_with_memory: usize,
    /// Allowed nodes without memory or of unknown size.
    pub nodes_without_memory: usize,
    /// Allowed nodes without an allowed PU.
    pub nodes_without_pus: usize,
    /// Cores with an allowed PU.
    pub cores: usize,
    /// Allowed PUs.
    pub pus: usize,
    /// Allowed PUs with no allowed node.
    pub pus_in_no_node: usize,
    /// Allowed PUs with several allowed nodes.
    pub pus_in_several_nodes: usize,
}

impl Machine {
    /// Finds out how this machine is built and what this process may use of it.
    ///
    /// The affinity of the process is that of its main thread when first asked for; later pinning
    /// of any thread changes nothing. The caller's affinity and memory policy stay as they are.
    /// Never fails: with nothing else to read, the affinity mask alone makes a machine of one node.
    #[must_use]
    pub fn discover() -> Self {
        crate::discover::this_system()
    }

    /// Reads an XML file of hwloc, of format 1 or 2.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file and what to do about it.
    pub fn from_xml(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        crate::xml::from_xml(path.as_ref())
    }

    /// Builds a machine from an hwloc synthetic description, for example
    /// `pack:2 [numa(memory=49000000000)] core:4 pu:2`.
    ///
    /// # Errors
    /// If hwloc does not understand the description, or the crate was built without it.
    pub fn from_synthetic(description: &str) -> Result<Self, MachineError> {
        crate::discover::from_synthetic(description)
    }

    /// Reads the `sys/` and `proc/` of another machine (or of this one) below a directory.
    ///
    /// # Errors
    /// If the directory has no `sys/devices/system/cpu` with a processor in it.
    pub fn from_sysfs(directory: impl AsRef<Path>) -> Result<Self, MachineError> {
        crate::discover::from_sysfs(directory.as_ref())
    }

    /// The PU with a number.
    #[must_use]
    pub fn pu(&self, os_index: u32) -> Option<&Pu> {
        self.pus.iter().find(|pu| pu.os_index == os_index)
    }

    /// The node with a number.
    #[must_use]
    pub fn node(&self, os_index: u32) -> Option<&NumaNode> {
        self.numa_nodes
            .iter()
            .find(|node| node.os_index == os_index)
    }

    /// The relative distance between two nodes by number, where known.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> Option<u64> {
        let column = self
            .numa_nodes
            .iter()
            .position(|node| node.os_index == to)?;
        self.node(from)?.distances.get(column).copied()
    }

    /// How many of each object the process may use.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let allowed = &self.allowed_pus;
        let allowed_node = |it: &&NumaNode| self.allowed_nodes.contains(it.os_index);
        let package = |it: &&Package| {
            let nodes = self.numa_nodes.iter().filter(allowed_node);
            it.pus.intersects(allowed)
                || nodes
                    .map(|node| &node.pus)
                    .any(|pus| pus.intersects(&it.pus))
        };
        let mut counts = Counts {
            packages: self.packages.iter().filter(package).count(),
            cores: self
                .cores
                .iter()
                .filter(|it| it.pus.intersects(allowed))
                .count(),
            pus: allowed.len(),
            ..Counts::default()
        };
        for node in self
            .numa_nodes
            .iter()
            .filter(|it| self.allowed_nodes.contains(it.os_index))
        {
            match node.memory_bytes {
                Some(_) => counts.nodes_with_memory += 1,
                None => counts.nodes_without_memory += 1,
            }
            counts.nodes_without_pus += usize::from(!node.pus.intersects(allowed));
        }
        for pu in self.pus.iter().filter(|pu| allowed.contains(pu.os_index)) {
            match pu
                .nodes
                .iter()
                .filter(|node| self.allowed_nodes.contains(**node))
                .count()
            {
                0 => counts.pus_in_no_node += 1,
                1 => {}
                _ => counts.pus_in_several_nodes += 1,
            }
        }
        counts
    }

    /// Fills what objects know of each other from their PU sets. Readers call it once at the end.
    pub(crate) fn link(&mut self) {
        self.caches
            .sort_by_key(|cache| (std::cmp::Reverse(cache.level), cache.pus.first()));
        let packages = owners(self.packages.iter().map(|it| &it.pus));
        let kinds = owners(self.cpu_kinds.iter().map(|it| &it.pus));
        for core in &mut self.cores {
            let first = core.pus.first();
            core.package = first.and_then(|pu| packages.get(&pu)).copied();
            core.kind = first.and_then(|pu| kinds.get(&pu)).copied();
        }
        let cores = owners(self.cores.iter().map(|it| &it.pus));
        for pu in &mut self.pus {
            let number = pu.os_index;
            pu.core = cores.get(&number).copied();
            pu.package = packages.get(&number).copied();
            pu.kind = kinds.get(&number).copied();
            let local = self.numa_nodes.iter().filter(|it| it.pus.contains(number));
            pu.nodes = local.map(|it| it.os_index).collect();
        }
    }
}

/// The position of the first set that holds each number.
fn owners<'a>(sets: impl Iterator<Item = &'a NumberSet>) -> BTreeMap<u32, usize> {
    let mut owners = BTreeMap::new();
    for (position, set) in sets.enumerate() {
        for number in set.iter() {
            owners.entry(number).or_insert(position);
        }
    }
    owners
}
