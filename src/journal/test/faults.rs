//! Disks that fail, fill up, lie, and forget.

use super::model::{Model, is_damage};
use super::toy::{Act, SIZES, Toy, created, disks};
use crate::journal::simulated::{Choices, Fault, Loss, Machine};
use crate::journal::{Mark, Recovery, RecoveryError, Refusal, WriteError, check, create};

const SHARDS: usize = 2;

/// Something of everything, with no more than one epoch at a time.
fn script() -> Vec<Act> {
    let mut acts = Vec::new();
    for round in 0..4 {
        let one = round % SHARDS;
        acts.extend([
            Act::Change(0),
            Act::Change(1),
            Act::Message(0, 1),
            Act::Change(one),
        ]);
        acts.extend([
            Act::Prepare(one),
            Act::Close,
            Act::Settle,
            Act::Change(1 - one),
        ]);
        acts.extend([
            Act::CheckpointAll(one),
            Act::Retain(one),
            Act::Change(one),
            Act::Write(one),
        ]);
    }
    acts.extend([Act::Change(0), Act::Change(1), Act::Close, Act::Settle]);
    acts
}

/// Runs the script with what was planned before; the database that it leaves.
fn played(machine: &Machine, model: &mut Model) -> Toy {
    let mut toy = Toy::open(disks(machine, SHARDS), model, None, 3).unwrap();
    toy.retention.bytes_max = 0;
    script().into_iter().for_each(|act| toy.act(act));
    toy
}

fn reopened(machine: &Machine, model: &mut Model) -> Toy {
    match Toy::open(disks(machine, SHARDS), model, None, 11) {
        Ok(toy) => toy,
        Err(error) => panic!("{error}"),
    }
}

/// Steps and reads of opening an empty database and of the script.
fn lengths() -> [(u64, u64); 2] {
    let machine = created(SHARDS, 1);
    let (steps, reads) = (machine.steps(), machine.reads());
    let mut model = Model::new(SHARDS);
    Toy::open(disks(&machine, SHARDS), &mut model, None, 3).unwrap();
    let opened = (machine.steps() - steps, machine.reads() - reads);
    machine.restart(Loss::Keep, 0);
    let machine = created(SHARDS, 1);
    played(&machine, &mut model);
    let all = (machine.steps() - steps, machine.reads() - reads);
    [opened, all]
}

#[test]
fn a_failure_at_any_step_loses_nothing_that_was_called_durable() {
    let [opened, all] = lengths();
    let mut poisoned = 0;
    for fault in [Fault::Io, Fault::NoSpace] {
        for step in opened.0 + 1..=all.0 {
            let machine = created(SHARDS, 1);
            let mut model = Model::new(SHARDS);
            machine.plan(step, fault);
            let mut toy = played(&machine, &mut model);
            machine.plan_nothing();
            // Whatever has failed, memory is as the changes left it, and the shard goes on.
            for shard in 0..SHARDS {
                assert_eq!(toy.memory(shard), toy.model.at(shard, u64::MAX));
                toy.act(Act::Prepare(shard));
                poisoned += u64::from(matches!(toy.admits(shard), Err(Refusal::Poisoned { .. })));
            }
            let acts = [
                Act::Change(0),
                Act::Close,
                Act::Settle,
                Act::CheckpointAll(0),
            ];
            toy.acts(acts);
            for loss in [Loss::Drop, Loss::Torn] {
                let (machine, mut model) = (machine.fork(), toy.model.clone());
                machine.restart(loss, step);
                reopened(&machine, &mut model);
            }
        }
    }
    assert_eq!(poisoned, 0, "one failure must not stop a journal");
}

#[test]
fn a_failed_read_gives_an_error_or_is_made_up_for() {
    let [opened, all] = lengths();
    for read in opened.1 + 1..=all.1 {
        let machine = created(SHARDS, 1);
        let mut model = Model::new(SHARDS);
        machine.plan_read(read, Fault::Io);
        model = played(&machine, &mut model).model;
        machine.restart(Loss::Drop, read);
        reopened(&machine, &mut model);
    }
}

#[test]
fn an_opening_that_fails_can_be_tried_again() {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    model = played(&machine, &mut model).model;
    machine.restart(Loss::Torn, 5);
    let mut failed = 0;
    for (fault, at_read) in [
        (Fault::Io, false),
        (Fault::NoSpace, false),
        (Fault::Io, true),
    ] {
        for at in 1.. {
            let (machine, mut model) = (machine.fork(), model.clone());
            match at_read {
                true => machine.plan_read(at, fault),
                false => machine.plan(at, fault),
            }
            match Toy::open(disks(&machine, SHARDS), &mut model, None, 12) {
                Ok(_) => break,
                Err(error) => assert!(!is_damage(&error), "{error}"),
            }
            failed += 1;
            machine.restart(Loss::Torn, at);
            reopened(&machine, &mut model);
        }
    }
    assert!(failed > 20);
}

#[test]
fn a_full_disk_refuses_changes_before_they_are_made_and_heals() {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    let mut toy = played(&machine, &mut model);
    machine.limit(Some(machine.used()));
    let mut refused = None;
    for _ in 0..200 {
        toy.act(Act::Prepare(0));
        refused = toy.admits(0).err();
        if refused.is_some() {
            break;
        }
        toy.acts([Act::Change(0), Act::Close, Act::Settle]);
    }
    assert_eq!(refused, Some(Refusal::NoSpace));
    let before = toy.memory(0).to_vec();
    toy.act(Act::Change(0));
    assert!(toy.was_refused && toy.memory(0) == before);
    // What was changed before can still be made durable: here by the other shard's epoch.
    toy.act(Act::Change(1));
    let durable = toy.durable();
    toy.acts([Act::Close, Act::Settle]);
    assert!(toy.durable() > durable);
    machine.limit(None);
    toy.act(Act::Prepare(0));
    assert_eq!(toy.admits(0), Ok(()));
    toy.acts([Act::Change(0), Act::Close, Act::Settle]);
    assert!(toy.durable() > durable + 1);
    let mut model = toy.model.clone();
    machine.restart(Loss::Drop, 1);
    reopened(&machine, &mut model);
}

#[test]
fn a_journal_whose_second_try_fails_says_so_ever_after() {
    let machine = created(1, 1);
    let mut model = Model::new(1);
    let mut toy = Toy::open(disks(&machine, 1), &mut model, None, 3).unwrap();
    toy.acts([Act::Change(0), Act::Close, Act::Settle, Act::Change(0)]);
    let durable = toy.durable();
    // The write of a block, and the making of another file.
    (1..4).for_each(|step| machine.plan(step, Fault::Io));
    toy.acts([Act::Close, Act::Settle]);
    assert_eq!(toy.durable(), durable);
    for _ in 0..2 {
        assert!(matches!(toy.admits(0), Err(Refusal::Poisoned { .. })));
        let journal = toy.journal(0);
        assert!(matches!(
            journal.log.write(),
            Err(WriteError::Poisoned { .. })
        ));
        assert!(matches!(
            journal.log.sync(),
            Err(WriteError::Poisoned { .. })
        ));
    }
    let mut model = toy.model.clone();
    machine.restart(Loss::Drop, 1);
    Toy::open(disks(&machine, 1), &mut model, None, 4).unwrap();
}

#[test]
fn staging_refuses_more_than_its_bound_and_takes_more_after_a_flush() {
    let machine = created(1, 1);
    let mut model = Model::new(1);
    let mut toy = Toy::open(disks(&machine, 1), &mut model, None, 3).unwrap();
    toy.act(Act::Prepare(0));
    while toy.admits(0).is_ok() {
        assert!(toy.journal(0).staging.waiting_bytes() <= SIZES.staging_bytes);
        toy.act(Act::Change(0));
    }
    assert!(matches!(toy.admits(0), Err(Refusal::Full { .. })));
    toy.acts([Act::Write(0), Act::Sync(0), Act::Prepare(0)]);
    assert_eq!(toy.admits(0), Ok(()));
    let Mark { block, .. } = toy.journal(0).staging.mark();
    assert!(block > 2);
}

/// Nothing can be promised then, but for an answer.
#[test]
fn a_disk_that_lies_gives_errors_or_a_state_but_no_panic() {
    let [opened, all] = lengths();
    let mut refused = 0;
    for step in opened.0 + 1..=all.0 {
        let machine = created(SHARDS, 1);
        let mut model = Model::new(SHARDS);
        let choices = Choices::new(step);
        let lies = (step..=all.0).filter(|_| choices.below(3) == 0);
        lies.for_each(|step| machine.plan(step, Fault::Lie));
        drop(played(&machine, &mut model));
        machine.restart(Loss::Drop, step);
        let opened = Recovery::open(disks(&machine, SHARDS));
        let finished = opened.and_then(|recovery| recovery.finish(SIZES, 1));
        refused += u64::from(finished.is_err());
    }
    assert!(refused > 0);
}

/// The state that is opened is the end of an epoch that is at most one older than the newest that
/// was durable: the last one's only proof may have been what was damaged.
fn whole_or_refused(machine: &Machine, model: &Model, what: &str) -> bool {
    let mut recovery = match Recovery::open(disks(machine, SHARDS)) {
        Ok(recovery) => recovery,
        Err(RecoveryError::Disk(error)) => panic!("{what}: {error}"),
        Err(_) => return false,
    };
    let mut memories = Vec::new();
    for shard in 0..SHARDS {
        let mut memory = vec![0; super::model::ARENA_BYTES];
        let mut loader = recovery.loader(shard);
        if loader.read_pages(0, &mut memory).is_err() {
            return false;
        }
        let replayed = loader.replay(|record| {
            let start = record.offset as usize;
            memory[start..start + record.bytes.len()].copy_from_slice(record.bytes);
            Ok(())
        });
        if replayed.is_err() {
            return false;
        }
        memories.push(memory);
    }
    let epochs = model.epochs();
    let mut model = model.clone();
    model.acknowledged = epochs[epochs.len() - 2];
    if let Err(difference) = model.recovered(recovery.cut(), &memories) {
        panic!("{what}: {difference}");
    }
    true
}

#[test]
fn a_flipped_bit_anywhere_is_reported_or_does_not_matter() {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    let toy = played(&machine, &mut model);
    let model = toy.model.clone();
    machine.restart(Loss::Keep, 1);
    let choices = Choices::new(9);
    let (mut reported, mut checked) = (0, 0);
    for path in machine.paths() {
        let bytes = machine.content(&path).len() as u64;
        let step = if cfg!(debug_assertions) {
            1 + bytes / 64
        } else {
            1 + bytes / 1024
        };
        for offset in (0..bytes).step_by(step as usize) {
            let machine = machine.fork();
            let offset = (offset + choices.below(step)).min(bytes - 1);
            machine.flip(&path, offset, choices.below(8) as u8);
            let what = format!("{path}, byte {offset}");
            let is_whole = whole_or_refused(&machine, &model, &what);
            reported += u64::from(!is_whole);
            let findings = check(&disks(&machine, SHARDS), &mut |_| ());
            let found = findings.map_or(1, |findings| findings.len() as u64);
            assert!(
                found > 0 || is_whole,
                "{what}: it cannot be opened, but nothing is found"
            );
            checked += 1;
        }
    }
    println!("{checked} bits, {reported} reported");
    assert!(reported > checked / 20);
}

#[test]
fn a_write_that_went_astray_is_reported_or_does_not_matter() {
    let [opened, all] = lengths();
    let mut reported = 0;
    for step in opened.0 + 1..=all.0 {
        let machine = created(SHARDS, 1);
        let mut model = Model::new(SHARDS);
        machine.plan(step, Fault::Misdirect);
        let toy = played(&machine, &mut model);
        machine.restart(Loss::Drop, 1);
        let is_whole = whole_or_refused(&machine, &toy.model, &format!("step {step}"));
        reported += u64::from(!is_whole);
    }
    assert!(reported > 0);
}

#[test]
fn a_creation_that_was_interrupted_is_done_again_and_one_that_was_not_is_not() {
    for step in 1.. {
        let machine = Machine::new(step);
        machine.plan(step, Fault::PowerCut);
        let created = create(&disks(&machine, SHARDS), 12 << 10, SIZES, 1);
        let is_whole = created.is_ok();
        machine.restart(Loss::Torn, step);
        let again = create(&disks(&machine, SHARDS), 12 << 10, SIZES, 2);
        assert!(!is_whole || again.is_err());
        let mut model = Model::new(SHARDS);
        Toy::open(disks(&machine, SHARDS), &mut model, None, 3).unwrap();
        if is_whole {
            break;
        }
    }
}
