//! Nests a machine's objects by their PU sets, for the forms that draw it.
//!
//! Every object goes under the smallest one that holds all its PUs; of objects with the same PUs
//! the order is package, node, cache, core. Objects that overlap in part stand side by side, under
//! what holds both, and a PU stands under the first that claims it. Nodes with the same PUs stand
//! in one another.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::set::NumberSet;

/// What a place in the tree stands for; numbers are indices into the machine's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Machine,
    Package(usize),
    Node(usize),
    Cache(usize),
    Core(usize),
    Pu(usize),
}

/// A place in the tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) item: Item,
    pub(super) pus: NumberSet,
    pub(super) children: Vec<Tree>,
}

impl Tree {
    /// The tree of all objects that have PUs.
    pub(super) fn new(machine: &Machine) -> Self {
        let all: NumberSet = machine.pus.iter().map(|pu| pu.os_index).collect();
        let mut items: Vec<(Item, &NumberSet)> = Vec::new();
        let packages = machine.packages.iter().enumerate();
        items.extend(packages.map(|(index, it)| (Item::Package(index), &it.pus)));
        let nodes = machine.numa_nodes.iter().enumerate();
        items.extend(nodes.map(|(index, it)| (Item::Node(index), &it.pus)));
        let caches = machine.caches.iter().enumerate();
        items.extend(caches.map(|(index, it)| (Item::Cache(index), &it.pus)));
        let cores = machine.cores.iter().enumerate();
        items.extend(cores.map(|(index, it)| (Item::Core(index), &it.pus)));
        items.retain(|(_, pus)| !pus.is_empty());
        items.sort_by_key(|(item, pus)| (std::cmp::Reverse(pus.len()), *item));
        let mut root = Self::leaf(Item::Machine, all);
        for (item, pus) in items {
            root.place(Self::leaf(item, pus.clone()));
        }
        for (index, pu) in machine.pus.iter().enumerate() {
            root.place(Self::leaf(
                Item::Pu(index),
                [pu.os_index].into_iter().collect(),
            ));
        }
        let positions = machine.pus.iter().enumerate();
        let order = positions
            .map(|(position, pu)| (pu.os_index, position))
            .collect();
        root.sort(&order);
        root
    }

    fn leaf(item: Item, pus: NumberSet) -> Self {
        Self {
            item,
            pus,
            children: Vec::new(),
        }
    }

    fn place(&mut self, tree: Self) {
        match self
            .children
            .iter_mut()
            .find(|child| tree.pus.is_subset(&child.pus))
        {
            Some(child) => child.place(tree),
            None => self.children.push(tree),
        }
    }

    /// Brings children into the order of their PUs in the machine.
    fn sort(&mut self, order: &BTreeMap<u32, usize>) {
        let place = |set: &NumberSet| set.iter().filter_map(|pu| order.get(&pu)).min().copied();
        self.children.sort_by_key(|child| place(&child.pus));
        for child in &mut self.children {
            child.sort(order);
        }
    }
}
