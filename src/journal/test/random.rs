//! Long random histories with crashes, rollbacks, checkpoints and failures of the disk.

use super::model::{Model, is_damage};
use super::toy::{Act, Toy, created, disks};
use crate::journal::simulated::{Choices, Fault, Loss, Machine};
use crate::journal::{RecoveryError, Retention};

const LOSSES: [Loss; 4] = [Loss::Drop, Loss::Keep, Loss::Prefix, Loss::Torn];

/// What a run may meet besides power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    Fair,
    /// Failing operations and full disks.
    Foul,
}

/// What has happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) crashes: u64,
    pub(super) rollbacks: u64,
    pub(super) epochs: u64,
}

/// A life of a database with many crashes; panics when what is recovered is not what must be.
pub(super) fn life(seed: u64, weather: Weather) -> Tally {
    let choices = Choices::new(seed);
    let shards = 1 + choices.below(3) as usize;
    let machine = created(shards, seed);
    let mut model = Model::new(shards);
    let mut tally = Tally::default();
    for round in 0..2 + choices.below(5) {
        let Some(mut toy) = reopen(&machine, &mut model, &choices, &mut tally) else {
            continue;
        };
        let acts = choices.below(120);
        if choices.below(5) > 0 {
            machine.plan(1 + choices.below(1 + acts * 2), Fault::PowerCut);
        }
        if weather == Weather::Foul {
            plan_failures(&machine, &choices);
        }
        toy.retention = Retention {
            bytes_max: [0, 30 << 10, u64::MAX][choices.below(3) as usize],
            epoch_min: 0,
        };
        for _ in 0..acts {
            if machine.is_down() {
                break;
            }
            toy.act(any(&choices, shards));
        }
        if !machine.is_down() && choices.below(4) == 0 {
            toy.close();
        }
        model = toy.model.clone();
        tally.epochs += model.acknowledged;
        if !machine.is_down() && choices.below(3) == 0 {
            // Only the process ends: what was written can still be read, and still be lost.
            machine.plan_nothing();
            continue;
        }
        machine.restart(any_loss(&choices), seed + round);
        tally.crashes += 1;
    }
    machine.limit(None);
    while reopen(&machine, &mut model, &choices, &mut tally).is_none() {}
    tally
}

/// A power cut while a checkpoint counts for the first time, and another one while the superblock is
/// written by the recovery from that: twice the same slot with the same sequence.
pub(super) fn flips(seed: u64) -> Tally {
    let flipped = |power_cut: Option<u64>| {
        let machine = created(1, 1);
        let mut toy = Toy::open(disks(&machine, 1), &mut Model::new(1), None, 1).unwrap();
        toy.acts([Act::Prepare(0), Act::Change(0), Act::Close, Act::Settle]);
        let before = machine.steps();
        power_cut.inspect(|step| machine.plan(*step, Fault::PowerCut));
        toy.act(Act::CheckpointAll(0));
        (machine.steps() - before, machine, toy.model.clone())
    };
    let (last, _, _) = flipped(None);
    let (_, machine, mut model) = flipped(Some(last));
    assert!(machine.is_down());
    machine.restart(Loss::Torn, seed);
    let fork = machine.fork();
    let before = fork.steps();
    assert!(Toy::open(disks(&fork, 1), &mut model.clone(), None, 2).is_ok());
    machine.plan(fork.steps() - before, Fault::PowerCut);
    assert!(Toy::open(disks(&machine, 1), &mut model, None, 2).is_err());
    machine.restart(Loss::Torn, !seed);
    if let Err(error) = Toy::open(disks(&machine, 1), &mut model, None, 3) {
        panic!("{error}");
    }
    Tally {
        crashes: 2,
        ..Tally::default()
    }
}

fn any_loss(choices: &Choices) -> Loss {
    LOSSES[choices.below(4) as usize]
}

fn plan_failures(machine: &Machine, choices: &Choices) {
    for _ in 0..choices.below(3) {
        let fault = [Fault::Io, Fault::NoSpace][choices.below(2) as usize];
        machine.plan(1 + choices.below(150), fault);
    }
    if choices.below(4) == 0 {
        machine.plan_read(1 + choices.below(100), Fault::Io);
    }
    let room = machine.used() + choices.below(40 << 10);
    machine.limit((choices.below(4) == 0).then_some(room));
}

/// Opens the database, with a power cut in the midst now and then, and goes back now and then.
fn reopen(
    machine: &Machine,
    model: &mut Model,
    choices: &Choices,
    tally: &mut Tally,
) -> Option<Toy> {
    for _ in 0..4 {
        let epochs = model.epochs();
        let back_to =
            (choices.below(4) == 0).then(|| epochs[choices.below(epochs.len() as u64) as usize]);
        if choices.below(3) == 0 {
            machine.plan(1 + choices.below(60), Fault::PowerCut);
        }
        let seed = choices.below(u64::MAX);
        match Toy::open(disks(machine, model.shards()), model, back_to, seed) {
            Ok(toy) => {
                machine.plan_nothing();
                tally.rollbacks += u64::from(back_to.is_some());
                return Some(toy);
            }
            // Newer than the reach, if a rollback that was interrupted has come to its end.
            Err(RecoveryError::OutOfReach { .. }) => {}
            Err(error) => {
                let is_expected = !is_damage(&error);
                assert!(is_expected, "{error}");
                machine.limit(None);
            }
        }
        machine.restart(any_loss(choices), seed);
        tally.crashes += 1;
    }
    None
}

/// Any act, the usual ones more often.
fn any(choices: &Choices, shards: usize) -> Act {
    let shard = choices.below(shards as u64) as usize;
    match choices.below(32) {
        0..=9 => Act::Change(shard),
        10..=12 => Act::Message(shard, choices.below(shards as u64) as usize),
        13..=15 => Act::Write(shard),
        16..=18 => Act::Sync(shard),
        19..=20 => Act::Close,
        21..=23 => Act::Deliver(shard),
        24..=25 => Act::Settle,
        26 => Act::Freeze(shard),
        27..=28 => Act::Checkpoint(shard),
        29 => Act::CheckpointAll(shard),
        30 => Act::Retain(shard),
        _ => Act::Prepare(shard),
    }
}

/// How many seeds a test runs, and from which on: `ANCILE_JOURNAL_SEEDS=count` or `first+count`.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("ANCILE_JOURNAL_SEEDS") else {
        return 0..usual;
    };
    let (first, count) = asked.split_once('+').unwrap_or(("0", &asked));
    let first = first.parse().expect("a first seed");
    first..first + count.parse::<u64>().expect("a count of seeds")
}

fn lives(weather: Weather, usual: u64) {
    let mut all = Tally::default();
    for seed in seeds(usual) {
        let lived = std::panic::catch_unwind(|| life(seed, weather));
        match lived {
            Ok(tally) => {
                all.crashes += tally.crashes;
                all.rollbacks += tally.rollbacks;
                all.epochs += tally.epochs;
            }
            Err(panic) => {
                eprintln!("{weather:?} weather: seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{weather:?} weather: {all:?}");
    assert!(all.crashes > 0 && all.rollbacks > 0 && all.epochs > 0);
}

#[test]
fn after_any_crash_all_shards_are_at_the_end_of_one_epoch_and_none_durable_is_lost() {
    lives(Weather::Fair, 1000);
}

#[test]
fn a_superblock_that_is_torn_twice_is_the_old_one_or_the_new_one() {
    let crashes = (0..500).map(|seed| flips(seed).crashes).sum::<u64>();
    assert_eq!(crashes, 1000);
}

#[test]
fn failing_and_full_disks_lose_nothing_that_was_called_durable() {
    lives(Weather::Foul, 700);
}
