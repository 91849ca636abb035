//! Chooses the reader of a machine, and narrows what it found to what the process may use.
//!
//! # This system
//! The kernel's own files are read first: they are cheap, and they tell whether hwloc can be asked
//! without complaints on the terminal (see [`crate::hwloc`]). Then hwloc, if the files are there
//! and agree with each other. If it fails, the files stand; if there are none, the affinity mask
//! makes a machine of one node.
//!
//! # What is allowed
//! *Permitted* is what the kernel would accept: online, and in the cgroup's cpuset. *Allowed* is
//! also in the affinity of the process's main thread when it was first seen, so that pinning a
//! thread later, or discovering from a pinned one, changes nothing.

use std::path::Path;
use std::sync::OnceLock;

use crate::cgroup::{Grants, Read};
use crate::error::MachineError;
use crate::files::Files;
use crate::machine::{
    Core, Machine, NumaNode, Pu, Restriction, RestrictionKind, Source, SourceKind,
};
use crate::set::NumberSet;
use crate::sysfs;
use crate::system::{self, Thread};

/// Names of `MPOL_DEFAULT` and the modes after it.
const POLICY_NAMES: [&str; 7] = [
    "default",
    "preferred",
    "bind",
    "interleave",
    "local",
    "preferred-many",
    "weighted-interleave",
];

/// Twice as many processors as Linux can have: enough for any description that is meant.
#[cfg(feature = "hwloc")]
const SYNTHETIC_PUS_MAX: u64 = 16_384;

pub(crate) fn this_system() -> Machine {
    let files = Files::new("/");
    let source = Source {
        kind: SourceKind::SystemFiles,
        detail: "/sys and /proc".to_string(),
    };
    let from_files = sysfs::read(&files, source, true);
    let mut machine = match from_files {
        Some(from_files) => best_of(&files, from_files),
        None => from_affinity(&files),
    };
    if machine.is_this_system {
        narrow_to_process(&mut machine, &files);
    }
    machine
}

#[cfg(feature = "hwloc")]
fn best_of(files: &Files, from_files: Machine) -> Machine {
    if let Some(reason) = sysfs::unfit_for_hwloc(files, &from_files) {
        let mut machine = from_files;
        machine.notes.push(format!("hwloc was not asked: {reason}"));
        return machine;
    }
    match crate::hwloc::discover() {
        Ok(machine) if machine.is_this_system => complete(machine, from_files),
        Ok(machine) => machine,
        Err(reason) => {
            let mut machine = from_files;
            machine
                .notes
                .push(format!("hwloc could not read this system ({reason})"));
            machine
        }
    }
}

#[cfg(not(feature = "hwloc"))]
fn best_of(_files: &Files, from_files: Machine) -> Machine {
    from_files
}

/// Adds what hwloc leaves out: memory in total, PUs that are off, nodes without memory.
#[cfg(feature = "hwloc")]
fn complete(mut machine: Machine, from_files: Machine) -> Machine {
    machine.memory_bytes = from_files.memory_bytes;
    machine.restrictions = from_files.restrictions;
    let seen: NumberSet = machine.pus.iter().map(|pu| pu.os_index).collect();
    let missing = from_files.allowed_pus.difference(&seen);
    if !missing.is_empty() {
        machine.notes.push(format!(
            "hwloc does not see PUs {missing}, which are online"
        ));
    }
    let dropped = |node: &&NumaNode| {
        !machine
            .numa_nodes
            .iter()
            .any(|seen| seen.os_index == node.os_index)
    };
    if from_files.numa_nodes.iter().any(|node| dropped(&node)) {
        machine
            .notes
            .push("nodes without memory were added from the system's files".to_string());
        let added = from_files
            .numa_nodes
            .iter()
            .filter(dropped)
            .map(|node| node.os_index);
        let added: NumberSet = added.collect();
        machine.numa_nodes = from_files.numa_nodes;
        machine.allowed_nodes = machine.allowed_nodes.union(&added);
        machine.link();
    }
    // hwloc calls nodes without memory disallowed; there is nothing in them to be denied.
    let nodes = machine.numa_nodes.iter();
    let empty: NumberSet = nodes
        .filter(|it| it.memory_bytes.is_none())
        .map(|it| it.os_index)
        .collect();
    machine.allowed_nodes = machine.allowed_nodes.union(&empty);
    machine
}

/// A machine of one node, from the affinity mask alone.
fn from_affinity(files: &Files) -> Machine {
    let mask = system::affinity(Thread::Main).or_else(|_| system::affinity(Thread::Current));
    let mut note = "no processor files: what the affinity mask names stands on one node";
    let mut pus = mask.unwrap_or_default();
    if pus.is_empty() {
        note = "neither processor files nor an affinity mask: one processor is assumed";
        pus.insert(0);
    }
    let memory_bytes = files.memory_total("/proc/meminfo");
    let mut machine = Machine {
        is_this_system: true,
        source: Source {
            kind: SourceKind::Affinity,
            detail: "sched_getaffinity".to_string(),
        },
        processor: None,
        memory_bytes,
        packages: Vec::new(),
        numa_nodes: vec![NumaNode {
            os_index: 0,
            memory_bytes,
            pus: pus.clone(),
            distances: Vec::new(),
            latency_nanos: None,
            subtype: None,
        }],
        caches: Vec::new(),
        cores: pus.iter().map(core_of).collect(),
        cpu_kinds: Vec::new(),
        pus: pus.iter().map(pu_of).collect(),
        allowed_pus: pus.clone(),
        permitted_pus: pus,
        allowed_nodes: [0].into_iter().collect(),
        cpu_quota: None,
        memory_limit_bytes: None,
        restrictions: Vec::new(),
        notes: vec![note.to_string()],
    };
    machine.link();
    machine
}

fn core_of(pu: u32) -> Core {
    Core {
        os_index: None,
        package: None,
        kind: None,
        pus: [pu].into_iter().collect(),
    }
}

fn pu_of(os_index: u32) -> Pu {
    Pu {
        os_index,
        core: None,
        package: None,
        nodes: Vec::new(),
        kind: None,
    }
}

/// The affinity of the process before anything of ours could have changed it.
fn affinity_at_start() -> Option<NumberSet> {
    static AT_START: OnceLock<Option<NumberSet>> = OnceLock::new();
    AT_START
        .get_or_init(|| system::affinity(Thread::Main).ok())
        .clone()
}

fn narrow_to_process(machine: &mut Machine, files: &Files) {
    let found = machine.permitted_pus.clone();
    narrow_to_groups(machine, &Grants::read(files));
    let online = machine.permitted_pus.clone();
    let seen: NumberSet = machine.pus.iter().map(|pu| pu.os_index).collect();
    let named = |it: &Restriction| it.kind == RestrictionKind::Cpuset;
    if found != seen && !machine.restrictions.iter().any(named) {
        let source = machine.source.detail.clone();
        let narrowed = restriction(RestrictionKind::Cpuset, &online, &source);
        machine.restrictions.push(narrowed);
    }
    let Some(at_start) = affinity_at_start() else {
        machine
            .notes
            .push("the affinity of the process cannot be read".to_string());
        return;
    };
    let mut allowed = online.intersection(&at_start);
    if allowed.is_empty() {
        // The cpuset has changed since: what the kernel grants now counts.
        let now = system::affinity(Thread::Main).unwrap_or_default();
        allowed = online.intersection(&now);
    }
    if allowed.is_empty() {
        machine.notes.push(format!(
            "the affinity {at_start} names no processor that was found: all permitted ones count"
        ));
        allowed.clone_from(&online);
    }
    if allowed != online {
        machine.restrictions.push(Restriction {
            kind: RestrictionKind::Affinity,
            value: allowed.to_string(),
            source: "sched_getaffinity of the main thread".to_string(),
        });
    }
    if let Ok(own) = system::affinity(Thread::Current)
        && own != at_start
    {
        machine.restrictions.push(Restriction {
            kind: RestrictionKind::ThreadAffinity,
            value: own.to_string(),
            source: "sched_getaffinity of the calling thread; does not count".to_string(),
        });
    }
    machine.allowed_pus = allowed;
    inherited_policy(machine);
}

/// Takes away what the control groups do not grant.
fn narrow_to_groups(machine: &mut Machine, grants: &Grants) {
    if let Some(Read { value, source }) = &grants.pus {
        let left = machine.permitted_pus.intersection(value);
        let seen: NumberSet = machine.pus.iter().map(|pu| pu.os_index).collect();
        if !left.is_empty() && left != seen {
            machine
                .restrictions
                .push(restriction(RestrictionKind::Cpuset, value, source));
        }
        if !left.is_empty() {
            machine.permitted_pus = left;
            machine.allowed_pus = machine.permitted_pus.intersection(&machine.allowed_pus);
        }
    }
    if let Some(Read { value, source }) = &grants.nodes {
        // The kernel never lists nodes without memory; nothing is taken away with them.
        let nodes = machine.numa_nodes.iter();
        let empty: NumberSet = nodes
            .filter(|it| it.memory_bytes.is_none())
            .map(|it| it.os_index)
            .collect();
        let granted = value.union(&empty);
        let left = machine.allowed_nodes.intersection(&granted);
        let seen: NumberSet = machine
            .numa_nodes
            .iter()
            .map(|node| node.os_index)
            .collect();
        if !left.is_empty() {
            machine.allowed_nodes = left;
        }
        if !seen.is_subset(&granted) {
            machine
                .restrictions
                .push(restriction(RestrictionKind::MemoryNodes, value, source));
        }
    }
    if let Some(Read { value, source }) = &grants.quota {
        machine.cpu_quota = Some(*value);
        let text = format!("{value:.2} processors");
        machine
            .restrictions
            .push(restriction(RestrictionKind::CpuQuota, text, source));
    }
    if let Some(Read { value, source }) = &grants.memory {
        machine.memory_limit_bytes = Some(*value);
        let text = format!("{value} bytes");
        machine
            .restrictions
            .push(restriction(RestrictionKind::MemoryLimit, text, source));
    }
}

/// Names a memory policy that the process was started with; it is not fought.
fn inherited_policy(machine: &mut Machine) {
    let text = match system::memory_policy() {
        Ok((0, _)) => return,
        Ok((mode, nodes)) => {
            let base = usize::try_from(mode & 0xff).unwrap_or(usize::MAX);
            let name = POLICY_NAMES.get(base).copied().unwrap_or("unknown");
            format!("{name} {nodes}")
        }
        // A kernel without NUMA has no such call and no policy.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return,
        Err(error) => format!("not readable ({error})"),
    };
    machine.restrictions.push(restriction(
        RestrictionKind::MemoryPolicy,
        text,
        "get_mempolicy",
    ));
}

fn restriction(kind: RestrictionKind, value: impl ToString, source: &str) -> Restriction {
    Restriction {
        kind,
        value: value.to_string(),
        source: source.to_string(),
    }
}

pub(crate) fn from_sysfs(directory: &Path) -> Result<Machine, MachineError> {
    let no_machine = |reason: &str| MachineError::NoMachine {
        path: directory.to_path_buf(),
        reason: reason.to_string(),
    };
    match std::fs::metadata(directory) {
        Ok(about) if !about.is_dir() => return Err(no_machine("it is not a directory")),
        Ok(_) => {}
        Err(error) => {
            return Err(MachineError::Unreadable {
                path: directory.to_path_buf(),
                reason: error.to_string(),
            });
        }
    }
    let files = Files::new(directory);
    let source = Source {
        kind: SourceKind::Directory,
        detail: files.root().display().to_string(),
    };
    let mut machine = sysfs::read(&files, source, false)
        .ok_or_else(|| no_machine("no processor in its sys/devices/system/cpu"))?;
    narrow_to_groups(&mut machine, &Grants::read(&files));
    Ok(machine)
}

#[cfg(feature = "hwloc")]
pub(crate) fn from_synthetic(description: &str) -> Result<Machine, MachineError> {
    let machine = if pus_described(description) > SYNTHETIC_PUS_MAX {
        Err(format!("it has more than {SYNTHETIC_PUS_MAX} processors"))
    } else {
        crate::hwloc::from_synthetic(description)
    };
    machine.map_err(|reason| MachineError::BadSynthetic {
        description: description.to_string(),
        reason,
    })
}

/// The product of all counts of a description, outside its parentheses and brackets.
#[cfg(feature = "hwloc")]
fn pus_described(description: &str) -> u64 {
    let mut depth = 0_i32;
    let mut outside = String::new();
    for letter in description.chars() {
        depth += i32::from(matches!(letter, '(' | '['));
        depth -= i32::from(matches!(letter, ')' | ']'));
        outside.push(if depth == 0 { letter } else { ' ' });
    }
    let counts = outside
        .split_whitespace()
        .filter_map(|level| level.rsplit(':').next()?.parse().ok());
    counts.fold(1, u64::saturating_mul)
}

#[cfg(not(feature = "hwloc"))]
pub(crate) fn from_synthetic(_description: &str) -> Result<Machine, MachineError> {
    Err(MachineError::WithoutHwloc {
        what: "a synthetic description",
    })
}
