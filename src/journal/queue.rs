//! What shards and the one who writes their journals tell each other.
//!
//! A shard's side goes through its mailbox, as everything else that any thread may ask of it; the
//! writer's side is this queue. Neither ever waits for the other: blocks that are full are handed over
//! and come back empty, and a shard that has handed over too many stops taking requests until some
//! have ([`Staging::waiting_bytes`](super::staging::Staging::waiting_bytes)).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use crossbeam_queue::SegQueue;

use super::block::{Block, Seal};
use super::clock::EpochClock;
use super::image::Page;
use super::staging::{Mark, Report};
use super::superblock::Position;

/// What a shard tells the writer.
pub(crate) enum ToWriter {
    /// A block of the journal.
    Block(Block),
    /// The memory was frozen for a checkpoint.
    Frozen {
        mark: Mark,
        pages: Vec<u64>,
        arena_bytes: u64,
    },
    /// Frozen pages; all of them, if there are none.
    Pages(Vec<(u64, Box<Page>)>),
    /// The pages of the image that came last are loaded.
    Loaded,
    /// Nothing will be changed any more.
    Ended,
    /// The shard has failed, and answers nothing any more.
    Failed(String),
}

/// What others than shards ask of the writer.
pub(crate) enum Order {
    /// Begin no checkpoints as long as there is the halt, and tell how far each shard's journal goes at a
    /// moment between two epochs.
    Halt(Weak<Halt>, Sender<Result<Vec<Position>, String>>),
}

/// As long as somebody has it, no checkpoint is begun.
pub(crate) struct Halt(());

/// What the writer tells a shard.
pub(crate) enum ToShard {
    /// Seal an epoch.
    Seal(Seal),
    /// What has become of the blocks.
    Report(Report),
    /// Freeze the memory for a checkpoint.
    Freeze,
    /// Hand over some of the frozen pages.
    Pages,
    /// Pages of the image, from this one on, to be loaded; without any, all are.
    Load { first: u64, content: Vec<u8> },
    /// The checkpoint of these pages was given up.
    Thaw(Vec<u64>),
    /// The files are closed, or could not be.
    Closed(Result<(), String>),
}

/// The writer, as the shards see it.
pub(crate) struct WriterQueue {
    queue: SegQueue<(usize, ToWriter)>,
    orders: SegQueue<Order>,
    /// Pages of images that were loaded, and that have to be.
    loaded: AtomicU64,
    unloaded: AtomicU64,
    clock: Arc<EpochClock>,
}

impl WriterQueue {
    pub(crate) fn new(clock: Arc<EpochClock>) -> Self {
        Self {
            queue: SegQueue::new(),
            orders: SegQueue::new(),
            loaded: AtomicU64::new(0),
            unloaded: AtomicU64::new(0),
            clock,
        }
    }

    /// Tells the writer something of a shard.
    pub(crate) fn send(&self, shard: usize, told: ToWriter) {
        self.queue.push((shard, told));
        self.clock.bell.ring();
    }

    /// Asks for a time without checkpoints, which begins with the answer and ends with the value.
    pub(crate) fn halt(&self) -> (Arc<Halt>, Receiver<Result<Vec<Position>, String>>) {
        let (sender, receiver) = channel();
        let halt = Arc::new(Halt(()));
        self.orders.push(Order::Halt(Arc::downgrade(&halt), sender));
        self.clock.bell.ring();
        (halt, receiver)
    }

    /// The writer: takes what was asked first.
    pub(crate) fn take_order(&self) -> Option<Order> {
        self.orders.pop()
    }

    /// The writer: takes what was told first.
    pub(crate) fn take(&self) -> Option<(usize, ToWriter)> {
        self.queue.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.orders.is_empty()
    }

    /// Notes that so many more pages of images have to be loaded, or were.
    pub(crate) fn count_pages(&self, unloaded: u64, loaded: u64) {
        self.unloaded.fetch_add(unloaded, Ordering::Relaxed);
        self.loaded.fetch_add(loaded, Ordering::Relaxed);
    }

    /// Pages of images that were loaded, and how many there are to be.
    pub(crate) fn pages(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.loaded), read(&self.unloaded))
    }

    /// The epochs' clock.
    pub(crate) fn clock(&self) -> &Arc<EpochClock> {
        &self.clock
    }
}
