//! The form for terminals: the tree, the plan, what restricts it, what was verified.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::tree::{Item, Tree};
use super::{Report, ShardVerification, words};
use crate::machine::Machine;
use crate::plan::Seat;
use crate::set::NumberSet;

/// Up to this many PUs every core gets a line of its own; beyond, alike neighbours share one.
const PUS_IN_FULL_MAX: usize = 64;
/// Up to this many seats the plan's remarks on single seats are all printed.
const SEAT_NOTES_MAX: usize = 6;

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    heading(&mut text, report);
    machine(&mut text, report);
    plan(&mut text, report);
    restrictions(&mut text, report);
    verification(&mut text, report);
    text
}

/// Writing to a string cannot fail; this keeps the calls short.
macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($argument:tt)*) => { writeln!($text, $($argument)*).expect("a string takes all") };
}

fn heading(text: &mut String, report: &Report) {
    line!(text, "{}", words::title(&report.machine));
    line!(text, "{}", words::summary(&report.machine));
    for note in &report.machine.notes {
        line!(text, "note: {note}");
    }
    line!(text);
}

/// Which shards sit on which PU.
fn shards_by_pu(seats: &[Seat]) -> BTreeMap<u32, Vec<usize>> {
    let mut shards: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for seat in seats {
        shards.entry(seat.pu).or_default().push(seat.shard);
    }
    shards
}

fn machine(text: &mut String, report: &Report) {
    let machine = &report.machine;
    let drawing = Drawing {
        machine,
        shards: shards_by_pu(&report.plan.seats),
        in_full: machine.pus.len() <= PUS_IN_FULL_MAX,
    };
    drawing.children(text, &Tree::new(machine), "");
    for node in machine.numa_nodes.iter().filter(|node| node.pus.is_empty()) {
        line!(text, "{}: no PUs", words::node(node));
    }
    if machine.cpu_kinds.len() > 1 {
        for (index, kind) in machine.cpu_kinds.iter().enumerate() {
            line!(text, "Kind {index}: PUs {} ({})", kind.pus, kind.name);
        }
    }
    line!(text);
}

/// Draws the tree.
struct Drawing<'report> {
    machine: &'report Machine,
    shards: BTreeMap<u32, Vec<usize>>,
    in_full: bool,
}

impl Drawing<'_> {
    fn children(&self, text: &mut String, tree: &Tree, indent: &str) {
        let mut rest = tree.children.as_slice();
        while let Some(first) = rest.first() {
            if self.in_full || !is_core(first) {
                self.object(text, first, indent);
                rest = &rest[1..];
                continue;
            }
            let alike = rest
                .iter()
                .take_while(|it| is_core(it) && it.pus.len() == first.pus.len());
            let (cores, others) = rest.split_at(alike.count());
            self.cores(text, cores, indent);
            rest = others;
        }
    }

    fn object(&self, text: &mut String, tree: &Tree, indent: &str) {
        if is_core(tree) || matches!(tree.item, Item::Pu(_)) {
            self.core(text, tree, indent);
            return;
        }
        // Objects with the same PUs share a line.
        let mut label = self.label(tree.item);
        let mut inner = tree;
        while let [only] = inner.children.as_slice()
            && only.pus == inner.pus
            && !is_core(only)
        {
            write!(label, "  {}", self.label(only.item)).expect("a string takes all");
            inner = only;
        }
        line!(text, "{indent}{label}");
        self.children(text, inner, &format!("{indent}  "));
    }

    fn label(&self, item: Item) -> String {
        match item {
            Item::Machine => "Machine".to_string(),
            Item::Package(index) => words::package(self.machine, index),
            Item::Node(index) => words::node(&self.machine.numa_nodes[index]),
            Item::Cache(index) => words::cache(&self.machine.caches[index]),
            Item::Core(index) => words::core(self.machine, index),
            Item::Pu(index) => self.pu(self.machine.pus[index].os_index),
        }
    }

    /// A core with its own caches and PUs on a line.
    fn core(&self, text: &mut String, tree: &Tree, indent: &str) {
        let mut labels: Vec<String> = Vec::new();
        self.flatten(tree, &mut labels);
        labels.sort_by_key(|label| !label.starts_with("core"));
        line!(text, "{indent}{}", labels.join("  "));
    }

    fn flatten(&self, tree: &Tree, labels: &mut Vec<String>) {
        labels.push(self.label(tree.item));
        for child in &tree.children {
            self.flatten(child, labels);
        }
    }

    /// Cores of the same width, on a line for all.
    fn cores(&self, text: &mut String, cores: &[Tree], indent: &str) {
        let pus = cores
            .iter()
            .fold(NumberSet::new(), |sum, core| sum.union(&core.pus));
        let shards = numbers(pus.iter().filter_map(|pu| self.shards.get(&pu)).flatten());
        let threads = words::count(cores[0].pus.len(), "thread");
        let barred = pus.difference(&self.machine.allowed_pus);
        let mut label = format!(
            "{} of {threads}: PUs {pus}",
            words::count(cores.len(), "core")
        );
        if !shards.is_empty() {
            write!(label, ", shards {shards}").expect("a string takes all");
        }
        if !barred.is_empty() {
            write!(label, ", not allowed {barred}").expect("a string takes all");
        }
        line!(text, "{indent}{label}");
    }

    fn pu(&self, os_index: u32) -> String {
        let mark = match self.shards.get(&os_index) {
            Some(shards) => {
                let shards = numbers(shards.iter());
                let word = if shards.len() == 1 { "shard" } else { "shards" };
                format!("[{word} {shards}]")
            }
            None if !self.machine.allowed_pus.contains(os_index) => "(not allowed)".to_string(),
            None => "(free)".to_string(),
        };
        format!("PU {os_index} {mark}")
    }
}

/// Shards as a set, for the short form of a list.
fn numbers<'a>(shards: impl Iterator<Item = &'a usize>) -> NumberSet {
    shards
        .filter_map(|shard| u32::try_from(*shard).ok())
        .collect()
}

/// Whether a place stands for a core, perhaps under its own caches.
fn is_core(tree: &Tree) -> bool {
    match tree.item {
        Item::Core(_) => true,
        Item::Cache(_) => {
            matches!(tree.children.as_slice(), [only] if only.pus == tree.pus && is_core(only))
        }
        _ => false,
    }
}

fn plan(text: &mut String, report: &Report) {
    let plan = &report.plan;
    line!(
        text,
        "Plan: {} ({}, {} order{})",
        words::count(plan.seats.len(), "shard"),
        plan.policy.shards,
        plan.policy.order,
        if plan.oversubscribed {
            ", oversubscribed"
        } else {
            ""
        }
    );
    let heads = ["shard", "PU", "core", "package", "node", "memory", "arena"].map(str::to_string);
    let rows = plan.seats.iter().map(|seat| row(&report.machine, seat));
    table(text, &heads, &rows.collect::<Vec<_>>());
    let spare: NumberSet = plan.spare_pus.iter().copied().collect();
    if !spare.is_empty() {
        line!(text, "  free PUs: {spare}");
    }
    for note in &plan.notes {
        line!(text, "  note: {note}");
    }
    let mut remarks: Vec<(&str, Vec<usize>)> = Vec::new();
    for (seat, note) in plan
        .seats
        .iter()
        .flat_map(|seat| seat.notes.iter().map(move |note| (seat, note)))
    {
        match remarks.iter_mut().find(|(known, _)| *known == note) {
            Some((_, shards)) => shards.push(seat.shard),
            None => remarks.push((note, vec![seat.shard])),
        }
    }
    for (note, shards) in remarks.iter().take(SEAT_NOTES_MAX) {
        let shards = numbers(shards.iter());
        line!(
            text,
            "  note: {} {shards}: {note}",
            if shards.len() == 1 { "shard" } else { "shards" }
        );
    }
    if remarks.len() > SEAT_NOTES_MAX {
        line!(
            text,
            "  note: {} more remarks on seats",
            remarks.len() - SEAT_NOTES_MAX
        );
    }
    line!(text);
}

fn row(machine: &Machine, seat: &Seat) -> [String; 7] {
    let core = seat
        .core
        .map(|core| machine.cores[core].os_index.map_or(core, |it| it as usize));
    let package = seat
        .package
        .map(|it| machine.packages[it].os_index.map_or(it, |it| it as usize));
    let remote = if seat.remote { " (remote)" } else { "" };
    [
        seat.shard.to_string(),
        seat.pu.to_string(),
        words::or_dash(core),
        words::or_dash(package),
        words::or_dash(seat.node),
        seat.memory_node
            .map_or_else(|| "-".to_string(), |node| format!("node {node}{remote}")),
        match seat.arena_bytes {
            0 => "size unknown".to_string(),
            size => words::bytes(size),
        },
    ]
}

/// A table with columns as wide as they need to be, numbers to the right.
fn table<const WIDTH: usize>(text: &mut String, heads: &[String; WIDTH], rows: &[[String; WIDTH]]) {
    let all = || std::iter::once(heads).chain(rows);
    let widths: Vec<usize> = (0..WIDTH)
        .map(|column| {
            all()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in all() {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"));
        line!(
            text,
            "  {}",
            cells.collect::<Vec<_>>().join("  ").trim_end()
        );
    }
}

fn restrictions(text: &mut String, report: &Report) {
    if report.restrictions.is_empty() {
        line!(text, "Restrictions: none");
        return;
    }
    line!(text, "Restrictions:");
    for restriction in &report.restrictions {
        line!(
            text,
            "  {}: {} ({})",
            words::restriction(restriction.kind),
            restriction.value,
            restriction.source
        );
    }
}

fn verification(text: &mut String, report: &Report) {
    let Some(verification) = &report.verification else {
        return;
    };
    line!(text);
    line!(text, "Verified (asked / got):");
    let heads = [
        "shard",
        "PU",
        "pinned",
        "node",
        "pages by node",
        "local",
        "huge pages",
    ]
    .map(str::to_string);
    let rows = verification.shards.iter().map(verified);
    table(text, &heads, &rows.collect::<Vec<_>>());
    for shard in &verification.shards {
        for error in &shard.errors {
            line!(text, "  shard {}: {error}", shard.shard);
        }
    }
}

fn verified(shard: &ShardVerification) -> [String; 7] {
    let most = shard
        .pages_by_node
        .iter()
        .max_by_key(|it| it.pages)
        .map(|it| it.node);
    let pages = shard
        .pages_by_node
        .iter()
        .map(|it| format!("{}: {}", it.node, it.pages));
    [
        shard.shard.to_string(),
        format!("{} / {}", shard.pu_asked, words::or_dash(shard.pu_got)),
        match shard.is_pinned() {
            true => "yes".to_string(),
            false => format!("no, may run on {}", shard.cpus_allowed),
        },
        format!(
            "{} / {}",
            words::or_dash(shard.node_asked),
            words::or_dash(most)
        ),
        match shard.pages_by_node.is_empty() {
            true => "not read".to_string(),
            false => pages.collect::<Vec<_>>().join(", "),
        },
        shard.local_share().map_or_else(
            || "-".to_string(),
            |share| format!("{:.1} %", share * 100.0),
        ),
        words::bytes(shard.huge_bytes),
    ]
}
