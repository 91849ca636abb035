//! Who takes part, and on which terms.
//!
//! | | `none` | `process` | `epoch` | `commit` |
//! |---|---|---|---|---|
//! | survives a crash of the process | nothing | every commit | every commit, or those up to the last epoch | every commit |
//! | survives a crash of the system | nothing | nothing | what was there at the last epoch | every commit |
//!
//! A store that has no setting of a kind runs with the nearest one it has: that is what
//! [`Contestant::durability`] names, and [`Contestant::setting`] says how it is done. Whoever
//! promises nothing has its files in shared memory where there is any, so that no disk is measured.
//!
//! # Where the engine comes in
//! [`open`] makes contestants from their names. The engine gets a name in [`Choice`] and two ways of
//! being run there: client threads, by an implementation of [`Globals`] given to [`Peer`] like any
//! other store; and resident streams, by a [`Contestant`] of its own with a walk that waits for
//! nothing, in the manner of [`walk`](crate::threeen1::walk).

mod engine;
mod gtm;
mod lmdb;
mod memory;
mod redb_store;
#[cfg(feature = "rocksdb")]
mod rocks;
mod sqlite;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;

pub use self::engine::Streams;
pub use self::memory::Memory;

use crate::failure::Failure;
use crate::threeen1::globals::Globals;
use crate::threeen1::input::Line;
use crate::threeen1::threads::{self, Terms};
use crate::threeen1::walk::Unit;
use crate::threeen1::words::Spelling;

/// What survives which crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing survives anything.
    None,
    /// Commits survive a crash of the process.
    Process,
    /// Commits up to the last epoch survive a crash of the system.
    Epoch,
    /// Commits survive a crash of the system.
    Commit,
}

impl Durability {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Epoch => "epoch",
            Self::Commit => "commit",
        }
    }
}

/// A contestant's name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The engine.
    Ancile,
    /// `std` BTreeMap in a mutex.
    Memory,
    /// LMDB through heed.
    Lmdb,
    /// redb.
    Redb,
    /// SQLite.
    Sqlite,
    /// RocksDB; scripts/bench builds with it when it is named.
    Rocksdb,
    /// GT.M of the system; scripts/bench installs it when it is named.
    Gtm,
}

impl Choice {
    /// Those that need nothing but this program.
    pub const BUILT_IN: [Self; 5] = [
        Self::Ancile,
        Self::Memory,
        Self::Lmdb,
        Self::Redb,
        Self::Sqlite,
    ];
}

/// How contestants are to be set up.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What is to survive.
    pub durability: Durability,
    /// How numbers are stored.
    pub spelling: Spelling,
    /// What is one transaction.
    pub unit: Unit,
    /// How long an epoch of a store lasts.
    pub epoch: Duration,
    /// How long an epoch of GT.M lasts, which does more at its end than to sync.
    pub gtm_epoch: Duration,
    /// Where directories are made.
    pub folder: PathBuf,
    /// How the engine's streams run.
    pub streams: Streams,
    /// Shards of the engine; one a processor if not given.
    pub shards: Option<usize>,
    /// The engine's database, which may hold what a run that was cut off has left.
    pub database: Option<PathBuf>,
}

impl Wanted {
    /// Where directories of a contestant with this durability are made.
    fn folder(&self, durability: Durability) -> &Path {
        let shared = Path::new("/dev/shm");
        match durability {
            Durability::None if shared.is_dir() => shared,
            _ => &self.folder,
        }
    }

    /// A new directory there, removed when it is dropped.
    fn directory(&self, durability: Durability) -> Result<TempDir, Failure> {
        let folder = self.folder(durability);
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("ancile-threeen1.").tempdir_in(folder);
        directory
            .map_err(|error| Failure::new(format!("no directory in {}: {error}", folder.display())))
    }
}

/// What one run of a line did.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// Steps of the longest sequence.
    pub longest: u64,
    /// Highest integer met.
    pub highest: u64,
    /// Look-ups of all streams.
    pub reads: u64,
    /// Steps set by all streams.
    pub updates: u64,
    /// Steps that are in the database at the end.
    pub nodes: u64,
    /// From all streams ready to the last one done.
    pub seconds: f64,
    /// Bytes of all keys and values that were set; `None` where nobody counted.
    pub raw_bytes: Option<u64>,
    /// Bytes of the database's files at the end, without journals kept apart; `None` in memory.
    pub stored_bytes: Option<u64>,
}

/// Somebody who can run a line.
pub trait Contestant {
    /// Its name.
    fn name(&self) -> &str;

    /// What survives.
    fn durability(&self) -> Durability;

    /// How that is done, in a few words.
    fn setting(&self) -> &str;

    /// `threads`, `processes` or whatever streams are.
    fn streams(&self) -> &'static str;

    /// Runs a line on an empty database, and empties it again.
    ///
    /// # Errors
    /// Those of the store.
    fn run(&mut self, line: &Line) -> Result<Ran, Failure>;
}

/// A store in this process, walked by threads.
pub struct Peer<G> {
    name: &'static str,
    durability: Durability,
    setting: String,
    terms: Terms,
    globals: G,
}

impl<G: Globals> Contestant for Peer<G> {
    fn name(&self) -> &str {
        self.name
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn setting(&self) -> &str {
        &self.setting
    }

    fn streams(&self) -> &'static str {
        "threads"
    }

    fn run(&mut self, line: &Line) -> Result<Ran, Failure> {
        let ran = threads::run(&self.globals, line, &self.terms)?;
        self.globals.clear()?;
        Ok(ran)
    }
}

/// Makes a contestant.
///
/// # Errors
/// What keeps it from being made.
pub fn open(choice: Choice, wanted: &Wanted) -> Result<Box<dyn Contestant>, Failure> {
    match choice {
        Choice::Ancile => Ok(Box::new(engine::Ours::new(wanted)?)),
        Choice::Memory => {
            let setting = "in memory, in one mutex".to_owned();
            peer(
                "BTreeMap",
                Memory::default(),
                Durability::None,
                setting,
                wanted,
            )
        }
        Choice::Lmdb => {
            let durability = wanted.durability;
            let (globals, setting) = lmdb::Lmdb::new(durability, wanted)?;
            peer("LMDB", globals, durability, setting, wanted)
        }
        Choice::Redb => {
            let durability = wanted.durability;
            let (globals, setting) = redb_store::Redb::new(durability, wanted)?;
            peer("redb", globals, durability, setting, wanted)
        }
        Choice::Sqlite => {
            let durability = wanted.durability;
            let (globals, setting) = sqlite::Sqlite::new(durability, wanted)?;
            peer("SQLite", globals, durability, setting, wanted)
        }
        #[cfg(feature = "rocksdb")]
        Choice::Rocksdb => {
            let durability = wanted.durability;
            let (globals, setting) = rocks::Rocks::new(durability, wanted)?;
            peer("RocksDB", globals, durability, setting, wanted)
        }
        #[cfg(not(feature = "rocksdb"))]
        Choice::Rocksdb => Err(Failure::new(
            "this program was built without RocksDB; scripts/bench builds with it when it is \
             named, and so does cargo with --features rocksdb",
        )),
        Choice::Gtm => Ok(Box::new(gtm::Gtm::new(wanted)?)),
    }
}

fn peer<G: Globals + 'static>(
    name: &'static str,
    globals: G,
    durability: Durability,
    setting: String,
    wanted: &Wanted,
) -> Result<Box<dyn Contestant>, Failure> {
    let terms = Terms {
        spelling: wanted.spelling,
        unit: wanted.unit,
        epoch: (durability == Durability::Epoch).then_some(wanted.epoch),
    };
    Ok(Box::new(Peer {
        name,
        durability,
        setting,
        terms,
        globals,
    }))
}

/// Bytes on disk of a directory's files: holes do not count.
fn bytes_in(directory: &Path) -> Option<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(directory).ok()? {
        bytes += entry.ok()?.metadata().ok()?.blocks() * BLOCK_BYTES;
    }
    Some(bytes)
}
