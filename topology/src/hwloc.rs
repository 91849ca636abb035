//! Turns what the hwloc library finds into a [`Machine`]. The only file that names the library.
//!
//! # Silence and safety
//! The library prints some failures on standard error, and its only switch is an environment
//! variable, which cannot be set soundly while other threads may read the environment. So the
//! callers avoid what makes it print: a system whose files are missing or contradict themselves is
//! read by [`crate::sysfs`] instead, and XML files by [`crate::xml`].
//!
//! # Binding
//! Its x86 reader would move the calling thread over all processors to ask each one; the flag
//! `DONT_CHANGE_BINDING` forbids that, except where hwloc reads stored answers instead. Disallowed objects are asked for, so that a report can
//! show what exists beside what is allowed.

use std::collections::BTreeMap;
use std::ffi::CStr;

use hwlocality::Topology;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::memory::attribute::{Initiator, MemoryAttribute};
use hwlocality::memory::nodeset::NodeSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::{CacheType, ObjectType};
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};

use crate::machine::{
    Cache, Core, CpuKind, Machine, NumaNode, Package, Pu, Restriction, RestrictionKind, Source,
    SourceKind,
};
use crate::set::NumberSet;

/// Reads the machine that the process runs on, or the one that hwloc's own environment variables
/// (`HWLOC_XMLFILE`, `HWLOC_SYNTHETIC`, ...) put in its place.
pub(crate) fn discover() -> Result<Machine, String> {
    let mut flags = BuildFlags::INCLUDE_DISALLOWED;
    if std::env::var_os("HWLOC_CPUID_PATH").is_none() {
        flags |= BuildFlags::DONT_CHANGE_BINDING;
    }
    let topology = load(TopologyBuilder::new(), flags)?;
    let source = Source {
        kind: SourceKind::Hwloc,
        detail: version(),
    };
    Ok(machine_of(&topology, source))
}

/// Builds the machine of a synthetic description.
pub(crate) fn from_synthetic(description: &str) -> Result<Machine, String> {
    let builder = TopologyBuilder::new()
        .from_synthetic(description)
        .map_err(|_| "it is not in hwloc's synthetic form".to_string())?;
    let topology = load(builder, BuildFlags::empty())?;
    let source = Source {
        kind: SourceKind::Synthetic,
        detail: description.to_string(),
    };
    Ok(machine_of(&topology, source))
}

fn load(builder: TopologyBuilder, flags: BuildFlags) -> Result<Topology, String> {
    builder
        .with_flags(flags)
        .map_err(|error| error.to_string())?
        .build()
        .map_err(|error| error.to_string())
}

/// The library's name with the version of its interface, which is all that it tells.
fn version() -> String {
    let number = hwlocality::hwloc_api_version();
    format!(
        "hwloc (interface {}.{})",
        number >> 16,
        (number >> 8) & 0xff
    )
}

fn machine_of(topology: &Topology, source: Source) -> Machine {
    let is_this_system = topology.is_this_system();
    let allowed_pus = pus_in(&topology.allowed_cpuset());
    let seen_pus = pus_in(&topology.cpuset());
    let allowed_pus = allowed_pus.intersection(&seen_pus);
    let numa_nodes = nodes(topology);
    let seen_nodes = numa_nodes.iter().map(|node| node.os_index).collect();
    let allowed_nodes = nodes_in(&topology.allowed_nodeset()).intersection(&seen_nodes);
    let mut machine = Machine {
        is_this_system,
        source,
        processor: processor(topology),
        memory_bytes: None,
        packages: packages(topology),
        numa_nodes,
        caches: caches(topology),
        cores: cores(topology),
        cpu_kinds: cpu_kinds(topology),
        pus: pus(topology),
        permitted_pus: allowed_pus.clone(),
        allowed_pus,
        allowed_nodes,
        cpu_quota: None,
        memory_limit_bytes: None,
        restrictions: Vec::new(),
        notes: Vec::new(),
    };
    if !is_this_system {
        disallowed(&mut machine, &seen_pus, &seen_nodes);
    }
    machine.link();
    machine
}

/// Says what a foreign description marks as not allowed.
fn disallowed(machine: &mut Machine, pus: &NumberSet, nodes: &NumberSet) {
    let pairs = [
        ("PUs", pus.difference(&machine.allowed_pus)),
        ("nodes", nodes.difference(&machine.allowed_nodes)),
    ];
    for (what, set) in pairs.into_iter().filter(|(_, set)| !set.is_empty()) {
        machine.restrictions.push(Restriction {
            kind: RestrictionKind::Disallowed,
            value: format!("{what} {set}"),
            source: machine.source.detail.clone(),
        });
    }
}

fn objects<'a>(
    topology: &'a Topology,
    ty: ObjectType,
) -> impl Iterator<Item = &'a TopologyObject> + 'a {
    topology.objects_with_type(ty)
}

fn packages(topology: &Topology) -> Vec<Package> {
    let found = objects(topology, ObjectType::Package);
    let package = |it: &TopologyObject| Package {
        os_index: os_index(it),
        pus: pus_of(it),
    };
    found.map(package).collect()
}

fn cores(topology: &Topology) -> Vec<Core> {
    let found = objects(topology, ObjectType::Core);
    let core = |it: &TopologyObject| Core {
        os_index: os_index(it),
        package: None,
        kind: None,
        pus: pus_of(it),
    };
    found.map(core).collect()
}

fn pus(topology: &Topology) -> Vec<Pu> {
    let found = objects(topology, ObjectType::PU).filter_map(os_index);
    let pu = |os_index| Pu {
        os_index,
        core: None,
        package: None,
        nodes: Vec::new(),
        kind: None,
    };
    found.map(pu).collect()
}

fn nodes(topology: &Topology) -> Vec<NumaNode> {
    let found: Vec<&TopologyObject> = objects(topology, ObjectType::NUMANode).collect();
    let distances = distances(topology);
    let row = |from: u32| -> Vec<u64> {
        let cells = found.iter().filter_map(|it| os_index(it));
        let row: Option<Vec<u64>> = cells
            .map(|to| distances.get(&(from, to)).copied())
            .collect();
        row.unwrap_or_default()
    };
    let mut nodes = Vec::new();
    for it in &found {
        let Some(os_index) = os_index(it) else {
            continue;
        };
        let memory = match it.attributes() {
            Some(ObjectAttributes::NUMANode(attributes)) => attributes.local_memory(),
            _ => None,
        };
        nodes.push(NumaNode {
            os_index,
            memory_bytes: memory.map(std::num::NonZeroU64::get),
            pus: pus_of(it),
            distances: row(os_index),
            latency_nanos: latency(topology, it),
            subtype: it.subtype().map(text),
        });
    }
    nodes
}

/// Latency from a node's own PUs to its memory, where the firmware describes it.
fn latency(topology: &Topology, node: &TopologyObject) -> Option<u64> {
    let cpuset = node.cpuset()?;
    if cpuset.is_empty() {
        return None;
    }
    let attribute = MemoryAttribute::latency(topology);
    let value = attribute.value(Some(Initiator::from(cpuset)), node);
    value.ok().flatten()
}

/// The first matrix of latencies between NUMA nodes, by pairs of numbers.
fn distances(topology: &Topology) -> BTreeMap<(u32, u32), u64> {
    let found =
        topology.distances_with_type(Some(DistancesKind::MEANS_LATENCY), ObjectType::NUMANode);
    let mut pairs = BTreeMap::new();
    let Some(matrix) = found.ok().and_then(|found| found.into_iter().next()) else {
        return pairs;
    };
    let numbers: Vec<Option<u32>> = matrix.objects().map(|it| it.and_then(os_index)).collect();
    for ((from, to), value) in matrix.enumerate_distances() {
        if let (Some(from), Some(to)) = (numbers[from], numbers[to]) {
            pairs.insert((from, to), value);
        }
    }
    pairs
}

fn caches(topology: &Topology) -> Vec<Cache> {
    let levels = [
        ObjectType::L5Cache,
        ObjectType::L4Cache,
        ObjectType::L3Cache,
        ObjectType::L2Cache,
        ObjectType::L1Cache,
    ];
    let mut caches = Vec::new();
    for it in levels
        .into_iter()
        .flat_map(|level| objects(topology, level))
    {
        let Some(ObjectAttributes::Cache(attributes)) = it.attributes() else {
            continue;
        };
        if attributes.cache_type() == CacheType::Instruction {
            continue;
        }
        caches.push(Cache {
            level: attributes.depth() as u32,
            size_bytes: attributes.size().map(std::num::NonZeroU64::get),
            line_bytes: attributes.line_size().map(|size| size.get() as u32),
            pus: pus_of(it),
        });
    }
    caches
}

fn cpu_kinds(topology: &Topology) -> Vec<CpuKind> {
    let Ok(kinds) = topology.cpu_kinds() else {
        return Vec::new();
    };
    let kind = |kind: hwlocality::cpu::kind::CpuKind<'_>| {
        let infos = kind.infos.iter();
        let names: Vec<String> = infos
            .map(|info| format!("{}={}", text(info.name()), text(info.value())))
            .collect();
        CpuKind {
            rank: kind.efficiency.map(|rank| rank as u32),
            name: names.join(" "),
            pus: pus_in(&kind.cpuset),
        }
    };
    kinds.map(kind).collect()
}

/// The processor's name, as the first package or the machine has it.
fn processor(topology: &Topology) -> Option<String> {
    let root = std::iter::once(topology.root_object());
    let found = objects(topology, ObjectType::Package).chain(root);
    let mut names = found.filter_map(|it| it.info("CPUModel"));
    names.next().map(|name| text(name).trim().to_string())
}

fn os_index(object: &TopologyObject) -> Option<u32> {
    object
        .os_index()
        .and_then(|index| u32::try_from(index).ok())
}

fn pus_of(object: &TopologyObject) -> NumberSet {
    object.cpuset().map(|set| pus_in(&set)).unwrap_or_default()
}

/// The members of a set of PUs.
fn pus_in(set: &CpuSet) -> NumberSet {
    numbers(set.weight(), set.iter_set())
}

/// The members of a set of nodes.
fn nodes_in(set: &NodeSet) -> NumberSet {
    numbers(set.weight(), set.iter_set())
}

/// Members as numbers; none of a set that never ends, as no object has.
fn numbers(weight: Option<usize>, members: impl Iterator<Item = BitmapIndex>) -> NumberSet {
    let members = members.take(weight.unwrap_or(0)).map(usize::from);
    members
        .filter_map(|index| u32::try_from(index).ok())
        .collect()
}

fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}
