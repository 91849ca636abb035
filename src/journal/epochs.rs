//! Epochs: the durability periods of all shards, closed one at a time.
//!
//! ```text
//! coordinator            shard
//!  close(E)      ---->    opens E + 1; did I change anything up to E?
//!  all answered  <----    closed(E, dirty)
//!  seal(E, D)    ---->    each shard of D: seal into the journal, flush
//!  all sealed    <----    sealed(E)
//!  durable(E)    ---->    answers that waited for E go out
//! ```
//! Epochs are Lamport's clocks: every message between shards, and between clients and shards, carries
//! the sender's open epoch, and the receiver's becomes the higher of the two before it does anything.
//! So whatever happened before an event of an epoch is of that epoch or an earlier one, and the end
//! of an epoch is a consistent cut without anybody having been stopped.
//!
//! Shards that changed nothing have nothing to seal. One that rests is not asked at all: it must not
//! have changed anything since it sealed, and learns the open epoch when it wakes.

use super::block::ShardSet;

/// The coordinator's half.
#[derive(Debug)]
pub(crate) struct Coordinator {
    shards: usize,
    resting: ShardSet,
    /// The next epoch to close.
    open: u64,
    durable: u64,
    round: Round,
}

#[derive(Debug)]
enum Round {
    Idle,
    Closing { waiting: ShardSet, dirty: ShardSet },
    Sealing { waiting: ShardSet, dirty: ShardSet },
}

/// What the coordinator tells the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// To `shards`: close this epoch.
    Close {
        /// The epoch.
        epoch: u64,
        /// Who is asked.
        shards: ShardSet,
    },
    /// To the shards of `dirty`: seal this epoch.
    Seal {
        /// The epoch.
        epoch: u64,
        /// Who has changed something in it.
        dirty: ShardSet,
    },
    /// To all: this epoch is durable.
    Durable {
        /// The epoch.
        epoch: u64,
        /// Who has sealed it; nobody, if nothing was changed, and then it leaves no trace on disk.
        dirty: ShardSet,
    },
}

impl Coordinator {
    /// `open` is the first epoch of this life.
    pub(crate) fn new(shards: usize, open: u64) -> Self {
        Self {
            shards,
            resting: ShardSet::default(),
            open,
            durable: open - 1,
            round: Round::Idle,
        }
    }

    /// The next epoch to close.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Closes the open epoch, unless one is under way.
    pub(crate) fn close(&mut self) -> Option<Call> {
        if !matches!(self.round, Round::Idle) {
            return None;
        }
        let epoch = self.open;
        self.open += 1;
        let mut waiting = ShardSet::all(self.shards);
        self.resting.iter().for_each(|shard| waiting.remove(shard));
        let dirty = ShardSet::default();
        if waiting.is_empty() {
            self.durable = epoch;
            return Some(Call::Durable { epoch, dirty });
        }
        self.round = Round::Closing { waiting, dirty };
        let shards = waiting;
        Some(Call::Close { epoch, shards })
    }

    /// Closes the open epoch, unless one is under way, when it is known which shards may have changed
    /// something in it, and that no other will.
    pub(crate) fn close_known(&mut self, dirty: ShardSet) -> Option<Call> {
        if !matches!(self.round, Round::Idle) {
            return None;
        }
        let epoch = self.open;
        self.open += 1;
        if dirty.is_empty() {
            return Some(self.finish(epoch, dirty));
        }
        let waiting = dirty;
        self.round = Round::Sealing { waiting, dirty };
        Some(Call::Seal { epoch, dirty })
    }

    /// A shard has closed `epoch`. The last one's answer tells what comes next.
    pub(crate) fn closed(&mut self, shard: usize, epoch: u64, is_dirty: bool) -> Option<Call> {
        assert_eq!(
            epoch + 1,
            self.open,
            "an epoch is under way that is not the newest"
        );
        let Round::Closing { waiting, dirty } = &mut self.round else {
            panic!("shard {shard} closes an epoch that nobody asked for");
        };
        waiting.remove(shard);
        if is_dirty {
            dirty.insert(shard);
        }
        if !waiting.is_empty() {
            return None;
        }
        let dirty = *dirty;
        if dirty.is_empty() {
            return Some(self.finish(epoch, dirty));
        }
        let waiting = dirty;
        self.round = Round::Sealing { waiting, dirty };
        Some(Call::Seal { epoch, dirty })
    }

    /// A shard's seal of `epoch` is durable. The last one's makes the epoch durable.
    pub(crate) fn sealed(&mut self, shard: usize, epoch: u64) -> Option<Call> {
        assert_eq!(
            epoch + 1,
            self.open,
            "an epoch is under way that is not the newest"
        );
        let Round::Sealing { waiting, dirty } = &mut self.round else {
            panic!("shard {shard} seals an epoch that nobody asked for");
        };
        waiting.remove(shard);
        let (is_done, dirty) = (waiting.is_empty(), *dirty);
        is_done.then(|| self.finish(epoch, dirty))
    }

    /// A shard is about to rest: everything that it changed is sealed, and it will not do anything
    /// before it wakes. Not while it is being asked.
    pub(crate) fn rest(&mut self, shard: usize) -> bool {
        let is_asked = match &self.round {
            Round::Idle => false,
            Round::Closing { waiting, .. } | Round::Sealing { waiting, .. } => {
                waiting.contains(shard)
            }
        };
        if !is_asked {
            self.resting.insert(shard);
        }
        !is_asked
    }

    /// A shard wakes; before it does anything its epoch must become at least this one.
    pub(crate) fn wake(&mut self, shard: usize) -> u64 {
        self.resting.remove(shard);
        self.open
    }

    /// The newest durable epoch.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether an epoch is being closed.
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self.round, Round::Idle)
    }

    fn finish(&mut self, epoch: u64, dirty: ShardSet) -> Call {
        self.round = Round::Idle;
        self.durable = epoch;
        Call::Durable { epoch, dirty }
    }
}

/// A shard's half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epochs {
    open: u64,
    /// The epochs of the oldest and the newest change that is not sealed.
    unsealed: Option<(u64, u64)>,
    durable: u64,
}

impl Epochs {
    /// `open` is the first epoch of this life.
    pub(crate) fn new(open: u64) -> Self {
        Self {
            open,
            unsealed: None,
            durable: open - 1,
        }
    }

    /// The open epoch: what changes and messages are stamped with.
    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// A message with this stamp arrives; to be called before anything is done for it.
    #[inline]
    pub(crate) fn receive(&mut self, stamp: u64) {
        self.open = self.open.max(stamp);
    }

    /// A change is appended to the journal; gives its epoch.
    #[inline]
    pub(crate) fn change(&mut self) -> u64 {
        let oldest = self.unsealed.map_or(self.open, |(oldest, _)| oldest);
        self.unsealed = Some((oldest, self.open));
        self.open
    }

    /// Closes `epoch`; says whether anything was changed up to it that is not sealed.
    pub(crate) fn close(&mut self, epoch: u64) -> bool {
        self.open = self.open.max(epoch + 1);
        self.unsealed.is_some_and(|(oldest, _)| oldest <= epoch)
    }

    /// The seal of `epoch` is appended to the journal.
    pub(crate) fn seal(&mut self, epoch: u64) {
        let newer = self.unsealed.filter(|(_, newest)| *newest > epoch);
        self.unsealed = newer.map(|(oldest, newest)| (oldest.max(epoch + 1), newest));
    }

    /// `epoch` is durable in all shards.
    pub(crate) fn durable(&mut self, epoch: u64) {
        self.durable = self.durable.max(epoch);
    }

    /// Whether what was done in `epoch` is durable.
    pub(crate) fn is_durable(&self, epoch: u64) -> bool {
        epoch <= self.durable
    }

    /// Whether everything that was changed is sealed.
    pub(crate) fn is_clean(&self) -> bool {
        self.unsealed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::simulated::Choices;

    fn set(shards: &[usize]) -> ShardSet {
        let mut set = ShardSet::default();
        shards.iter().for_each(|shard| set.insert(*shard));
        set
    }

    #[test]
    fn an_epoch_is_durable_when_all_its_dirty_shards_have_sealed() {
        let mut coordinator = Coordinator::new(3, 5);
        let shards = ShardSet::all(3);
        assert_eq!(coordinator.close(), Some(Call::Close { epoch: 5, shards }));
        assert_eq!(coordinator.close(), None);
        assert_eq!(coordinator.closed(1, 5, true), None);
        assert_eq!(coordinator.closed(0, 5, false), None);
        let dirty = set(&[1, 2]);
        assert_eq!(
            coordinator.closed(2, 5, true),
            Some(Call::Seal { epoch: 5, dirty })
        );
        assert_eq!(coordinator.sealed(2, 5), None);
        assert_eq!(coordinator.durable(), 4);
        assert_eq!(
            coordinator.sealed(1, 5),
            Some(Call::Durable { epoch: 5, dirty })
        );
        assert_eq!(coordinator.durable(), 5);
    }

    #[test]
    fn nobody_seals_an_epoch_in_which_nothing_was_changed() {
        let mut coordinator = Coordinator::new(2, 1);
        coordinator.close();
        coordinator.closed(0, 1, false);
        let (epoch, dirty) = (1, ShardSet::default());
        assert_eq!(
            coordinator.closed(1, 1, false),
            Some(Call::Durable { epoch, dirty })
        );
    }

    #[test]
    fn shards_that_rest_are_not_asked_and_learn_the_epoch_when_they_wake() {
        let mut coordinator = Coordinator::new(2, 1);
        assert!(coordinator.rest(0));
        let shards = set(&[1]);
        assert_eq!(coordinator.close(), Some(Call::Close { epoch: 1, shards }));
        assert!(!coordinator.rest(1), "it is being asked");
        assert!(coordinator.closed(1, 1, false).is_some());
        assert_eq!(coordinator.wake(0), 2);
    }

    #[test]
    fn a_change_is_dirty_from_its_own_epoch_on_until_that_is_sealed() {
        let mut epochs = Epochs::new(1);
        assert_eq!(epochs.change(), 1);
        epochs.receive(2);
        assert_eq!(epochs.change(), 2);
        assert!(epochs.close(1));
        epochs.seal(1);
        assert!(!epochs.is_clean());
        assert!(!epochs.close(1) && epochs.close(2));
        epochs.seal(2);
        assert!(epochs.is_clean() && epochs.open() == 3);
    }

    /// What happened before an event is of no later epoch, whatever the order of messages.
    #[test]
    fn the_end_of_an_epoch_is_a_consistent_cut() {
        for seed in 0..500 {
            let choices = Choices::new(seed);
            let mut shards = [Epochs::new(1); 3];
            // Epochs of all that happened before the last event of each shard.
            let mut before = [Vec::new(), Vec::new(), Vec::new()];
            let mut messages = Vec::<(usize, u64, Vec<u64>)>::new();
            let mut coordinator = Coordinator::new(3, 1);
            let mut closing = Vec::new();
            for _ in 0..60 {
                let shard = choices.below(3) as usize;
                match choices.below(4) {
                    0 => {
                        let epoch = shards[shard].change();
                        assert!(
                            before[shard].iter().all(|past| *past <= epoch),
                            "seed {seed}"
                        );
                        before[shard].push(epoch);
                    }
                    1 => messages.push((shard, shards[shard].open(), before[shard].clone())),
                    2 if !messages.is_empty() => {
                        let at = choices.below(messages.len() as u64) as usize;
                        let (_, stamp, past) = messages.swap_remove(at);
                        shards[shard].receive(stamp);
                        before[shard].extend(past);
                    }
                    _ => {
                        if let Some(Call::Close { epoch, .. }) = coordinator.close() {
                            closing = vec![(0, epoch), (1, epoch), (2, epoch)];
                        } else if let Some((shard, epoch)) = closing.pop() {
                            let is_dirty = shards[shard].close(epoch);
                            if let Some(Call::Seal { epoch, dirty }) =
                                coordinator.closed(shard, epoch, is_dirty)
                            {
                                for shard in dirty.iter() {
                                    shards[shard].seal(epoch);
                                    coordinator.sealed(shard, epoch);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
