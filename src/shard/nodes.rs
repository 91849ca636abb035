//! Nodes of globals in transactions over several shards: what is looked at, checked and done here.
//!
//! # Intents
//! Whoever reads or changes a node reads *all nodes* of its globals in this shard, and reads or writes
//! the node by the hash of its key. Whoever removes a subtree, or relies on what is below a key, writes
//! all nodes: while such a proposal is under way, others on the same globals wait in this shard.

use super::{Context, Shard};
use crate::error::{Error, Result};
use crate::id::TableKey;
use crate::table::{GlobalPart, Span, siblings};
use crate::transaction::node::{self, Node};
use crate::transaction::{Action, Cause, Expected, Mode, Operation, RowKey, Spot, Target, Verdict};

/// A node as a transaction has read it.
#[derive(Clone, Debug)]
pub(crate) struct NodeSighting {
    pub(crate) value: Option<Box<[u8]>>,
    /// Nobody was about to change it.
    pub(crate) is_settled: bool,
}

impl Context<'_> {
    /// Reads a node.
    pub(crate) fn fetch_node(
        &mut self,
        table: TableKey,
        hash: u64,
        key: &[u8],
    ) -> Result<NodeSighting> {
        let value = self.tree(table)?.get(key, |value| value.map(Box::from))?;
        let intents = self.intents();
        let is_settled = !intents.is_about_to_change(RowKey::node(table.index, hash))
            && !intents.is_about_to_change(RowKey::all(table.index));
        Ok(NodeSighting { value, is_settled })
    }
}

/// What an operation wants of the shard's rows and nodes.
pub(super) fn node_keys(
    operation: &Operation,
    cells: &[u64],
    mode: Mode,
) -> Option<[Option<(RowKey, Mode)>; 2]> {
    let table = operation.table.index;
    let all = RowKey::all(table);
    match operation.target {
        Target::Node { start } => {
            let hash = cells[start as usize - 1];
            let node = RowKey::node(table, hash);
            Some([Some((all, Mode::Read)), Some((node, mode))])
        }
        Target::Subtree { .. } => Some([Some((all, Mode::Write)), None]),
        Target::Direct(_)
        | Target::Key(_)
        | Target::New
        | Target::Reserved(_)
        | Target::Record { .. } => None,
    }
}

impl Shard {
    /// Whether a node, or what is below it, is as its transaction expects it; pages are kept for what it
    /// is to be.
    pub(super) fn check_node(
        &mut self,
        operation: &Operation,
        start: u32,
        cells: &[u64],
    ) -> Result<Spot, Verdict> {
        let (part, arena) = self
            .catalog
            .globals(operation.table)
            .map_err(Verdict::failed)?;
        if operation.action.changes() {
            part.check_writable(arena).map_err(Verdict::failed)?;
        }
        let node = node::read(cells, start).ok_or(Verdict::failed(Error::KeyShape))?;
        let is_met = match operation.expected {
            Expected::Any => Ok(true),
            Expected::Version { start } => part.get(arena, node.key, |value| {
                node::is_as_seen(cells, start, value)
            }),
            Expected::Values { start, .. } => match node::read_below(cells, start) {
                None => Err(Error::KeyShape),
                Some(seen) => self
                    .has_below(operation.table, node.key, &seen.without)
                    .map(|has_descendants| has_descendants == seen.has_descendants),
            },
            Expected::Present | Expected::Absent | Expected::StillAbsent => Ok(false),
        };
        if !is_met.map_err(Verdict::failed)? {
            return Err(Verdict::Conflict(Cause::Changed));
        }
        match (operation.target, operation.action) {
            (Target::Node { .. }, Action::Upsert { .. }) => {
                let (part, arena) = self
                    .catalog
                    .globals(operation.table)
                    .map_err(Verdict::failed)?;
                part.hold(arena, node.key, node.value)
                    .map(Spot::Reserved)
                    .map_err(Verdict::failed)
            }
            (Target::Subtree { .. }, Action::Delete) => Ok(Spot::Found(0)),
            _ => Ok(Spot::Nowhere),
        }
    }

    /// Whether there is a node below a key, but for those of some subtrees.
    pub(super) fn has_below(
        &mut self,
        table: TableKey,
        key: &[u8],
        without: &[&[u8]],
    ) -> Result<bool> {
        let (part, arena) = self.catalog.globals(table)?;
        let (mut start, mut end, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let components = siblings::components(key);
        siblings::below(components, &mut start);
        let end = siblings::behind(components, &mut end);
        loop {
            let start_here = &start;
            let span = Span {
                start: start_here,
                end,
            };
            if !part.first(arena, span, &mut found)? {
                return Ok(false);
            }
            let left_out = without.iter().find(|subtree| found.starts_with(subtree));
            let Some(subtree) = left_out else {
                return Ok(true);
            };
            if siblings::behind(subtree, &mut start).is_none() {
                return Ok(false);
            }
        }
    }

    /// Does what was decided about a node, or a subtree.
    pub(super) fn conclude_node(
        &mut self,
        operation: &Operation,
        start: u32,
        spot: Spot,
        cells: &[u64],
        is_committed: bool,
    ) {
        let Ok((part, arena)) = self.catalog.globals(operation.table) else {
            return;
        };
        if let Spot::Reserved(pages) = spot {
            part.let_go(pages);
        }
        let Some(node) = node::read(cells, start).filter(|_| is_committed) else {
            return;
        };
        let done = match (operation.action, spot) {
            (Action::Upsert { .. }, Spot::Reserved(_)) => {
                part.set(arena, node.key, node.value).map(drop)
            }
            (Action::Delete, Spot::Found(_)) => kill(part, arena, node),
            _ => Ok(()),
        };
        match done {
            // A part that is damaged says so to everybody from now on.
            Ok(()) | Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("what was decided about a node cannot be done: {error}"),
        }
    }
}

/// Removes a node and all below it.
pub(super) fn kill(
    part: &mut GlobalPart,
    arena: &mut crate::arena::Arena,
    node: Node<'_>,
) -> Result<()> {
    let components = siblings::components(node.key);
    let mut end = Vec::new();
    let span = Span {
        start: components,
        end: siblings::behind(components, &mut end),
    };
    part.remove_span(arena, span).map(drop)
}
