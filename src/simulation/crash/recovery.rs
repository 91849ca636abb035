//! What a crash makes of a history: changes that are undone, and others that are made when the files
//! are opened.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Files;
use crate::arena::crash;
use crate::id::{DirectId, RowId, SurrogateId};
use crate::simulation::history::{Book, Fate, Kind, Node, Write};
use crate::simulation::scripts::{Key, Scene};
use crate::table::watch::{self, Event, RowName, What};

/// Who makes the changes when files are opened.
pub(super) const RESOLVER: u64 = u64::MAX;

/// A crash: what it leaves, and what had happened by then.
pub(super) struct Crash {
    pub(super) files: Rc<Files>,
    pub(super) book: RefCell<Book>,
    /// Places that clients knew.
    pub(super) places: Vec<DirectId>,
    pub(super) keyed_places: Vec<(Key, DirectId)>,
    /// How much had happened.
    moment: usize,
    /// How much had happened when a scope of each shard ended for the last time.
    pub(super) ended: Vec<usize>,
}

impl Crash {
    /// A crash at this moment, with no scope under way.
    pub(super) fn now(files: &Files, scene: &Scene) -> Self {
        Self {
            files: Rc::new(files.copy()),
            book: RefCell::new(scene.book.clone()),
            places: scene.places.borrow().clone(),
            keyed_places: scene.keyed_places.borrow().clone(),
            moment: watch::moment(),
            ended: vec![watch::moment(); files.shards],
        }
    }

    /// Crashes once more while the files are opened, after so many moments.
    pub(super) fn watch_opening(&self, next: &Rc<RefCell<Option<Self>>>, moments: u64) {
        let (next, files) = (Rc::clone(next), Rc::clone(&self.files));
        let book = self.book.clone();
        let (places, keyed_places) = (self.places.clone(), self.keyed_places.clone());
        let mut ended = vec![watch::moment(); files.shards];
        let mut rest = moments;
        crash::watch(move |moment| match moment {
            crash::Moment::Ended(shard) => ended[shard as usize] = watch::moment(),
            crash::Moment::Between if rest > 0 => rest -= 1,
            crash::Moment::Between if next.borrow().is_none() => {
                next.replace(Some(Self {
                    files: Rc::new(files.copy()),
                    book: book.clone(),
                    places: places.clone(),
                    keyed_places: keyed_places.clone(),
                    moment: watch::moment(),
                    ended: ended.clone(),
                }));
            }
            crash::Moment::Between => {}
        });
    }

    /// Takes back what the crash has undone; how many changes these are.
    pub(super) fn undo(&self) -> u64 {
        let mut events = watch::end();
        let mut undone = 0;
        for (at, event) in events.iter_mut().enumerate().take(self.moment) {
            let What::Row(row, _, _) = event.what else {
                continue;
            };
            if at >= self.ended[self.shard_of(row)] {
                event.what = What::Undone;
                undone += 1;
            }
        }
        events.truncate(self.moment);
        watch::go_on(events);
        undone
    }

    fn shard_of(&self, row: RowName) -> usize {
        if row.is_keyed {
            SurrogateId(row.number).shard_of(self.ended.len())
        } else {
            DirectId::from_u64(row.number).shard()
        }
    }
}

/// Gives the changes that opening the files has made to whom they belong, and ends every node that
/// was under way; how many changes were made.
pub(super) fn recover(crash: &Crash) -> Result<u64, String> {
    let mut events = watch::end();
    let mut book = crash.book.borrow_mut();
    let turn = book.new_turn();
    let end = events.len();
    let nodes = book.nodes.get_mut();
    let made = give_to_authors(nodes, &mut events)?;
    fill_in(nodes, &events)?;
    for node in nodes.iter_mut().filter(|node| node.end == usize::MAX) {
        let is_own = |event: &Event| event.actor == node.actor;
        let is_change = |event: &Event| {
            let What::Row(row, cells, _) = event.what else {
                return false;
            };
            let write = node.writes.get(&row);
            write.is_some_and(|write| write.value == cells.map(|cells| cells[0]))
        };
        let mut rest = events[node.begin..].iter();
        if !rest.any(|event| is_own(event) && is_change(event)) {
            // What it would have relied on need not have been so.
            node.reads.retain(|read| !read.is_relied_on);
        }
        node.end = end;
        node.turns.1 = turn;
        node.fate = Fate::Unknown;
        node.sent = node.sent.min(end);
    }
    watch::go_on(events);
    Ok(made)
}

/// Finds out for whom the files' opening has changed rows.
fn give_to_authors(nodes: &[Node], events: &mut [Event]) -> Result<u64, String> {
    let mut last: BTreeMap<RowName, (u64, Option<[u64; 3]>)> = BTreeMap::new();
    let mut made = 0;
    for at in 0..events.len() {
        let What::Row(row, cells, _) = events[at].what else {
            continue;
        };
        if events[at].actor != RESOLVER {
            last.insert(row, (events[at].actor, cells));
            continue;
        }
        if last.get(&row).is_some_and(|&(_, before)| before == cells) {
            // It was done already, in an earlier scope of a large part.
            events[at].what = What::Undone;
            continue;
        }
        let value = cells.map(|cells| cells[0]);
        let decided = |node: &Node| {
            let mut events = events[node.begin..at].iter();
            events.any(|event| event.actor == node.actor && matches!(event.what, What::Decided))
        };
        let has_done = |node: &Node| {
            let mut events = events[node.begin..at].iter();
            events.any(|event| {
                event.actor == node.actor
                    && matches!(event.what, What::Row(other, cells, _)
                        if other == row && cells.map(|cells| cells[0]) == value)
            })
        };
        let wants = |node: &&Node| {
            let is_placed = value.is_some_and(|value| node.placed.contains(&value));
            let is_written = node
                .writes
                .get(&row)
                .is_some_and(|write| write.value == value);
            node.end == usize::MAX
                && (is_placed || is_written)
                && decided(node)
                && (value.is_some() || !has_done(node))
        };
        let Some(node) = nodes.iter().find(wants) else {
            return Err(format!(
                "{row:?} became {cells:?} for nobody when the files were opened"
            ));
        };
        events[at].actor = node.actor;
        last.insert(row, (node.actor, cells));
        made += 1;
    }
    Ok(made)
}

/// Fills in what nodes wanted of which nobody was told, from what they did.
fn fill_in(nodes: &mut [Node], events: &[Event]) -> Result<(), String> {
    let is_open = |node: &Node| node.end == usize::MAX && node.sent == usize::MAX;
    let mut actors: Vec<u64> = nodes
        .iter()
        .filter(|node| is_open(node))
        .map(|node| node.actor)
        .collect();
    actors.dedup();
    for actor in actors {
        let own: Vec<usize> = (0..nodes.len())
            .filter(|&number| is_open(&nodes[number]) && nodes[number].actor == actor)
            .collect();
        let begin = nodes[own[0]].begin;
        let mut rows: BTreeMap<RowName, Write> = BTreeMap::new();
        for event in events[begin..].iter().filter(|event| event.actor == actor) {
            if let What::Row(row, cells, _) = event.what {
                let sent = nodes.iter().any(|node| {
                    let writes = node.writes.get(&row);
                    node.actor == actor
                        && node.end == usize::MAX
                        && writes.is_some_and(|write| write.value == cells.map(|cells| cells[0]))
                });
                let write = Write {
                    was_there: None,
                    value: cells.map(|cells| cells[0]),
                    whole: cells.map(|cells| cells[2]),
                    place: None,
                };
                if !sent {
                    rows.insert(row, write);
                }
            }
        }
        let mut changing = own
            .iter()
            .copied()
            .filter(|&number| nodes[number].kind == Kind::Atomic)
            .collect::<Vec<_>>()
            .into_iter();
        if own.len() == 1 {
            // A single operation, or a closure.
            nodes[own[0]].writes.extend(rows);
            continue;
        }
        // A block, each of whose operations is a node.
        for (row, write) in rows {
            let Some(number) = changing.next() else {
                return Err(format!("{row:?} became {write:?} for no node of {actor}"));
            };
            nodes[number].writes.insert(row, write);
        }
    }
    Ok(())
}
