//! Making a database from a backup.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use super::list::{FileEntry, FileList};
use super::{BackedUp, failed, make_directory, put_last};
use crate::arena::sync_directory;
use crate::engine::directory::MANIFEST;
use crate::engine::{Journals, check};
use crate::error::BackupError;
use crate::journal::RunningSum;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// What was restored: a database at the end of an epoch.
pub type Restored = BackedUp;

/// Makes a database from a backup in a directory, which is made for that: files are compared with their
/// checksums as they are copied, and the database is opened once and checked. The backup stays as it is.
pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Restored, BackupError> {
    restore_with(backup, path, |_, _| ())
}

/// As [`restore`], and tells how many bytes of how many are copied.
pub fn restore_with(
    backup: impl AsRef<Path>,
    path: impl AsRef<Path>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Restored, BackupError> {
    let (backup, path) = (backup.as_ref(), path.as_ref());
    let list = FileList::read(backup)?;
    make_directory(path)?;
    let restored = copy(backup, path, &list, &mut progress).and_then(|bytes| {
        prove(path, list.epoch)?;
        Ok(Restored {
            epoch: list.epoch,
            bytes,
        })
    });
    if restored.is_err() {
        // Half a database is of no use.
        let _ = fs::remove_dir_all(path);
    }
    restored
}

fn copy(
    backup: &Path,
    path: &Path,
    list: &FileList,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, BackupError> {
    let all = list.files.iter().map(|file| file.bytes).sum();
    let mut done = 0;
    let mut manifest = None;
    for file in &list.files {
        let mut copied = |piece: &[u8]| {
            done += piece.len() as u64;
            progress(done, all);
        };
        if file.name == MANIFEST {
            let mut bytes = Vec::new();
            file.read(backup, &mut |piece| {
                copied(piece);
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            manifest = Some(bytes);
        } else {
            file.copy(backup, path, &mut copied)?;
        }
    }
    let manifest = manifest.ok_or_else(|| BackupError::NoBackup {
        path: backup.to_owned(),
        reason: "it does not name its MANIFEST".to_owned(),
    })?;
    put_last(path, &manifest)?;
    Ok(done)
}

/// Opens the database, which brings it to its end, and checks it.
fn prove(path: &Path, epoch: u64) -> Result<(), BackupError> {
    let recovered = Journals::open(path)?.recover()?;
    if recovered.epoch != epoch {
        let what = format!(
            "the restored database ends with epoch {}, the backup with {epoch}",
            recovered.epoch
        );
        return Err(BackupError::Files(what));
    }
    let report = check(path)?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => Err(BackupError::Files(format!(
            "the restored database is not whole, {} findings, the first: {}: {}",
            report.findings.len(),
            first.place,
            first.what
        ))),
    }
}

impl FileEntry {
    /// Reads the file to its end, and compares it with what the list says.
    fn read(
        &self,
        backup: &Path,
        take: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        let path = backup.join(&self.name);
        let mut file = File::open(&path).map_err(failed(&path, "opened"))?;
        let mut piece = vec![0; PIECE_BYTES];
        let (mut bytes, mut sum) = (0, RunningSum::new());
        loop {
            let read = file.read(&mut piece).map_err(failed(&path, "read"))?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            sum.update(&piece[..read]);
            if bytes > self.bytes {
                break;
            }
            take(&piece[..read])?;
        }
        let what = if bytes != self.bytes {
            format!("it does not have the {} bytes that it had", self.bytes)
        } else if sum.finish() != self.checksum {
            "it does not have the checksum that it had".to_owned()
        } else {
            return Ok(());
        };
        Err(BackupError::Damaged { path, what })
    }

    fn copy(
        &self,
        backup: &Path,
        path: &Path,
        copied: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BackupError> {
        let to = path.join(&self.name);
        let shard = to.parent().unwrap_or(path);
        if !shard.is_dir() {
            fs::create_dir(shard).map_err(failed(shard, "made"))?;
        }
        let mut file = File::create_new(&to).map_err(failed(&to, "made"))?;
        self.read(backup, &mut |piece| {
            copied(piece);
            file.write_all(piece).map_err(failed(&to, "written"))
        })?;
        file.sync_all().map_err(failed(&to, "written"))?;
        sync_directory(shard).map_err(failed(shard, "written"))
    }
}
