//! Reads the XML files that hwloc writes, of format 1 and 2, without hwloc.
//!
//! The library itself ends the process on some damaged files and prints on the terminal about
//! others, so files of unknown origin never reach it. What is needed here is little: the objects
//! with their PU sets, what is allowed, the distances and latencies of nodes, the kinds of core.
//!
//! # The two formats
//! Format 1 has no `version`, calls packages `Socket` and caches `Cache`, may leave out NUMA nodes
//! (the machine is then one node), and gives distances as factors of a base inside an object.
//! Format 2 names levels (`L2Cache`), hangs nodes beside what is local to them, and gives
//! distances, memory attributes and kinds of core at the end. Objects come in tree order in both.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use crate::error::MachineError;
use crate::machine::{
    Cache, Core, CpuKind, Machine, NumaNode, Package, Pu, Restriction, RestrictionKind, Source,
    SourceKind,
};
use crate::set::NumberSet;

/// The first format version that is not read.
const VERSION_END: u32 = 3;
/// Bit of a matrix's kind that says that its values are latencies.
const KIND_LATENCY: u32 = 1 << 2;

pub(crate) fn from_xml(path: &Path) -> Result<Machine, MachineError> {
    let unreadable = |error: std::io::Error| MachineError::Unreadable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let bytes = fs::read(path).map_err(unreadable)?;
    let not_xml = |reason: String| MachineError::NotXml {
        path: path.to_path_buf(),
        reason,
    };
    let text = String::from_utf8(bytes).map_err(|_| not_xml("it is not text".to_string()))?;
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document =
        Document::parse_with_options(&text, options).map_err(|error| not_xml(error.to_string()))?;
    let root = document.root_element();
    if root.tag_name().name() != "topology" {
        return Err(MachineError::NotTopology {
            path: path.to_path_buf(),
            root: root.tag_name().name().to_string(),
        });
    }
    let version = root.attribute("version").unwrap_or("1.0");
    let major = version.split('.').next().unwrap_or_default();
    if major.parse::<u32>().is_ok_and(|major| major >= VERSION_END) {
        return Err(MachineError::TooNew {
            path: path.to_path_buf(),
            version: version.to_string(),
        });
    }
    machine(root, path).ok_or_else(|| MachineError::NoMachine {
        path: path.to_path_buf(),
        reason: "no processor is described in it".to_string(),
    })
}

/// The machine below the root element; `None` if it has no PU.
fn machine(root: Node<'_, '_>, path: &Path) -> Option<Machine> {
    let pus = pus(root);
    let seen: NumberSet = pus.iter().map(|pu| pu.os_index).collect();
    if seen.is_empty() {
        return None;
    }
    let whole = objects(root, &["Machine", "System"]).next();
    let numa_nodes = nodes(root, whole, &seen);
    let node_numbers: NumberSet = numa_nodes.iter().map(|node| node.os_index).collect();
    let allowed = |name: &str, all: &NumberSet| {
        let set = whole.and_then(|whole| set(whole, name)).unwrap_or_default();
        let set = set.intersection(all);
        if set.is_empty() { all.clone() } else { set }
    };
    let allowed_pus = allowed("allowed_cpuset", &seen);
    let allowed_nodes = allowed("allowed_nodeset", &node_numbers);
    let mut machine = Machine {
        is_this_system: false,
        source: Source {
            kind: SourceKind::Xml,
            detail: path.display().to_string(),
        },
        processor: processor(root),
        memory_bytes: None,
        packages: packages(root, &seen),
        numa_nodes,
        caches: caches(root, &seen),
        cores: cores(root, &seen),
        cpu_kinds: cpu_kinds(root, &seen),
        pus,
        permitted_pus: allowed_pus.clone(),
        allowed_pus,
        allowed_nodes,
        cpu_quota: None,
        memory_limit_bytes: None,
        restrictions: Vec::new(),
        notes: Vec::new(),
    };
    let barred = [
        ("PUs", seen.difference(&machine.allowed_pus)),
        ("nodes", node_numbers.difference(&machine.allowed_nodes)),
    ];
    for (what, set) in barred.into_iter().filter(|(_, set)| !set.is_empty()) {
        machine.restrictions.push(Restriction {
            kind: RestrictionKind::Disallowed,
            value: format!("{what} {set}"),
            source: machine.source.detail.clone(),
        });
    }
    machine.link();
    Some(machine)
}

/// All objects of some types, in tree order.
fn objects<'a, 'input>(
    root: Node<'a, 'input>,
    types: &'static [&'static str],
) -> impl Iterator<Item = Node<'a, 'input>> {
    let object = |node: &Node<'_, '_>| node.has_tag_name("object");
    let typed = |node: &Node<'_, '_>| node.attribute("type").is_some_and(|it| types.contains(&it));
    root.descendants()
        .filter(move |node| object(node) && typed(node))
}

fn number<T: std::str::FromStr>(node: Node<'_, '_>, name: &str) -> Option<T> {
    node.attribute(name)?.parse().ok()
}

/// A size where 0 means unknown or none.
fn size(node: Node<'_, '_>, name: &str) -> Option<u64> {
    number(node, name).filter(|bytes| *bytes > 0)
}

/// A set in hwloc's form: groups of 32 bits, highest first, empty ones being 0. The part of an
/// endless set that repeats is left out.
fn set(node: Node<'_, '_>, name: &str) -> Option<NumberSet> {
    let text = node.attribute(name)?;
    let groups = text.split(',').filter(|group| !group.contains("..."));
    let groups: Vec<&str> = groups
        .map(|it| if it.is_empty() { "0" } else { it })
        .collect();
    NumberSet::from_mask(&groups.join(",")).ok()
}

/// The PUs of an object: what its set says, or else the PUs below it.
fn pus_of(object: Node<'_, '_>, seen: &NumberSet) -> NumberSet {
    let said = set(object, "cpuset");
    let below = || {
        objects(object, &["PU"])
            .filter_map(|pu| number(pu, "os_index"))
            .collect()
    };
    said.unwrap_or_else(below).intersection(seen)
}

fn pus(root: Node<'_, '_>) -> Vec<Pu> {
    let mut seen = NumberSet::new();
    let mut pus = Vec::new();
    for os_index in objects(root, &["PU"]).filter_map(|it| number(it, "os_index")) {
        if seen.contains(os_index) {
            continue;
        }
        seen.insert(os_index);
        // A number beyond what any machine has is not taken up by the set.
        if seen.contains(os_index) {
            pus.push(Pu {
                os_index,
                core: None,
                package: None,
                nodes: Vec::new(),
                kind: None,
            });
        }
    }
    pus
}

fn packages(root: Node<'_, '_>, seen: &NumberSet) -> Vec<Package> {
    let package = |it| Package {
        os_index: number(it, "os_index"),
        pus: pus_of(it, seen),
    };
    objects(root, &["Package", "Socket"]).map(package).collect()
}

fn cores(root: Node<'_, '_>, seen: &NumberSet) -> Vec<Core> {
    let core = |it| Core {
        os_index: number(it, "os_index"),
        package: None,
        kind: None,
        pus: pus_of(it, seen),
    };
    objects(root, &["Core"]).map(core).collect()
}

fn caches(root: Node<'_, '_>, seen: &NumberSet) -> Vec<Cache> {
    const TYPES: &[&str] = &[
        "Cache", "L1Cache", "L2Cache", "L3Cache", "L4Cache", "L5Cache",
    ];
    let mut caches = Vec::new();
    for it in objects(root, TYPES) {
        // The kinds are unified 0, data 1, instruction 2.
        let instruction = it.attribute("cache_type") == Some("2");
        if let (Some(level), false) = (number(it, "depth"), instruction) {
            caches.push(Cache {
                level,
                size_bytes: size(it, "cache_size"),
                line_bytes: number(it, "cache_linesize").filter(|bytes| *bytes > 0),
                pus: pus_of(it, seen),
            });
        }
    }
    caches
}

/// The NUMA nodes; a machine without any is one node.
fn nodes(root: Node<'_, '_>, whole: Option<Node<'_, '_>>, seen: &NumberSet) -> Vec<NumaNode> {
    let latencies = latencies(root);
    let mut nodes: Vec<NumaNode> = Vec::new();
    for it in objects(root, &["NUMANode", "Node"]) {
        let Some(os_index) = number(it, "os_index") else {
            continue;
        };
        if nodes.iter().any(|node| node.os_index == os_index) {
            continue;
        }
        nodes.push(NumaNode {
            os_index,
            memory_bytes: size(it, "local_memory"),
            pus: pus_of(it, seen),
            distances: Vec::new(),
            latency_nanos: it
                .attribute("gp_index")
                .and_then(|it| latencies.get(it))
                .copied(),
            subtype: it.attribute("subtype").map(str::to_string),
        });
    }
    if nodes.is_empty() {
        nodes.push(NumaNode {
            os_index: 0,
            memory_bytes: whole.and_then(|whole| size(whole, "local_memory")),
            pus: seen.clone(),
            distances: Vec::new(),
            latency_nanos: None,
            subtype: None,
        });
    }
    let numbers: Vec<u32> = nodes.iter().map(|node| node.os_index).collect();
    if let Some(matrix) = matrix_2(root).or_else(|| matrix_1(root, &numbers)) {
        for node in &mut nodes {
            let row = numbers
                .iter()
                .map(|to| matrix.get(&(node.os_index, *to)).copied());
            node.distances = row.collect::<Option<Vec<u64>>>().unwrap_or_default();
        }
    }
    nodes
}

/// Values between nodes, by pairs of numbers.
type Matrix = BTreeMap<(u32, u32), u64>;

/// The first matrix of latencies between nodes in format 2.
fn matrix_2(root: Node<'_, '_>) -> Option<Matrix> {
    let mut found = root.children().filter(|it| it.has_tag_name("distances2"));
    let matrix = found.find(|it| {
        it.attribute("type") == Some("NUMANode")
            && it.attribute("indexing") == Some("os")
            && number::<u32>(*it, "kind").is_some_and(|kind| kind & KIND_LATENCY != 0)
    })?;
    let numbers: Vec<u32> = values(matrix, "indexes");
    let cells: Vec<u64> = values(matrix, "u64values");
    pairs(&numbers, &cells)
}

/// The numbers in all child elements of a name.
fn values<T: std::str::FromStr>(parent: Node<'_, '_>, name: &'static str) -> Vec<T> {
    let texts = parent
        .children()
        .filter(|it| it.has_tag_name(name))
        .filter_map(|it| it.text());
    texts
        .flat_map(str::split_whitespace)
        .filter_map(|it| it.parse().ok())
        .collect()
}

/// The first matrix of format 1 that has as many rows as there are nodes.
fn matrix_1(root: Node<'_, '_>, numbers: &[u32]) -> Option<Matrix> {
    let mut found = root.descendants().filter(|it| it.has_tag_name("distances"));
    let matrix = found.find(|it| number(*it, "nbobjs") == Some(numbers.len()))?;
    let base: f64 = number(matrix, "latency_base")?;
    let factors = matrix.children().filter(|it| it.has_tag_name("latency"));
    let factors = factors.filter_map(|it| number::<f64>(it, "value"));
    // Casting saturates, so that nonsense stays harmless.
    let cells: Vec<u64> = factors
        .map(|factor| (factor * base).round() as u64)
        .collect();
    pairs(numbers, &cells)
}

/// A square of cells, row by row; `None` if it is not square.
fn pairs(numbers: &[u32], cells: &[u64]) -> Option<Matrix> {
    let side = numbers.len();
    if side == 0 || cells.len() != side * side {
        return None;
    }
    let places = numbers
        .iter()
        .flat_map(|from| numbers.iter().map(move |to| (*from, *to)));
    Some(places.zip(cells.iter().copied()).collect())
}

/// Access latencies of nodes by their identifiers in the file.
fn latencies<'a>(root: Node<'a, '_>) -> BTreeMap<&'a str, u64> {
    let mut attributes = root.children().filter(|it| it.has_tag_name("memattr"));
    let Some(latency) = attributes.find(|it| it.attribute("name") == Some("Latency")) else {
        return BTreeMap::new();
    };
    let mut lowest = BTreeMap::new();
    for it in latency
        .children()
        .filter(|it| it.has_tag_name("memattr_value"))
    {
        let target = it.attribute("target_obj_gp_index");
        if let (Some(target), Some(value)) = (target, number::<u64>(it, "value")) {
            let known = lowest.entry(target).or_insert(value);
            *known = value.min(*known);
        }
    }
    lowest
}

fn cpu_kinds(root: Node<'_, '_>, seen: &NumberSet) -> Vec<CpuKind> {
    let mut kinds: Vec<CpuKind> = Vec::new();
    for it in root.children().filter(|it| it.has_tag_name("cpukind")) {
        let infos = it.children().filter(|it| it.has_tag_name("info"));
        let names: Vec<String> = infos
            .filter_map(info)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        kinds.push(CpuKind {
            rank: number(it, "forced_efficiency"),
            name: names.join(" "),
            pus: pus_of(it, seen),
        });
    }
    kinds.retain(|kind| !kind.pus.is_empty());
    // Ranks that the file does not force follow from the order, in which it is least able first.
    if kinds.iter().any(|kind| kind.rank.is_none()) {
        for (rank, kind) in kinds.iter_mut().enumerate() {
            kind.rank = u32::try_from(rank).ok();
        }
    }
    kinds.sort_by_key(|kind| kind.rank);
    kinds
}

fn info<'a>(node: Node<'a, '_>) -> Option<(&'a str, &'a str)> {
    Some((node.attribute("name")?, node.attribute("value")?))
}

fn processor(root: Node<'_, '_>) -> Option<String> {
    let infos = root.descendants().filter(|it| it.has_tag_name("info"));
    let mut pairs = infos.filter_map(info);
    let (_, name) = pairs.find(|(name, _)| *name == "CPUModel")?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}
