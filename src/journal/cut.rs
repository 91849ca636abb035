//! The consistent cut: how far the journals of all shards go together.
//!
//! An epoch is *sealed* by every shard that changed something in it, and each seal names all of
//! these shards. It is *complete* if each of them has its seal. The cut is the newest epoch that is
//! complete while all sealed ones before it are: whatever happened before an event of it, in any
//! shard, is in it too, because all shards are stamped by one counter.
//!
//! # Torn or damaged
//! One epoch is under way at a time, so only the newest sealed epoch can be incomplete by a crash.
//! And some epochs are *proven*: those that a checkpoint holds, that a block names as durable, that
//! were recovered before, or that come before another seal. If the cut does not reach them, bytes
//! that were durable are gone, which no crash does.

use std::collections::{BTreeMap, BTreeSet};

use super::block::ShardSet;
use super::segment::Void;

/// What one shard's files say.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// The newest epoch in the image: it was durable before, and its seals need not be kept.
    pub(super) checkpoint_epoch: u64,
    /// Epochs that the shard has sealed, in the valid part of its journal.
    pub(super) sealed: BTreeSet<u64>,
    /// Sets of seals, wherever they were found.
    pub(super) seals: BTreeMap<u64, ShardSet>,
    /// The newest epoch that any block names as durable.
    pub(super) durable: u64,
    pub(super) voids: Vec<Void>,
    /// The newest epoch of anything that was found.
    pub(super) epoch_max: u64,
    /// Its files are damaged, and it holds nobody back: nothing of it is asked for or believed.
    pub(super) is_damaged: bool,
}

/// How far all journals go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The newest epoch that is recovered.
    pub(super) epoch: u64,
    /// The first epoch of the new life: no number is used twice.
    pub(super) first: u64,
}

/// An epoch that was durable and is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) epoch: u64,
    /// The shard that lacks its seal, as far as that is known.
    pub(super) shard: Option<usize>,
}

/// The cut of all shards' evidence.
pub(super) fn cut(shards: &[Evidence]) -> Result<Cut, Missing> {
    match reach(shards) {
        (cut, None) => Ok(cut),
        (_, Some(missing)) => Err(missing),
    }
}

/// How far all shards go together, and what is missing that was durable, if anything is.
pub(super) fn reach(shards: &[Evidence]) -> (Cut, Option<Missing>) {
    let voids = Vec::from_iter(shards.iter().flat_map(|shard| shard.voids.iter().copied()));
    let sound = || shards.iter().filter(|shard| !shard.is_damaged);
    let mut known = BTreeMap::<u64, ShardSet>::new();
    for (epoch, dirty) in sound().flat_map(|shard| &shard.seals) {
        if !is_void(&voids, *epoch) {
            known.entry(*epoch).or_default().unite(dirty);
        }
    }
    let checkpoints = sound().map(|shard| shard.checkpoint_epoch);
    let recovered = voids.iter().map(|void| void.above);
    let base = checkpoints.chain(recovered).max().unwrap_or(0);
    let durable = sound().map(|shard| not_void(&voids, shard.durable));
    let before_last = known.keys().rev().nth(1).copied();
    let proven = durable.chain(before_last).fold(base, u64::max);
    let (mut epoch, mut missing) = (base, None);
    for (sealed, dirty) in &known {
        let lacks = |shard: &usize| {
            shards.get(*shard).is_none_or(|shard| {
                let is_there = *sealed <= shard.checkpoint_epoch || shard.sealed.contains(sealed);
                !is_there && !shard.is_damaged
            })
        };
        if let Some(shard) = dirty.iter().find(lacks) {
            missing = Some(Missing {
                epoch: *sealed,
                shard: Some(shard),
            });
            break;
        }
        epoch = epoch.max(*sealed);
    }
    // What was never proven was torn by the crash.
    missing = missing.filter(|missing| missing.epoch <= proven);
    if missing.is_none() && epoch < proven {
        missing = Some(Missing {
            epoch: proven,
            shard: None,
        });
    }
    let seen = shards.iter().map(|shard| shard.epoch_max);
    let lives = voids.iter().map(|void| void.first);
    let newest = seen.chain(lives).fold(epoch, u64::max);
    let first = newest.saturating_add(1);
    (Cut { epoch, first }, missing)
}

/// Whether an epoch never happened.
pub(super) fn is_void(voids: &[Void], epoch: u64) -> bool {
    voids.iter().any(|void| void.holds(epoch))
}

/// The newest epoch up to `epoch` that happened.
pub(super) fn not_void(voids: &[Void], mut epoch: u64) -> u64 {
    // Each step goes below one of the gaps, for good.
    while let Some(void) = voids.iter().find(|void| void.holds(epoch)) {
        epoch = void.above;
    }
    epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(checkpoint_epoch: u64, seals: &[(u64, &[usize])], durable: u64) -> Evidence {
        let set = |shards: &[usize]| {
            let mut set = ShardSet::default();
            shards.iter().for_each(|shard| set.insert(*shard));
            set
        };
        Evidence {
            checkpoint_epoch,
            sealed: seals.iter().map(|(epoch, _)| *epoch).collect(),
            seals: seals
                .iter()
                .map(|(epoch, shards)| (*epoch, set(shards)))
                .collect(),
            durable,
            voids: Vec::new(),
            is_damaged: false,
            epoch_max: seals.iter().map(|(epoch, _)| *epoch).max().unwrap_or(0),
        }
    }

    fn epoch(shards: &[Evidence]) -> Result<u64, Missing> {
        cut(shards).map(|cut| cut.epoch)
    }

    #[test]
    fn the_cut_is_the_newest_epoch_that_all_its_shards_have_sealed() {
        let whole = shard(0, &[(1, &[0]), (2, &[0, 1])], 1);
        assert_eq!(epoch(&[whole.clone(), shard(0, &[(2, &[0, 1])], 0)]), Ok(2));
        assert_eq!(epoch(&[whole, shard(0, &[], 0)]), Ok(1));
        assert_eq!(epoch(&[shard(0, &[], 0)]), Ok(0));
    }

    #[test]
    fn a_shard_that_changed_nothing_is_not_waited_for() {
        let busy = shard(0, &[(1, &[0]), (2, &[0]), (3, &[0])], 2);
        assert_eq!(epoch(&[busy, shard(0, &[], 0)]), Ok(3));
    }

    #[test]
    fn a_checkpoint_stands_for_the_seals_before_it() {
        let old = shard(0, &[(1, &[0, 1]), (2, &[0, 1])], 1);
        assert_eq!(epoch(&[old, shard(2, &[], 0)]), Ok(2));
    }

    #[test]
    fn an_epoch_that_was_proven_and_is_missing_is_damage() {
        let missing = |epoch, shard| Err(Missing { epoch, shard });
        let torn = shard(0, &[(1, &[0, 1])], 0);
        // By another seal, by a block, by a checkpoint, by an earlier recovery.
        let later = shard(0, &[(1, &[0, 1]), (2, &[1])], 0);
        let without = shard(0, &[], 0);
        assert_eq!(epoch(&[later, without.clone()]), missing(1, Some(1)));
        let told = shard(0, &[(1, &[0, 1])], 1);
        assert_eq!(epoch(&[told, without.clone()]), missing(1, Some(1)));
        assert_eq!(
            epoch(&[without.clone(), shard(0, &[], 4)]),
            missing(4, None)
        );
        let taken = shard(1, &[], 0);
        assert_eq!(
            epoch(&[torn.clone(), without.clone(), taken]),
            missing(1, Some(1))
        );
        let mut recovered = torn;
        recovered.voids.push(Void { above: 1, first: 4 });
        assert_eq!(epoch(&[recovered, without]), missing(1, Some(1)));
    }

    #[test]
    fn void_epochs_count_for_nothing_and_their_numbers_are_not_used_again() {
        let mut one = shard(0, &[(1, &[0]), (2, &[0, 1])], 2);
        one.voids.push(Void { above: 1, first: 7 });
        let found = cut(&[one.clone(), shard(0, &[], 0)]);
        assert_eq!(found, Ok(Cut { epoch: 1, first: 8 }));
        one.voids.push(Void { above: 0, first: 8 });
        assert_eq!(not_void(&one.voids, 6), 0);
    }
}
