//! The tests are tested: each rule of the room is broken once, and the breach must be noticed.

use std::panic::catch_unwind;

use super::random::{Tally, Weather, flips, life};
use crate::journal::mutant::{CURRENT, Mutant};

/// How many lives a mutant may have before it must have been noticed.
const LIVES_MAX: u64 = 20_000;

fn fair(seed: u64) -> Tally {
    life(seed, Weather::Fair)
}

fn foul(seed: u64) -> Tally {
    life(seed, Weather::Foul)
}

/// The seed of the first life, of many, in which a broken rule is noticed.
fn noticed(mutant: Mutant, life: fn(u64) -> Tally) -> Option<u64> {
    CURRENT.set(Some(mutant));
    let noticed = (0..LIVES_MAX).find(|seed| catch_unwind(|| life(*seed)).is_err());
    CURRENT.set(None);
    println!("{mutant:?}: noticed with seed {noticed:?}");
    noticed
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident in $life:ident;)+) => {$(
        #[test]
        fn $name() {
            assert!(noticed(Mutant::$mutant, $life).is_some());
        }
    )+};
}

mutants! {
    before_images_that_are_not_synced_are_noticed: BeforeImagesUnsynced in fair;
    an_image_that_is_not_synced_before_the_flip_is_noticed: ImageUnsynced in fair;
    a_superblock_over_two_sectors_is_noticed: TwoSectorSuperblock in flips;
    a_single_superblock_slot_is_noticed: SingleSlot in flips;
    a_seal_without_its_dirty_set_is_noticed: SealWithoutDirtySet in fair;
    a_tail_that_is_written_on_after_recovery_is_noticed: StaleTailReused in fair;
    before_images_of_an_abandoned_future_are_noticed: LineageUnchecked in fair;
    a_segment_header_that_is_not_synced_is_noticed: SegmentHeaderUnsynced in fair;
    a_segment_read_behind_its_end_is_noticed: EndLimitIgnored in foul;
    blocks_that_are_not_chained_are_noticed: Unchained in fair;
    epochs_whose_numbers_are_used_again_are_noticed: EpochsReused in fair;
    what_was_read_and_is_not_durable_is_noticed: ReadUnsynced in fair;
    a_checkpoint_of_what_is_not_durable_is_noticed: CheckpointTooSoon in fair;
}
