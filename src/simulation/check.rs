//! The checker: whether what the shards did is what the clients were told and promised.
//!
//! The shards' own list of changes gives each row's true order of versions. From it follow:
//!
//! - **Atomicity.** Every change of a node that was told to have happened is there, once, on top of a
//!   row such as it was made for; none of one that was told not to; all or none of the others.
//! - **Reads.** What was read was committed (G1a), whole and final (G1b), and current at some moment
//!   of the read.
//! - **Order.** The graph of nodes has no circle. Its edges: whose version replaces whose (ww), who
//!   relies on whose version (wr), whose version replaces what one relied on (rw), and who ended
//!   before who began. What a transaction that reads committed has merely seen is an edge to it (wr),
//!   and none from it. No circle means: no G0, no G1c, and for serializable transactions that they are
//!   strictly serializable.

use std::collections::{BTreeMap, HashMap};

use super::history::{Cells, Fate, Kind, Node, Read, Write};
use crate::table::watch::{Event, RowName, What};

/// A row as it was from one moment on.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// `None` for what was there, or not there, at first.
    node: Option<usize>,
    cells: Option<Cells>,
    /// The number of its event and one more; 0 for what was there at first.
    moment: usize,
}

impl Version {
    fn value(&self) -> Option<u64> {
        self.cells.map(|cells| cells[0])
    }
}

/// A version that a node has read: which of its row, and whether the node relies on it.
type Look = (RowName, usize, bool);

struct Checker<'a> {
    nodes: &'a [Node],
    events: &'a [Event],
    rows: BTreeMap<RowName, Vec<Version>>,
    /// Changes of each node that are there.
    changes: Vec<usize>,
    /// When each node was decided.
    decided: Vec<usize>,
}

/// The rows at the end, or what is wrong.
pub(super) fn check(nodes: &[Node], events: &[Event]) -> Result<BTreeMap<RowName, Cells>, String> {
    let mut checker = Checker {
        nodes,
        events,
        rows: BTreeMap::new(),
        changes: vec![0; nodes.len()],
        decided: vec![usize::MAX; nodes.len()],
    };
    checker.replay()?;
    checker.check_atomicity()?;
    let reads = checker.check_reads()?;
    checker.check_order(&reads)?;
    let ends = checker.rows.iter();
    Ok(ends
        .filter_map(|(&row, versions)| Some((row, versions.last()?.cells?)))
        .collect())
}

impl Checker<'_> {
    /// Gives each change to the node that made it.
    fn replay(&mut self) -> Result<(), String> {
        let mut by_actor: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            by_actor.entry(node.actor).or_default().push(number);
        }
        for (moment, event) in self.events.iter().enumerate() {
            let all = by_actor.get(&event.actor).map_or(&[][..], |all| all);
            let mut under_way = all.iter().copied().filter(|&number| {
                let node = &self.nodes[number];
                node.begin <= moment && moment < node.end
            });
            match event.what {
                What::Undone => {}
                What::Decided => {
                    for number in under_way {
                        let decided = &mut self.decided[number];
                        *decided = moment.min(*decided);
                    }
                }
                What::Row(row, cells, place) => {
                    let value = cells.map(|cells| cells[0]);
                    let writes = |number: usize| self.nodes[number].writes.get(&row);
                    let number = under_way
                        .clone()
                        .find(|&number| writes(number).is_some_and(|write| write.value == value));
                    let number = number
                        .or_else(|| under_way.clone().find(|&number| writes(number).is_some()));
                    let number = number.or_else(|| {
                        under_way.find(|&number| {
                            let placed = &self.nodes[number].placed;
                            value.is_some_and(|value| placed.contains(&value))
                        })
                    });
                    self.change(moment, row, (cells, place), number)
                        .map_err(|error| format!("{error}, at {moment}, by {}", event.actor))?;
                }
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        moment: usize,
        row: RowName,
        (cells, place): (Option<Cells>, u64),
        number: Option<usize>,
    ) -> Result<(), String> {
        let versions = self.rows.entry(row).or_insert_with(|| {
            vec![Version {
                node: None,
                cells: None,
                moment: 0,
            }]
        });
        let last = *versions.last().expect("there is a first one");
        let Some(number) = number else {
            return Err(format!("{row:?} became {cells:?} for no node"));
        };
        let node = &self.nodes[number];
        let placed = Write {
            was_there: Some(false),
            value: cells.map(|cells| cells[0]),
            whole: cells.map(|cells| cells[0]),
            place: None,
        };
        let write = node.writes.get(&row).unwrap_or(&placed);
        let is_closure = node.kind == Kind::Atomic;
        let is_step = cells.map(|cells| cells[0]) != write.value || !write.is_change();
        if is_closure && (node.fate == Fate::Failed || is_step) {
            // A step of a closure, or the taking back of one: nobody sees it.
            return Ok(());
        }
        self.decided[number] = self.decided[number].min(moment);
        if cells.map(|cells| cells[0]) != write.value {
            return Err(format!("{row:?} became {cells:?} instead of {write:?}"));
        }
        if last.node == Some(number) && last.value() == write.value && is_closure {
            return Ok(());
        }
        if write
            .was_there
            .is_some_and(|was_there| was_there != last.cells.is_some())
        {
            return Err(format!("{row:?}: {write:?} came upon {:?}", last.cells));
        }
        let whole = write.whole.or(last.cells.map(|cells| cells[2]));
        if cells.is_some_and(|cells| Some(cells[2]) != whole) {
            return Err(format!("{row:?}: {cells:?} came upon {:?}", last.cells));
        }
        if write.place.is_some_and(|wanted| wanted != place) {
            return Err(format!("{row:?}: {write:?} came upon the row at {place}"));
        }
        self.changes[number] += 1;
        versions.push(Version {
            node: Some(number),
            cells,
            moment: moment + 1,
        });
        Ok(())
    }

    fn check_atomicity(&self) -> Result<(), String> {
        for (number, node) in self.nodes.iter().enumerate() {
            let changes = node.writes.values().filter(|write| write.is_change());
            let wanted = changes.count() + node.placed.len();
            let made = self.changes[number];
            let is_right = match node.fate {
                Fate::Committed => made == wanted,
                Fate::Failed => made == 0,
                Fate::Unknown => made == 0 || made == wanted,
            };
            if !is_right {
                return Err(format!("{made} of {wanted} changes were made by {node:?}"));
            }
        }
        Ok(())
    }

    /// Whether a node has happened.
    fn has_happened(&self, number: usize) -> bool {
        match self.nodes[number].fate {
            Fate::Committed => true,
            Fate::Failed => false,
            Fate::Unknown => self.changes[number] > 0,
        }
    }

    /// For each node that has happened, the version of each read that it relies on, or has seen.
    fn check_reads(&self) -> Result<Vec<Vec<Look>>, String> {
        let mut all = vec![Vec::new(); self.nodes.len()];
        let first = [Version {
            node: None,
            cells: None,
            moment: 0,
        }];
        for (number, node) in self.nodes.iter().enumerate() {
            for read in &node.reads {
                let versions = self.rows.get(&read.row).map_or(&first[..], |all| all);
                let at = self.version_read(number, read, versions)?;
                if self.has_happened(number) {
                    all[number].push((read.row, at, read.is_relied_on));
                }
            }
        }
        Ok(all)
    }

    fn version_read(
        &self,
        number: usize,
        read: &Read,
        versions: &[Version],
    ) -> Result<usize, String> {
        let node = &self.nodes[number];
        let is_between = |at: usize, from: usize, to: usize| {
            versions[at].moment <= to && versions.get(at + 1).is_none_or(|next| next.moment > from)
        };
        let fits =
            |at: &usize| versions[*at].value() == read.seen && is_between(*at, read.from, read.to);
        let Some(at) = (0..versions.len()).rev().find(fits) else {
            return Err(format!(
                "no such version of {versions:?}: {read:?} of {node:?}"
            ));
        };
        if read.seen.is_some() || node.kind != Kind::Serializable {
            return Ok(at);
        }
        // A row that is absent at the right moment is absent, whatever came and went before.
        let moment = match self.decided[number] {
            usize::MAX => node.sent,
            decided => decided,
        };
        let then = (0..versions.len())
            .rev()
            .find(|&at| versions[at].moment <= moment);
        Ok(then
            .filter(|&at| versions[at].cells.is_none())
            .unwrap_or(at))
    }

    /// Looks for a circle.
    fn check_order(&self, reads: &[Vec<Look>]) -> Result<(), String> {
        let happened = |number: &usize| self.has_happened(*number);
        let numbers: Vec<usize> = (0..self.nodes.len()).filter(happened).collect();
        let mut edges: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut edge = |from: Option<usize>, to: Option<usize>| {
            if let (Some(from), Some(to)) = (from, to)
                && from != to
            {
                edges[from].push(to);
            }
        };
        for versions in self.rows.values() {
            for pair in versions.windows(2) {
                edge(pair[0].node, pair[1].node);
            }
        }
        for &number in &numbers {
            for &(row, at, is_relied_on) in &reads[number] {
                let Some(versions) = self.rows.get(&row) else {
                    continue;
                };
                edge(versions[at].node, Some(number));
                if is_relied_on {
                    edge(
                        Some(number),
                        versions.get(at + 1).and_then(|next| next.node),
                    );
                }
            }
            // A transaction that reads committed and changes nothing happens at no moment.
            if self.nodes[number].kind == Kind::ReadCommitted && self.changes[number] == 0 {
                continue;
            }
            for &later in &numbers {
                let (node, later_node) = (&self.nodes[number], &self.nodes[later]);
                if node.turns.1 < later_node.turns.0 {
                    edge(Some(number), Some(later));
                }
            }
        }
        self.find_circle(&numbers, &edges)
    }

    /// Takes away nodes that nobody comes before, until none is left.
    fn find_circle(&self, numbers: &[usize], edges: &[Vec<usize>]) -> Result<(), String> {
        let mut before = vec![0; edges.len()];
        for &later in edges.iter().flatten() {
            before[later] += 1;
        }
        let mut free: Vec<usize> = numbers
            .iter()
            .copied()
            .filter(|&number| before[number] == 0)
            .collect();
        let mut left = numbers.len();
        while let Some(number) = free.pop() {
            left -= 1;
            for &later in &edges[number] {
                before[later] -= 1;
                if before[later] == 0 {
                    free.push(later);
                }
            }
        }
        if left == 0 {
            return Ok(());
        }
        // Going back from any node that is left, one that is left comes before: for ever, so in a circle.
        let is_left = |number: &usize| before[*number] > 0;
        let mut at = numbers
            .iter()
            .copied()
            .find(is_left)
            .expect("some are left");
        let mut path = Vec::new();
        while !path.contains(&at) {
            path.push(at);
            let mut those = numbers.iter().copied().filter(is_left);
            at = those
                .find(|&number| edges[number].contains(&at))
                .expect("somebody comes before");
        }
        let circle: Vec<_> = path[path.iter().position(|&number| number == at).unwrap_or(0)..]
            .iter()
            .rev()
            .map(|&number| {
                format!(
                    "\n  {number}: {:?} {:?}",
                    self.nodes[number],
                    reads_of(&self.rows, number)
                )
            })
            .collect();
        Err(format!("a circle:{}", circle.concat()))
    }
}

/// The versions that a node made.
fn reads_of(rows: &BTreeMap<RowName, Vec<Version>>, number: usize) -> Vec<(RowName, usize)> {
    rows.iter()
        .flat_map(|(&row, versions)| versions.iter().map(move |version| (row, version)))
        .filter(|(_, version)| version.node == Some(number))
        .map(|(row, version)| (row, version.moment))
        .collect()
}
