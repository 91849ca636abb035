//! Epochs: the durability periods of all shards, closed one at a time.
//!
//! ```text
//! coordinator            shard
//!  close(D)       raises the counter that all read; D: who may have changed something before
//!  seal(E, D)    ---->    each shard of D: seal into the journal, flush
//!  all sealed    <----    sealed(E)
//!  durable(E)             whoever waits for E goes on
//! ```
//! Epochs are Lamport's clocks, in a process whose threads share one ([`EpochClock`](super::EpochClock)): a
//! change gets the epoch that is open when it is appended, so whatever happened before it is of that epoch
//! or an earlier one, and the end of an epoch is a consistent cut without anybody having been stopped.
//!
//! Once the counter is raised nothing more becomes part of the epoch before. So a shard that is told to
//! seal it does so at once, between two changes; and shards that have changed nothing have nothing to seal.

use super::block::ShardSet;

/// The coordinator's half.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// The next epoch to close.
    open: u64,
    durable: u64,
    /// The epoch under way: who has still to seal it, and who has to.
    sealing: Option<(ShardSet, ShardSet)>,
}

/// What is to be done for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The shards of `dirty` are to seal it.
    Seal {
        /// The epoch.
        epoch: u64,
        /// Who has changed something in it, and maybe some who have not.
        dirty: ShardSet,
    },
    /// It is durable.
    Durable {
        /// The epoch.
        epoch: u64,
        /// Who has sealed it; nobody, if nothing was changed, and then it leaves no trace on disk.
        dirty: ShardSet,
    },
}

impl Coordinator {
    /// `open` is the first epoch of this life.
    pub(crate) fn new(open: u64) -> Self {
        Self {
            open,
            durable: open - 1,
            sealing: None,
        }
    }

    /// The next epoch to close.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Closes the open epoch, unless one is under way. `dirty` are all shards that have changed
    /// something in it, or may have; no other will.
    pub(crate) fn close(&mut self, dirty: ShardSet) -> Option<Call> {
        if self.is_busy() {
            return None;
        }
        let epoch = self.open;
        self.open += 1;
        if dirty.is_empty() {
            return Some(self.finish(epoch, dirty));
        }
        self.sealing = Some((dirty, dirty));
        Some(Call::Seal { epoch, dirty })
    }

    /// A shard's seal of `epoch` is durable. The last one's makes the epoch durable.
    pub(crate) fn sealed(&mut self, shard: usize, epoch: u64) -> Option<Call> {
        assert_eq!(
            epoch + 1,
            self.open,
            "an epoch is under way that is not the newest"
        );
        let Some((waiting, dirty)) = &mut self.sealing else {
            panic!("shard {shard} seals an epoch that nobody asked for");
        };
        waiting.remove(shard);
        let (is_done, dirty) = (waiting.is_empty(), *dirty);
        is_done.then(|| self.finish(epoch, dirty))
    }

    /// The newest durable epoch.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether an epoch is being sealed.
    pub(crate) fn is_busy(&self) -> bool {
        self.sealing.is_some()
    }

    fn finish(&mut self, epoch: u64, dirty: ShardSet) -> Call {
        self.sealing = None;
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

    /// The newest epoch that the shard knows of: what its changes are stamped with.
    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Takes in that this epoch is open; to be called before a change is stamped.
    #[inline]
    pub(crate) fn receive(&mut self, open: u64) {
        self.open = self.open.max(open);
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
        let mut coordinator = Coordinator::new(5);
        let (epoch, dirty) = (5, set(&[1, 2]));
        assert_eq!(coordinator.close(dirty), Some(Call::Seal { epoch, dirty }));
        assert_eq!(coordinator.close(dirty), None);
        assert_eq!(coordinator.sealed(2, 5), None);
        assert_eq!(coordinator.durable(), 4);
        let durable = Call::Durable { epoch, dirty };
        assert_eq!(coordinator.sealed(1, 5), Some(durable));
        assert_eq!((coordinator.durable(), coordinator.open()), (5, 6));
    }

    #[test]
    fn nobody_seals_an_epoch_in_which_nothing_was_changed() {
        let mut coordinator = Coordinator::new(1);
        let (epoch, dirty) = (1, ShardSet::default());
        let durable = Call::Durable { epoch, dirty };
        assert_eq!(coordinator.close(dirty), Some(durable));
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

    /// What happened before a change is of no later epoch, whoever closes epochs meanwhile.
    #[test]
    fn the_end_of_an_epoch_is_a_consistent_cut() {
        for seed in 0..500 {
            let choices = Choices::new(seed);
            let mut counter = 1;
            let mut shards = [Epochs::new(1); 3];
            // Epochs of all that happened before the last event of each shard.
            let mut before = [Vec::new(), Vec::new(), Vec::new()];
            let mut messages = Vec::<(usize, Vec<u64>)>::new();
            for _ in 0..60 {
                let shard = choices.below(3) as usize;
                match choices.below(4) {
                    0 => {
                        shards[shard].receive(counter);
                        let epoch = shards[shard].change();
                        assert!(
                            before[shard].iter().all(|past| *past <= epoch),
                            "seed {seed}"
                        );
                        before[shard].push(epoch);
                    }
                    1 => messages.push((shard, before[shard].clone())),
                    2 if !messages.is_empty() => {
                        let at = choices.below(messages.len() as u64) as usize;
                        let (_, past) = messages.swap_remove(at);
                        before[shard].extend(past);
                    }
                    _ => counter += 1,
                }
            }
        }
    }
}
