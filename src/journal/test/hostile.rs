//! Files that somebody made up: with right checksums, and with anything inside.

use super::model::Model;
use super::random::seeds;
use super::toy::{Act, SIZES, Toy, created, disks};
use crate::journal::bytes::{checksum, put, u64_at};
use crate::journal::simulated::{Choices, Loss, Machine};
use crate::journal::{Extract, Recovery, block, check};

const SHARDS: usize = 2;

/// Makes the checksums right again, as far as they are where they should be.
fn reseal(path: &str, bytes: &mut [u8]) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let seal_sector = |sector: &mut [u8], at: usize| {
        let sum = checksum(0, &[&sector[..at]]);
        put(sector, at, &[&sum.to_le_bytes()]);
    };
    if name == "superblock" {
        for slot in bytes.chunks_mut(4096).filter(|slot| slot.len() >= 512) {
            let lineage = u64_at(slot, 56).to_le_bytes();
            seal_sector(&mut slot[..512], 496);
            put(slot, 504, &[&lineage]);
        }
    } else if name.starts_with("segment.") && bytes.len() > 1024 {
        seal_sector(&mut bytes[..512], 504);
        let salt = u64_at(bytes, 80);
        let mut at = 1024;
        while let Some(length) = bytes.get(at..).and_then(block::length) {
            let Some(block) = bytes.get_mut(at..at + length) else {
                break;
            };
            let sum = checksum(salt, &[&block[..56], &block[64..]]);
            put(block, 56, &[&sum.to_le_bytes()]);
            at += length;
        }
    } else if name.starts_with("pre.") && bytes.len() > 1024 {
        seal_sector(&mut bytes[..512], 504);
        let trailer = bytes.len() - 1024;
        seal_sector(&mut bytes[trailer..trailer + 512], 504);
    }
}

fn maim(bytes: &mut Vec<u8>, choices: &Choices) {
    for _ in 0..1 + choices.below(4) {
        let Some(last) = bytes.len().checked_sub(1) else {
            return;
        };
        let at = choices.below(last as u64 + 1) as usize;
        // Heads are where it hurts.
        let at = if choices.below(2) == 0 { at % 1200 } else { at }.min(last);
        match choices.below(5) {
            0 => bytes[at] ^= 1 << choices.below(8),
            1 => bytes[at] = choices.below(256) as u8,
            2 => {
                let end = bytes.len().min(at + 8);
                let wild = [u64::MAX, 0, 1 << 63, 1 << 40][choices.below(4) as usize];
                bytes[at..end].copy_from_slice(&wild.to_le_bytes()[..end - at]);
            }
            3 => bytes.truncate(at),
            _ => {
                let from = choices.below(last as u64 + 1) as usize;
                let count = choices.below(600).min((last - at.max(from)) as u64) as usize;
                bytes.copy_within(from..from + count, at);
            }
        }
    }
}

/// Everything that reads files; none of it may panic.
fn read_all(machine: &Machine, choices: &Choices) -> bool {
    let disks = disks(machine, SHARDS);
    let _ = check(&disks, &mut |_| ());
    for disk in &disks {
        if let Ok(records) = Extract::open(disk.clone(), 0..=u64::MAX) {
            let _ = records.count();
        }
    }
    let Ok(mut recovery) = Recovery::open(disks) else {
        return false;
    };
    if choices.below(2) == 0 {
        let epoch = choices.below(recovery.cut().saturating_add(1).max(1));
        let _ = recovery.rollback(epoch, |_, _| Ok(()));
    }
    for mut loader in recovery.loaders() {
        let mut page = [0; 4096];
        let _ = loader.read_pages(choices.below(5), &mut page);
        let _ = loader.replay(|record| match record.offset.checked_add(1 << 20) {
            Some(_) => Ok(()),
            None => Err("a record is outside of every arena".to_owned()),
        });
    }
    recovery.finish(SIZES, 1).is_ok()
}

#[test]
fn files_that_somebody_made_up_give_errors_and_no_panic() {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    let mut toy = Toy::open(disks(&machine, SHARDS), &mut model, None, 3).unwrap();
    for round in 0..3 {
        for shard in 0..SHARDS {
            toy.acts([
                Act::Change(shard),
                Act::CheckpointAll(shard),
                Act::Change(shard),
            ]);
        }
        toy.acts([Act::Close, Act::Settle, Act::Prepare(round % SHARDS)]);
    }
    // One checkpoint stays unfinished.
    toy.acts([Act::Change(0), Act::Freeze(0), Act::Close, Act::Settle]);
    (0..3).for_each(|_| toy.act(Act::Checkpoint(0)));
    drop(toy);
    machine.restart(Loss::Keep, 1);
    machine.limit(Some(1 << 20));
    let paths = machine.paths();
    let (mut whole, mut all) = (0, 0);
    for seed in seeds(1500) {
        let choices = Choices::new(seed);
        let machine = machine.fork();
        for _ in 0..1 + choices.below(2) {
            let path = &paths[choices.below(paths.len() as u64) as usize];
            let mut bytes = machine.content(path);
            maim(&mut bytes, &choices);
            if choices.below(4) > 0 {
                reseal(path, &mut bytes);
            }
            machine.replace(path, &bytes);
        }
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read_all(&machine, &choices)
        }));
        match read {
            Ok(is_whole) => whole += u64::from(is_whole),
            Err(panic) => {
                eprintln!("seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
        all += 1;
    }
    println!("{all} made up, {whole} of them opened");
    assert!(all / 20 < whole && whole < all);
}
