//! How numbers, objects and restrictions are worded, the same in all forms that people read.

use crate::machine::{Cache, Counts, Machine, NumaNode, RestrictionKind, SourceKind};

/// Bytes in the largest unit that leaves at least one whole one: `49.0 GB`, `256 KB`.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TB", 1 << 40),
        ("GB", 1 << 30),
        ("MB", 1 << 20),
        ("KB", 1 << 10),
    ];
    for (unit, size) in UNITS {
        if bytes >= size {
            let whole = bytes / size;
            let tenth = bytes % size * 10 / size;
            return match (whole, tenth) {
                (100.., _) | (_, 0) => format!("{whole} {unit}"),
                _ => format!("{whole}.{tenth} {unit}"),
            };
        }
    }
    format!("{bytes} B")
}

/// A count with its word: `1 core`, `2 cores`.
pub(super) fn count(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

/// A number, or a dash where there is none.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_string(), |value| value.to_string())
}

/// One line that says what the machine is.
pub(super) fn title(machine: &Machine) -> String {
    let name = machine.processor.as_deref().unwrap_or("Machine");
    let whose = match machine.is_this_system {
        true => "this system",
        false => "another machine",
    };
    let reader = match machine.source.kind {
        SourceKind::Hwloc | SourceKind::SystemFiles | SourceKind::Affinity => "read by",
        SourceKind::Xml | SourceKind::Directory => "from",
        SourceKind::Synthetic => "synthetic",
    };
    format!("{name} ({whose}, {reader} {})", machine.source.detail)
}

/// One line that says how much of the machine may be used.
pub(super) fn summary(machine: &Machine) -> String {
    let counts = machine.counts();
    let seen = seen(machine);
    let nodes = counts.nodes_with_memory + counts.nodes_without_memory;
    let mut parts = vec![
        of(counts.packages, seen.packages, "package"),
        of(nodes, machine.numa_nodes.len(), "NUMA node"),
        of(counts.cores, seen.cores, "core"),
        of(counts.pus, machine.pus.len(), "PU"),
    ];
    let sizes = machine
        .numa_nodes
        .iter()
        .filter_map(|node| node.memory_bytes);
    let on_nodes = sizes.fold(0_u64, u64::saturating_add);
    match machine.memory_bytes.unwrap_or(on_nodes) {
        0 => parts.push("memory of unknown size".to_string()),
        total => parts.push(bytes(total)),
    }
    let odd = [
        (
            counts.nodes_without_memory,
            "node without memory or of unknown size",
        ),
        (counts.nodes_without_pus, "node without PUs"),
        (counts.pus_in_no_node, "PU in no node"),
        (counts.pus_in_several_nodes, "PU in several nodes"),
    ];
    for (number, what) in odd.into_iter().filter(|(number, _)| *number > 0) {
        parts.push(match what.split_once(' ') {
            Some((word, rest)) => format!("{} {rest}", count(number, word)),
            None => count(number, what),
        });
    }
    parts.join(", ")
}

fn of(allowed: usize, seen: usize, word: &str) -> String {
    if allowed == seen {
        count(seen, word)
    } else {
        format!("{allowed} of {}", count(seen, word))
    }
}

fn seen(machine: &Machine) -> Counts {
    Counts {
        packages: machine.packages.len(),
        cores: machine.cores.len(),
        ..Counts::default()
    }
}

/// A node with its size and kind.
pub(super) fn node(node: &NumaNode) -> String {
    let size = match node.memory_bytes {
        Some(size) => bytes(size),
        None => "no memory or size unknown".to_string(),
    };
    match &node.subtype {
        Some(subtype) => format!("Node {} ({size}, {subtype})", node.os_index),
        None => format!("Node {} ({size})", node.os_index),
    }
}

/// A cache with its size.
pub(super) fn cache(cache: &Cache) -> String {
    match cache.size_bytes {
        Some(size) => format!("L{} {}", cache.level, bytes(size)),
        None => format!("L{}", cache.level),
    }
}

/// A package with its number.
pub(super) fn package(machine: &Machine, index: usize) -> String {
    match machine.packages[index].os_index {
        Some(number) => format!("Package {number}"),
        None => format!("Package #{index}"),
    }
}

/// A core by its number in the system; they repeat from package to package.
pub(super) fn core(machine: &Machine, index: usize) -> String {
    match machine.cores[index].os_index {
        Some(number) => format!("core {number}"),
        None => format!("core #{index}"),
    }
}

/// What a restriction does.
pub(super) fn restriction(kind: RestrictionKind) -> &'static str {
    match kind {
        RestrictionKind::Affinity => "affinity (taskset)",
        RestrictionKind::ThreadAffinity => "calling thread pinned",
        RestrictionKind::Cpuset => "cgroup cpuset, PUs",
        RestrictionKind::MemoryNodes => "cgroup cpuset, nodes",
        RestrictionKind::CpuQuota => "cgroup CPU quota",
        RestrictionKind::MemoryLimit => "cgroup memory limit",
        RestrictionKind::MemoryPolicy => "memory policy inherited",
        RestrictionKind::Offline => "offline PUs",
        RestrictionKind::Isolated => "isolated PUs",
        RestrictionKind::Disallowed => "not allowed",
        RestrictionKind::Reserve => "reserve of the policy",
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count};

    #[test]
    fn sizes_keep_one_decimal_where_it_says_something() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (262_144, "256 KB"),
            (8 << 20, "8 MB"),
            (49_000_000_000, "45.6 GB"),
            (u64::MAX, "16777215 TB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(
            (count(1, "core"), count(0, "core")),
            ("1 core".into(), "0 cores".into())
        );
    }
}
