//! A toy database over the room: shards that are a few pages of memory each, stepped by a test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::model::{ARENA_BYTES, Model, PAGES};
use crate::journal::simulated::{Choices, Machine};
use crate::journal::{
    Call, CheckpointError, Coordinator, Disk, Epochs, Frozen, Journal, Mark, Page, Position,
    Recovery, RecoveryError, Refusal, Report, Retention, Seal, ShardSet, Sizes, Step, Tag, create,
};
use crate::limits::PAGE_BYTES;

pub(super) const SIZES: Sizes = Sizes {
    segment_bytes: 16 << 10,
    block_bytes: 1024,
    staging_bytes: 10 << 10,
};

/// What a test can have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A shard changes some ranges.
    Change(usize),
    /// A message goes from one shard to another.
    Message(usize, usize),
    /// What was changed goes to the disk's side, and is written.
    Write(usize),
    /// What was written is synced.
    Sync(usize),
    /// The next epoch is closed, if none is under way.
    Close,
    /// A message of the epochs arrives at a shard.
    Deliver(usize),
    /// All messages of the epochs arrive, and what they ask for is done.
    Settle,
    /// A shard's memory is frozen for a checkpoint, if none is under way.
    Freeze(usize),
    /// A piece of a checkpoint is done.
    Checkpoint(usize),
    /// A checkpoint of a shard from beginning to end.
    CheckpointAll(usize),
    /// The past that nobody wants is forgotten.
    Retain(usize),
    /// One more segment is made.
    Prepare(usize),
}

pub(super) struct Toy {
    pub(super) model: Model,
    seats: Vec<Seat>,
    coordinator: Coordinator,
    choices: Choices,
    /// How much of the past is kept.
    pub(super) retention: Retention,
    /// Whether anything was refused for want of space, since this was last cleared.
    pub(super) was_refused: bool,
}

struct Seat {
    memory: Vec<u8>,
    journal: Journal,
    epochs: Epochs,
    mail: VecDeque<Call>,
    /// Pages that differ from the image.
    changed: BTreeSet<u64>,
    frozen: Option<Snapshot>,
}

struct Snapshot {
    mark: Mark,
    position: Option<Position>,
    pages: BTreeMap<u64, Box<Page>>,
    is_begun: bool,
}

pub(super) fn disks(machine: &Machine, shards: usize) -> Vec<Arc<dyn Disk>> {
    (0..shards)
        .map(|shard| machine.directory(&shard.to_string()))
        .collect()
}

/// A machine with the files of a new database.
pub(super) fn created(shards: usize, seed: u64) -> Machine {
    let machine = Machine::new(seed);
    create(&disks(&machine, shards), ARENA_BYTES as u64, SIZES, seed).unwrap();
    machine
}

impl Toy {
    /// Opens the database, compares it with the model, and goes back to an epoch if asked to.
    pub(super) fn open(
        disks: Vec<Arc<dyn Disk>>,
        model: &mut Model,
        back_to: Option<u64>,
        seed: u64,
    ) -> Result<Self, RecoveryError> {
        let mut recovery = Recovery::open(disks)?;
        let (mut memories, _) = load(&mut recovery, model.shards())?;
        checked(model.recovered(recovery.cut(), &memories));
        if let Some(epoch) = back_to {
            model.going_back = Some(epoch);
            let back = recovery.rollback(epoch, |_, record| {
                assert!(record.epoch > epoch);
                Ok(())
            });
            if let Err(error @ RecoveryError::OutOfReach { .. }) = back {
                model.going_back = None;
                return Err(error);
            }
            back?;
            assert_eq!(recovery.cut(), epoch);
            model.forget_after(epoch);
        }
        let changed;
        (memories, changed) = load(&mut recovery, model.shards())?;
        checked(model.recovered(recovery.cut(), &memories));
        let journals = recovery.finish(SIZES, seed)?;
        let epoch_first = journals[0].epoch_first;
        let seats = journals.into_iter().zip(memories).zip(changed);
        let seats = seats.map(|((journal, memory), changed)| Seat {
            memory,
            journal,
            epochs: Epochs::new(epoch_first),
            mail: VecDeque::new(),
            changed,
            frozen: None,
        });
        Ok(Self {
            model: model.clone(),
            coordinator: Coordinator::new(epoch_first),
            seats: seats.collect(),
            choices: Choices::new(seed),
            retention: Retention {
                bytes_max: u64::MAX,
                epoch_min: 0,
            },
            was_refused: false,
        })
    }

    pub(super) fn acts(&mut self, acts: impl IntoIterator<Item = Act>) {
        acts.into_iter().for_each(|act| self.act(act));
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Change(shard) => self.change(shard),
            Act::Message(from, to) => {
                let stamp = self.seats[from].epochs.open();
                self.seats[to].epochs.receive(stamp);
            }
            Act::Write(shard) => {
                let Journal { staging, log, .. } = &mut self.seats[shard].journal;
                while let Some(block) = staging.next_block() {
                    log.push(block);
                }
                self.was_refused |= log.write().is_err();
                self.report(shard);
            }
            Act::Sync(shard) => {
                self.was_refused |= self.seats[shard].journal.log.sync().is_err();
                self.report(shard);
            }
            Act::Close => {
                if self.coordinator.is_busy() {
                    return;
                }
                // One counter for all: it is raised before anybody is looked at.
                let epoch = self.coordinator.open();
                let mut dirty = ShardSet::default();
                for (shard, seat) in self.seats.iter_mut().enumerate() {
                    if seat.epochs.close(epoch) {
                        dirty.insert(shard);
                    }
                }
                let call = self.coordinator.close(dirty);
                self.call(call);
            }
            Act::Deliver(shard) => {
                if let Some(call) = self.seats[shard].mail.pop_front() {
                    self.deliver(shard, call);
                }
            }
            Act::Settle => self.settle(),
            Act::Freeze(shard) => self.freeze(shard),
            Act::Checkpoint(shard) => {
                self.checkpoint(shard);
            }
            Act::CheckpointAll(shard) => {
                self.freeze(shard);
                self.act(Act::Close);
                self.settle();
                while self.checkpoint(shard) {}
            }
            Act::Retain(shard) => {
                let Journal {
                    log, checkpoints, ..
                } = &mut self.seats[shard].journal;
                if let Ok(numbers) = checkpoints.retain(&self.retention) {
                    let _ = log.retire(numbers);
                }
            }
            Act::Prepare(shard) => {
                while self.seats[shard]
                    .journal
                    .log
                    .prepare()
                    .is_ok_and(|more| more)
                {}
                self.report(shard);
            }
        }
    }

    /// Whether a shard can change anything.
    pub(super) fn admits(&self, shard: usize) -> Result<(), Refusal> {
        self.seats[shard].journal.staging.admit(3, 1500)
    }

    /// The memory of a shard, as it is now.
    pub(super) fn memory(&self, shard: usize) -> &[u8] {
        &self.seats[shard].memory
    }

    pub(super) fn journal(&mut self, shard: usize) -> &mut Journal {
        &mut self.seats[shard].journal
    }

    /// The newest epoch that is durable.
    pub(super) fn durable(&self) -> u64 {
        self.coordinator.durable()
    }

    /// Ends the database: everything into checkpoints, and said so.
    pub(super) fn close(&mut self) {
        for shard in 0..self.seats.len() {
            self.act(Act::Prepare(shard));
            self.act(Act::CheckpointAll(shard));
            // What is marked after the checkpoint before it was flushed is one with the end.
            let _ = self.seats[shard].journal.checkpoints.close();
        }
    }

    fn change(&mut self, shard: usize) {
        let count = 1 + self.choices.below(3) as usize;
        if self.admits(shard).is_err() {
            self.was_refused = true;
            return;
        }
        let seat = &mut self.seats[shard];
        let mut ranges = Vec::new();
        for _ in 0..count {
            let bytes_max = if self.choices.below(8) == 0 { 500 } else { 40 };
            let bytes = 1 + self.choices.below(bytes_max) as usize;
            let offset = self.choices.below((ARENA_BYTES - bytes) as u64) as usize;
            let value = self.choices.below(255) as u8 + 1;
            seat.memory[offset..offset + bytes].fill(value);
            ranges.push(offset..offset + bytes);
            let pages = offset / PAGE_BYTES..=(offset + bytes - 1) / PAGE_BYTES;
            seat.changed.extend(pages.map(|page| page as u64));
        }
        let epoch = seat.epochs.change();
        let memory = &seat.memory;
        let tag = Tag::default();
        let content = ranges
            .into_iter()
            .map(|range| (range.start as u64, &memory[range], tag));
        seat.journal.staging.append(epoch, content);
        self.model.change(shard, epoch, &seat.memory);
    }

    /// Takes what the disk's side has to tell.
    fn report(&mut self, shard: usize) {
        let seat = &mut self.seats[shard];
        let mut report: Report = seat.journal.log.report();
        seat.journal.staging.take_back(&mut report);
        if let Some(frozen) = &mut seat.frozen {
            let is_own = |mark: &&(u64, Position)| mark.0 == frozen.mark.block;
            let position = report
                .marks
                .iter()
                .find(is_own)
                .map(|(_, position)| *position);
            frozen.position = frozen.position.or(position);
        }
        if let Some(epoch) = report.sealed {
            let call = self.coordinator.sealed(shard, epoch);
            self.call(call);
        }
    }

    fn call(&mut self, call: Option<Call>) {
        let Some(call) = call else { return };
        // An epoch without changes leaves no trace, and needs none.
        if let Call::Durable { epoch, dirty } = call
            && !dirty.is_empty()
        {
            self.model.acknowledged = self.model.acknowledged.max(epoch);
        }
        for (shard, seat) in self.seats.iter_mut().enumerate() {
            let is_meant = match &call {
                Call::Seal { dirty, .. } => dirty.contains(shard),
                Call::Durable { .. } => true,
            };
            if is_meant {
                seat.mail.push_back(call);
            }
        }
    }

    fn deliver(&mut self, shard: usize, call: Call) {
        let Seat {
            epochs, journal, ..
        } = &mut self.seats[shard];
        match call {
            Call::Seal { epoch, dirty } => {
                epochs.seal(epoch);
                let micros = 0;
                let seal = Seal {
                    epoch,
                    dirty,
                    micros,
                };
                journal.staging.seal(&seal);
            }
            Call::Durable { epoch, dirty } => {
                epochs.durable(epoch);
                if !dirty.is_empty() {
                    journal.staging.set_durable(epoch);
                }
            }
        }
    }

    /// Until nothing moves any more, or the disk refuses to.
    fn settle(&mut self) {
        for _ in 0..8 {
            for shard in 0..self.seats.len() {
                while !self.seats[shard].mail.is_empty() {
                    self.act(Act::Deliver(shard));
                }
            }
            for shard in 0..self.seats.len() {
                let waits = self.seats[shard].journal.staging.waiting_bytes() > 0;
                if waits || !self.seats[shard].journal.log.is_idle() {
                    self.act(Act::Write(shard));
                    self.act(Act::Sync(shard));
                }
            }
        }
    }

    fn freeze(&mut self, shard: usize) {
        let seat = &mut self.seats[shard];
        if seat.frozen.is_some() {
            return;
        }
        let page = |number: &u64| {
            let at = *number as usize * PAGE_BYTES;
            let content = seat.memory[at..].first_chunk::<PAGE_BYTES>().unwrap();
            (*number, Box::new(*content))
        };
        seat.frozen = Some(Snapshot {
            mark: seat.journal.staging.mark(),
            position: None,
            pages: seat.changed.iter().map(page).collect(),
            is_begun: false,
        });
        seat.changed.clear();
    }

    /// Does a piece of a checkpoint; says whether there may be more to do.
    fn checkpoint(&mut self, shard: usize) -> bool {
        let durable = self.coordinator.durable();
        let seat = &mut self.seats[shard];
        let Some(frozen) = &mut seat.frozen else {
            return false;
        };
        let Some(position) = frozen.position else {
            return false;
        };
        let checkpoints = &mut seat.journal.checkpoints;
        if !frozen.is_begun {
            let begun = checkpoints.begin(
                Frozen {
                    mark: frozen.mark,
                    position,
                    arena_bytes: ARENA_BYTES as u64,
                    pages: frozen.pages.keys().copied().collect(),
                },
                durable,
            );
            frozen.is_begun = begun.is_ok();
            return begun.is_ok();
        }
        let mut step = checkpoints.step();
        if let Ok(Step::Pages) = step {
            for (page, content) in &frozen.pages {
                if let Err(error) = checkpoints.write(*page, &[content]) {
                    step = Err(error);
                    break;
                }
            }
        }
        match step {
            Ok(Step::Done) => seat.frozen = None,
            Ok(_) => return true,
            Err(CheckpointError::NotDurable { .. }) => unreachable!("it was begun"),
            Err(_) => {
                // Its pages still differ from the image.
                seat.changed.extend(frozen.pages.keys());
                seat.frozen = None;
            }
        }
        false
    }
}

fn checked(result: Result<(), String>) {
    if let Err(difference) = result {
        panic!("{difference}");
    }
}

/// The memory of all shards at the cut, and which pages of it differ from the image.
type Loaded = (Vec<Vec<u8>>, Vec<BTreeSet<u64>>);

fn load(recovery: &mut Recovery, shards: usize) -> Result<Loaded, RecoveryError> {
    let (mut memories, mut changed) = (Vec::new(), Vec::new());
    for shard in 0..shards {
        let mut memory = vec![0; ARENA_BYTES];
        assert_eq!(memory.len(), PAGES * PAGE_BYTES);
        let mut loader = recovery.loader(shard);
        loader.read_pages(0, &mut memory)?;
        let mut pages = BTreeSet::new();
        loader.replay(|record| {
            let start = record.offset as usize;
            let end = start + record.bytes.len();
            let place = memory
                .get_mut(start..end)
                .ok_or("a record is outside of the arena")?;
            place.copy_from_slice(record.bytes);
            pages.extend((start / PAGE_BYTES..=(end - 1) / PAGE_BYTES).map(|page| page as u64));
            Ok(())
        })?;
        memories.push(memory);
        changed.push(pages);
    }
    Ok((memories, changed))
}
