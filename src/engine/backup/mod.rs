//! Backups: a copy of a database with journals, made while it is in use.
//!
//! # How
//! The writer of the journals begins no checkpoints while a backup runs, so images and superblocks stay
//! as they are and journals only grow. It tells how far each journal goes at a moment between two epochs.
//! The images, and the journals up to these places, are the database at the end of that epoch; they are
//! copied by the thread that asked, beside everybody's work. Only the journals grow meanwhile that would
//! have been shortened.
//!
//! ```text
//! shard-0000/ ...   as those of the database, without their past
//! BACKUP            the files, with lengths and checksums (`list`)
//! MANIFEST          comes last: without it there is no backup
//! ```
//! A backup can be read where it lies, as any database; it is restored before it is changed
//! ([`restore`](restore())).
//!
//! # From another process
//! An open engine listens at a socket in its directory ([`control`]).

mod control;
mod list;
mod restore;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

pub(super) use control::Control;
use list::{FileEntry, FileList};
pub use restore::{Restored, restore, restore_with};

use super::Engine;
use super::directory::{Directory, MANIFEST, Opening, shard_name};
use crate::arena::{Access, sync_directory};
use crate::error::{BackupError, OpenError};
use crate::journal::{Disk, FileDisk, Position, Recovery, RunningSum, ShardCopy, WriterQueue};
use crate::session::is_inside_shard;

/// What a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackedUp {
    /// The epoch at whose end the database was.
    pub epoch: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl Engine {
    /// Copies the database into a directory, which is made for that, while it is in use: all that was
    /// acknowledged as durable before this is called, and the end of one epoch. Only databases with
    /// journals are copied so; those with mapped files are copied when they are closed.
    ///
    /// Everything is synced before this returns. A backup that did not come to its end has no file
    /// MANIFEST, and cannot be restored. While it is made no checkpoints are taken, so the journals need
    /// room for what is changed meanwhile.
    ///
    /// ```
    /// use ancile::{Durability, Engine, Schema, SurrogateId, Verbs};
    ///
    /// # let directory = std::env::temp_dir().join(format!("ancile-backup-{}", std::process::id()));
    /// # let at = |name: &str| directory.join(name);
    /// # std::fs::create_dir_all(&directory)?;
    /// let settings = || Engine::builder().shards(2).arena_bytes(64 << 20);
    /// let engine = settings().durability(Durability::Commit).open(at("database"))?;
    /// let accounts = engine.create_table::<[u64; 1]>("accounts", Schema::cells(1).keyed())?;
    /// let mut session = engine.session()?;
    /// session.insert_keyed(&accounts, SurrogateId(7), &[100])?;
    /// engine.backup(at("backup"))?;
    /// session.delete(&accounts, SurrogateId(7))?;
    ///
    /// ancile::restore(at("backup"), at("restored"))?;
    /// let other = settings().open(at("restored"))?;
    /// let accounts = other.open_table::<[u64; 1]>("accounts")?;
    /// assert_eq!(other.session()?.select(&accounts, SurrogateId(7))?, Some([100]));
    /// # drop(session);
    /// # engine.close()?;
    /// # other.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<BackedUp, BackupError> {
        self.backup_with(directory, |_, _| ())
    }

    /// As [`backup`](Self::backup), and tells how many bytes of how many are copied.
    pub fn backup_with(
        &self,
        directory: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<BackedUp, BackupError> {
        if is_inside_shard() {
            return Err(BackupError::InsideShard);
        }
        if self.peers.check_home().is_err() {
            return Err(BackupError::Closed);
        }
        let source = self.backup_source()?;
        source.run(directory.as_ref(), &mut |done, all| {
            progress(done, all);
            true
        })
    }

    /// What is needed to copy the database.
    pub(super) fn backup_source(&self) -> Result<Source, BackupError> {
        match (&self.directory, &self.queue) {
            (Some(directory), Some(queue)) => Ok(Source {
                path: directory.path().to_owned(),
                shards: self.shards(),
                queue: Arc::clone(queue),
            }),
            (Some(directory), None) if directory.has_journal() => Err(BackupError::ReadOnly),
            (Some(_), None) => Err(BackupError::NoJournals),
            (None, _) => Err(BackupError::InMemory),
        }
    }
}

/// Copies a database into a directory, whoever has it open: the process that has is asked to, at the
/// socket where it listens, and if nobody has, it is opened for that. `progress` is told how many bytes of
/// how many are copied.
pub fn backup(
    path: impl AsRef<Path>,
    directory: impl AsRef<Path>,
    mut progress: impl FnMut(u64, u64),
) -> Result<BackedUp, BackupError> {
    let (path, directory) = (path.as_ref(), directory.as_ref());
    if let Some(asked) = control::ask(path, directory, &mut progress) {
        return asked;
    }
    // What is not there, or has no journals, is said before anything is opened.
    drop(look(path)?);
    let engine = Engine::builder().must_exist(true).pin(false).open(path)?;
    let copied = engine.backup_with(directory, progress);
    let closed = engine.close();
    let copied = copied?;
    closed.map_err(|error| BackupError::Files(error.to_string()))?;
    Ok(copied)
}

/// Opens a directory for reading only, which must be that of a database with journals.
fn look(path: &Path) -> Result<Directory, BackupError> {
    let directory = Directory::open(Opening {
        path: path.to_owned(),
        access: Access::Copy,
        is_salvage: false,
        has_journal: false,
        may_create: false,
        patience: Duration::ZERO,
    })?;
    match directory.has_journal() {
        true => Ok(directory),
        false => Err(BackupError::NoJournals),
    }
}

/// Told how many bytes of how many are copied; says whether to go on.
type Watch<'w> = &'w mut dyn FnMut(u64, u64) -> bool;

/// How often a backup that waits for the writer looks whether it is to go on.
const PAUSE: Duration = Duration::from_millis(50);

/// A database that is open, to be copied.
#[derive(Clone)]
pub(super) struct Source {
    path: PathBuf,
    shards: usize,
    queue: Arc<WriterQueue>,
}

impl Source {
    /// Makes a backup in a new directory; what did not come to its end is removed.
    fn run(&self, directory: &Path, watch: Watch<'_>) -> Result<BackedUp, BackupError> {
        make_directory(directory)?;
        let copied = self.copy(directory, watch);
        if copied.is_err() {
            // What stays has no manifest, and is no backup.
            let _ = fs::remove_dir_all(directory);
        }
        copied
    }

    fn copy(&self, directory: &Path, watch: Watch<'_>) -> Result<BackedUp, BackupError> {
        let sealed = self.queue.clock().sealed();
        // Dropped at the end: then checkpoints go on.
        let (_halt, places) = self.queue.halt();
        let places = loop {
            match places.recv_timeout(PAUSE) {
                Ok(places) => break places.map_err(BackupError::Files)?,
                Err(RecvTimeoutError::Disconnected) => return Err(BackupError::Closed),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = self.queue.clock().failure() {
                return Err(BackupError::Files(reason));
            }
            if !watch(0, 0) {
                return Err(BackupError::Interrupted);
            }
        };
        let shards = self.plan(&places)?;
        let all = shards.iter().map(ShardCopy::bytes).sum();
        let mut done = 0;
        let mut files = Vec::new();
        let mut targets: Vec<Arc<dyn Disk>> = Vec::new();
        for (shard, copy) in shards.iter().enumerate() {
            let name = shard_name(shard);
            let path = directory.join(&name);
            fs::create_dir(&path).map_err(failed(&path, "made"))?;
            let target = FileDisk::new(path).map_err(of_files)?;
            let mut is_over = false;
            let copied = copy.copy(&target, &mut |bytes| {
                done += bytes;
                is_over = !watch(done, all);
                if is_over { Err(String::new()) } else { Ok(()) }
            });
            if is_over {
                return Err(BackupError::Interrupted);
            }
            let copied = copied.map_err(of_files)?.into_iter();
            files.extend(copied.map(|file| FileEntry {
                name: format!("{name}/{}", file.name),
                bytes: file.bytes,
                checksum: file.checksum,
            }));
            targets.push(Arc::new(target));
        }
        let epoch = Recovery::look(targets).map_err(of_files)?.cut();
        if epoch < sealed {
            let what = format!("the copy ends with epoch {epoch}, and {sealed} was durable");
            return Err(BackupError::Files(what));
        }
        self.finish(directory, FileList::new(epoch, files))?;
        Ok(BackedUp { epoch, bytes: all })
    }

    fn plan(&self, places: &[Position]) -> Result<Vec<ShardCopy>, BackupError> {
        let plan = |shard| {
            let disk = FileDisk::new(self.path.join(shard_name(shard)));
            let disk = disk.map_err(of_files)?;
            ShardCopy::plan(Arc::new(disk), places[shard]).map_err(of_files)
        };
        (0..self.shards).map(plan).collect()
    }

    /// Writes the list of files, and the manifest, which makes it a backup.
    fn finish(&self, directory: &Path, mut list: FileList) -> Result<(), BackupError> {
        let from = self.path.join(MANIFEST);
        let manifest = fs::read(&from).map_err(failed(&from, "read"))?;
        let mut sum = RunningSum::new();
        sum.update(&manifest);
        list.files.push(FileEntry {
            name: MANIFEST.to_owned(),
            bytes: manifest.len() as u64,
            checksum: sum.finish(),
        });
        write_synced(&directory.join(list::NAME), list.to_text().as_bytes())?;
        put_last(directory, &manifest)
    }
}

/// Makes a directory that must not be there.
fn make_directory(path: &Path) -> Result<(), BackupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::Exists {
            path: path.to_owned(),
        }),
        made => made.map_err(failed(path, "made")),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let write = || {
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(failed(path, "written"))
}

/// Gives a directory its manifest, when all else in it is durable.
fn put_last(directory: &Path, manifest: &[u8]) -> Result<(), BackupError> {
    let synced = |path: &Path| sync_directory(path).map_err(failed(path, "written"));
    synced(directory)?;
    let new = directory.join(format!("{MANIFEST}.new"));
    write_synced(&new, manifest)?;
    fs::rename(&new, directory.join(MANIFEST)).map_err(failed(&new, "renamed"))?;
    synced(directory)?;
    let whole = fs::canonicalize(directory).map_err(failed(directory, "found"))?;
    whole.parent().map_or(Ok(()), synced)
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| {
        BackupError::Open(OpenError::Directory {
            path: path.clone(),
            doing,
            source,
        })
    }
}

fn of_files(error: impl ToString) -> BackupError {
    BackupError::Files(error.to_string())
}
