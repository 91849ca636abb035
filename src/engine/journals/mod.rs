//! The journals of a database that nobody has open: how far back they reach, what they hold, and the way
//! back in time.
//!
//! # A rollback
//! 1. The journals are recovered, as opening the database would do.
//! 2. What is to be undone is written into the lost file, and synced.
//! 3. Superblocks, images and journals go back (the journal room's rollback tells how); from the first
//!    superblock on whoever opens the database next goes on with it.
//! 4. The database is opened and closed: the checkpoint of that is what the next opening finds.
//!
//! # Whose bytes they are
//! Records of a journal are bytes of a shard's memory, at an offset. Whose they are is found by the
//! ledger of that memory ([`owners`]).

mod owners;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use record::{JournalPart, JournalRecord};

use super::Engine;
use super::builder::is_segment_length;
use super::directory::{Directory, Opening};
use super::journaled::{self, disks};
use crate::arena::{Access, sync_directory};
use crate::error::{Error, OpenError};
use crate::id::ShardIndex;
use crate::journal::{Disk, Extract, Recovery, RecoveryError, Sizes, times};
use crate::limits::ARENA_BYTES_MIN;
use owners::Owners;

/// The journals of a database that nobody has open.
///
/// ```
/// use ancile::{Durability, Engine, Journals, Schema, SurrogateId, Verbs};
///
/// # let directory = std::env::temp_dir().join(format!("ancile-journals-{}", std::process::id()));
/// let settings = || Engine::builder().shards(2).arena_bytes(64 << 20);
/// let engine = settings().durability(Durability::Commit).open(&directory)?;
/// let accounts = engine.create_table::<[u64; 1]>("accounts", Schema::cells(1).keyed())?;
/// let mut session = engine.session()?;
/// session.insert_keyed(&accounts, SurrogateId(7), &[100])?;
/// let before = engine.durable_epoch().unwrap();
/// session.delete(&accounts, SurrogateId(7))?;
/// drop(session);
/// engine.close()?;
///
/// let journals = Journals::open(&directory)?;
/// let reach = journals.reach()?;
/// assert!(reach.oldest <= before && before < reach.newest);
/// journals.roll_back(before, None)?;
///
/// let engine = settings().open(&directory)?;
/// let accounts = engine.open_table::<[u64; 1]>("accounts")?;
/// assert_eq!(engine.session()?.select(&accounts, SurrogateId(7))?, Some([100]));
/// # engine.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Journals {
    directory: Directory,
    shards: usize,
}

/// How far back a database can go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reach {
    /// The oldest epoch whose end can be gone back to.
    pub oldest: u64,
    /// The newest: nothing would be undone.
    pub newest: u64,
    /// The epochs between in which anything was changed, in order, and when they ended. That of the oldest
    /// may be missing: its end need not be kept.
    pub epochs: Vec<SealedEpoch>,
}

/// An epoch that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SealedEpoch {
    /// Its number.
    pub epoch: u64,
    /// When it ended, by the clock of the system then, which somebody may have set in between.
    pub time: SystemTime,
}

impl Reach {
    /// The newest epoch within reach that had ended by then; none if all that have a time ended later.
    pub fn epoch_at(&self, time: SystemTime) -> Option<u64> {
        let not_later = |epoch: &&SealedEpoch| epoch.time <= time;
        self.epochs.iter().rfind(not_later).map(|epoch| epoch.epoch)
    }
}

/// What the files of a shard's journal are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalSpace {
    /// The shard.
    pub shard: ShardIndex,
    /// The number of its last checkpoint.
    pub checkpoint: u64,
    /// The newest epoch of which anything is in it.
    pub checkpoint_epoch: u64,
    /// Bytes of the image, and of its checksums.
    pub image_bytes: u64,
    /// Bytes of the journal, with what is kept ready for it.
    pub journal_bytes: u64,
    /// Bytes of images' pages as they were before, which are needed to go back.
    pub past_bytes: u64,
}

/// What [`Journals::recover`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The epoch at whose end the database is.
    pub epoch: u64,
}

/// What [`Journals::roll_back`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolledBack {
    /// The epoch at whose end the database was.
    pub from: u64,
    /// The epoch at whose end it is.
    pub to: u64,
    /// Records of the journals that were undone.
    pub undone: u64,
}

impl Journals {
    /// Opens the journals of the database in a directory. Nobody may have it open meanwhile, and nobody
    /// can open it until this is dropped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), Access::Shared)
    }

    /// As [`open`](Self::open), for reading only; others may read at the same time.
    pub fn read_only(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), Access::Copy)
    }

    fn open_as(path: &Path, access: Access) -> Result<Self, OpenError> {
        let directory = Directory::open(Opening {
            path: path.to_owned(),
            access,
            is_salvage: false,
            has_journal: true,
            may_create: false,
            patience: Duration::ZERO,
        })?;
        if !directory.has_journal() {
            return Err(OpenError::NoJournals {
                path: path.to_owned(),
            });
        }
        let shards = directory.shards().unwrap_or(0);
        Ok(Self { directory, shards })
    }

    fn disks(&self) -> Result<Vec<Arc<dyn Disk>>, OpenError> {
        disks(&self.directory, self.shards, false)
    }

    /// How far back the database can go.
    pub fn reach(&self) -> Result<Reach, OpenError> {
        let recovery = Recovery::look(self.disks()?).map_err(refused)?;
        let (oldest, newest) = recovery.reach().map_err(refused)?;
        let times = times(&self.disks()?).map_err(refused)?;
        let sealed = |(&epoch, &micros): (&u64, &u64)| SealedEpoch {
            epoch,
            time: UNIX_EPOCH + Duration::from_micros(micros),
        };
        Ok(Reach {
            oldest,
            newest,
            epochs: times.range(oldest..=newest).map(sealed).collect(),
        })
    }

    /// What the shards' files are.
    pub fn space(&self) -> Result<Vec<JournalSpace>, OpenError> {
        let mut recovery = Recovery::look(self.disks()?).map_err(refused)?;
        let space = recovery.loaders().enumerate().map(|(shard, loader)| {
            let newest = loader.superblock();
            let bytes = |prefix: &str| {
                let files = self.directory.journal_files(shard);
                let own = files.filter(|(name, _)| name.starts_with(prefix));
                own.map(|(_, bytes)| bytes).sum()
            };
            JournalSpace {
                shard,
                checkpoint: newest.checkpoint,
                checkpoint_epoch: newest.epoch,
                image_bytes: bytes("image"),
                journal_bytes: bytes("segment."),
                past_bytes: bytes("pre."),
            }
        });
        Ok(space.collect())
    }

    /// The newest epoch within reach that had ended by then: [`Reach::epoch_at`].
    pub fn epoch_at(&self, time: SystemTime) -> Result<Option<u64>, OpenError> {
        Ok(self.reach()?.epoch_at(time))
    }

    /// Visits the records of the journals of some epochs, as far as they are kept, shard by shard, in the
    /// order in which they were made; gives how many. A record is a range of a shard's memory that was
    /// changed, with its new content.
    ///
    /// Whose memory that is is told by what it is used for at the end of the last of these epochs, or at
    /// the last checkpoint, if that is later. So a record of a table that was dropped before then names
    /// no table, or the one that was given its memory next.
    pub fn extract(
        &self,
        epochs: impl RangeBounds<u64>,
        mut visit: impl FnMut(&JournalRecord<'_>) -> ControlFlow<()>,
    ) -> Result<u64, OpenError> {
        let first = match epochs.start_bound() {
            Bound::Included(&epoch) => epoch,
            Bound::Excluded(&epoch) => epoch.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let last = match epochs.end_bound() {
            Bound::Included(&epoch) => epoch,
            Bound::Excluded(&epoch) => epoch.saturating_sub(1),
            Bound::Unbounded => u64::MAX,
        };
        let mut recovery = Recovery::look(self.disks()?).map_err(refused)?;
        let last = last.min(recovery.cut());
        recovery.stop_at(last);
        let owners = Owners::load(&mut recovery, &self.directory)?;
        let mut visited = 0;
        for (shard, disk) in self.disks()?.into_iter().enumerate() {
            for record in Extract::open(disk, first..=last).map_err(refused)? {
                let record = record.map_err(refused)?;
                let record = owners.tell(shard, &record.as_record());
                visited += 1;
                if visit(&record).is_break() {
                    return Ok(visited);
                }
            }
        }
        Ok(visited)
    }

    /// Brings what a crash, or a rollback that was interrupted, has left to its end, and closes the
    /// database, so that it is quick to open.
    pub fn recover(self) -> Result<Recovered, OpenError> {
        self.check_writable()?;
        let recovery = Recovery::open(self.disks()?).map_err(refused)?;
        let epoch = recovery.cut();
        drop(recovery);
        self.open_and_close()?;
        Ok(Recovered { epoch })
    }

    /// Takes the database back to the end of an epoch within its [reach](Self::reach). What is undone goes
    /// into the file `lost` first, which must not exist: a line of JSON for each record of the journals
    /// ([`JournalRecord`]'s `Display`), those of shard 0 first. An error before the way back is begun, such
    /// as that of a lost file that could not be written, leaves the database as it was; a rollback that is
    /// interrupted later is brought to its end by whoever opens the database next.
    pub fn roll_back(self, epoch: u64, lost: Option<&Path>) -> Result<RolledBack, OpenError> {
        self.check_writable()?;
        let disks = self.disks()?;
        let sizes = sizes(&*disks[0])?;
        let mut recovery = Recovery::open(disks).map_err(refused)?;
        let (oldest, newest) = recovery.reach().map_err(refused)?;
        if !(oldest..=newest).contains(&epoch) {
            let asked = epoch;
            return Err(refused(RecoveryError::OutOfReach {
                asked,
                oldest,
                newest,
            }));
        }
        let owners = Owners::load(&mut recovery, &self.directory)?;
        let mut lost = lost.map(LostFile::create).transpose()?;
        let mut undone = 0;
        let put = recovery.put_aside(epoch, |shard, record| {
            undone += 1;
            match &mut lost {
                Some(lost) => lost.write(&owners.tell(shard, record)),
                None => Ok(()),
            }
        });
        put.map_err(refused)?;
        if let Some(lost) = lost {
            lost.finish()?;
        }
        recovery.turn_back(epoch).map_err(refused)?;
        let finished = recovery.finish(sizes, journaled::random());
        drop(finished.map_err(refused)?);
        self.open_and_close()?;
        Ok(RolledBack {
            from: newest,
            to: epoch,
            undone,
        })
    }

    fn check_writable(&self) -> Result<(), OpenError> {
        if self.directory.is_read_only() {
            let what = "they are open for reading only";
            return Err(OpenError::Recovery(what.to_owned()));
        }
        Ok(())
    }

    /// Lets an engine bring transactions to their end, and take a checkpoint.
    fn open_and_close(self) -> Result<(), OpenError> {
        let sizes = sizes(&*self.disks()?[0])?;
        let arena_bytes = self.directory.arena_bytes(0)?.max(ARENA_BYTES_MIN);
        let engine = Engine::builder()
            .arena_bytes(arena_bytes)
            .journal_segment_bytes(sizes.segment_bytes)
            .pin(false)
            .with_directory(Some(self.directory))?;
        engine
            .close()
            .map_err(|error: Error| OpenError::Recovery(error.to_string()))
    }
}

fn refused(error: RecoveryError) -> OpenError {
    OpenError::Recovery(error.to_string())
}

/// The sizes that a shard's journal was last written in.
fn sizes(disk: &dyn Disk) -> Result<Sizes, OpenError> {
    let default = Sizes::default();
    let segment_bytes = crate::journal::segment_bytes(disk).map_err(refused)?;
    Ok(Sizes {
        // A file that was cut short says nothing.
        segment_bytes: segment_bytes
            .filter(|&bytes| is_segment_length(bytes))
            .unwrap_or(default.segment_bytes),
        ..default
    })
}

/// The file that gets what a rollback undoes.
struct LostFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl LostFile {
    fn create(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 20, file.map_err(failed(path))?),
        })
    }

    fn write(&mut self, record: &JournalRecord<'_>) -> Result<(), String> {
        let written = writeln!(self.file, "{record}");
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Makes all that was written durable.
    fn finish(self) -> Result<(), OpenError> {
        let Self { path, file } = self;
        let synced = file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| sync_parent(&path));
        synced.map_err(failed(&path))
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Directory {
        path: path.clone(),
        doing: "written",
        source,
    }
}
