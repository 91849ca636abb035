//! Who takes part, with which settings, and what it keeps.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::book::Contestant;
use super::job::Job;
use super::maps::{BrownPair, HashPair, TreePair};
use super::ours::{self, Way};
use super::{lmdb, redb_store, sqlite};
use crate::failure::Failure;

/// The contestants, in the order in which they take turns. All others are compared with the first one.
///
pub const ROSTER: &[Spec] = &[
    Spec {
        code: "ancile-batches",
        name: "Ancile, session, batches",
        choice: Choice::Ours,
        kind: Kind::Batched,
        durability: Durability::Process,
        setting: "one shard, files in memory",
        files: Files::Memory,
        make: |place, job| ours::make(Some(place), Way::Batches, job),
    },
    Spec {
        code: "ancile-resident",
        name: "Ancile, in the shard",
        choice: Choice::Ours,
        kind: Kind::Map,
        durability: Durability::Process,
        setting: "one shard, files in memory",
        files: Files::Memory,
        make: |place, job| ours::make(Some(place), Way::Resident, job),
    },
    Spec {
        code: "ancile-calls",
        name: "Ancile, session, calls",
        choice: Choice::Ours,
        kind: Kind::Map,
        durability: Durability::Process,
        setting: "one shard, files in memory",
        files: Files::Memory,
        make: |place, job| ours::make(Some(place), Way::Calls, job),
    },
    Spec {
        code: "ancile-batches-memory",
        name: "Ancile, batches, volatile",
        choice: Choice::Ours,
        kind: Kind::Batched,
        durability: Durability::None,
        setting: "one shard",
        files: Files::None,
        make: |_, job| ours::make(None, Way::Batches, job),
    },
    Spec {
        code: "ancile-resident-memory",
        name: "Ancile, in the shard, volatile",
        choice: Choice::Ours,
        kind: Kind::Map,
        durability: Durability::None,
        setting: "one shard",
        files: Files::None,
        make: |_, job| ours::make(None, Way::Resident, job),
    },
    Spec {
        code: "hashmap",
        name: "HashMap pair",
        choice: Choice::Std,
        kind: Kind::Map,
        durability: Durability::None,
        setting: "std, default hasher",
        files: Files::None,
        make: |_, job| Ok(Box::new(HashPair::new(job.indexes))),
    },
    Spec {
        code: "btreemap",
        name: "BTreeMap pair",
        choice: Choice::Std,
        kind: Kind::Map,
        durability: Durability::None,
        setting: "std",
        files: Files::None,
        make: |_, job| Ok(Box::new(TreePair::new(job.indexes))),
    },
    Spec {
        code: "hashbrown",
        name: "hashbrown pair",
        choice: Choice::Hashbrown,
        kind: Kind::Map,
        durability: Durability::None,
        setting: "default hasher",
        files: Files::None,
        make: |_, job| Ok(Box::new(BrownPair::new(job.indexes))),
    },
    Spec {
        code: "sqlite-memory",
        name: "SQLite :memory:",
        choice: Choice::Sqlite,
        kind: Kind::Store,
        durability: Durability::None,
        setting: "journal_mode=MEMORY",
        files: Files::None,
        make: |_, job| Ok(Box::new(sqlite::Sqlite::in_memory(job.indexes)?)),
    },
    Spec {
        code: "sqlite-off",
        name: "SQLite file, off",
        choice: Choice::Sqlite,
        kind: Kind::Store,
        durability: Durability::None,
        setting: "journal_mode=OFF, synchronous=OFF, locking_mode=EXCLUSIVE",
        files: Files::Memory,
        make: |place, job| sqlite_file(place, sqlite::Setting::Off, job),
    },
    Spec {
        code: "sqlite-log",
        name: "SQLite file, WAL",
        choice: Choice::Sqlite,
        kind: Kind::Store,
        durability: Durability::Process,
        setting: "journal_mode=WAL, synchronous=OFF, locking_mode=EXCLUSIVE",
        files: Files::Memory,
        make: |place, job| sqlite_file(place, sqlite::Setting::Log, job),
    },
    Spec {
        code: "sqlite-default",
        name: "SQLite file, default",
        choice: Choice::Sqlite,
        kind: Kind::Store,
        durability: Durability::Power,
        setting: "journal_mode=DELETE, synchronous=FULL",
        files: Files::Disk,
        make: |place, job| sqlite_file(place, sqlite::Setting::Default, job),
    },
    Spec {
        code: "lmdb-nosync",
        name: "LMDB, NOSYNC",
        choice: Choice::Lmdb,
        kind: Kind::Store,
        durability: Durability::Process,
        setting: "NOSYNC, NOMETASYNC",
        files: Files::Memory,
        make: |place, job| lmdb_file(place, lmdb::Setting::NoSync, job),
    },
    Spec {
        code: "lmdb-mapasync",
        name: "LMDB, MAPASYNC",
        choice: Choice::Lmdb,
        kind: Kind::Store,
        durability: Durability::Process,
        setting: "WRITEMAP, MAPASYNC",
        files: Files::Memory,
        make: |place, job| lmdb_file(place, lmdb::Setting::MapAsync, job),
    },
    Spec {
        code: "redb-none",
        name: "redb, None",
        choice: Choice::Redb,
        kind: Kind::Store,
        durability: Durability::None,
        setting: "Durability::None, one commit in 1,000 Immediate",
        files: Files::Memory,
        make: |place, job| redb_file(place, redb::Durability::None, job),
    },
    Spec {
        code: "redb-immediate",
        name: "redb, Immediate",
        choice: Choice::Redb,
        kind: Kind::Store,
        durability: Durability::Process,
        setting: "Durability::Immediate",
        files: Files::Memory,
        make: |place, job| redb_file(place, redb::Durability::Immediate, job),
    },
    Spec {
        code: "mariadb-relaxed",
        name: "MariaDB, relaxed",
        choice: Choice::Mariadb,
        kind: Kind::Server,
        durability: Durability::None,
        setting: "innodb_flush_log_at_trx_commit=0",
        files: Files::Server,
        make: |place, job| mariadb_table(place, false, job),
    },
    Spec {
        code: "mariadb-default",
        name: "MariaDB, default",
        choice: Choice::Mariadb,
        kind: Kind::Server,
        durability: Durability::Power,
        setting: "innodb_flush_log_at_trx_commit=1",
        files: Files::Server,
        make: |place, job| mariadb_table(place, true, job),
    },
];

/// A contestant before it is made.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name on command lines.
    pub code: &'static str,
    /// Name in reports.
    pub name: &'static str,
    /// By which it is asked for.
    pub choice: Choice,
    /// What it is.
    pub kind: Kind,
    /// What a commit survives.
    pub durability: Durability,
    /// How it was set up.
    pub setting: &'static str,
    /// Where its files are.
    pub files: Files,
    /// Makes it, empty, with its files in a directory of its own or its server behind a socket.
    pub make: fn(&Path, Job) -> Made,
}

/// A contestant, or why there is none.
pub type Made = Result<Box<dyn Contestant>, Failure>;

impl Spec {
    /// The contestant of this code.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_code(code: &str) -> Result<&'static Self, Failure> {
        let found = ROSTER.iter().find(|spec| spec.code == code);
        found.ok_or_else(|| Failure::new(format!("no contestant is called {code}")))
    }
}

/// Stores to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The engine, whether asked for or not.
    #[value(skip)]
    Ours,
    /// HashMap pair and BTreeMap pair of the standard library.
    Std,
    /// hashbrown pair with its own hasher.
    Hashbrown,
    /// SQLite in memory, in a file without syncs, and as it comes.
    Sqlite,
    /// LMDB that does not sync, written and mapped.
    Lmdb,
    /// redb without durability and with.
    Redb,
    /// MariaDB behind a socket, as it comes and relaxed.
    Mariadb,
}

/// What a contestant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain maps in memory, and what is asked as they are.
    Map,
    /// The engine, asked many rows at a time.
    Batched,
    /// A transactional store in this process.
    Store,
    /// A store that is asked through a socket.
    Server,
}

impl Kind {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Batched => "batched",
            Self::Store => "store",
            Self::Server => "server",
        }
    }
}

/// What a committed row survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Durability {
    /// Nothing, or not every end of its process.
    None,
    /// The end of its process, however sudden.
    Process,
    /// A power cut.
    #[value(skip)]
    Power,
}

impl Durability {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Power => "power",
        }
    }
}

/// Where a contestant's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// It has none.
    None,
    /// In shared memory: nothing is synced, and no disk is measured.
    Memory,
    /// On a disk: syncing is what it does.
    Disk,
    /// Where its server was started.
    Server,
}

/// Where files and sockets are.
#[derive(Debug, Clone, Args)]
pub struct Places {
    /// Directory for files that are not synced.
    #[arg(long, default_value_os_t = shared_memory())]
    pub directory: PathBuf,
    /// Directory for files that are synced with every transaction; on a disk.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub disk: PathBuf,
    /// Socket of a MariaDB server whose tables may be dropped; scripts/bench starts one.
    #[arg(long)]
    pub mariadb_socket: Option<PathBuf>,
}

impl Places {
    /// The parent of a contestant's directory, or its socket; `None` for those that need neither.
    ///
    /// # Errors
    /// Without a socket for a contestant that needs one.
    pub fn of(&self, files: Files) -> Result<Option<&Path>, Failure> {
        match files {
            Files::None => Ok(None),
            Files::Memory => Ok(Some(&self.directory)),
            Files::Disk => Ok(Some(&self.disk)),
            Files::Server => match &self.mariadb_socket {
                Some(socket) => Ok(Some(socket)),
                None => Err(Failure::new(
                    "MariaDB needs a server: start this through scripts/bench persist",
                )),
            },
        }
    }
}

fn shared_memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    match shared.is_dir() {
        true => shared,
        false => std::env::temp_dir(),
    }
}

fn sqlite_file(place: &Path, setting: sqlite::Setting, job: Job) -> Made {
    let store = sqlite::Sqlite::in_file(place, setting, job.indexes)?;
    Ok(Box::new(store))
}

fn lmdb_file(place: &Path, setting: lmdb::Setting, job: Job) -> Made {
    let store = lmdb::Lmdb::new(place, setting, job.rows, job.indexes)?;
    Ok(Box::new(store))
}

fn redb_file(place: &Path, durability: redb::Durability, job: Job) -> Made {
    let store = redb_store::Redb::new(place, durability, job.indexes)?;
    Ok(Box::new(store))
}

#[cfg(feature = "mariadb")]
fn mariadb_table(socket: &Path, every_commit: bool, job: Job) -> Made {
    use super::mariadb::{Flush, Mariadb};
    let flush = match every_commit {
        true => Flush::EveryCommit,
        false => Flush::EverySecond,
    };
    Ok(Box::new(Mariadb::new(socket, flush, job.indexes)?))
}

#[cfg(not(feature = "mariadb"))]
fn mariadb_table(_: &Path, _: bool, _: Job) -> Made {
    Err(Failure::new(
        "this program was built without MariaDB: start it through scripts/bench persist",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique() {
        for (at, spec) in ROSTER.iter().enumerate() {
            let others = &ROSTER[at + 1..];
            assert!(others.iter().all(|other| other.code != spec.code));
            assert!(others.iter().all(|other| other.name != spec.name));
        }
    }
}
