//! The writer: the disk's side of all shards' journals, and who closes their epochs.
//!
//! # What it does
//! It takes the blocks that shards hand over, writes and syncs them, and tells the shards what has
//! become of them; it closes an epoch when somebody waits for it or its time has come
//! ([`Coordinator`]); and it takes checkpoints, one piece at a time, so that commits go between
//! ([`lane`]).
//!
//! # How
//! As a shard, it is stepped ([`Writer::step`]): the time is told to it, the disk is a trait, and it
//! never waits for anybody. The engine has a thread that steps it; the simulation steps it itself.

mod lane;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::journal::{
    Call, Coordinator, DiskSide, EpochClock, Halt, Order, Position, Retention, Seal, ShardSet,
    ToShard, ToWriter, WriteError, WriterQueue,
};
use crate::shard::{Command, Mailbox};
use lane::{Lane, Written};

/// What the writer is asked to do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How often epochs are closed for whom nobody waits.
    pub(crate) interval: Duration,
    /// Bytes of a shard's journal after which it takes a checkpoint.
    pub(crate) checkpoint_bytes: u64,
    /// How much of the past is kept.
    pub(crate) retention: Retention,
    /// Whether the journals of several shards are synced at the same time, by threads of their own.
    pub(crate) syncs_at_once: bool,
}

/// The time of day: microseconds since 1970.
pub(crate) type Wall = Box<dyn Fn() -> u64 + Send>;

/// How long to wait before trying again what the disk has refused.
const RETRY: Duration = Duration::from_millis(100);

/// The disk's side of all shards.
pub(crate) struct Writer {
    lanes: Vec<Lane>,
    coordinator: Coordinator,
    clock: Arc<EpochClock>,
    queue: Arc<WriterQueue>,
    rules: Rules,
    wall: Wall,
    /// When the next epoch is to be closed for whom nobody waits, in microseconds.
    next_close: u64,
    /// No checkpoint is begun while any of them is there.
    halts: Vec<Weak<Halt>>,
    /// Who has asked for one, and has no answer yet.
    unanswered: Vec<Sender<Result<Vec<Position>, String>>>,
    /// Why there will be no more epochs.
    failure: Option<String>,
}

impl Writer {
    /// The writer of journals, in the order of shards.
    pub(crate) fn new(
        journals: Vec<DiskSide>,
        mailboxes: &[Arc<Mailbox>],
        queue: Arc<WriterQueue>,
        rules: Rules,
        wall: Wall,
    ) -> Self {
        let clock = Arc::clone(queue.clock());
        let unloaded = journals.iter().map(|journal| journal.unloaded_pages);
        queue.count_pages(unloaded.sum(), 0);
        let lanes = journals.into_iter().zip(mailboxes);
        Self {
            coordinator: Coordinator::new(clock.open()),
            lanes: lanes
                .map(|(journal, mailbox)| Lane::new(journal, Arc::clone(mailbox)))
                .collect(),
            clock,
            queue,
            rules,
            wall,
            next_close: 0,
            halts: Vec::new(),
            unanswered: Vec::new(),
            failure: None,
        }
    }

    /// Does what there is to do, a piece of it; says whether there was anything. `now` is in
    /// microseconds.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        let mut is_busy = self.take_all() | self.write(now);
        for shard in 0..self.lanes.len() {
            // A shard without a segment to spare may soon have to stop.
            is_busy |= self.lanes[shard].prepare(now);
        }
        is_busy |= self.answer_halts();
        is_busy |= self.close_epoch(now);
        // What nobody waits for has its turn when nothing else has.
        if is_busy && self.unanswered.is_empty() {
            return true;
        }
        self.halts.retain(|halt| halt.strong_count() > 0);
        let may_begin = self.halts.is_empty();
        for shard in 0..self.lanes.len() {
            is_busy |= self.lanes[shard].checkpoint(now, &self.clock, &self.rules, may_begin);
            match self.lanes[shard].load(now) {
                Ok(any) => is_busy |= any,
                Err(reason) => self.fail(reason),
            }
        }
        self.end() || is_busy
    }

    /// Microseconds until there may be something to do that nobody tells of.
    pub(crate) fn patience(&self, now: u64) -> Option<u64> {
        let retries = self.lanes.iter().filter_map(Lane::retry);
        let is_unsealed = (0..self.lanes.len()).any(|shard| self.clock.is_flagged(shard));
        let close = is_unsealed.then_some(self.next_close);
        let next = retries.chain(close).min()?;
        Some(next.saturating_sub(now).max(1))
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.queue.is_empty() || self.is_wanted()
    }

    /// Whether shards have been asked for something that is on its way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.coordinator.is_busy()
    }

    /// Whether all files are closed, or given up.
    pub(crate) fn is_over(&self) -> bool {
        self.lanes.iter().all(Lane::is_over)
    }

    /// Tells how far the journals go to those who wait for that, between two epochs, when no checkpoint is
    /// under way: everything up to the last epoch is durable then, and nothing changes the images.
    fn answer_halts(&mut self) -> bool {
        while let Some(Order::Halt(halt, answer)) = self.queue.take_order() {
            self.halts.push(halt);
            self.unanswered.push(answer);
        }
        if self.unanswered.is_empty() || self.coordinator.is_busy() && self.failure.is_none() {
            return false;
        }
        let places = match &self.failure {
            Some(reason) => Err(reason.clone()),
            None if self.lanes.iter().any(Lane::is_at_work) => return false,
            None => self.lanes.iter_mut().map(Lane::settle).collect(),
        };
        for answer in self.unanswered.drain(..) {
            // Who does not wait any more has dropped its halt, too.
            let _ = answer.send(places.clone());
        }
        true
    }

    fn is_wanted(&self) -> bool {
        self.failure.is_none()
            && !self.coordinator.is_busy()
            && self.clock.wanted() > self.clock.durable()
    }

    /// Takes what shards have told.
    fn take_all(&mut self) -> bool {
        let mut any = false;
        while let Some((shard, told)) = self.queue.take() {
            any = true;
            let lane = &mut self.lanes[shard];
            match told {
                ToWriter::Block(block) => lane.push(block),
                ToWriter::Frozen {
                    mark,
                    pages,
                    arena_bytes,
                } => lane.frozen(mark, pages, arena_bytes),
                ToWriter::Pages(pages) => lane.take_pages(pages),
                ToWriter::Loaded => lane.loaded(&self.queue),
                ToWriter::Ended => lane.is_ended = true,
                ToWriter::Failed(reason) => {
                    lane.give_up();
                    self.fail(format!("shard {shard} failed: {reason}"));
                }
            }
        }
        any
    }

    /// Writes what shards have handed over, and syncs it where somebody waits for that.
    fn write(&mut self, now: u64) -> bool {
        let mut due = Vec::new();
        for (shard, lane) in self.lanes.iter_mut().enumerate() {
            if lane.is_due(now) {
                due.push((shard, lane));
            }
        }
        if due.is_empty() {
            return false;
        }
        let syncs = due.iter().filter(|(_, lane)| lane.syncs()).count();
        let results: Vec<_> = if syncs > 1 && self.rules.syncs_at_once {
            write_at_once(&mut due)
        } else {
            due.iter_mut().map(|(_, lane)| lane.write()).collect()
        };
        let written = due.into_iter().zip(results);
        let written: Vec<(usize, Written)> = written
            .map(|((shard, lane), result)| (shard, lane.written(&result, now)))
            .collect();
        for (shard, Written { sealed, poison }) in written {
            if let Some(epoch) = sealed {
                let call = self.coordinator.sealed(shard, epoch);
                self.call(call);
            }
            if let Some(reason) = poison {
                self.fail(reason);
            }
        }
        true
    }

    /// Closes an epoch, if it is time to.
    fn close_epoch(&mut self, now: u64) -> bool {
        if self.failure.is_some() || self.coordinator.is_busy() {
            return false;
        }
        let is_flagged = |shard: &usize| self.clock.is_flagged(*shard);
        let is_due =
            now >= self.next_close && (0..self.lanes.len()).any(|shard| is_flagged(&shard));
        if !is_due && !self.is_wanted() {
            return false;
        }
        let interval = u64::try_from(self.rules.interval.as_micros()).unwrap_or(u64::MAX);
        self.next_close = now.saturating_add(interval);
        // First the clock, then the flags: who flags itself later reads the new epoch.
        self.clock.close(self.coordinator.open());
        let mut dirty = ShardSet::default();
        let flagged = (0..self.lanes.len()).filter(|shard| self.clock.is_flagged(*shard));
        flagged.for_each(|shard| dirty.insert(shard));
        let call = self.coordinator.close(dirty);
        self.call(call);
        true
    }

    fn call(&mut self, call: Option<Call>) {
        match call {
            None => {}
            Some(Call::Seal { epoch, dirty }) => {
                let micros = (self.wall)();
                let seal = Seal {
                    epoch,
                    dirty,
                    micros,
                };
                for shard in dirty.iter() {
                    self.lanes[shard].send(ToShard::Seal(seal));
                }
            }
            Some(Call::Durable { epoch, dirty }) => {
                self.clock.set_durable(epoch, !dirty.is_empty());
            }
        }
    }

    fn fail(&mut self, reason: String) {
        self.clock.fail(reason.clone());
        self.failure.get_or_insert(reason);
    }

    /// Closes the files when no shard changes anything any more.
    fn end(&mut self) -> bool {
        if !self
            .lanes
            .iter()
            .all(|lane| lane.is_ended || lane.is_over())
        {
            return false;
        }
        let mut is_busy = false;
        for lane in &mut self.lanes {
            is_busy |= lane.end(self.failure.as_deref());
        }
        is_busy
    }
}

/// Writes the journals of some shards at the same time, for a disk does many syncs in the time of one; on
/// this thread where the system has no other.
fn write_at_once(due: &mut [(usize, &mut Lane)]) -> Vec<Result<(), WriteError>> {
    let mut results: Vec<_> = due.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let mut writes = due.iter_mut().zip(&mut results);
        let first = writes.next();
        for ((_, lane), result) in writes {
            let write = || *result = Some(lane.write());
            drop(thread::Builder::new().spawn_scoped(scope, write));
        }
        if let Some(((_, lane), result)) = first {
            *result = Some(lane.write());
        }
    });
    let results = results.into_iter().zip(due);
    results
        .map(|(result, (_, lane))| result.unwrap_or_else(|| lane.write()))
        .collect()
}

impl Lane {
    fn send(&self, told: ToShard) {
        self.mailbox.send(Command::Journal(told));
    }
}
