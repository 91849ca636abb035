//! The promises that have a name of their own.

use super::model::{ARENA_BYTES, Model};
use super::toy::{Act, SIZES, Toy, created, disks};
use crate::journal::bytes::{checksum, put};
use crate::journal::simulated::{Loss, Machine};
use crate::journal::{Checkpoints, Loader, Log, Staging};
use crate::journal::{Extract, Recovery, RecoveryError, Tag, check};

const SHARDS: usize = 2;

fn opened(machine: &Machine, model: &mut Model, back_to: Option<u64>) -> Toy {
    match Toy::open(disks(machine, SHARDS), model, back_to, 3) {
        Ok(toy) => toy,
        Err(error) => panic!("{error}"),
    }
}

/// Makes a durable epoch with a change in every shard.
fn commit(toy: &mut Toy) {
    for shard in 0..SHARDS {
        toy.acts([Act::Prepare(shard), Act::Change(shard)]);
    }
    toy.acts([Act::Close, Act::Settle]);
}

/// Opens a new database, and makes so many durable epochs with a checkpoint after each.
fn with_past(epochs: usize) -> (Machine, Model, Toy) {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    let mut toy = opened(&machine, &mut model, None);
    for _ in 0..epochs {
        commit(&mut toy);
        (0..SHARDS).for_each(|shard| toy.act(Act::CheckpointAll(shard)));
    }
    (machine, toy.model.clone(), toy)
}

#[test]
fn every_epoch_that_is_kept_can_be_gone_back_to_and_what_is_lost_is_told() {
    let (machine, model, toy) = with_past(5);
    drop(toy);
    for epoch in model.epochs() {
        let (machine, mut model) = (machine.fork(), model.clone());
        let expected = Extract::open(disks(&machine, SHARDS)[1].clone(), epoch + 1..=u64::MAX);
        let expected = expected.unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        let mut recovery = Recovery::open(disks(&machine, SHARDS)).unwrap();
        assert_eq!(recovery.reach().unwrap().0, 0);
        let mut lost = Vec::new();
        let sink = |shard, record: &crate::journal::Record<'_>| {
            lost.extend((shard == 1).then(|| (record.epoch, record.offset, record.bytes.to_vec())));
            Ok(())
        };
        recovery.rollback(epoch, sink).unwrap();
        let expected = expected
            .into_iter()
            .map(|record| (record.epoch, record.offset, record.bytes));
        assert_eq!(lost, Vec::from_iter(expected));
        recovery.finish(SIZES, 1).unwrap();
        model.forget_after(epoch);
        // The future is another one from here on.
        let mut toy = opened(&machine, &mut model, None);
        commit(&mut toy);
        assert!(toy.model.acknowledged > epoch);
        model = toy.model.clone();
        machine.restart(Loss::Drop, 1);
        opened(&machine, &mut model, None);
    }
}

#[test]
fn the_two_sides_and_the_loaders_can_be_on_threads_of_their_own() {
    fn is_send<T: Send>() {}
    is_send::<Staging>();
    is_send::<Log>();
    is_send::<Checkpoints>();
    is_send::<Loader<'_>>();
}

#[test]
fn a_rollback_whose_sink_fails_has_not_happened() {
    let (machine, mut model, toy) = with_past(2);
    drop(toy);
    let mut recovery = Recovery::open(disks(&machine, SHARDS)).unwrap();
    let failed = recovery.rollback(
        0,
        |_, _| Err("the disk of the lost file is full".to_owned()),
    );
    assert!(matches!(failed, Err(RecoveryError::Sink(_))));
    machine.restart(Loss::Keep, 1);
    opened(&machine, &mut model, None);
}

#[test]
fn only_the_past_that_the_rule_keeps_is_kept() {
    let (machine, model, mut toy) = with_past(6);
    let pasts = |toy: &mut Toy| toy.journal(0).checkpoints.past().unwrap();
    let all = pasts(&mut toy);
    assert_eq!((all.len(), all[5].epoch), (6, 0));
    toy.retention.epoch_min = all[2].epoch;
    (0..SHARDS).for_each(|shard| toy.act(Act::Retain(shard)));
    assert_eq!(pasts(&mut toy), all[..3]);
    toy.retention.bytes_max = 0;
    (0..SHARDS).for_each(|shard| toy.act(Act::Retain(shard)));
    assert_eq!(
        pasts(&mut toy),
        all[..1],
        "the checkpoint before the last is always kept"
    );
    drop(toy);
    let refused = Toy::open(disks(&machine, SHARDS), &mut model.clone(), Some(0), 1);
    assert!(matches!(
        refused,
        Err(RecoveryError::OutOfReach { asked: 0, .. })
    ));
    assert!(
        check(&disks(&machine, SHARDS), &mut |_| ())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_journal_that_goes_on_for_long_uses_its_segments_again() {
    let (machine, _, mut toy) = with_past(1);
    toy.retention.bytes_max = 0;
    for _ in 0..240 {
        commit(&mut toy);
        (0..SHARDS).for_each(|shard| toy.act(Act::CheckpointAll(shard)));
        (0..SHARDS).for_each(|shard| toy.act(Act::Retain(shard)));
    }
    let segments = Vec::from_iter(
        machine
            .paths()
            .into_iter()
            .filter(|path| path.contains("segment")),
    );
    assert!(segments.len() <= 4 * SHARDS, "{segments:?}");
    assert!(toy.journal(0).log.end().segment > 10);
    let mut model = toy.model.clone();
    machine.restart(Loss::Drop, 1);
    opened(&machine, &mut model, None);
}

#[test]
fn after_a_clean_close_nothing_is_replayed() {
    let (machine, mut model, mut toy) = with_past(2);
    commit(&mut toy);
    toy.close();
    model.clone_from(&toy.model);
    machine.restart(Loss::Drop, 1);
    let mut recovery = Recovery::open(disks(&machine, SHARDS)).unwrap();
    for mut loader in recovery.loaders() {
        loader
            .replay(|_| Err("there is a record".to_owned()))
            .unwrap();
    }
    drop(recovery);
    opened(&machine, &mut model, None);
}

#[test]
fn opening_reads_no_more_after_a_long_past_than_after_a_short_one() {
    let reads = |epochs| {
        let (machine, _, mut toy) = with_past(epochs);
        commit(&mut toy);
        let before = machine.reads();
        Recovery::open(disks(&machine, SHARDS)).unwrap();
        machine.reads() - before
    };
    let (short, long) = (reads(2), reads(30));
    // Headers of more segments, as nothing of the past was forgotten.
    assert!(
        long <= short + 2 * SHARDS as u64,
        "{short} reads, then {long}"
    );
}

#[test]
fn a_range_that_is_longer_than_a_block_comes_back_in_one_piece() {
    let machine = created(SHARDS, 1);
    let mut recovery = Recovery::open(disks(&machine, SHARDS)).unwrap();
    assert_eq!(
        recovery.loader(0).superblock().arena_bytes,
        ARENA_BYTES as u64
    );
    let mut journals = recovery.finish(SIZES, 1).unwrap();
    let journal = &mut journals[0];
    let content = Vec::from_iter((0..5000_u32).map(|at| (at * 7) as u8));
    let tag = Tag {
        table: 3,
        kind: 126,
        number: u64::MAX,
    };
    let epoch = journal.epoch_first;
    journal
        .staging
        .append(epoch, [(9, &content[..10], tag), (100, &content[..], tag)]);
    let mut dirty = crate::journal::ShardSet::default();
    dirty.insert(0);
    let micros = 77;
    journal.staging.seal(&crate::journal::Seal {
        epoch,
        dirty,
        micros,
    });
    let mut report = crate::journal::Report::default();
    journal.flush(&mut report).unwrap();
    assert_eq!(report.sealed, Some(epoch));
    machine.restart(Loss::Drop, 1);
    let mut recovery = Recovery::open(disks(&machine, SHARDS)).unwrap();
    let (mut read, mut firsts) = (vec![0; 5100], 0);
    let replayed = recovery.loader(0).replay(|record| {
        assert_eq!((record.epoch, record.tag), (epoch, tag));
        firsts += u64::from(record.is_first);
        read[record.offset as usize..][..record.bytes.len()].copy_from_slice(record.bytes);
        Ok(())
    });
    replayed.unwrap();
    assert_eq!((&read[9..19], &read[100..]), (&content[..10], &content[..]));
    assert_eq!(firsts, 1);
}

#[test]
fn damage_of_what_was_durable_names_its_file_and_place_and_cuts_nothing_off() {
    let (machine, _, mut toy) = with_past(1);
    (0..3).for_each(|_| commit(&mut toy));
    let end = toy.journal(0).log.end();
    let start = toy.journal(0).checkpoints.superblock().start;
    assert_eq!(end.segment, start.segment, "the test wants it so");
    drop(toy);
    machine.restart(Loss::Drop, 1);
    let path = format!("0/segment.{:010}", start.segment);
    machine.flip(&path, start.offset + 100, 0);
    let before = machine.content(&path);
    match Recovery::open(disks(&machine, SHARDS)).err() {
        Some(RecoveryError::Damaged { file, offset, .. }) => {
            assert_eq!((file, offset), (path.clone(), start.offset));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.content(&path), before);
    let findings = check(&disks(&machine, SHARDS), &mut |_| ()).unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| !finding.is_harmless && finding.shard == 0)
    );
}

/// Both slots of both shards, changed in a field and made whole again.
fn with_superblocks(at: usize, bytes: &[u8]) -> Machine {
    let (machine, _, toy) = with_past(2);
    drop(toy);
    for shard in 0..SHARDS {
        let path = format!("{shard}/superblock");
        let mut content = machine.content(&path);
        for slot in content.chunks_mut(4096) {
            put(slot, at, &[bytes]);
            let sum = checksum(0, &[&slot[..496]]);
            put(slot, 496, &[&sum.to_le_bytes()]);
        }
        machine.replace(&path, &content);
    }
    machine
}

#[test]
fn another_major_version_is_refused_and_a_newer_minor_one_is_read() {
    let machine = with_superblocks(8, &7_u16.to_le_bytes());
    let refused = Recovery::open(disks(&machine, SHARDS)).err().unwrap();
    assert!(matches!(
        refused,
        RecoveryError::Version {
            found: 7,
            supported: 1,
            ..
        }
    ));
    assert!(refused.to_string().contains("format 7") && refused.to_string().contains("format 1"));
    let machine = with_superblocks(10, &9_u16.to_le_bytes());
    Recovery::open(disks(&machine, SHARDS)).unwrap();
}

#[test]
fn files_with_an_unknown_feature_are_read_and_not_written() {
    let machine = with_superblocks(16, &4_u64.to_le_bytes());
    let steps = machine.steps();
    let refused = Recovery::open(disks(&machine, SHARDS)).err();
    assert!(matches!(
        refused,
        Some(RecoveryError::ReadOnly { features: 4, .. })
    ));
    assert!(
        check(&disks(&machine, SHARDS), &mut |_| ())
            .unwrap()
            .is_empty()
    );
    let records = Extract::open(disks(&machine, SHARDS)[0].clone(), 0..=u64::MAX).unwrap();
    assert!(records.count() > 0);
    assert_eq!(machine.steps(), steps);
}
