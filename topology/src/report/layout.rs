//! Sizes and places of the picture's boxes.
//!
//! A box is as large as its label and its children need. Children stand in a grid whose number of
//! columns brings the box nearest to the shape of a screen. A core is a row of its PUs with its own
//! caches as lines above; on large machines cores lose their labels and PUs shrink.

use super::tree::{Item, Tree};
use super::words;
use crate::machine::Machine;

/// Beyond this many PUs the small sizes are used.
const PUS_LARGE_MAX: usize = 160;
/// Wanted width of a box in heights.
const SHAPE: f64 = 1.7;

/// Measures that depend on the size of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) pu_width: f64,
    pub(super) pu_height: f64,
    pub(super) gap: f64,
    pub(super) head: f64,
    pub(super) font: f64,
    /// Whether cores have labels.
    pub(super) core_labels: bool,
}

impl Scale {
    pub(super) fn of(machine: &Machine) -> Self {
        if machine.pus.len() <= PUS_LARGE_MAX {
            Self {
                pu_width: 70.0,
                pu_height: 40.0,
                gap: 8.0,
                head: 22.0,
                font: 13.0,
                core_labels: true,
            }
        } else {
            Self {
                pu_width: 36.0,
                pu_height: 28.0,
                gap: 5.0,
                head: 19.0,
                font: 12.0,
                core_labels: false,
            }
        }
    }

    /// About how wide a text is.
    fn text(self, text: &str) -> f64 {
        text.chars().count() as f64 * self.font * 0.58
    }
}

/// A box, placed relative to its parent.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) item: Item,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Lines at the top.
    pub(super) labels: Vec<String>,
    pub(super) children: Vec<Block>,
}

impl Block {
    /// The box of a whole machine, with memory-only nodes at its end.
    pub(super) fn of_machine(machine: &Machine, scale: Scale) -> Self {
        let tree = Tree::new(machine);
        let mut children: Vec<Self> = tree
            .children
            .iter()
            .map(|it| Self::of(machine, scale, it))
            .collect();
        let apart = machine.numa_nodes.iter().enumerate();
        for (index, node) in apart.filter(|(_, node)| node.pus.is_empty()) {
            let labels = vec![words::node(node), "no PUs".to_string()];
            children.push(Self::new(Item::Node(index), scale, labels, Vec::new()));
        }
        Self::new(Item::Machine, scale, Vec::new(), children)
    }

    fn of(machine: &Machine, scale: Scale, tree: &Tree) -> Self {
        if let Item::Pu(_) = tree.item {
            return Self {
                item: tree.item,
                x: 0.0,
                y: 0.0,
                width: scale.pu_width,
                height: scale.pu_height,
                labels: Vec::new(),
                children: Vec::new(),
            };
        }
        if let Some((core, caches)) = core(tree) {
            let mut labels = Vec::new();
            if scale.core_labels {
                labels.push(Self::label(machine, core.item));
                let caches = caches.iter().map(|item| Self::label(machine, *item));
                labels.extend(caches);
            }
            let children = pus(core)
                .into_iter()
                .map(|it| Self::of(machine, scale, it))
                .collect();
            return Self::new(core.item, scale, labels, children);
        }
        let children = tree
            .children
            .iter()
            .map(|it| Self::of(machine, scale, it))
            .collect();
        Self::new(
            tree.item,
            scale,
            vec![Self::label(machine, tree.item)],
            children,
        )
    }

    fn label(machine: &Machine, item: Item) -> String {
        match item {
            Item::Machine => String::new(),
            Item::Package(index) => words::package(machine, index),
            Item::Node(index) => words::node(&machine.numa_nodes[index]),
            Item::Cache(index) => words::cache(&machine.caches[index]),
            Item::Core(index) => words::core(machine, index),
            Item::Pu(index) => format!("PU {}", machine.pus[index].os_index),
        }
    }

    fn new(item: Item, scale: Scale, labels: Vec<String>, mut children: Vec<Self>) -> Self {
        let gap = match item {
            Item::Core(_) => scale.gap / 2.0,
            _ => scale.gap,
        };
        let top = labels.len() as f64 * scale.head + if labels.is_empty() { gap } else { 0.0 };
        let columns = match item {
            Item::Core(_) => children.len().clamp(1, 4),
            _ => best_columns(&children, gap),
        };
        let (width, height) = grid(&children, columns, gap);
        let (mut y, mut index) = (top, 0);
        while index < children.len() {
            let end = (index + columns).min(children.len());
            let row = &mut children[index..end];
            index += row.len();
            let mut x = gap;
            let tallest = row.iter().map(|it| it.height).fold(0.0, f64::max);
            for child in row {
                (child.x, child.y) = (x, y);
                x += child.width + gap;
            }
            y += tallest + gap;
        }
        let widest = labels
            .iter()
            .map(|label| scale.text(label) + 16.0)
            .fold(0.0, f64::max);
        Self {
            item,
            x: 0.0,
            y: 0.0,
            width: widest.max(width),
            height: top + height.max(gap),
            labels,
            children,
        }
    }
}

/// Width and height of children in a grid, with a gap round each, none above the first row.
fn grid(children: &[Block], columns: usize, gap: f64) -> (f64, f64) {
    let (mut width, mut height) = (0.0_f64, 0.0);
    for row in children.chunks(columns.max(1)) {
        let sum: f64 = row.iter().map(|it| it.width + gap).sum();
        width = width.max(sum + gap);
        height += row.iter().map(|it| it.height).fold(0.0, f64::max) + gap;
    }
    (width, height)
}

/// The number of columns that comes nearest to the wanted shape without a ragged last row, if
/// that is not much worse.
fn best_columns(children: &[Block], gap: f64) -> usize {
    let badness = |columns: usize| {
        let (width, height) = grid(children, columns, gap);
        let ragged = !children.len().is_multiple_of(columns);
        (width / height.max(1.0) / SHAPE).ln().abs() + if ragged { 0.4 } else { 0.0 }
    };
    let all = 1..=children.len().max(1);
    all.min_by(|a, b| badness(*a).total_cmp(&badness(*b)))
        .unwrap_or(1)
}

/// The core at a place, with the caches of its own that stand above it.
fn core(tree: &Tree) -> Option<(&Tree, Vec<Item>)> {
    let mut caches = Vec::new();
    let mut tree = tree;
    loop {
        match (tree.item, tree.children.as_slice()) {
            (Item::Core(_), _) => {
                below(tree, &mut caches);
                return Some((tree, caches));
            }
            (Item::Cache(_), [only]) if only.pus == tree.pus => {
                caches.push(tree.item);
                tree = only;
            }
            _ => return None,
        }
    }
}

/// Caches inside a core.
fn below(tree: &Tree, caches: &mut Vec<Item>) {
    for child in &tree.children {
        if let Item::Cache(_) = child.item {
            caches.push(child.item);
        }
        below(child, caches);
    }
}

/// All PUs inside a core.
fn pus(tree: &Tree) -> Vec<&Tree> {
    let mut found = Vec::new();
    for child in &tree.children {
        match child.item {
            Item::Pu(_) => found.push(child),
            _ => found.extend(pus(child)),
        }
    }
    found
}
