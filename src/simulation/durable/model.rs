//! What globals are to be: an ordered map of names whose order is that of their parts, and a client's book
//! of what it has done, by which it is told what a crash may have left.

use std::collections::{BTreeMap, BTreeSet};

use crate::collation::GlobalKey;
use crate::id::ShardIndex;
use crate::simulation::Choices;

/// A subscript, with the order that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Empty,
    /// In halves.
    Number(i64),
    Bytes(Vec<u8>),
}

/// A node's name and subscripts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) name: Vec<u8>,
    pub(super) parts: Vec<Part>,
}

pub(super) type Model = BTreeMap<Name, Vec<u8>>;

impl Name {
    /// A name of a client's own: they begin with its number.
    pub(super) fn chosen(choices: &Choices, client: usize) -> Self {
        let names: [&[u8]; 3] = [b"x", b"xy", b"\x01"];
        let mut name = vec![b'0' + client as u8];
        name.extend(names[choices.below(3) as usize]);
        let parts = (0..choices.below(4)).map(|_| Part::chosen(choices));
        Self {
            name,
            parts: parts.collect(),
        }
    }

    pub(super) fn begins_with(&self, with: &Self) -> bool {
        self.name == with.name && self.parts.starts_with(&with.parts)
    }

    pub(super) fn key(&self) -> GlobalKey {
        let mut key = GlobalKey::new(&self.name).unwrap();
        for part in &self.parts {
            match part {
                Part::Empty => key.push(""),
                Part::Number(halves) if halves % 2 == 0 => key.push(halves / 2),
                Part::Number(halves) => {
                    let text = format!("{}.5", halves.unsigned_abs() / 2);
                    let text = text.strip_prefix('0').unwrap_or(&text);
                    let sign = if *halves < 0 { "-" } else { "" };
                    key.push(format!("{sign}{text}"))
                }
                Part::Bytes(bytes) => key.push(&bytes[..]),
            }
            .unwrap();
        }
        key
    }

    /// Where a node below `from` is copied to.
    pub(super) fn moved(&self, from: &Self, to: &Self) -> Self {
        let rest = &self.parts[from.parts.len()..];
        Self {
            name: to.name.clone(),
            parts: to.parts.iter().chain(rest).cloned().collect(),
        }
    }
}

impl Part {
    fn chosen(choices: &Choices) -> Self {
        match choices.below(8) {
            0 => Self::Empty,
            1..5 => {
                let far = [0, 0, 1_000, -1_000, 2_000_000_000_000_001][choices.below(5) as usize];
                Self::Number(far + choices.below(9) as i64 - 4)
            }
            _ => {
                let strings: [&[u8]; 6] = [
                    b"a",
                    b"\0",
                    b"\x01",
                    b"\xff",
                    b"01",
                    b"long enough to be told",
                ];
                Self::Bytes(strings[choices.below(6) as usize].to_vec())
            }
        }
    }
}

/// A value: a number most often, or nothing, or what fills pages.
pub(super) fn chosen_value(choices: &Choices) -> Vec<u8> {
    match choices.below(8) {
        0 => Vec::new(),
        1 => vec![b'v'; choices.below(6_000) as usize],
        2 => vec![b'w'; choices.below(600) as usize],
        _ => choices.below(1_000).to_string().into_bytes(),
    }
}

/// The names of the level below a name, or, with none, of all names.
pub(super) fn level(model: &Model, above: Option<&Name>) -> Vec<Name> {
    let depth = above.map_or(0, |above| above.parts.len() + 1);
    let is_below = |name: &&Name| {
        above.is_none_or(|above| name.begins_with(above) && name.parts.len() >= depth)
    };
    let mut level: Vec<Name> = model
        .keys()
        .filter(is_below)
        .map(|name| Name {
            name: name.name.clone(),
            parts: name.parts[..depth].to_vec(),
        })
        .collect();
    level.dedup();
    level
}

/// How much of a verb happens at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    All,
    /// What is in one shard.
    Shard,
    /// Each node.
    Node,
}

/// A verb that changes something.
#[derive(Clone, Debug)]
struct Step {
    whole: Whole,
    /// What each node that it changes is then.
    changes: BTreeMap<Name, Option<Vec<u8>>>,
}

/// What a client has done since its world was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// The nodes when the world was opened, and now.
    base: Model,
    pub(super) model: Model,
    steps: Vec<Step>,
    /// As many steps are durable, as it was told.
    told: usize,
}

impl Book {
    /// Notes what a verb will do, before it is begun; what changes nothing is no step.
    pub(super) fn begin(&mut self, whole: Whole, changes: BTreeMap<Name, Option<Vec<u8>>>) {
        for (name, value) in &changes {
            match value {
                Some(value) => drop(self.model.insert(name.clone(), value.clone())),
                None => drop(self.model.remove(name)),
            }
        }
        if !changes.is_empty() {
            self.steps.push(Step { whole, changes });
        }
    }

    /// Notes that all that was done is durable.
    pub(super) fn tell(&mut self) {
        self.told = self.steps.len();
    }

    /// All names that nodes may have now.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        let changed = self.steps.iter().flat_map(|step| step.changes.keys());
        self.base.keys().chain(changed).cloned().collect()
    }

    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Compares what a crash has left with what may be: all steps up to one that is no earlier than was
    /// told, and of the next one what happens by itself. The book goes on from there.
    pub(super) fn reopen(
        &mut self,
        found: Model,
        shard_of: impl Fn(&Name) -> ShardIndex,
    ) -> Result<(), String> {
        let names = found.keys().chain(self.base.keys());
        let mut differing: BTreeSet<&Name> = names
            .filter(|name| found.get(*name) != self.base.get(*name))
            .collect();
        let mut state: BTreeMap<&Name, &Vec<u8>> = self.base.iter().collect();
        let mut nearest = (usize::MAX, 0);
        let mut is_known = false;
        for at in 0..=self.steps.len() {
            let next = self.steps.get(at);
            if at >= self.told {
                nearest = nearest.min((differing.len(), at));
                is_known |= differing.is_empty();
                is_known |= next.is_some_and(|next| {
                    next.is_partly(
                        &differing,
                        &found,
                        |name| state.get(name).copied(),
                        &shard_of,
                    )
                });
            }
            for (name, value) in next.iter().flat_map(|next| &next.changes) {
                match value {
                    Some(value) => drop(state.insert(name, value)),
                    None => drop(state.remove(name)),
                }
                if found.get(name) == value.as_ref() {
                    differing.remove(name);
                } else {
                    differing.insert(name);
                }
            }
        }
        if !is_known {
            return Err(format!(
                "{} nodes are as after none of {} to {} steps; after {}, {} differ",
                found.len(),
                self.told,
                self.steps.len(),
                nearest.1,
                nearest.0
            ));
        }
        *self = Self {
            base: found.clone(),
            model: found,
            ..Self::default()
        };
        Ok(())
    }
}

impl Step {
    /// Whether nodes are as this step makes them in some of its parts, and as they were before in others.
    fn is_partly<'a>(
        &'a self,
        differing: &BTreeSet<&Name>,
        found: &Model,
        before: impl Fn(&Name) -> Option<&'a Vec<u8>>,
        shard_of: &impl Fn(&Name) -> ShardIndex,
    ) -> bool {
        let is_new = |name: &Name| {
            let change = self.changes.get(name);
            change.is_some_and(|value| found.get(name) == value.as_ref())
        };
        if self.whole == Whole::All || !differing.iter().all(|name| is_new(name)) {
            return false;
        }
        if self.whole == Whole::Node {
            return true;
        }
        // What is the same before and after does not tell.
        let telling = self
            .changes
            .iter()
            .filter(|(name, value)| before(name) != value.as_ref());
        let mut shards = BTreeMap::new();
        for (name, _) in telling {
            let is_new = is_new(name);
            if *shards.entry(shard_of(name)).or_insert(is_new) != is_new {
                return false;
            }
        }
        true
    }
}
