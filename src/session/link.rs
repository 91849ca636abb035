//! A client's ends of its lanes: open blocks, requests under way, answers.
//!
//! Nothing here waits. Whoever cannot go on is told so and tries again after others have moved,
//! which is what lets one thread step clients and shards in turn.
//!
//! # Credits
//! A lane has a fixed number of replies and a fixed payload. A client that has used them up takes
//! answers first; it never waits for room in a ring, so full rings cannot wait for each other.
//!
//! # Rotation
//! The payload is used round and round: a line that the shard has just written is read by the
//! client, and not written by it again before the whole payload has passed. So the two caches hand
//! lines over in one direction at a time.

#![expect(unsafe_code, reason = "parts of a payload are given out as blocks")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use super::settle::Acknowledge;
use crate::error::{Error, Result};
use crate::fork::Home;
use crate::id::ShardIndex;
use crate::journal::EpochClock;
use crate::limits::{LANE_BYTES_MIN, LANE_BYTES_TOTAL};
use crate::ring::{Full, Producer, ring};
use crate::shard::{
    BlockLayout, BlockMemory, Call, Clock, Command, LaneMemory, Mailbox, Outbox, Parcel, Request,
    ServerLane, Status,
};

/// The shards of an engine, as their clients see them, and how to talk to them.
pub(crate) struct Peers {
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    /// Operations of a block.
    pub(crate) block_operations: usize,
    /// Requests of a lane that may be under way.
    pub(crate) lane_requests: usize,
    pub(crate) clock: Clock,
    /// The process whose threads the shards have.
    pub(crate) home: Home,
    /// The epochs of a database with a journal.
    pub(crate) epochs: Option<Arc<EpochClock>>,
    /// When changes count as done, unless a client says otherwise.
    pub(crate) acknowledge: Acknowledge,
    /// Shards that still take work from clients.
    pub(crate) open: AtomicUsize,
}

impl Peers {
    /// A shard has done the last of what its clients sent. Shards end when all have.
    pub(crate) fn retire(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mailboxes.iter().for_each(|mailbox| mailbox.ring());
        }
    }

    pub(crate) fn all_retired(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    pub(crate) fn shards(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn mailbox(&self, shard: ShardIndex) -> Result<&Arc<Mailbox>> {
        self.mailboxes.get(shard).ok_or(Error::Shard {
            shard,
            shards: self.shards(),
        })
    }

    /// Whether the shards are in this process.
    #[inline]
    pub(crate) fn check_home(&self) -> Result<()> {
        if self.home.is_elsewhere() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Whether a shard has ended; one that is not there has.
    pub(crate) fn has_ended(&self, shard: ShardIndex) -> bool {
        self.mailboxes
            .get(shard)
            .is_none_or(|mailbox| mailbox.has_ended())
    }

    /// Why a shard does not answer.
    pub(crate) fn ended(&self, shard: ShardIndex) -> Error {
        if self.home.is_elsewhere() {
            return Error::Forked;
        }
        match self.mailboxes[shard].failure() {
            Some(message) => Error::ShardFailed { shard, message },
            None => Error::Closed,
        }
    }
}

/// A client's lanes, made when they are first used.
pub(crate) struct Link {
    peers: Arc<Peers>,
    lanes: Vec<Option<Lane>>,
    /// For each shard, the block that is being filled. Its payload is not tied up before it is sent.
    open: Vec<Option<BlockMemory>>,
    /// Where the next unkeyed insert goes, for clients that are not shards.
    turn: usize,
    /// Whether a use has begun and not come to its end.
    in_use: bool,
    acknowledge: Acknowledge,
    /// The ways of transactions over several shards.
    pub(crate) outbox: Outbox,
}

impl Link {
    pub(crate) fn new(peers: Arc<Peers>, turn: usize) -> Self {
        let lanes = peers.mailboxes.iter().map(|_| None).collect();
        let open = peers.mailboxes.iter().map(|_| None).collect();
        let outbox = Outbox::new(&peers.mailboxes, true);
        Self {
            outbox,
            acknowledge: peers.acknowledge,
            peers,
            lanes,
            open,
            turn,
            in_use: false,
        }
    }

    /// Begins a use by a verb or a pipeline. Says whether the one before has not come to its end,
    /// because it was forgotten or unwound: then [`sweep`](Self::sweep) until nothing of it is left.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.in_use, true)
    }

    /// Ends a use: all its answers are taken, no block is open.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.in_use = false;
    }

    /// Throws away open blocks, and the answers that are there; gives a lane where some are missing.
    #[cold]
    pub(crate) fn sweep(&mut self) -> Option<&mut Lane> {
        self.open.fill_with(|| None);
        self.take_answers(|_, _| {});
        for lane in self.lanes.iter_mut().flatten() {
            drop(lane.take_parcel());
        }
        self.pending_lane()
    }

    /// Sets when changes count as done.
    pub(crate) fn set_acknowledge(&mut self, when: Acknowledge) {
        self.acknowledge = when;
    }

    /// The epochs, if changes count as done only when they are durable.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<&Arc<EpochClock>> {
        match self.acknowledge {
            Acknowledge::Executed => None,
            Acknowledge::Durable => self.peers.epochs.as_ref(),
        }
    }

    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The shard for the next rows that may be placed anywhere.
    pub(crate) fn next_shard(&mut self) -> ShardIndex {
        self.turn = (self.turn + 1) % self.peers.shards();
        self.turn
    }

    /// The lane to a shard.
    pub(crate) fn lane(&mut self, shard: ShardIndex) -> Result<&mut Lane> {
        let mailbox = self.peers.mailbox(shard)?;
        let lane = &mut self.lanes[shard];
        if lane.is_none() {
            *lane =
                Some(Lane::attach(mailbox, &self.peers).ok_or_else(|| self.peers.ended(shard))?);
        }
        Ok(lane.as_mut().expect("just made"))
    }

    /// The block for a shard that is being filled, if it has room.
    #[inline(always)]
    pub(crate) fn block(&mut self, shard: ShardIndex) -> Option<&mut BlockMemory> {
        self.open
            .get_mut(shard)?
            .as_mut()
            .filter(|block| !block.is_full())
    }

    /// Opens a block for a shard, if its lane has room for it.
    pub(crate) fn open(
        &mut self,
        shard: ShardIndex,
        cells: usize,
        operations: usize,
    ) -> Result<bool> {
        let lane = self.lane(shard)?;
        let layout = BlockLayout::new(lane.capacity(cells, operations), cells);
        self.open[shard] = lane.open(layout);
        Ok(self.open[shard].is_some())
    }

    /// Sends the block for a shard, if there is one with something in it.
    pub(crate) fn send(
        &mut self,
        shard: ShardIndex,
        request: impl FnOnce(&BlockMemory) -> Request,
    ) -> Result<()> {
        if let Some(block) = self.open[shard].take()
            && block.len() > 0
        {
            self.lane(shard)?.send(request(&block), block);
        }
        Ok(())
    }

    /// Whether there is a block for a shard that is being filled, or full and not sent.
    pub(crate) fn has_open(&self, shard: ShardIndex) -> bool {
        self.open.get(shard).is_some_and(Option::is_some)
    }

    /// A shard with a request that is not answered.
    #[inline]
    pub(crate) fn pending_shard(&self) -> Option<ShardIndex> {
        self.lanes
            .iter()
            .position(|lane| lane.as_ref().is_some_and(|lane| lane.pending() > 0))
    }

    /// A lane with a request that is not answered.
    pub(crate) fn pending_lane(&mut self) -> Option<&mut Lane> {
        self.lanes
            .iter_mut()
            .flatten()
            .find(|lane| lane.pending() > 0)
    }

    /// Takes all answers that are there; says whether there was one. `taken` gets each block, with
    /// the error that kept it from being executed.
    #[inline]
    pub(crate) fn take_answers(&mut self, mut taken: impl FnMut(&BlockMemory, Result<()>)) -> bool {
        let mut any = false;
        for (shard, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane else { continue };
            while lane.pending() > 0 {
                match lane.take() {
                    Answer::NotYet => break,
                    Answer::Done(_, None) => {}
                    Answer::Done(Status::DONE, Some(block)) => taken(&block, Ok(())),
                    Answer::Done(Status::TABLE_GONE, Some(block)) => {
                        taken(&block, Err(Error::TableGone))
                    }
                    Answer::Done(Status::READ_ONLY, Some(block)) => {
                        taken(&block, Err(Error::DatabaseReadOnly))
                    }
                    Answer::Done(Status::JOURNAL_FULL, Some(block)) => {
                        taken(&block, Err(Error::JournalFull))
                    }
                    Answer::Done(Status::JOURNAL_BROKEN, Some(block)) => {
                        taken(&block, Err(Error::JournalBroken))
                    }
                    Answer::Done(_, Some(block)) => taken(&block, Err(self.peers.ended(shard))),
                    Answer::Ended => {
                        for block in lane.abandon() {
                            taken(&block, Err(self.peers.ended(shard)));
                        }
                    }
                }
                any = true;
            }
        }
        any
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for lane in self.lanes.drain(..).flatten() {
            let mailbox = Arc::clone(&lane.mailbox);
            drop(lane);
            // So that the shard sees that the client is gone, and drops its end.
            mailbox.ring();
        }
    }
}

/// A client's end of a lane.
pub(crate) struct Lane {
    requests: Producer<Request>,
    memory: Arc<LaneMemory>,
    mailbox: Arc<Mailbox>,
    /// Requests sent, and requests whose answer was taken.
    sent: u64,
    taken: u64,
    requests_max: u64,
    /// Blocks sent and not taken, with the payload that each ties up, the oldest first.
    under_way: VecDeque<Sent>,
    /// Next byte of payload to give out, and the first that is tied up.
    head: usize,
    tail: usize,
    tied: usize,
    /// The shard has ended with requests unanswered: none will be.
    is_over: bool,
    /// The call under way of a client that is polled. There is none other under way then.
    parcel: Option<Parcel>,
}

struct Sent {
    block: Option<BlockMemory>,
    bytes: usize,
}

/// An answer.
pub(crate) enum Answer {
    /// The oldest request is answered; its block, if it had one, is to be read before the next call.
    Done(Status, Option<BlockMemory>),
    /// It is not answered yet.
    NotYet,
    /// It never will be.
    Ended,
}

impl Lane {
    fn attach(mailbox: &Arc<Mailbox>, peers: &Peers) -> Option<Self> {
        let payload_bytes = (LANE_BYTES_TOTAL / peers.shards()).max(LANE_BYTES_MIN);
        if mailbox.has_ended() {
            return None;
        }
        let (requests, consumer) = ring(peers.lane_requests);
        let memory = Arc::new(LaneMemory::new(peers.lane_requests, payload_bytes));
        mailbox.send(Command::Attach(ServerLane::new(
            consumer,
            Arc::clone(&memory),
        )));
        Some(Self {
            requests,
            memory,
            mailbox: Arc::clone(mailbox),
            sent: 0,
            taken: 0,
            requests_max: peers.lane_requests as u64,
            under_way: VecDeque::with_capacity(peers.lane_requests),
            head: 0,
            tail: 0,
            tied: 0,
            is_over: false,
            parcel: None,
        })
    }

    /// The most operations that a block of this row width may have here.
    pub(crate) fn capacity(&self, cells: usize, wanted: usize) -> usize {
        let half = self.memory.payload().bytes() / 2;
        let mut capacity = wanted.max(1);
        while capacity > 1 && BlockLayout::new(capacity, cells).bytes() > half {
            capacity /= 2;
        }
        capacity
    }

    /// A block, if there is payload for it and its request could be sent. It is sent or dropped
    /// before the next one is opened.
    fn open(&self, layout: BlockLayout) -> Option<BlockMemory> {
        if self.sent - self.taken == self.requests_max {
            return None;
        }
        let offset = self.find_room(layout.bytes())?;
        // SAFETY: `find_room` gives out payload that no block under way ties up, a block that was
        // answered is read before its lane is used again, and there is no other open block: the link
        // has one for each lane.
        Some(unsafe { self.memory.payload().block(offset, layout) })
    }

    /// Payload for a block: behind the newest one, or from the start again.
    fn find_room(&self, bytes: usize) -> Option<usize> {
        let end = self.memory.payload().bytes();
        let is_free = self.tied == 0;
        if is_free || self.tail < self.head {
            if self.head + bytes <= end {
                return Some(self.head);
            }
            // The rest of the payload is skipped; it counts as part of the next block.
            return (is_free || bytes <= self.tail).then_some(0);
        }
        (self.head + bytes <= self.tail).then_some(self.head)
    }

    /// Sends a block.
    fn send(&mut self, request: Request, block: BlockMemory) {
        let payload = self.memory.payload();
        let (offset, bytes) = (block.offset(payload), block.bytes());
        let skipped = if offset == self.head {
            0
        } else {
            payload.bytes() - self.head
        };
        if self.tied == 0 {
            self.tail = self.head;
        }
        self.head = offset + bytes;
        self.tied += bytes + skipped;
        let sent = Sent {
            block: Some(block),
            bytes: bytes + skipped,
        };
        self.push(request, sent);
    }

    /// Sends a call, if there is a reply for it.
    pub(crate) fn send_call(&mut self, request: Request) -> Result<(), Request> {
        if self.sent - self.taken == self.requests_max {
            return Err(request);
        }
        self.push(
            request,
            Sent {
                block: None,
                bytes: 0,
            },
        );
        Ok(())
    }

    /// Sends a call of a client that may be gone before the answer. Nothing else may be under way.
    pub(crate) fn send_parcel<C: Call + Send + 'static>(&mut self, call: C) {
        assert_eq!(self.pending(), 0, "what was sent before was swept");
        let parcel = Parcel::new(call);
        // SAFETY: the lane keeps the parcel until it has taken the answer or seen the shard's end; if
        // it is dropped before, the lane's memory does, which the shard's end of the lane keeps.
        let request = unsafe { parcel.request::<C>() };
        self.parcel = Some(parcel);
        let (block, bytes) = (None, 0);
        self.push(request, Sent { block, bytes });
    }

    /// The answered call, if it was one.
    pub(crate) fn take_parcel(&mut self) -> Option<Parcel> {
        if self.pending() > 0 {
            return None;
        }
        self.parcel.take()
    }

    fn push(&mut self, request: Request, sent: Sent) {
        self.memory.expect_reply(self.sent);
        // The ring of a shard that has ended may still hold what was given up.
        if !self.is_over
            && let Err(Full(_)) = self.requests.push(request)
        {
            unreachable!(
                "there are as many slots as replies, and a slot is free before its reply is given"
            );
        }
        self.sent += 1;
        self.under_way.push_back(sent);
        self.mailbox.ring();
    }

    /// Requests under way.
    pub(crate) fn pending(&self) -> u64 {
        self.sent - self.taken
    }

    /// Takes the oldest answer.
    #[inline]
    pub(crate) fn take(&mut self) -> Answer {
        debug_assert!(self.pending() > 0);
        let mut status = self.memory.status(self.taken);
        if !status.is_answer() {
            if !self.requests.is_abandoned() && !self.mailbox.has_ended() {
                return Answer::NotYet;
            }
            // What the shard answered before its end is seen now, if not before.
            status = self.memory.status(self.taken);
            if !status.is_answer() {
                return Answer::Ended;
            }
        }
        self.taken += 1;
        let sent = self.under_way.pop_front().expect("as many as are pending");
        self.tied -= sent.bytes;
        let end = self.memory.payload().bytes();
        self.tail += sent.bytes;
        if self.tail >= end {
            self.tail -= end;
        }
        Answer::Done(status, sent.block)
    }

    /// Gives up all requests under way, and gives back their blocks: the shard has ended.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = BlockMemory> {
        self.is_over = true;
        self.taken = self.sent;
        (self.head, self.tail, self.tied) = (0, 0, 0);
        std::mem::take(&mut self.under_way)
            .into_iter()
            .filter_map(|sent| sent.block)
    }

    /// Expects no answer any more: this process has no thread that could give one.
    pub(crate) fn give_up(&self) {
        self.mailbox.end_here();
    }

    /// Sleeps until the oldest request is answered, or the shard has ended, or for no reason.
    pub(crate) fn park(&self, waker: &Waker, sleep: impl FnOnce()) {
        if self.wait_for(waker) {
            sleep();
        }
    }

    /// Asks to be woken when the oldest request is answered or the shard has ended. Says whether to
    /// wait for that: not if it is so already.
    pub(crate) fn wait_for(&self, waker: &Waker) -> bool {
        self.memory.wait_for(self.taken, waker) && !self.mailbox.has_ended()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.pending() > 0
            && let Some(parcel) = self.parcel.take()
        {
            self.memory.keep(parcel);
        }
    }
}
