//! What a database must hold: the memory of each shard after each of its changes.

use crate::journal::{RecoveryError, ShardSet};

/// Pages of a shard's arena.
pub(super) const PAGES: usize = 3;
pub(super) const ARENA_BYTES: usize = PAGES * 4096;

/// All that may be recovered, and what must be.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// By shard: the memory after each change, with the change's epoch.
    history: Vec<Vec<(u64, Vec<u8>)>>,
    /// The newest epoch that was called durable.
    pub(super) acknowledged: u64,
    /// An epoch that a rollback was going back to when it ended: it may have happened.
    pub(super) going_back: Option<u64>,
}

impl Model {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            history: vec![vec![(0, vec![0; ARENA_BYTES])]; shards],
            acknowledged: 0,
            going_back: None,
        }
    }

    pub(super) fn shards(&self) -> usize {
        self.history.len()
    }

    pub(super) fn change(&mut self, shard: usize, epoch: u64, memory: &[u8]) {
        self.history[shard].push((epoch, memory.to_vec()));
    }

    /// The memory of a shard at the end of an epoch.
    pub(super) fn at(&self, shard: usize, epoch: u64) -> &[u8] {
        let before = |(change, _): &&(u64, Vec<u8>)| *change <= epoch;
        &self.history[shard].iter().rfind(before).unwrap().1
    }

    /// Compares what was recovered; it is all that there is from then on.
    pub(super) fn recovered(&mut self, epoch: u64, memories: &[Vec<u8>]) -> Result<(), String> {
        let is_back = self.going_back == Some(epoch);
        if epoch < self.acknowledged && !is_back {
            let acknowledged = self.acknowledged;
            return Err(format!(
                "epoch {epoch} was recovered, but {acknowledged} was durable"
            ));
        }
        for (shard, memory) in memories.iter().enumerate() {
            let expected = self.at(shard, epoch);
            if memory != expected {
                let differs = |at: &usize| memory[*at] != expected[*at];
                let at = (0..ARENA_BYTES).find(differs).unwrap_or(0);
                return Err(format!(
                    "shard {shard} is not as it was at the end of epoch {epoch}: byte {at} is {}, not {}",
                    memory[at], expected[at]
                ));
            }
        }
        self.forget_after(epoch);
        Ok(())
    }

    /// Everything after an epoch never happened.
    pub(super) fn forget_after(&mut self, epoch: u64) {
        for changes in &mut self.history {
            changes.retain(|(change, _)| *change <= epoch);
        }
        self.acknowledged = epoch;
        self.going_back = None;
    }

    /// Epochs in which something was changed, up to the acknowledged one.
    pub(super) fn epochs(&self) -> Vec<u64> {
        let changes = self.history.iter().flatten().map(|(epoch, _)| *epoch);
        let mut epochs = Vec::from_iter(changes.filter(|epoch| *epoch <= self.acknowledged));
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }
}

/// Whether an error is one that a database that was closed by a crash must never meet.
pub(super) fn is_damage(error: &RecoveryError) -> bool {
    !matches!(error, RecoveryError::Disk(_))
}

#[test]
fn the_model_notices_what_is_lost_and_what_is_mixed() {
    let mut model = Model::new(2);
    let [mut one, two] = [vec![0; ARENA_BYTES], vec![0; ARENA_BYTES]];
    one[7] = 1;
    model.change(0, 3, &one);
    model.acknowledged = 3;
    let old = [two.clone(), two.clone()];
    let new = [one, two];
    assert!(model.clone().recovered(2, &old).is_err());
    assert!(model.clone().recovered(3, &old).is_err());
    assert!(model.recovered(3, &new).is_ok());
    assert!(ShardSet::all(2).contains(1));
}
