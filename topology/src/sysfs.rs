//! Reads a machine from the kernel's own files: `/sys/devices/system/{cpu,node}` and `/proc`.
//!
//! # What it is for
//! Machines without hwloc, systems on which hwloc would fail or complain, copies of another
//! machine's files, and facts that hwloc leaves out (nodes without memory, offline and isolated
//! PUs).
//!
//! # Trust
//! Kernels from 2.6.18 up wrote these files, many of them with mistakes. Sets count, not numbers:
//! core and package numbers repeat. A set that overlaps an earlier one of its kind in part is left
//! out, and a note says so. Missing files make missing objects, never an error, as long as there
//! is one PU.

use crate::files::Files;
use crate::machine::{
    Cache, Core, CpuKind, Machine, NumaNode, Package, Pu, Restriction, RestrictionKind, Source,
};
use crate::set::NumberSet;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// Reads the machine below a root. `None` if there is no processor to be found.
///
/// Everything online counts as allowed; narrowing it is the caller's part.
pub(crate) fn read(files: &Files, source: Source, is_this_system: bool) -> Option<Machine> {
    let online = online(files)?;
    let mut notes = Vec::new();
    let packages = siblings(files, &online, Level::Package, &mut notes);
    let cores = siblings(files, &online, Level::Core, &mut notes);
    let numa_nodes = nodes(files, &online);
    let mut machine = Machine {
        is_this_system,
        source,
        processor: processor(files),
        memory_bytes: files.memory_total("/proc/meminfo"),
        packages: packages
            .into_iter()
            .map(|(os_index, pus)| Package { os_index, pus })
            .collect(),
        allowed_nodes: numa_nodes.iter().map(|node| node.os_index).collect(),
        numa_nodes,
        caches: caches(files, &online),
        cores: cores.into_iter().map(core).collect(),
        cpu_kinds: cpu_kinds(files, &online),
        pus: Vec::new(),
        allowed_pus: online.clone(),
        permitted_pus: online.clone(),
        cpu_quota: None,
        memory_limit_bytes: None,
        restrictions: switched_off(files),
        notes,
    };
    machine.pus = in_tree_order(&machine, &online);
    sort(&mut machine);
    machine.link();
    Some(machine)
}

fn core((os_index, pus): (Option<u32>, NumberSet)) -> Core {
    Core {
        os_index,
        package: None,
        kind: None,
        pus,
    }
}

/// PUs that are online. Absent `online` files mean online; a PU that is off has no `topology`.
fn online(files: &Files) -> Option<NumberSet> {
    let present = files.numbered(CPU, "cpu");
    let with_topology = |pu: &u32| files.path(&format!("{CPU}/cpu{pu}/topology")).is_dir();
    let described: NumberSet = present.iter().filter(with_topology).collect();
    let switched_on = |pu: &u32| files.number::<u32>(&format!("{CPU}/cpu{pu}/online")) != Some(0);
    let candidates = if described.is_empty() {
        present
    } else {
        described
    };
    let mut online: NumberSet = candidates.iter().filter(switched_on).collect();
    if let Some(list) = files
        .list(&format!("{CPU}/online"))
        .filter(|list| list.intersects(&online))
    {
        online = online.intersection(&list);
    }
    (!online.is_empty()).then_some(online)
}

/// An object that `cpuN/topology` describes by the PUs that share it.
#[derive(Clone, Copy)]
enum Level {
    Package,
    Core,
}

/// The distinct sets of siblings at a level, each with the system's number.
fn siblings(
    files: &Files,
    online: &NumberSet,
    level: Level,
    notes: &mut Vec<String>,
) -> Vec<(Option<u32>, NumberSet)> {
    let (names, number, what): (&[&str], _, _) = match level {
        Level::Package => (
            &[
                "package_cpus_list",
                "core_siblings_list",
                "package_cpus",
                "core_siblings",
            ],
            "physical_package_id",
            "package",
        ),
        Level::Core => (
            &[
                "core_cpus_list",
                "thread_siblings_list",
                "core_cpus",
                "thread_siblings",
            ],
            "core_id",
            "core",
        ),
    };
    let mut found: Vec<(Option<u32>, NumberSet)> = Vec::new();
    let mut known = NumberSet::new();
    for pu in online.iter() {
        let directory = format!("{CPU}/cpu{pu}/topology");
        let Some(set) = files.set(&directory, names) else {
            continue;
        };
        let os_index: Option<u32> = files.number(&format!("{directory}/{number}"));
        let mut set = set.intersection(online);
        set.insert(pu);
        if matches!(level, Level::Core) && os_index.is_some() {
            // Some AMD kernels list the two cores of a module as siblings.
            let same = |other: &u32| {
                *other == pu
                    || files.number(&format!("{CPU}/cpu{other}/topology/{number}")) == os_index
            };
            set = set.iter().filter(same).collect();
        }
        if found.iter().any(|(_, other)| *other == set) {
            continue;
        }
        if set.intersects(&known) {
            notes.push(format!(
                "PU {pu} claims a {what} of PUs {set} that overlaps another {what}: left out"
            ));
            continue;
        }
        known = known.union(&set);
        found.push((os_index, set));
    }
    found
}

/// The NUMA nodes; a system without the directory has one node of all PUs.
fn nodes(files: &Files, online: &NumberSet) -> Vec<NumaNode> {
    let numbers: Vec<u32> = files.numbered(NODE, "node").iter().collect();
    if numbers.is_empty() {
        return vec![NumaNode {
            os_index: 0,
            memory_bytes: files.memory_total("/proc/meminfo"),
            pus: online.clone(),
            distances: Vec::new(),
            latency_nanos: None,
            subtype: None,
        }];
    }
    let node = |os_index: u32| {
        let directory = format!("{NODE}/node{os_index}");
        let row = files
            .text(&format!("{directory}/distance"))
            .unwrap_or_default();
        let row: Vec<u64> = row
            .split_whitespace()
            .filter_map(|it| it.parse().ok())
            .collect();
        let pus = files
            .set(&directory, &["cpulist", "cpumap"])
            .unwrap_or_default();
        NumaNode {
            os_index,
            memory_bytes: files.memory_total(&format!("{directory}/meminfo")),
            pus: pus.intersection(online),
            distances: if row.len() == numbers.len() {
                row
            } else {
                Vec::new()
            },
            latency_nanos: None,
            subtype: None,
        }
    };
    numbers.iter().map(|number| node(*number)).collect()
}

fn caches(files: &Files, online: &NumberSet) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for pu in online.iter() {
        let directory = format!("{CPU}/cpu{pu}/cache");
        for index in files.numbered(&directory, "index").iter() {
            let directory = format!("{directory}/index{index}");
            let instruction =
                files.text(&format!("{directory}/type")).as_deref() == Some("Instruction");
            let level = files.number(&format!("{directory}/level"));
            let set = files.set(&directory, &["shared_cpu_list", "shared_cpu_map"]);
            let (Some(level), Some(set), false) = (level, set, instruction) else {
                continue;
            };
            let mut pus = set.intersection(online);
            pus.insert(pu);
            let overlaps = |it: &Cache| it.level == level && it.pus.intersects(&pus);
            if caches.iter().rev().any(overlaps) {
                continue;
            }
            caches.push(Cache {
                level,
                size_bytes: files
                    .text(&format!("{directory}/size"))
                    .and_then(|it| bytes(&it)),
                line_bytes: files.number(&format!("{directory}/coherency_line_size")),
                pus,
            });
        }
    }
    caches
}

/// A size such as `32K`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// Kinds of core, least able first: named ones of hybrid x86, else by the kernel's capacity.
fn cpu_kinds(files: &Files, online: &NumberSet) -> Vec<CpuKind> {
    let mut kinds = Vec::new();
    for (index, name) in ["cpu_lowpower", "cpu_atom", "cpu_core"]
        .into_iter()
        .enumerate()
    {
        if let Some(pus) = files.list(&format!("/sys/devices/{name}/cpus")) {
            kinds.push((index as u64, name.to_string(), pus.intersection(online)));
        }
    }
    if kinds.is_empty() {
        for pu in online.iter() {
            let Some(capacity) = files.number::<u64>(&format!("{CPU}/cpu{pu}/cpu_capacity")) else {
                continue;
            };
            match kinds.iter_mut().find(|(other, ..)| *other == capacity) {
                Some((.., pus)) => pus.insert(pu),
                None => kinds.push((
                    capacity,
                    format!("cpu_capacity={capacity}"),
                    [pu].into_iter().collect(),
                )),
            }
        }
        kinds.sort_by_key(|(capacity, ..)| *capacity);
    }
    kinds.retain(|(.., pus)| !pus.is_empty());
    if kinds.len() < 2 {
        return Vec::new();
    }
    let ranked = kinds.into_iter().enumerate();
    ranked
        .map(|(rank, (_, name, pus))| CpuKind {
            rank: Some(rank as u32),
            name,
            pus,
        })
        .collect()
}

fn processor(files: &Files) -> Option<String> {
    let text = files.text("/proc/cpuinfo")?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let named = |name: &str| matches!(name.trim(), "model name" | "cpu" | "Processor" | "family");
    let (_, value) = fields.find(|(name, _)| named(name))?;
    Some(value.trim().to_string()).filter(|name| !name.is_empty())
}

/// PUs that are switched off or kept away from the scheduler.
pub(crate) fn switched_off(files: &Files) -> Vec<Restriction> {
    let lists = [
        (RestrictionKind::Offline, format!("{CPU}/offline")),
        (RestrictionKind::Isolated, format!("{CPU}/isolated")),
    ];
    let present = files.list(&format!("{CPU}/present"));
    let mut found = Vec::new();
    for (kind, path) in lists {
        let Some(mut set) = files.list(&path) else {
            continue;
        };
        // `offline` also lists numbers that no processor has.
        if let Some(present) = &present {
            set = set.intersection(present);
        }
        if !set.is_empty() {
            found.push(Restriction {
                kind,
                value: set.to_string(),
                source: path,
            });
        }
    }
    found
}

/// PUs so that those which share more stand nearer to each other.
fn in_tree_order(machine: &Machine, online: &NumberSet) -> Vec<Pu> {
    let packages = machine.packages.iter().map(|it| &it.pus);
    let nodes = machine.numa_nodes.iter().map(|it| &it.pus);
    let caches = machine.caches.iter().map(|it| &it.pus);
    let cores = machine.cores.iter().map(|it| &it.pus);
    let mut sets: Vec<&NumberSet> = packages.chain(nodes).chain(caches).chain(cores).collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let path = |pu: u32| -> Vec<Option<u32>> {
        let holders = sets.iter().filter(|set| set.contains(pu));
        holders.map(|set| set.first()).collect()
    };
    let mut numbers: Vec<(Vec<Option<u32>>, u32)> =
        online.iter().map(|pu| (path(pu), pu)).collect();
    numbers.sort();
    let pu = |(_, os_index)| Pu {
        os_index,
        core: None,
        package: None,
        nodes: Vec::new(),
        kind: None,
    };
    numbers.into_iter().map(pu).collect()
}

/// Brings packages, nodes and cores into the order of their first PUs in the tree.
fn sort(machine: &mut Machine) {
    let order: std::collections::BTreeMap<u32, usize> = machine
        .pus
        .iter()
        .enumerate()
        .map(|(position, pu)| (pu.os_index, position))
        .collect();
    let place = |set: &NumberSet| {
        set.iter()
            .filter_map(|pu| order.get(&pu))
            .min()
            .copied()
            .unwrap_or(usize::MAX)
    };
    machine.packages.sort_by_key(|it| place(&it.pus));
    machine.cores.sort_by_key(|it| place(&it.pus));
    let rows: Vec<u32> = machine
        .numa_nodes
        .iter()
        .map(|node| node.os_index)
        .collect();
    machine
        .numa_nodes
        .sort_by_key(|it| (place(&it.pus), it.os_index));
    let columns: Vec<usize> = machine
        .numa_nodes
        .iter()
        .filter_map(|node| rows.iter().position(|row| *row == node.os_index))
        .collect();
    for node in machine
        .numa_nodes
        .iter_mut()
        .filter(|node| !node.distances.is_empty())
    {
        node.distances = columns
            .iter()
            .map(|column| node.distances[*column])
            .collect();
    }
}

/// Why hwloc must not be asked about a system with these files, if so. It ends the process on an
/// assertion where the directory of nodes is empty, and prints a warning on the terminal where
/// sets overlap in part.
#[cfg(feature = "hwloc")]
pub(crate) fn unfit_for_hwloc(files: &Files, machine: &Machine) -> Option<&'static str> {
    if files.numbered(NODE, "node").is_empty() {
        return Some("the system shows no NUMA nodes");
    }
    let packages = machine.packages.iter().map(|it| &it.pus);
    let nodes = machine.numa_nodes.iter().map(|it| &it.pus);
    let caches = machine.caches.iter().map(|it| &it.pus);
    let cores = machine.cores.iter().map(|it| &it.pus);
    let sets: Vec<&NumberSet> = packages.chain(nodes).chain(caches).chain(cores).collect();
    let overlaps = |set: &NumberSet, other: &NumberSet| {
        set.intersects(other) && !set.is_subset(other) && !other.is_subset(set)
    };
    let mut pairs = sets
        .iter()
        .enumerate()
        .flat_map(|(index, set)| sets[index + 1..].iter().map(move |other| (set, other)));
    let conflict = !machine.notes.is_empty() || pairs.any(|(set, other)| overlaps(set, other));
    conflict.then_some("the system's files contradict each other")
}
