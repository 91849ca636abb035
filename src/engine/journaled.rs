//! Opening a database with journals, and the thread that writes them.
//!
//! # Steps
//! The journals are recovered: all shards come to the end of the same epoch. Each shard's memory is
//! loaded, several at a time; shard 0's has the list of tables. Only when the files say that what came
//! after that epoch is void does anything go on: the shards get their memory, and the writer the files.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Engine;
use super::directory::Directory;
use crate::arena::{ExtentKind, JournaledArena, LoadError, MapOptions, RedoStart};
use crate::error::OpenError;
use crate::id::ShardIndex;
use crate::journal::{
    Disk, DiskSide, EpochClock, FileDisk, Recovery, RecoveryError, Rescue, Retention, Sizes,
    Staging, ToShard, WriterQueue, create,
};
use crate::limits::PAGE_BYTES;
use crate::session::with_waker;
use crate::shard::{Clock, Command, Mailbox, panic_message};
use crate::writer::{Rules, Writer};

/// What a database with journals is opened with.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalSettings {
    pub(super) sizes: Sizes,
    pub(super) rules: Rules,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            sizes: Sizes::default(),
            rules: Rules {
                interval: Duration::from_millis(100),
                checkpoint_bytes: 256 << 20,
                retention: Retention {
                    bytes_max: 1 << 30,
                    epoch_min: 0,
                },
                syncs_at_once: true,
            },
        }
    }
}

/// A shard's memory, and what its changes go through, unless it is a private copy.
type Recollected = (JournaledArena, Option<Staging>);

/// A database that was recovered, before its shards have it.
pub(super) struct Recovered {
    arenas: Vec<Mutex<Option<Recollected>>>,
    /// The way to the writer, unless the files are only read.
    pub(super) queue: Option<Arc<WriterQueue>>,
    sizes: Sizes,
}

impl Recovered {
    /// Recovers the shards of a directory, each into memory of its own kind; with the disk's side of
    /// their journals.
    pub(super) fn open(
        directory: &Directory,
        maps: &[MapOptions],
        creates: bool,
        settings: &JournalSettings,
    ) -> Result<(Self, Vec<DiskSide>), OpenError> {
        let disks = disks(directory, maps.len(), creates)?;
        let failed = |error: RecoveryError| OpenError::Recovery(error.to_string());
        let asked = maps.iter().map(|map| map.bytes).max().unwrap_or(0);
        let bytes = directory.arena_bytes(asked)?;
        if creates {
            create(&disks, bytes, settings.sizes, random()).map_err(failed)?;
        }
        let mut recovery = Recovery::open(disks).map_err(failed)?;
        let arenas = load(&mut recovery, maps, bytes)?;
        read_tables(directory, &arenas)?;
        let journals = recovery.finish(settings.sizes, random()).map_err(failed)?;
        let epoch = journals.first().map_or(1, |journal| journal.epoch_first);
        let clock = Arc::new(EpochClock::new(maps.len(), epoch));
        let unloaded: Vec<u64> = arenas.iter().map(JournaledArena::unloaded_pages).collect();
        let (stagings, mut journals): (Vec<_>, Vec<DiskSide>) =
            journals.into_iter().map(|journal| journal.split()).unzip();
        for (side, unloaded) in journals.iter_mut().zip(unloaded) {
            side.unloaded_pages = unloaded;
        }
        let recovered = Self {
            arenas: arenas
                .into_iter()
                .zip(stagings)
                .map(|(arena, staging)| Mutex::new(Some((arena, Some(staging)))))
                .collect(),
            queue: Some(Arc::new(WriterQueue::new(clock))),
            sizes: settings.sizes,
        };
        Ok((recovered, journals))
    }

    /// As [`open`](Self::open), of files that are only read: each shard gets a private copy.
    pub(super) fn look(directory: &Directory, maps: &[MapOptions]) -> Result<Self, OpenError> {
        let disks = disks(directory, maps.len(), false)?;
        let recovery = Recovery::look(disks);
        let mut recovery = recovery.map_err(|error| OpenError::Recovery(error.to_string()))?;
        let arenas = load(&mut recovery, maps, 0)?;
        read_tables(directory, &arenas)?;
        Ok(Self {
            arenas: arenas
                .into_iter()
                .map(|arena| Mutex::new(Some((arena, None))))
                .collect(),
            queue: None,
            sizes: Sizes::default(),
        })
    }

    /// As [`look`](Self::look), of files that may be damaged: what can be had of each shard, and what is
    /// wrong with its files.
    pub(super) fn rescue(directory: &Directory, shards: usize) -> (Self, Vec<Vec<String>>) {
        let disks =
            (0..shards).map(|shard| disk(directory, shard).map_err(|error| error.to_string()));
        let mut rescue = Rescue::open(disks.collect());
        let map = MapOptions {
            bytes: 0,
            node: None,
            huge_pages: false,
        };
        let loaded: Vec<_> = rescue
            .loaders()
            .map(|loader| loader.map(|mut loader| JournaledArena::load(&map, &mut loader)))
            .collect();
        let mut faults: Vec<_> = (0..shards).map(|shard| rescue.faults(shard)).collect();
        let mut arenas = Vec::with_capacity(shards);
        for (loaded, faults) in loaded.into_iter().zip(&mut faults) {
            let arena = loaded.transpose().unwrap_or_else(|error| {
                faults.push(error.to_string());
                None
            });
            arenas.push(arena);
        }
        // What the manifest says is what the list was lately.
        let read = match arenas.first() {
            Some(Some(arena)) => take_tables(directory, arena),
            _ => Err("it lies in what is lost".to_owned()),
        };
        if let (Err(why), Some(faults)) = (read, faults.first_mut()) {
            faults.push(format!(
                "the list of tables cannot be read ({why}): that of the MANIFEST is taken"
            ));
        }
        let arenas = arenas
            .into_iter()
            .map(|arena| Mutex::new(arena.map(|arena| (arena, None))));
        let recovered = Self {
            arenas: arenas.collect(),
            queue: None,
            sizes: Sizes::default(),
        };
        (recovered, faults)
    }

    /// The memory of a shard, and what its changes go through, unless it is a private copy; it is taken
    /// once.
    pub(super) fn take(&self, shard: usize) -> Option<(JournaledArena, Option<RedoStart>)> {
        let mut place = self.arenas[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (arena, staging) = place.take()?;
        let start = staging.zip(self.queue.as_ref());
        let start = start.map(|(staging, queue)| RedoStart {
            shard,
            staging,
            sizes: self.sizes,
            clock: Arc::clone(queue.clock()),
            changed: Vec::new(),
        });
        Some((arena, start))
    }
}

/// Takes the tables of the database from the memory of shard 0.
pub(super) fn read_tables(
    directory: &Directory,
    arenas: &[JournaledArena],
) -> Result<(), OpenError> {
    let read = arenas
        .first()
        .map_or(Ok(()), |arena| take_tables(directory, arena));
    read.map_err(|reason| OpenError::Damaged {
        path: directory.journal_path(0),
        reason,
    })
}

fn take_tables(directory: &Directory, arena: &JournaledArena) -> Result<(), String> {
    match arena.text(ExtentKind::Tables)? {
        Some(text) => directory.read_tables(&text),
        None => {
            directory.forget_tables();
            Ok(())
        }
    }
}

pub(super) fn disks(
    directory: &Directory,
    shards: usize,
    creates: bool,
) -> Result<Vec<Arc<dyn Disk>>, OpenError> {
    let made = |shard| {
        let path: PathBuf = directory.journal_path(shard);
        if creates {
            fs::create_dir_all(&path).map_err(|source| OpenError::Directory {
                path: path.clone(),
                doing: "made",
                source,
            })?;
        }
        disk(directory, shard)
    };
    (0..shards).map(made).collect()
}

fn disk(directory: &Directory, shard: ShardIndex) -> Result<Arc<dyn Disk>, OpenError> {
    let disk = FileDisk::new(directory.journal_path(shard));
    let disk = disk.map_err(|error| OpenError::Recovery(error.to_string()))?;
    Ok(Arc::new(disk))
}

/// Loads the memory of all shards, at the same time.
pub(super) fn load(
    recovery: &mut Recovery,
    maps: &[MapOptions],
    bytes: u64,
) -> Result<Vec<JournaledArena>, OpenError> {
    thread::scope(|scope| {
        let loads: Vec<_> = recovery
            .loaders()
            .zip(maps)
            .map(|(mut loader, map)| {
                let map = MapOptions {
                    bytes: map.bytes.max(bytes),
                    ..map.clone()
                };
                scope.spawn(move || JournaledArena::load(&map, &mut loader))
            })
            .collect();
        let arena = |(shard, load): (usize, thread::ScopedJoinHandle<'_, _>)| {
            let loaded: Result<JournaledArena, LoadError> = load
                .join()
                .map_err(|payload| OpenError::Recovery(panic_message(payload)))?;
            loaded.map_err(|error| match error {
                LoadError::Map(error) => OpenError::Memory {
                    shard,
                    reason: error.to_string(),
                },
                LoadError::Recovery(error) => OpenError::Recovery(error.to_string()),
            })
        };
        loads.into_iter().enumerate().map(arena).collect()
    })
}

/// A number that no other life of the database has.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}

/// The thread of the writer, from outside.
pub(super) struct WriterThread {
    handle: JoinHandle<()>,
}

impl WriterThread {
    pub(super) fn start(
        journals: Vec<DiskSide>,
        mailboxes: &[Arc<Mailbox>],
        queue: Arc<WriterQueue>,
        rules: Rules,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let wall = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_micros() as u64)
        };
        let wall = Box::new(wall);
        let writer = Writer::new(journals, mailboxes, Arc::clone(&queue), rules, wall);
        let mailboxes = mailboxes.to_vec();
        let body = move || {
            let epochs = Arc::clone(queue.clock());
            with_waker(|waker| epochs.bell.set_waker(waker.clone()));
            let run = AssertUnwindSafe(|| run(writer, &epochs, &clock));
            if let Err(payload) = catch_unwind(run) {
                let reason = format!("the writer failed: {}", panic_message(payload));
                epochs.fail(reason.clone());
                for mailbox in &mailboxes {
                    let closed = ToShard::Closed(Err(reason.clone()));
                    mailbox.send(Command::Journal(closed));
                }
            }
        };
        let handle = thread::Builder::new()
            .name("ancile-writer".to_owned())
            .spawn(body)
            .map_err(|source| OpenError::Thread { shard: 0, source })?;
        Ok(Self { handle })
    }

    pub(super) fn join(self) {
        // Its panic was caught, and told.
        let _ = self.handle.join();
    }
}

/// How often to let others go first while an answer is on its way, before going to sleep.
const YIELDS: u32 = 200;

fn run(mut writer: Writer, epochs: &EpochClock, clock: &Clock) {
    let mut idle = 0;
    loop {
        let now = clock();
        if writer.step(now) {
            idle = 0;
            continue;
        }
        // What it has asked shards for comes soon.
        if writer.is_waiting() && idle < YIELDS {
            idle += 1;
            thread::yield_now();
            continue;
        }
        if writer.is_over() {
            return;
        }
        let patience = writer.patience(now);
        epochs.bell.park(
            || writer.is_ready(),
            || match patience {
                None => thread::park(),
                Some(micros) => thread::park_timeout(Duration::from_micros(micros)),
            },
        );
    }
}

impl Engine {
    /// Bytes of a database with journals that are in memory of its shards' own, of those that were in its
    /// files when it was opened. The rest is read from the files as it is needed, and loaded in the
    /// background, where it is compared with its checksums.
    pub fn loaded_bytes(&self) -> (u64, u64) {
        let (loaded, all) = self.queue.as_ref().map_or((0, 0), |queue| queue.pages());
        (loaded * PAGE_BYTES as u64, all * PAGE_BYTES as u64)
    }

    /// The newest epoch with changes that is on the disk, of a database with journals: what
    /// [`Journals::roll_back`](crate::Journals::roll_back) goes back to, now or years later. Epochs in
    /// which nothing is changed do not count.
    pub fn durable_epoch(&self) -> Option<u64> {
        self.peers.epochs.as_deref().map(EpochClock::lasting)
    }
}
