//! Globals over a disk that fails: random sequences of all verbs against an ordered map, with crashes.
//!
//! # What is checked
//! Each client has names of its own, and a map of what their nodes are to be. Whatever a verb says is
//! what the map says, while other clients work in the same shards and trees. After a crash the trees are
//! whole, and what each client has is what its map was at a moment no earlier than the last that it was told is
//! durable; of a verb that was cut short, what happens by itself ([`Whole`](super::model::Whole)) may be there without the rest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::lab::{LOSSES, Lab, find, seeds_of};
use super::model::{Book, Model};
use super::worker::Worker;
use crate::arena::mutant::{self, Mutant};
use crate::collation::KeyRange;
use crate::error::{Error, Faults};
use crate::id::TableKey;
use crate::session::Verbs;
use crate::shard::{Content, TableShape};
use crate::simulation::strand::{Strands, Turns};
use crate::simulation::{Choices, Setting, World};
use crate::table::{Globals, Routing};

const KEY: TableKey = TableKey { index: 0, stamp: 9 };

const CLIENTS_MAX: usize = 3;

fn shape(routing: Routing) -> TableShape {
    TableShape {
        key: KEY,
        serial: 1,
        content: Content::Globals(routing),
    }
}

/// What clients have done, and what their nodes are to be.
pub(super) struct Life {
    lab: Lab,
    pub(super) store: Globals,
    pub(super) is_relaxed: bool,
    pub(super) books: RefCell<Vec<Book>>,
    /// Verbs that were asked for, whatever became of them.
    verbs: RefCell<u64>,
}

impl Life {
    /// Lets the clients work, each so many verbs, or until the machine is down.
    fn live(self: &Rc<Self>, world: &Rc<World>, seed: u64, verbs: u64) {
        let mut strands = Strands::new(world);
        for number in 0..self.books.borrow().len() {
            let life = Rc::clone(self);
            strands.add(true, move |turns| {
                let mut worker = Worker {
                    life: &life,
                    number,
                    choices: Choices::new(seed ^ (number as u64) << 56),
                    client: turns.client(),
                };
                for _ in 0..verbs {
                    *life.verbs.borrow_mut() += 1;
                    match worker.step() {
                        Ok(()) => {}
                        Err(Error::JournalBroken | Error::JournalFull | Error::NotDurable(_)) => {
                            return;
                        }
                        Err(error) => panic!("client {number}: {error}"),
                    }
                }
            });
        }
        let life = Rc::clone(self);
        strands.add(false, move |turns| life.compact(turns, seed, verbs));
        self.lab.run(strands);
    }

    /// Brings the trees together meanwhile, now and then, by small steps.
    fn compact(&self, turns: &Turns<'_>, seed: u64, steps: u64) {
        let choices = Choices::new(!seed);
        let shards = self.lab.setting.shards as u64;
        for _ in 0..steps {
            let (plans, bytes) = (choices.below(20) == 0, choices.below(40_000) as usize);
            turns.inside(choices.below(shards) as usize, |insider| {
                let shard = &mut insider.host.seat.shard;
                if !shard.is_idle() || shard.is_held_up() {
                    return;
                }
                if let Ok((part, arena)) = shard.catalog.globals(KEY) {
                    if plans {
                        part.plan_all();
                    }
                    part.tidy(arena, bytes);
                }
            });
            turns.pass();
        }
    }

    /// Looks at what is there, in a world that was just opened.
    fn check(&self, world: &Rc<World>) -> Result<(), String> {
        let shards = self.lab.setting.shards;
        let mut counted = 0;
        for (index, seat) in world.shards.iter().enumerate() {
            let mut faults = Faults::default();
            let catalog = &seat.borrow().shard.catalog;
            counted += catalog.check(KEY, (index, shards), &mut faults);
            if let Some(fault) = faults.first() {
                return Err(format!("shard {index}: {fault}"));
            }
        }
        let mut client = world.client();
        let mut nodes = BTreeMap::new();
        let all = KeyRange {
            start: Vec::new(),
            end: vec![0xff; 256],
        };
        let scanned = client.globals(&self.store).scan_range(&all, |key, value| {
            nodes.insert(key.as_bytes().to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| error.to_string())?;
        if counted != nodes.len() as u64 {
            return Err(format!("{counted} nodes, and {} are found", nodes.len()));
        }
        let mut books = self.books.borrow_mut();
        for (number, book) in books.iter_mut().enumerate() {
            let mut found = Model::new();
            for name in book.names() {
                if let Some(value) = nodes.remove(name.key().as_bytes()) {
                    found.insert(name, value);
                }
            }
            let routing = self.store.routing();
            let reopened = book.reopen(found, |name| {
                routing.shard_of(name.key().as_bytes(), shards)
            });
            reopened.map_err(|error| format!("client {number}: {error}"))?;
        }
        match nodes.len() {
            0 => Ok(()),
            some => Err(format!("{some} nodes are there that nobody has made")),
        }
    }
}

/// What was run, in numbers.
#[derive(Default)]
struct Counts {
    verbs: u64,
    crashes: u64,
    checkpoints: u64,
}

/// One life: clients work, the power is cut at a step, and what is left is looked at; again and again.
fn run_seed(seed: u64) -> Result<Counts, String> {
    let choices = Choices::new(seed);
    let setting = Setting::chosen(&choices);
    let clients = 1 + choices.below(CLIENTS_MAX as u64) as usize;
    let routing = match choices.below(4) {
        0 => Routing::NameAndFirst,
        1 => Routing::FullKey,
        _ => Routing::Prefix(choices.below(4) as u16),
    };
    let is_relaxed = choices.below(2) == 0;
    let life = Rc::new(Life {
        lab: Lab::new(seed, setting, is_relaxed, shape(routing)),
        store: Globals::new(KEY, "globals", routing),
        is_relaxed,
        books: RefCell::new(vec![Book::default(); clients]),
        verbs: RefCell::new(0),
    });
    life.lab.furnish(seed)?;
    let mut crashes = 0;
    for round in 0..1 + choices.below(4) {
        let world = life.lab.open(seed ^ round << 20)?;
        life.lab.plan(&choices);
        life.live(&world, seed ^ round << 8, 2 + choices.below(60));
        let loss = LOSSES[choices.below(4) as usize];
        let world = life.lab.recover(loss, seed ^ round << 32, &choices)?;
        life.check(&world)?;
        crashes += 1;
    }
    let verbs = *life.verbs.borrow();
    Ok(Counts {
        verbs,
        crashes,
        checkpoints: life.lab.checkpoints.get(),
    })
}

#[test]
fn globals_are_what_an_ordered_map_says_and_after_a_crash_what_it_said_at_a_moment() {
    let seeds = seeds_of("ANCILE_GLOBALS_SEEDS", 100);
    let count = seeds.end - seeds.start;
    let counts = RefCell::new(Counts::default());
    let found = find(seeds, |seed| {
        let run = run_seed(seed)?;
        let mut counts = counts.borrow_mut();
        counts.verbs += run.verbs;
        counts.crashes += run.crashes;
        counts.checkpoints += run.checkpoints;
        Ok(())
    });
    if let Some((seed, error)) = found {
        panic!("seed {seed}: {error}");
    }
    let counts = counts.into_inner();
    println!(
        "{count} sequences, {} verbs, {} crashes, {} checkpoints",
        counts.verbs, counts.crashes, counts.checkpoints
    );
    assert!(counts.crashes >= count && counts.verbs > 10 * count);
}

#[test]
fn each_fault_below_globals_is_noticed() {
    for fault in [
        Mutant::FrozenUnkept,
        Mutant::PagesUnmarked,
        Mutant::ClockUnread,
        Mutant::RangesForgotten,
    ] {
        mutant::CURRENT.set(Some(fault));
        let found = find(0..1_000, |seed| run_seed(seed).map(drop));
        mutant::CURRENT.set(None);
        let (seed, error) = found.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        println!("{fault:?}: seed {seed}: {error}");
    }
}
