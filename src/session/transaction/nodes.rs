//! What a transaction has read of globals, and what it wants to change there.
//!
//! A subtree that is removed takes with it what the transaction has set there before; what it sets there
//! later stays. When it commits, each shard first removes subtrees, then sets nodes.

use std::collections::BTreeMap;

use super::Isolation;
use crate::id::{ShardIndex, TableKey};
use crate::shard::NodeSighting;
use crate::table::{Globals, key_hash, siblings};
use crate::transaction::node::{self, Node, Seen};
use crate::transaction::{Action, Expected, Operation, Proposal, Target};

/// A node's name: the place of its globals in the catalog, and its encoded key.
pub(super) type Name = (u32, Box<[u8]>);

/// What a transaction makes of a node.
#[derive(Clone, Debug)]
enum Now {
    AsSeen,
    Set(Box<[u8]>),
    Killed,
}

/// A node that a transaction has to do with.
#[derive(Debug)]
struct Touched {
    table: TableKey,
    shard: ShardIndex,
    seen: Option<NodeSighting>,
    now: Now,
    /// What is set was made of what was seen, which must therefore still be so.
    is_derived: bool,
}

/// A subtree that is to be removed: its node's encoded key, and the shards that it is in.
#[derive(Debug)]
struct Kill {
    table: TableKey,
    key: Box<[u8]>,
    shards: std::ops::Range<ShardIndex>,
}

/// What was seen below a key.
#[derive(Debug)]
struct Look {
    table: TableKey,
    shard: ShardIndex,
    key: Box<[u8]>,
    has_descendants: bool,
    without: Vec<Box<[u8]>>,
}

/// What was before a change.
#[derive(Debug)]
enum Before {
    Node(Name, Now, bool),
    Kill,
}

/// A node, as a transaction knows it.
pub(super) enum Known<'a> {
    /// Its shard has to be asked.
    Nothing,
    Value(Option<&'a [u8]>),
}

#[derive(Default)]
pub(in crate::session) struct Nodes {
    nodes: BTreeMap<Name, Touched>,
    kills: Vec<Kill>,
    looks: Vec<Look>,
    before: Vec<Before>,
}

fn name_of(globals: &Globals, key: &[u8]) -> Name {
    (globals.key().index, key.into())
}

impl Nodes {
    /// A node, if it need not be read.
    pub(super) fn known(&self, globals: &Globals, key: &[u8], isolation: Isolation) -> Known<'_> {
        let touched = self.nodes.get(&name_of(globals, key));
        match touched.map(|touched| (&touched.now, &touched.seen)) {
            Some((Now::Set(value), _)) => Known::Value(Some(value)),
            Some((Now::Killed, _)) => Known::Value(None),
            Some((Now::AsSeen, Some(seen))) if isolation == Isolation::Serializable => {
                Known::Value(seen.value.as_deref())
            }
            _ if self.is_killed(globals, key) => Known::Value(None),
            _ => Known::Nothing,
        }
    }

    /// Whether a key lies in a subtree that is to be removed.
    pub(super) fn is_killed(&self, globals: &Globals, key: &[u8]) -> bool {
        let table = globals.key();
        self.kills
            .iter()
            .any(|kill| kill.table == table && key.starts_with(siblings::components(&kill.key)))
    }

    /// Components of the subtrees below a key that are to be removed.
    pub(super) fn kills_below(&self, globals: &Globals, key: &[u8]) -> Vec<Box<[u8]>> {
        let (table, above) = (globals.key(), siblings::components(key));
        let below = self
            .kills
            .iter()
            .filter(|kill| kill.table == table && &*kill.key != key && kill.key.starts_with(above));
        below
            .map(|kill| siblings::components(&kill.key).into())
            .collect()
    }

    /// Whether the transaction has set a node below a key.
    pub(super) fn has_set_below(&self, globals: &Globals, key: &[u8]) -> bool {
        let (index, above) = (globals.key().index, siblings::components(key));
        self.nodes
            .range(name_of(globals, above)..)
            .take_while(|((table, key), _)| *table == index && key.starts_with(above))
            .any(|((_, other), touched)| &**other != key && matches!(touched.now, Now::Set(_)))
    }

    /// Notes what was read of a node. Where reads are repeatable, the first one counts.
    pub(super) fn learn(
        &mut self,
        globals: &Globals,
        shard: ShardIndex,
        key: &[u8],
        seen: NodeSighting,
    ) {
        let touched = self.touch(globals, shard, key);
        touched.seen = Some(seen);
    }

    fn touch(&mut self, globals: &Globals, shard: ShardIndex, key: &[u8]) -> &mut Touched {
        let touched = self.nodes.entry(name_of(globals, key));
        touched.or_insert_with(|| Touched {
            table: globals.key(),
            shard,
            seen: None,
            now: Now::AsSeen,
            is_derived: false,
        })
    }

    /// Notes what was seen below a key in a shard.
    pub(super) fn learn_below(
        &mut self,
        globals: &Globals,
        shard: ShardIndex,
        key: &[u8],
        without: &[Box<[u8]>],
        has_descendants: bool,
    ) {
        self.looks.push(Look {
            table: globals.key(),
            shard,
            key: key.into(),
            has_descendants,
            without: without.to_vec(),
        });
    }

    /// Sets a node; `is_derived` if that was made of what was seen.
    pub(super) fn set(
        &mut self,
        globals: &Globals,
        shard: ShardIndex,
        key: &[u8],
        value: &[u8],
        is_derived: bool,
    ) {
        let is_killed = self.is_killed(globals, key);
        let touched = self.touch(globals, shard, key);
        let was_derived = touched.is_derived;
        // What the transaction has made itself is nobody else's business.
        let relies = is_derived && !is_killed && matches!(touched.now, Now::AsSeen);
        touched.is_derived |= relies;
        let before = std::mem::replace(&mut touched.now, Now::Set(value.into()));
        let name = name_of(globals, key);
        self.before.push(Before::Node(name, before, was_derived));
    }

    /// Removes a subtree; how many changes that were noted.
    pub(super) fn kill(
        &mut self,
        globals: &Globals,
        key: &[u8],
        shards: std::ops::Range<ShardIndex>,
    ) -> usize {
        let moment = self.before.len();
        let (index, above) = (globals.key().index, siblings::components(key));
        let below = self.nodes.range_mut(name_of(globals, above)..);
        for (name, touched) in below {
            if name.0 != index || !name.1.starts_with(above) {
                break;
            }
            let now = std::mem::replace(&mut touched.now, Now::Killed);
            let before = Before::Node(name.clone(), now, touched.is_derived);
            self.before.push(before);
        }
        self.kills.push(Kill {
            table: globals.key(),
            key: key.into(),
            shards,
        });
        self.before.push(Before::Kill);
        self.before.len() - moment
    }

    /// Takes the last change back.
    pub(super) fn take_back(&mut self) {
        match self.before.pop() {
            None => {}
            Some(Before::Kill) => {
                self.kills.pop();
            }
            Some(Before::Node(name, now, is_derived)) => {
                if let Some(touched) = self.nodes.get_mut(&name) {
                    (touched.now, touched.is_derived) = (now, is_derived);
                }
            }
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        let is_set = |touched: &Touched| matches!(touched.now, Now::Set(_));
        !self.kills.is_empty() || self.nodes.values().any(is_set)
    }

    /// Whether anything was read.
    pub(super) fn has_seen(&self) -> bool {
        !self.looks.is_empty() || self.nodes.values().any(|touched| touched.seen.is_some())
    }

    /// Whether one node was read, when nobody was about to change it, and nothing else.
    pub(super) fn is_of_one_moment(&self) -> bool {
        let mut seen = self.nodes.values().filter_map(|node| node.seen.as_ref());
        let (first, second) = (seen.next(), seen.next());
        self.looks.is_empty()
            && second.is_none()
            && first.is_none_or(|sighting| sighting.is_settled)
    }

    /// Adds what the transaction wants of each shard to a proposal.
    pub(super) fn propose(&self, proposal: &mut Proposal, isolation: Isolation) {
        let mut number = 0;
        let mut add = |proposal: &mut Proposal, shard, table, node: Node<'_>, want: Want<'_>| {
            let part = proposal.part(shard);
            let start = node::write(node, &mut part.cells);
            let expected = match want.expected {
                Wanted::Nothing => Expected::Any,
                Wanted::Value(value) => Expected::Version {
                    start: node::write_seen(value, &mut part.cells),
                },
                Wanted::Below(seen) => Expected::Values {
                    start: node::write_below(seen, &mut part.cells),
                    count: 0,
                },
            };
            let (target, action) = match want.change {
                Change::None if want.is_subtree => (Target::Subtree { start }, Action::Check),
                Change::None => (Target::Node { start }, Action::Check),
                Change::Set => (Target::Node { start }, Action::Upsert { start }),
                Change::Kill => (Target::Subtree { start }, Action::Delete),
            };
            part.operations.push(Operation {
                member: 0,
                number,
                table,
                target,
                expected,
                action,
                is_clients_slot: false,
            });
            number += 1;
        };
        for kill in &self.kills {
            for shard in kill.shards.clone() {
                let want = Want::new(Wanted::Nothing, Change::Kill);
                add(proposal, shard, kill.table, node(&kill.key, &[]), want);
            }
        }
        let is_strict = isolation == Isolation::Serializable;
        for look in self.looks.iter().filter(|_| is_strict) {
            let seen = Seen {
                has_descendants: look.has_descendants,
                without: look.without.iter().map(|without| &**without).collect(),
            };
            let mut want = Want::new(Wanted::Below(&seen), Change::None);
            want.is_subtree = true;
            add(proposal, look.shard, look.table, node(&look.key, &[]), want);
        }
        for ((_, key), touched) in &self.nodes {
            let expected = match &touched.seen {
                Some(seen) if is_strict || touched.is_derived => {
                    Wanted::Value(seen.value.as_deref())
                }
                _ => Wanted::Nothing,
            };
            let (value, change) = match &touched.now {
                Now::Set(value) => (&**value, Change::Set),
                Now::AsSeen | Now::Killed => (&[][..], Change::None),
            };
            if matches!((&expected, &change), (Wanted::Nothing, Change::None)) {
                continue;
            }
            let want = Want::new(expected, change);
            add(
                proposal,
                touched.shard,
                touched.table,
                node(key, value),
                want,
            );
        }
    }
}

fn node<'a>(key: &'a [u8], value: &'a [u8]) -> Node<'a> {
    let hash = key_hash(key);
    Node { hash, key, value }
}

/// What an operation wants.
struct Want<'a> {
    expected: Wanted<'a>,
    change: Change,
    is_subtree: bool,
}

impl<'a> Want<'a> {
    fn new(expected: Wanted<'a>, change: Change) -> Self {
        Self {
            expected,
            change,
            is_subtree: false,
        }
    }
}

enum Wanted<'a> {
    Nothing,
    Value(Option<&'a [u8]>),
    Below(&'a Seen<'a>),
}

enum Change {
    None,
    Set,
    Kill,
}
