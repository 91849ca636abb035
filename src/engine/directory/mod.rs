//! A database's directory: who has it, and what is in it.
//!
//! ```text
//! LOCK              held while an engine has the database open; names its process
//! MANIFEST          what the database is, and its tables: replaced as a whole (`manifest`)
//! CONTROL           the socket of the engine that has it open, if it has journals
//! BACKUP            makes it a backup, which is only read
//! shard-0000.arena  the memory of shard 0 (the arena room draws it), or
//! shard-0000/       its image and its journal (the journal room draws them)
//! ...
//! ```
//! The lock belongs to the open file, so it ends with its process, however that ends, and whatever
//! children it has forked; a second opener in the same process is refused, too, by whatever path it
//! comes.

mod manifest;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(super) use manifest::{Manifest, StoredTable};

use crate::arena::{Access, ArenaFile, Identity};
use crate::error::{OpenError, TableError};
use crate::fork::Locked;

const LOCK: &str = "LOCK";
pub(super) const MANIFEST: &str = manifest::NAME;
pub(super) const CONTROL: &str = "CONTROL";
pub(super) const BACKUP: &str = "BACKUP";

/// How often a lock is asked for again while somebody may still give it up.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// How a database is to be opened.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) is_salvage: bool,
    /// Whether its shards have journals, if it is made now.
    pub(super) has_journal: bool,
    /// Whether a database is made where there is none.
    pub(super) may_create: bool,
    /// How long to wait for another engine to close it.
    pub(super) patience: Duration,
}

/// An open database's directory.
pub(super) struct Directory {
    opening: Opening,
    manifest: Mutex<Manifest>,
    /// Held open as long as the database is; none where nobody has ever had one, and it is only read.
    _lock: Option<Locked>,
}

impl Directory {
    /// Opens the directory, or makes it for so many shards; with the manifest that it has, unless it
    /// is new.
    pub(super) fn open(opening: Opening) -> Result<Self, OpenError> {
        let path = &opening.path;
        let creates = opening.may_create && opening.access == Access::Shared;
        if creates {
            fs::create_dir_all(path).map_err(io_error(path, "made"))?;
        }
        if opening.access == Access::Shared && path.join(BACKUP).exists() {
            let why =
                "it is a backup: restore it with `ancile restore`, or open it for reading only";
            return Err(foreign(path, why));
        }
        let lock = lock(&opening)?;
        let manifest = match Manifest::read(path)? {
            Some(manifest) if manifest.is_complete || creates => manifest,
            Some(_) => return Err(foreign(path, "its making was interrupted")),
            None if !creates => {
                return Err(foreign(path, "it has no file MANIFEST"));
            }
            None => {
                check_empty(path)?;
                Manifest {
                    has_journal: opening.has_journal,
                    ..Manifest::new(database_id())
                }
            }
        };
        Ok(Self {
            opening,
            manifest: Mutex::new(manifest),
            _lock: lock.map(Locked::new),
        })
    }

    fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shards of the database; `None` if it is being made.
    pub(super) fn shards(&self) -> Option<usize> {
        let manifest = self.manifest();
        manifest.is_complete.then_some(manifest.shards as usize)
    }

    /// Whether its shards have journals.
    pub(super) fn has_journal(&self) -> bool {
        self.manifest().has_journal
    }

    /// Takes the tables that shard 0's memory has noted.
    pub(super) fn read_tables(&self, text: &str) -> Result<(), String> {
        self.manifest().read_tables(text)
    }

    /// Takes that there are no tables.
    pub(super) fn forget_tables(&self) {
        self.manifest().tables.clear();
    }

    /// The longest arena that a shard of it has had, or is to have now.
    pub(super) fn arena_bytes(&self, asked: u64) -> Result<u64, OpenError> {
        let path = &self.opening.path;
        let mut manifest = self.manifest();
        if asked > manifest.arena_bytes {
            manifest.arena_bytes = asked;
            manifest.write(path).map_err(io_error(path, "written"))?;
        }
        Ok(manifest.arena_bytes)
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.opening.path
    }

    /// The directory of a shard with a journal.
    pub(super) fn journal_path(&self, shard: usize) -> PathBuf {
        self.opening.path.join(shard_name(shard))
    }

    /// The names and lengths of a shard's files, if it has a journal, as far as they can be looked at.
    pub(super) fn journal_files(
        &self,
        shard: usize,
    ) -> impl Iterator<Item = (String, u64)> + use<> {
        let files = fs::read_dir(self.journal_path(shard)).into_iter().flatten();
        files.flatten().filter_map(|file| {
            Some((
                file.file_name().into_string().ok()?,
                file.metadata().ok()?.len(),
            ))
        })
    }

    /// What the files of a shard are, if it has a journal.
    pub(super) fn identity(&self, shard: usize) -> Identity {
        let manifest = self.manifest();
        Identity {
            database: manifest.database,
            shard: shard as u32,
            shards: manifest.shards,
        }
    }

    /// The tables, by their serials.
    pub(super) fn tables(&self) -> Vec<StoredTable> {
        self.manifest().tables.clone()
    }

    /// Notes that a database of so many shards is being made; what an interrupted making has left
    /// goes.
    pub(super) fn begin(&self, shards: usize) -> Result<(), OpenError> {
        let path = &self.opening.path;
        let mut manifest = self.manifest();
        let left = manifest.shards as usize;
        manifest.shards = shards as u32;
        manifest.write(path).map_err(io_error(path, "written"))?;
        for shard in 0..left.max(shards) {
            let removed = [
                fs::remove_file(self.arena_path(shard)),
                fs::remove_dir_all(self.journal_path(shard)),
            ];
            for error in removed.into_iter().filter_map(io::Result::err) {
                if error.kind() != io::ErrorKind::NotFound {
                    return Err(io_error(path, "cleared")(error));
                }
            }
        }
        Ok(())
    }

    /// Notes that the database is made.
    pub(super) fn complete(&self) -> Result<(), OpenError> {
        let path = &self.opening.path;
        let mut manifest = self.manifest();
        manifest.is_complete = true;
        manifest.write(path).map_err(io_error(path, "written"))
    }

    fn arena_path(&self, shard: usize) -> PathBuf {
        self.opening.path.join(format!("shard-{shard:04}.arena"))
    }

    /// The file of a shard.
    pub(super) fn arena(&self, shard: usize) -> ArenaFile {
        ArenaFile {
            path: self.arena_path(shard),
            identity: self.identity(shard),
            access: self.opening.access,
            is_salvage: self.opening.is_salvage,
        }
    }

    /// So many numbers that no table or index of this database has had.
    pub(super) fn next_serials(&self, count: usize) -> Result<Vec<u32>, TableError> {
        let mut manifest = self.manifest();
        let first = manifest.next_serial;
        let next = first.checked_add(count as u32).ok_or(TableError::TooMany)?;
        manifest.next_serial = next;
        Ok((first..next).collect())
    }

    /// A table, as it is noted.
    pub(super) fn table(&self, name: &str) -> Option<StoredTable> {
        let manifest = self.manifest();
        manifest
            .tables
            .iter()
            .find(|table| table.name == name)
            .cloned()
    }

    /// Changes the list of tables; `note` puts it into the memory of shard 0, if it lives there.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut Vec<StoredTable>),
        note: impl FnOnce(String) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let path = &self.opening.path;
        let mut manifest = self.manifest();
        let before = manifest.tables.clone();
        change(&mut manifest.tables);
        let unwritten = |error: &dyn std::fmt::Display| {
            let manifest = Manifest::path(path);
            TableError::Storage(format!(
                "{} could not be written: {error}",
                manifest.display()
            ))
        };
        let noted = if manifest.has_journal {
            let text = manifest.tables_text().map_err(|error| unwritten(&error));
            // Whoever salvages what is left of a database may need it; nobody else reads it.
            text.and_then(note).inspect(|()| drop(manifest.write(path)))
        } else {
            manifest.write(path).map_err(|error| unwritten(&error))
        };
        if noted.is_err() {
            manifest.tables = before;
        }
        noted
    }

    /// Whether the database is open for reading only.
    pub(super) fn is_read_only(&self) -> bool {
        self.opening.access == Access::Copy
    }

    /// What its users should know about where the database lies.
    pub(super) fn warnings(&self) -> Vec<String> {
        let path = &self.opening.path;
        let is_in_memory = match crate::arena::is_in_memory(path) {
            Ok(is_in_memory) => is_in_memory,
            Err(error) => return vec![format!("{}: {error}", path.display())],
        };
        if self.has_journal() {
            let warning = format!(
                "{} lies in memory, and so do its journals: they do not outlive the system there",
                path.display()
            );
            return Vec::from_iter(is_in_memory.then_some(warning));
        }
        if is_in_memory {
            return Vec::new();
        }
        vec![format!(
            "{} lies on a disk's file system, which writes changed pages back at its own pace: random \
             changes of more rows than memory holds dirty were measured at 0.7 million a second there, \
             and at 27 million in memory. A directory in /dev/shm or on hugetlbfs has no such cost, and \
             lasts as long as the system runs",
            path.display()
        )]
    }
}

/// The name of the directory of a shard with a journal.
pub(super) fn shard_name(shard: usize) -> String {
    format!("shard-{shard:04}")
}

/// Takes the lock of a database, or says who has it.
fn lock(opening: &Opening) -> Result<Option<File>, OpenError> {
    let path = &opening.path;
    let is_shared = opening.access == Access::Shared;
    let file = OpenOptions::new()
        .read(true)
        .write(is_shared)
        .create(is_shared)
        .truncate(false)
        .open(path.join(LOCK));
    let mut file = match file {
        // A copy of a database, for instance.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() && !is_shared => {
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {
            return Err(io_error(path, "opened")(error));
        }
        other => other.map_err(io_error(path, "locked"))?,
    };
    let begun = Instant::now();
    loop {
        // Readers keep writers out, and not each other: what they read is theirs alone.
        let locked = if is_shared {
            file.try_lock()
        } else {
            file.try_lock_shared()
        };
        match locked {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if begun.elapsed() < opening.patience => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // The holder may be writing its number: then it is not told.
                let _ = file.read_to_string(&mut process);
                return Err(OpenError::InUse {
                    path: path.clone(),
                    process: process.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io_error(path, "locked")(error)),
        }
    }
    if is_shared {
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(io_error(path, "locked"))?;
    }
    Ok(Some(file))
}

/// Whether a database can be made in a directory without one.
fn check_empty(path: &Path) -> Result<(), OpenError> {
    let entries = fs::read_dir(path).map_err(io_error(path, "read"))?;
    for entry in entries {
        let name = entry.map_err(io_error(path, "read"))?.file_name();
        if name != LOCK && name != manifest::NEW {
            let why = format!("it has other files (first seen: {})", name.display());
            return Err(foreign(path, &why));
        }
    }
    Ok(())
}

/// 16 bytes that no other database has.
fn database_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one(Instant::now());
    let (low, high) = (half(), half());
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

fn foreign(path: &Path, why: &str) -> OpenError {
    OpenError::NoDatabase {
        path: path.to_owned(),
        reason: why.to_owned(),
    }
}

fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Directory {
        path: path.clone(),
        doing,
        source,
    }
}
