//! What a shard, or a client, sends to shards: proposals on their way, one ring for each destination.
//!
//! A ring is made when it is first used. Whoever finds it full keeps the rest and sends it later, so
//! no shard ever waits for another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::inbox::Delivery;
use super::{Command, Mailbox, Shard};
use crate::error::Error;
use crate::id::ShardIndex;
use crate::limits::{RELAY_SLOTS, TICK_PROPOSALS};
use crate::ring::{Consumer, Full, Producer, ring};
use crate::transaction::{Baton, Phase};

/// The receiving end of one sender's proposals.
pub(crate) struct Relay {
    pub(super) batons: Consumer<Baton>,
    /// The sender is a client, not a shard.
    is_client: bool,
    /// Taken out and not begun; empty between calls.
    at_hand: Vec<Baton>,
}

impl Relay {
    /// Takes a bounded number of proposals; says how many.
    #[inline]
    pub(super) fn serve(
        &mut self,
        shard: &mut Shard,
        number: usize,
        delivery: &mut impl Delivery,
    ) -> usize {
        if self.is_client && shard.is_retired {
            return self.refuse();
        }
        if !self.batons.is_ready() {
            return 0;
        }
        while self.at_hand.len() < TICK_PROPOSALS && delivery.has_relayed(number) {
            let Some(baton) = self.batons.pop() else {
                break;
            };
            baton.ask();
            self.at_hand.push(baton);
        }
        // Another core has written all of this: its lines are asked for together, step by step.
        self.at_hand.iter().for_each(|baton| baton.ask_parts());
        self.at_hand.iter().for_each(|baton| baton.ask_part());
        let served = self.at_hand.len();
        shard.tally.proposals_received += served as u64;
        for baton in self.at_hand.drain(..) {
            shard.receive(baton);
        }
        served
    }

    /// Fails every proposal that waits: none of them has intents yet. Says how many.
    #[cold]
    fn refuse(&mut self) -> usize {
        std::iter::from_fn(|| self.batons.pop()).count()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.batons.is_ready()
    }

    /// Whether the sender is gone and nothing of it is left to do.
    pub(super) fn is_over(&self) -> bool {
        // The flag first: what was sent before it was set is then seen by `is_ready`.
        self.batons.is_abandoned() && !self.batons.is_ready()
    }
}

/// One sender's ways to all shards.
pub(crate) struct Outbox {
    mailboxes: Vec<Arc<Mailbox>>,
    ways: Vec<Way>,
    is_client: bool,
    /// Destinations that were sent something since the last flush.
    unflushed: Vec<ShardIndex>,
    sent: u64,
}

#[derive(Default)]
struct Way {
    batons: Option<Producer<Baton>>,
    /// What the ring had no room for, the oldest first.
    held: VecDeque<Baton>,
}

impl Outbox {
    pub(crate) fn new(mailboxes: &[Arc<Mailbox>], is_client: bool) -> Self {
        Self {
            mailboxes: mailboxes.to_vec(),
            ways: mailboxes.iter().map(|_| Way::default()).collect(),
            is_client,
            unflushed: Vec::new(),
            sent: 0,
        }
    }

    /// Sends a proposal to the shard whose turn it is; gives it back if that shard has ended.
    pub(crate) fn send(&mut self, baton: Baton) -> Result<(), Baton> {
        let to = baton.shard();
        if self.mailboxes[to].has_ended() {
            return Err(baton);
        }
        self.sent += 1;
        let way = &mut self.ways[to];
        let batons = way.batons.get_or_insert_with(|| {
            let (producer, batons) = ring(RELAY_SLOTS);
            let is_client = self.is_client;
            self.mailboxes[to].send(Command::Relay(Relay {
                batons,
                is_client,
                at_hand: Vec::with_capacity(TICK_PROPOSALS),
            }));
            producer
        });
        if !way.held.is_empty() {
            way.held.push_back(baton);
        } else if let Err(Full(baton)) = batons.push(baton) {
            way.held.push_back(baton);
        }
        if !self.unflushed.contains(&to) {
            self.unflushed.push(to);
        }
        Ok(())
    }

    /// Whether the next proposal to a shard need not be held back.
    pub(crate) fn has_room(&self, to: ShardIndex) -> bool {
        let way = &self.ways[to];
        way.held.is_empty() && way.batons.as_ref().is_none_or(Producer::has_room)
    }

    /// Whether a shard that has ended may still have something that was sent to it.
    pub(crate) fn may_return(&self, to: ShardIndex) -> bool {
        self.ways[to].batons.is_some()
    }

    /// Proposals sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether something waits for room in a ring.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Wakes whom something was sent to, and sends what there was no room for.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.unflushed.is_empty() {
            self.flush_all();
        }
    }

    fn flush_all(&mut self) {
        let (ways, mailboxes) = (&mut self.ways, &self.mailboxes);
        self.unflushed.retain(|&to| {
            let way = &mut ways[to];
            if let Some(batons) = &mut way.batons {
                while let Some(baton) = way.held.pop_front() {
                    if let Err(Full(baton)) = batons.push(baton) {
                        way.held.push_front(baton);
                        break;
                    }
                }
            }
            mailboxes[to].ring();
            !way.held.is_empty()
        });
    }

    /// Wakes all other shards: this one has ended, and they may wait for what it had.
    pub(super) fn ring_all(&self) {
        for mailbox in &self.mailboxes {
            mailbox.ring();
        }
    }

    /// Takes back what was sent to shards that have ended, and not received.
    pub(crate) fn returned(&mut self) -> Vec<Baton> {
        let mut returned = Vec::new();
        for way in &mut self.ways {
            if let Some(batons) = way.batons.take_if(|batons| batons.is_abandoned()) {
                returned.extend(batons.recover());
                returned.extend(way.held.drain(..));
            }
        }
        returned
    }

    /// A proposal whose shard has ended, as it goes on past it: to the participant before. `None` if
    /// there is none; the proposal has ended then.
    pub(crate) fn past(mut baton: Baton) -> Option<Baton> {
        baton.is_broken |= baton.phase == Phase::Down;
        baton.fail(&Error::Closed);
        baton.phase = Phase::Down;
        baton.step = baton.step.checked_sub(1)?;
        Some(baton)
    }

    /// As the end of a shard: sends on what it received and will not serve.
    pub(crate) fn pass_on(&mut self, mut baton: Baton) {
        while let Some(passed) = Self::past(baton) {
            match self.send(passed) {
                Ok(()) => return,
                Err(back) => baton = back,
            }
        }
    }
}
