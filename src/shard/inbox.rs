//! Where a shard's work comes from: its lanes, and a queue of commands from any thread.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crossbeam_queue::SegQueue;

use super::{Outbox, Relay, ServerLane, Shard};
use crate::doorbell::Doorbell;
use crate::journal::ToShard;
use crate::limits::TICK_REQUESTS_PER_LANE;

/// What a shard runs for somebody else, with what waits for it.
pub(crate) type Errand = Box<dyn FnOnce(&mut Shard, &Inbox) + Send>;

/// What any thread may ask of a shard, outside the operation path.
pub(crate) enum Command {
    /// Serve this lane from now on.
    Attach(ServerLane),
    /// Take proposals from this sender from now on.
    Relay(Relay),
    /// Run this on the shard's thread.
    Run(Errand),
    /// What the writer of the shard's journal has to tell.
    Journal(ToShard),
    /// End after what was sent before.
    Close,
}

/// A shard as its clients see it.
pub(crate) struct Mailbox {
    /// Without a bound of its own, as whoever sent to a full one would have to wait, and two shards
    /// could wait for each other. A client sends one command, and anybody else waits for the answer.
    commands: SegQueue<Command>,
    doorbell: Doorbell,
    /// The shard has answered for the last time.
    ended: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// Wakes whatever becomes of the command that holds it.
struct WakeWhenDropped(Waker);

impl Drop for WakeWhenDropped {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            commands: SegQueue::new(),
            doorbell: Doorbell::default(),
            ended: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Queues a command. It is dropped unheeded if the shard has ended.
    pub(crate) fn send(&self, command: Command) {
        self.commands.push(command);
        self.ring();
        if self.has_ended() {
            // Whoever comes so late empties the queue, so that nothing is kept for nobody.
            while self.commands.pop().is_some() {}
        }
    }

    /// Wakes a task after the shard's next step, or its end: something may have room then.
    pub(crate) fn wake_after_step(&self, waker: Waker) {
        let wake = WakeWhenDropped(waker);
        self.send(Command::Run(Box::new(move |_, _| drop(wake))));
    }

    /// Wakes the shard if it is parked. To be called after publishing.
    #[inline]
    pub(crate) fn ring(&self) {
        self.doorbell.ring();
    }

    /// Who wakes the shard's thread: to be told before the first [`Mailbox::park`].
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.doorbell.set_waker(waker);
    }

    /// Shard: sleeps until woken, or for no reason, unless there is something to do.
    pub(crate) fn park(&self, is_ready: impl Fn() -> bool, sleep: impl FnOnce()) {
        self.doorbell
            .park(|| is_ready() || !self.commands.is_empty(), sleep);
    }

    /// Whether the shard will never answer again. What it answered before is visible then.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Notes, in a forked child, that its copy of the shard never answers.
    pub(crate) fn end_here(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Why the shard ended, when it failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn fail(&self, message: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }
}

/// Whether what a client has sent is there yet: always, but for the simulation, which delays it.
pub(crate) trait Delivery {
    fn has_arrived(&mut self, lane: usize) -> bool;
    fn has_relayed(&mut self, relay: usize) -> bool;
}

/// Everything has arrived.
pub(crate) struct Prompt;

impl Delivery for Prompt {
    #[inline(always)]
    fn has_arrived(&mut self, _lane: usize) -> bool {
        true
    }

    #[inline(always)]
    fn has_relayed(&mut self, _relay: usize) -> bool {
        true
    }
}

/// A shard's own end of everything that reaches it.
pub(crate) struct Inbox {
    lanes: Vec<ServerLane>,
    relays: Vec<Relay>,
    mailbox: Arc<Mailbox>,
}

impl Inbox {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            lanes: Vec::new(),
            relays: Vec::new(),
            mailbox,
        }
    }

    /// Whether there is something to serve, or to refuse.
    pub(super) fn is_ready(&self, is_held_up: bool) -> bool {
        !is_held_up && self.lanes.iter().any(ServerLane::is_ready)
            || self.relays.iter().any(Relay::is_ready)
            || !self.mailbox.commands.is_empty()
    }

    /// Requests that wait, lane by lane.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.lanes.iter().map(|lane| lane.waiting() as u64)
    }

    /// Serves a bounded number of requests of each lane, then the commands.
    #[inline]
    pub(super) fn serve(&mut self, shard: &mut Shard, delivery: &mut impl Delivery) -> usize {
        let mut served = 0;
        if shard.is_retired {
            // Other shards' code may wait for this one, which waits for them.
            for lane in &mut self.lanes {
                served += lane.refuse();
            }
        } else {
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                for _ in 0..TICK_REQUESTS_PER_LANE {
                    if !delivery.has_arrived(number) || shard.is_held_up() {
                        break;
                    }
                    if !lane.run_next(shard) {
                        break;
                    }
                    served += 1;
                }
            }
        }
        for (number, relay) in self.relays.iter_mut().enumerate() {
            served += relay.serve(shard, number, delivery);
        }
        if !self.mailbox.commands.is_empty() {
            served += self.obey(shard);
        }
        served
    }

    #[cold]
    fn obey(&mut self, shard: &mut Shard) -> usize {
        let mut obeyed = 0;
        // As many as wait now: a command may queue others.
        for _ in 0..self.mailbox.commands.len() {
            match self.mailbox.commands.pop() {
                Some(Command::Attach(lane)) => self.lanes.push(lane),
                Some(Command::Relay(relay)) => self.relays.push(relay),
                Some(Command::Run(run)) => run(shard, self),
                Some(Command::Journal(told)) => shard.hear(told),
                Some(Command::Close) => shard.closing = true,
                None => break,
            }
            obeyed += 1;
        }
        self.drop_idle();
        obeyed
    }

    /// Drops the lanes of clients that are gone.
    pub(crate) fn sweep(&mut self) {
        self.drop_idle();
    }

    fn drop_idle(&mut self) {
        self.lanes.retain(|lane| !lane.is_over());
        self.relays.retain(|relay| !relay.is_over());
    }

    /// Refuses everything that still waits, and all that may come: the shard ends here. Proposals on
    /// their way go past it.
    pub(crate) fn end(mut self, mut outbox: Outbox) {
        self.refuse(&mut outbox);
        self.mailbox.ended.store(true, Ordering::SeqCst);
        // Pairs with the fence in `ring`: either the client sees `ended`, or we see what it sent.
        fence(Ordering::SeqCst);
        // Lanes attached, and requests sent, between the two steps: their clients may wait already,
        // and look at `ended` when they are woken. Proposals sent still later are taken back by who
        // sent them, when the relays are gone.
        self.refuse(&mut outbox);
        outbox.flush();
        for lane in &self.lanes {
            lane.memory().wake();
        }
        drop(self);
        outbox.ring_all();
    }

    fn refuse(&mut self, outbox: &mut Outbox) {
        while let Some(command) = self.mailbox.commands.pop() {
            match command {
                Command::Attach(lane) => self.lanes.push(lane),
                Command::Relay(relay) => self.relays.push(relay),
                Command::Run(_) | Command::Journal(_) | Command::Close => {}
            }
        }
        for lane in &mut self.lanes {
            lane.refuse();
        }
        for relay in &mut self.relays {
            while let Some(baton) = relay.batons.pop() {
                outbox.pass_on(baton);
            }
        }
    }
}
