//! The room over the real disk: a directory of the system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::model::Model;
use super::toy::{Act, SIZES, Toy};
use crate::journal::{
    DirectAccess, Disk, DiskError, Extract, FileDisk, Recovery, RecoveryError, Refusal, check,
    create,
};

const SHARDS: usize = 2;

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ancile-{name}-{}", std::process::id()));
        for shard in 0..SHARDS {
            std::fs::create_dir_all(path.join(shard.to_string())).unwrap();
        }
        Self(path)
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let disk = |shard: usize| FileDisk::new(self.0.join(shard.to_string())).unwrap();
        (0..SHARDS)
            .map(|shard| Arc::new(disk(shard)) as Arc<dyn Disk>)
            .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn toy(directory: &Directory, model: &mut Model, back_to: Option<u64>) -> Toy {
    Toy::open(directory.disks(), model, back_to, 3).unwrap()
}

#[test]
fn a_database_in_a_directory_is_written_reopened_checked_and_taken_back() {
    let directory = Directory::new("round");
    create(&directory.disks(), 12 << 10, SIZES, 1).unwrap();
    let mut model = Model::new(SHARDS);
    for round in 0..3 {
        let mut toy = toy(&directory, &mut model, None);
        for shard in 0..SHARDS {
            let acts = [
                Act::Prepare(shard),
                Act::Change(shard),
                Act::CheckpointAll(shard),
            ];
            toy.acts(acts);
        }
        toy.acts([Act::Change(0), Act::Message(0, 1), Act::Change(1)]);
        toy.acts([Act::Close, Act::Settle, Act::Retain(0)]);
        if round == 1 {
            toy.close();
        }
        assert!(toy.model.acknowledged > model.acknowledged);
        model = toy.model.clone();
    }
    let mut read = 0;
    let findings = check(&directory.disks(), &mut |bytes| read += bytes).unwrap();
    assert!(findings.is_empty() && read > 0, "{findings:?}");
    for disk in directory.disks() {
        let records = Extract::open(disk, 2..=u64::MAX).unwrap();
        let records = records.collect::<Result<Vec<_>, _>>().unwrap();
        assert!(!records.is_empty() && records.iter().all(|record| record.epoch >= 2));
        assert!(records.is_sorted_by_key(|record| record.epoch));
    }
    for epoch in model.epochs().into_iter().rev() {
        drop(toy(&directory, &mut model, Some(epoch)));
        assert_eq!(model.acknowledged, epoch);
    }
}

#[test]
fn the_disk_tells_whether_it_goes_past_the_cache_and_names_what_is_missing() {
    let directory = Directory::new("names");
    let disk = FileDisk::new(directory.0.join("0")).unwrap();
    assert_eq!(disk.direct_access(), DirectAccess::Unknown);
    let mut file = disk.create("a").unwrap();
    assert_ne!(disk.direct_access(), DirectAccess::Unknown);
    // In sectors and out of them, and both ways mixed.
    let bytes = Vec::from_iter((0..5000_u32).map(|at| at as u8));
    file.write_at(512, &bytes[..1024]).unwrap();
    file.write_at(100, &bytes).unwrap();
    file.write_at(1024, &bytes[..512]).unwrap();
    file.sync().unwrap();
    let mut read = vec![0; 4096];
    file.read_at(0, &mut read).unwrap();
    assert_eq!(read[..100], [0; 100]);
    assert_eq!(read[100..1024], bytes[..924]);
    assert_eq!(read[1024..1536], bytes[..512]);
    assert_eq!(read[1536..], bytes[1436..3996]);
    assert!(matches!(
        file.read_at(4096, &mut read),
        Err(DiskError::Short { .. })
    ));
    assert!(matches!(disk.create("a"), Err(DiskError::Exists { .. })));
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    assert!(matches!(disk.open("a"), Err(DiskError::NotFound { file }) if file.ends_with("/a")));
    assert!(disk.free_bytes().unwrap() > 0);
    disk.lock().unwrap();
    let other = FileDisk::new(directory.0.join("0")).unwrap();
    assert!(matches!(other.lock(), Err(DiskError::InUse { .. })));
    disk.remove("b").unwrap();
    disk.sync_directory().unwrap();
    std::fs::remove_dir(directory.0.join("0")).unwrap();
    assert!(matches!(disk.create("c"), Err(DiskError::NotFound { .. })));
    assert!(matches!(
        FileDisk::new(directory.0.join("0")),
        Err(DiskError::NotFound { .. })
    ));
}

#[test]
fn directories_in_the_wrong_order_or_number_are_refused() {
    let directory = Directory::new("order");
    let mut disks = directory.disks();
    create(&disks, 4096, SIZES, 1).unwrap();
    disks.reverse();
    assert!(matches!(
        Recovery::open(disks),
        Err(RecoveryError::Stranger { .. })
    ));
    let one = directory.disks().into_iter().take(1).collect();
    assert!(matches!(
        Recovery::open(one),
        Err(RecoveryError::Stranger { .. })
    ));
    let again = create(&directory.disks(), 4096, SIZES, 2);
    assert!(matches!(
        again,
        Err(RecoveryError::Disk(DiskError::Exists { .. }))
    ));
}

/// A small file system in memory; unmounted at the end.
struct Mounted<'d>(&'d Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_file_system_refuses_changes_and_heals() {
    let directory = Directory::new("full");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=512k", "ancile"]);
    if !run(mount.arg(&directory.0)) {
        println!("not tested: this user may not mount a small file system");
        return;
    }
    let _mounted = Mounted(&directory.0);
    for shard in 0..SHARDS {
        std::fs::create_dir(directory.0.join(shard.to_string())).unwrap();
    }
    create(&directory.disks(), 12 << 10, SIZES, 1).unwrap();
    let mut model = Model::new(SHARDS);
    let mut toy = toy(&directory, &mut model, None);
    let filler = directory.0.join("filler");
    let mut bytes = 512 << 10;
    while std::fs::write(&filler, vec![1; bytes]).is_err() {
        bytes -= 4096;
    }
    for _ in 0..200 {
        toy.act(Act::Prepare(0));
        if toy.admits(0).is_err() {
            break;
        }
        toy.acts([Act::Change(0), Act::Close, Act::Settle]);
    }
    assert_eq!(toy.admits(0), Err(Refusal::NoSpace));
    std::fs::remove_file(&filler).unwrap();
    toy.act(Act::Prepare(0));
    assert_eq!(toy.admits(0), Ok(()));
    toy.acts([Act::Change(0), Act::Close, Act::Settle]);
    assert_eq!(toy.model.acknowledged, toy.durable());
    let mut model = toy.model.clone();
    drop(toy);
    Toy::open(directory.disks(), &mut model, None, 4).unwrap();
}
