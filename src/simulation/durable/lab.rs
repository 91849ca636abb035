//! What lives of shards with journals have in common: a machine, and a world that is opened on what its
//! disk holds.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::arena::{Identity, JournaledArena, MapOptions, RedoStart};
use crate::journal::simulated::{Fault, Loss, Machine};
use crate::journal::{Disk, DiskSide, EpochClock, Recovery, Retention, Sizes, WriterQueue, create};
use crate::session::Verbs;
use crate::shard::{Decisions, TableShape, panic_message};
use crate::simulation::strand::Strands;
use crate::simulation::{Choices, Setting, World};
use crate::writer::{Rules, Writer};

const OPTIONS: MapOptions = MapOptions {
    bytes: 8 << 20,
    node: None,
    huge_pages: false,
};

const SIZES: Sizes = Sizes {
    segment_bytes: 64 << 10,
    block_bytes: 2 << 10,
    staging_bytes: 32 << 10,
};

const RULES: Rules = Rules {
    interval: Duration::from_micros(200),
    checkpoint_bytes: 3 << 10,
    retention: Retention {
        bytes_max: 1 << 20,
        epoch_min: 0,
    },
    syncs_at_once: false,
};

pub(super) const LOSSES: [Loss; 4] = [Loss::Drop, Loss::Keep, Loss::Prefix, Loss::Torn];

/// A machine, and how its worlds are made.
pub(super) struct Lab {
    pub(super) machine: Machine,
    pub(super) setting: Setting,
    rules: Rules,
    /// The newest checkpoint that a world was opened on.
    pub(super) checkpoints: Cell<u64>,
    /// The one table.
    shape: TableShape,
}

impl Lab {
    /// A machine with an empty database; the writer of a relaxed one is in no hurry.
    pub(super) fn new(seed: u64, setting: Setting, is_relaxed: bool, shape: TableShape) -> Self {
        let lab = Self {
            machine: Machine::new(seed),
            setting,
            rules: Rules {
                interval: RULES.interval * if is_relaxed { 100 } else { 1 },
                ..RULES
            },
            checkpoints: Cell::new(0),
            shape,
        };
        create(&lab.disks(), OPTIONS.bytes, SIZES, seed).unwrap();
        lab
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        (0..self.setting.shards)
            .map(|shard| self.machine.directory(&shard.to_string()))
            .collect()
    }

    /// The world that the disk holds, brought in order as an engine does when it opens a database.
    pub(super) fn open(&self, seed: u64) -> Result<Rc<World>, String> {
        let mut recovery = Recovery::open(self.disks()).map_err(|error| error.to_string())?;
        let loads = recovery.loaders().map(|mut loader| {
            let checkpoint = loader.superblock().checkpoint;
            self.checkpoints.set(self.checkpoints.get().max(checkpoint));
            JournaledArena::load(&OPTIONS, &mut loader).map_err(|error| error.to_string())
        });
        let arenas = loads.collect::<Result<Vec<_>, _>>()?;
        let journals = recovery.finish(SIZES, seed);
        let journals = journals.map_err(|error| error.to_string())?;
        let clock = EpochClock::new(self.setting.shards, journals[0].epoch_first);
        let queue = Arc::new(WriterQueue::new(Arc::new(clock)));
        let (mut opened, mut sides) = (Vec::new(), Vec::<DiskSide>::new());
        for (shard, (arena, journal)) in arenas.into_iter().zip(journals).enumerate() {
            let (staging, side) = journal.split();
            sides.push(side);
            let identity = Identity {
                database: [3; 16],
                shard: shard as u32,
                shards: self.setting.shards as u32,
            };
            opened.push(arena.finish(
                identity,
                RedoStart {
                    shard,
                    staging,
                    sizes: SIZES,
                    clock: Arc::clone(queue.clock()),
                    changed: Vec::new(),
                },
            )?);
        }
        let (arenas, entries): (Vec<_>, Vec<_>) = opened
            .into_iter()
            .map(|opened| (opened.arena, opened.entries))
            .unzip();
        let epochs = Some(Arc::clone(queue.clock()));
        let world = World::with(seed, self.setting, arenas, epochs);
        for seat in &world.shards {
            seat.borrow_mut().shard.set_writer(Arc::clone(&queue));
        }
        let wall = Box::new(|| 0);
        let writer = Writer::new(sides, &world.peers.mailboxes, queue, self.rules, wall);
        world.writer.replace(Some(writer));
        let mut decisions = Decisions::new();
        for (index, entries) in entries.into_iter().enumerate() {
            let shard = &mut world.shards[index].borrow_mut().shard;
            let tables: &[TableShape] = if entries.is_empty() {
                &[]
            } else {
                std::slice::from_ref(&self.shape)
            };
            shard.open(tables, entries)?;
            for decision in shard.decisions() {
                decisions.insert((index, decision.ticket), decision.members);
            }
        }
        for seat in world.shards.iter().rev() {
            seat.borrow_mut().shard.resolve(&decisions)?;
        }
        for seat in &world.shards {
            seat.borrow_mut().shard.forget_decisions();
        }
        Ok(world)
    }

    /// The world of an empty database, with the table in it, which is durable then.
    pub(super) fn furnish(&self, seed: u64) -> Result<Rc<World>, String> {
        let world = self.open(seed)?;
        for (index, seat) in world.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            catalog.create(&self.shape, index, 0).unwrap();
        }
        world.client().flush().map_err(|error| error.to_string())?;
        Ok(world)
    }

    /// Plans a cut of the power within some steps, and now and then that the disk fails before.
    pub(super) fn plan(&self, choices: &Choices) {
        let steps = [60, 400, 2_000][choices.below(3) as usize];
        self.machine.plan(choices.below(steps), Fault::PowerCut);
        if choices.below(3) == 0 {
            // The disk fails first, or is full for a while.
            let fault = [Fault::Io, Fault::NoSpace][choices.below(2) as usize];
            for _ in 0..1 + choices.below(3) {
                self.machine.plan(choices.below(steps), fault);
            }
        }
    }

    /// Lets strands work until the end or until the machine is down; says whether it was the end. Their
    /// world is lost.
    pub(super) fn run(&self, mut strands: Strands) -> bool {
        let has_ended = strands.run_until(|| self.machine.is_down());
        strands.crash();
        has_ended
    }

    /// Opens what a crash has left, with crashes meanwhile if `choices` have it so.
    pub(super) fn recover(
        &self,
        loss: Loss,
        seed: u64,
        choices: &Choices,
    ) -> Result<Rc<World>, String> {
        self.machine.restart(loss, seed);
        for again in 0..3 {
            if choices.below(3) == 0 {
                self.machine.plan(choices.below(60), Fault::PowerCut);
            }
            let opened = self.open(seed ^ again);
            if !self.machine.is_down() {
                self.machine.plan_nothing();
                return opened;
            }
            self.machine.restart(loss, seed ^ again << 40);
        }
        self.open(seed)
    }
}

/// Runs seeds until one finds something.
pub(super) fn find(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<(), String>,
) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        let result = std::panic::catch_unwind(run);
        let result = result.unwrap_or_else(|payload| Err(panic_message(payload)));
        result.err().map(|error| (seed, error))
    })
}

/// The seeds that a variable of the environment names, as FIRST+COUNT, or as many as usual.
pub(super) fn seeds_of(variable: &str, usual: u64) -> Range<u64> {
    let Ok(given) = std::env::var(variable) else {
        return 0..usual;
    };
    let (first, count) = given.split_once('+').expect("FIRST+COUNT");
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    first..first + count
}
