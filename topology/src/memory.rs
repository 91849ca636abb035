//! Which node's memory a seat uses, and how much of it.
//!
//! # The node
//! A PU's home is its local node. If it has several, the nearest wins: the lowest latency by more
//! than a quarter where the firmware tells, then the smallest neighbourhood, then the most memory.
//! Nodes that are equal by all of that (sizes within an eighth) share the cores evenly, in tree
//! order. A home without memory, or one that the process may not use, sends the seat to the
//! nearest allowed node that has memory, and the seat says so.
//!
//! # The bytes
//! Arenas get three quarters of a node, in equal parts, and all together no more than three
//! quarters of the cgroup's limit or of the whole memory. A size of 0 means unknown or none, so
//! nothing divides by it.

use std::collections::BTreeMap;

use crate::machine::{Machine, NumaNode, Pu};
use crate::plan::Seat;
use crate::policy::Policy;
use crate::set::NumberSet;

/// Arena sizes are whole huge pages where they are larger than one.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Arena sizes are whole pages at least.
const PAGE_BYTES: u64 = 4096;

/// The home node of every PU.
pub(crate) struct Homes {
    homes: BTreeMap<u32, u32>,
}

impl Homes {
    pub(crate) fn new(machine: &Machine) -> Self {
        let mut homes = BTreeMap::new();
        // PUs whose homes are equal by every rule, by the candidates they share.
        let mut undecided: BTreeMap<Vec<u32>, Vec<&Pu>> = BTreeMap::new();
        for pu in &machine.pus {
            let equals = nearest_local(machine, pu);
            match equals.as_slice() {
                [] => {}
                [only] => {
                    homes.insert(pu.os_index, *only);
                }
                _ => undecided.entry(equals).or_default().push(pu),
            }
        }
        for (nodes, pus) in undecided {
            let mut cores: Vec<Option<usize>> = pus.iter().map(|pu| pu.core).collect();
            cores.dedup();
            for (index, pu) in pus.iter().enumerate() {
                let core = cores.iter().position(|core| *core == pu.core);
                let (rank, ranks) = match pu.core {
                    Some(_) => (core.unwrap_or(0), cores.len()),
                    None => (index, pus.len()),
                };
                homes.insert(pu.os_index, nodes[rank * nodes.len() / ranks]);
            }
        }
        Self { homes }
    }

    /// The home node of a PU; `None` if it is local to no node.
    pub(crate) fn of(&self, pu: u32) -> Option<u32> {
        self.homes.get(&pu).copied()
    }
}

/// The best of a PU's local nodes, or several that are equal.
fn nearest_local(machine: &Machine, pu: &Pu) -> Vec<u32> {
    let mut nodes: Vec<&NumaNode> = pu.nodes.iter().filter_map(|it| machine.node(*it)).collect();
    narrow(&mut nodes, |node| {
        machine.allowed_nodes.contains(node.os_index)
    });
    narrow(&mut nodes, |node| node.memory_bytes.is_some());
    if let Some(lowest) = nodes.iter().filter_map(|node| node.latency_nanos).min() {
        narrow(&mut nodes, |node| {
            node.latency_nanos
                .is_none_or(|nanos| nanos <= lowest.saturating_add(lowest / 4))
        });
    }
    let smallest = nodes.iter().map(|node| node.pus.len()).min();
    narrow(&mut nodes, |node| Some(node.pus.len()) == smallest);
    let most = nodes
        .iter()
        .filter_map(|node| node.memory_bytes)
        .max()
        .unwrap_or(0);
    narrow(&mut nodes, |node| {
        node.memory_bytes.unwrap_or(0) >= most - most / 8
    });
    nodes.iter().map(|node| node.os_index).collect()
}

/// Keeps the nodes that have a property, unless none has it.
fn narrow(nodes: &mut Vec<&NumaNode>, property: impl Fn(&NumaNode) -> bool) {
    if nodes.iter().any(|node| property(node)) {
        nodes.retain(|node| property(node));
    }
}

/// Gives every seat its node, its memory node and its arena; returns remarks on the whole.
pub(crate) fn assign(machine: &Machine, policy: &Policy, seats: &mut [Seat]) -> Vec<String> {
    let homes = Homes::new(machine);
    let mut load: BTreeMap<u32, usize> = BTreeMap::new();
    for seat in seats.iter_mut() {
        seat.node = homes.of(seat.pu);
        seat.memory_node = memory_node(machine, seat, &load);
        if let Some(node) = seat.memory_node {
            *load.entry(node).or_default() += 1;
        }
        let local = machine
            .pu(seat.pu)
            .map(|pu| pu.nodes.as_slice())
            .unwrap_or_default();
        seat.remote = seat.memory_node.is_some_and(|node| !local.contains(&node));
        seat.notes.extend(remark(machine, seat, local));
    }
    size(machine, policy, seats, &load)
}

fn memory_node(machine: &Machine, seat: &Seat, load: &BTreeMap<u32, usize>) -> Option<u32> {
    let usable = |node: &&NumaNode| machine.allowed_nodes.contains(node.os_index);
    let mut nodes: Vec<&NumaNode> = machine.numa_nodes.iter().filter(usable).collect();
    narrow(&mut nodes, |node| node.memory_bytes.is_some());
    if let Some(home) = nodes.iter().find(|node| Some(node.os_index) == seat.node) {
        return Some(home.os_index);
    }
    let package = seat
        .package
        .and_then(|package| machine.packages.get(package));
    let nearness = |node: &&NumaNode| {
        let distance = seat
            .node
            .and_then(|home| machine.distance(home, node.os_index));
        let elsewhere = package.is_none_or(|package| !package.pus.intersects(&node.pus));
        let seats = load.get(&node.os_index).copied().unwrap_or(0);
        let memory = std::cmp::Reverse(node.memory_bytes);
        let unreachable = node.pus.is_empty();
        (
            distance.unwrap_or(u64::MAX),
            elsewhere,
            unreachable,
            seats,
            memory,
            node.os_index,
        )
    };
    nodes
        .into_iter()
        .min_by_key(nearness)
        .map(|node| node.os_index)
}

/// Says what is unusual about a seat's memory.
fn remark(machine: &Machine, seat: &Seat, local: &[u32]) -> Option<String> {
    let chosen = seat.memory_node?;
    let Some(home) = seat.node else {
        return Some(format!(
            "its PU is in no NUMA node: memory of node {chosen}, the nearest with memory"
        ));
    };
    if home != chosen {
        let empty = machine
            .node(home)
            .is_none_or(|node| node.memory_bytes.is_none());
        let why = if empty {
            "has no memory"
        } else {
            "is not allowed"
        };
        return Some(format!(
            "node {home} {why}: memory of node {chosen}, the nearest that can be used"
        ));
    }
    if local.len() > 1 {
        let nodes: NumberSet = local.iter().copied().collect();
        return Some(format!(
            "nodes {nodes} are local to its PU: memory of node {chosen}, the nearest with most"
        ));
    }
    None
}

/// Bytes that all arenas may take together, where known.
pub(crate) fn budget(machine: &Machine) -> Option<u64> {
    let nodes = machine.numa_nodes.iter();
    let allowed = nodes.filter(|node| machine.allowed_nodes.contains(node.os_index));
    let sizes = allowed.filter_map(|node| node.memory_bytes);
    let on_nodes = sizes.fold(None, |sum: Option<u64>, bytes| {
        Some(sum.unwrap_or(0).saturating_add(bytes))
    });
    let whole = machine.memory_bytes.or(on_nodes);
    let limit = [whole, machine.memory_limit_bytes]
        .into_iter()
        .flatten()
        .min();
    limit.map(three_quarters)
}

/// Sets the arena sizes.
fn size(
    machine: &Machine,
    policy: &Policy,
    seats: &mut [Seat],
    load: &BTreeMap<u32, usize>,
) -> Vec<String> {
    if let Some(bytes) = policy.arena_bytes {
        seats.iter_mut().for_each(|seat| seat.arena_bytes = bytes);
        let sum = bytes.saturating_mul(seats.len() as u64);
        let over = budget(machine).filter(|budget| sum > *budget);
        let note =
            over.map(|_| "the arenas asked for exceed three quarters of the memory".to_string());
        return note.into_iter().collect();
    }
    let Some(budget) = budget(machine) else {
        return vec!["the size of the memory is not known: arenas have no size".to_string()];
    };
    let equal_part = budget / (seats.len() as u64).max(1);
    for seat in seats.iter_mut() {
        let sharers = seat
            .memory_node
            .and_then(|node| load.get(&node))
            .copied()
            .unwrap_or(1);
        let node = seat.memory_node.and_then(|node| machine.node(node));
        let part = match node.and_then(|node| node.memory_bytes) {
            Some(bytes) if machine.numa_nodes.len() > 1 => three_quarters(bytes) / sharers as u64,
            _ => equal_part,
        };
        seat.arena_bytes = part;
    }
    let sum: u128 = seats.iter().map(|seat| u128::from(seat.arena_bytes)).sum();
    let cut = sum > u128::from(budget);
    for seat in seats.iter_mut() {
        let bytes = u128::from(seat.arena_bytes);
        let fair = if cut {
            bytes * u128::from(budget) / sum
        } else {
            bytes
        };
        seat.arena_bytes = whole_pages(u64::try_from(fair).unwrap_or(u64::MAX));
    }
    let limit = machine
        .memory_limit_bytes
        .filter(|limit| three_quarters(*limit) == budget);
    let note =
        |limit| format!("arenas keep within three quarters of the memory limit of {limit} bytes");
    limit.map(note).into_iter().collect()
}

fn three_quarters(bytes: u64) -> u64 {
    bytes - bytes / 4
}

fn whole_pages(bytes: u64) -> u64 {
    if bytes >= HUGE_PAGE_BYTES {
        bytes - bytes % HUGE_PAGE_BYTES
    } else {
        bytes - bytes % PAGE_BYTES
    }
}
