//! Settings of an engine, and its opening.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use ancile_topology::{Machine, Plan, Policy, Seat, Shards};

use super::Engine;
use super::backup::Control;
use super::database::Contents;
use super::directory::{Directory, Opening};
use super::journaled::{JournalSettings, Recovered, WriterThread};
use super::registry::Registry;
use super::thread::{Rising, ShardThread, Start};
use crate::arena::{Access, MapOptions};
use crate::error::OpenError;
use crate::fork::Home;
use crate::limits::{
    ARENA_BYTES_MIN, BLOCK_OPERATIONS, BLOCK_OPERATIONS_MAX, JOURNAL_SEGMENT_BYTES_MAX,
    JOURNAL_SEGMENT_BYTES_MIN, LANE_REQUESTS, LANE_REQUESTS_MAX, PAGE_BYTES, SHARDS_MAX,
};
use crate::session::{Acknowledge, Patience, Peers};
use crate::shard::Mailbox;

/// What the changes of an engine survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: rows are in the memory of the process.
    None,
    /// The end of the process, however it comes: rows are in mapped files. What was acknowledged is
    /// there, transactions are whole, and opening takes as long as mapping the files, whatever their
    /// size. It is *not* safe against the system going down: a database that was open then is refused
    /// ([`OpenError::NeedsSalvage`]).
    Process,
    /// The end of the system, but for the latest changes: rows are in memory, and what changes them goes
    /// into journals, which are synced this often. What is found after a crash is all that had happened up
    /// to some moment, transactions whole, at most about so long before the crash.
    Epoch(Duration),
    /// The end of the system: as before, and changes are acknowledged only when they are on the disk, many
    /// at once if many wait. A session may choose otherwise
    /// ([`Session::set_acknowledge`](crate::Session::set_acknowledge)).
    Commit,
}

impl Durability {
    fn has_journal(self) -> bool {
        matches!(self, Self::Epoch(_) | Self::Commit)
    }
}

/// Settings for an [`Engine`]; what is not set fits the machine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    policy: Option<Policy>,
    arena_bytes: Option<u64>,
    huge_pages: bool,
    pin: bool,
    block_operations: usize,
    lane_requests: usize,
    is_read_only: bool,
    lock_patience: Duration,
    must_exist: bool,
    durability: Option<Durability>,
    journal: JournalSettings,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            policy: None,
            arena_bytes: None,
            huge_pages: true,
            pin: true,
            block_operations: BLOCK_OPERATIONS,
            lane_requests: LANE_REQUESTS,
            is_read_only: false,
            lock_patience: Duration::ZERO,
            must_exist: false,
            durability: None,
            journal: JournalSettings::default(),
        }
    }
}

impl EngineBuilder {
    /// The most shards that an engine may have.
    pub const SHARDS_MAX: usize = SHARDS_MAX;

    /// This many shards; more than there are processors share them. Default: one a processor that
    /// the process may use, or what `ANCILE_SHARDS` says.
    pub fn shards(self, shards: usize) -> Self {
        self.policy(Policy::count(shards))
    }

    /// One shard on each of these logical processors, by the operating system's numbers.
    pub fn pus(self, pus: &[u32]) -> Self {
        self.policy(Policy {
            shards: Shards::Pus(pus.to_vec()),
            ..Policy::default()
        })
    }

    /// How many shards, where and in which order.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The bound of each shard's memory for rows and indexes, in bytes. Address space is reserved;
    /// memory is used only as tables grow. Default: the node's memory, shared by its shards.
    pub fn arena_bytes(mut self, bytes: u64) -> Self {
        self.arena_bytes = Some(bytes);
        self
    }

    /// Whether to ask for huge pages. Default: yes.
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Whether to pin each shard's thread to its seat's processor. Default: yes.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Operations that travel together to another shard. Default: 128.
    pub fn block_operations(mut self, operations: usize) -> Self {
        self.block_operations = operations;
        self
    }

    /// Requests from one client to one shard that may be under way. Default: 64.
    pub fn lane_requests(mut self, requests: usize) -> Self {
        self.lane_requests = requests;
        self
    }

    /// Opens a database for reading only: nothing is written to its files, not even what an
    /// interrupted process would have had undone; that happens in memory. Changes are refused
    /// ([`Error::DatabaseReadOnly`](crate::Error::DatabaseReadOnly)). Many may read at once, while nobody
    /// has the database open for writing. Default: no.
    pub fn read_only(mut self, is_read_only: bool) -> Self {
        self.is_read_only = is_read_only;
        self
    }

    /// How long to wait for another engine that has the database open. Default: not at all.
    pub fn lock_patience(mut self, patience: Duration) -> Self {
        self.lock_patience = patience;
        self
    }

    /// Whether a database that is not there is an error, instead of being made. Default: no.
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.must_exist = must_exist;
        self
    }

    /// What the changes of a database survive; only [`open`](Self::open) looks at it. Default: for a new
    /// database [`Durability::Process`], for one with journals [`Durability::Commit`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Bytes of each file of a shard's journal, which is written in full before it is used; two of them
    /// are kept ready; a multiple of 4,096. Default: 16 MiB.
    pub fn journal_segment_bytes(mut self, bytes: u64) -> Self {
        self.journal.sizes.segment_bytes = bytes;
        self
    }

    /// Bytes of a shard's journal after which its changed pages are written to its image, so that opening
    /// after a crash has no more than these to read again. Default: 256 MiB.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.journal.rules.checkpoint_bytes = bytes;
        self
    }

    /// Bytes of each shard's past that are kept to go back to, beside what a crash may need. Default:
    /// 1 GiB.
    pub fn retention_bytes(mut self, bytes: u64) -> Self {
        self.journal.rules.retention.bytes_max = bytes;
        self
    }

    /// Opens the engine: discovers the machine, places the shards, and starts them. Its rows live in
    /// memory. The calling thread's affinity and memory policy stay as they are.
    pub fn build(self) -> Result<Engine, OpenError> {
        self.with_directory(None)
    }

    /// Opens the engine, as [`build`](Self::build), on the database in a directory, which is made if
    /// there is none: [`Durability::Process`].
    ///
    /// A database has as many shards as it was made with, and is opened with that number; on a machine
    /// with fewer processors they share them, and they may be placed otherwise each time. To change the
    /// number, dump the database and load it anew. A directory in /dev/shm or on hugetlbfs is as fast
    /// as memory; on a disk, see [`Engine::warnings`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Engine, OpenError> {
        let opening = Opening {
            path: path.as_ref().to_owned(),
            access: if self.is_read_only {
                Access::Copy
            } else {
                Access::Shared
            },
            is_salvage: false,
            has_journal: self.durability.is_some_and(Durability::has_journal),
            may_create: !self.must_exist,
            patience: self.lock_patience,
        };
        let directory = Directory::open(opening)?;
        self.check_durability(&directory, path.as_ref())?;
        self.with_directory(Some(directory))
    }

    /// Whether the database's files have the durability that is asked for.
    fn check_durability(&self, directory: &Directory, path: &Path) -> Result<(), OpenError> {
        const MAPPED: &str = "mapped files (Durability::Process)";
        const JOURNALS: &str = "journals (Durability::Epoch or Commit)";
        let other = |stored, asked| OpenError::OtherDurability {
            path: path.to_owned(),
            stored,
            asked,
            opens_with: stored,
        };
        match self.durability {
            Some(asked) if asked.has_journal() && !directory.has_journal() => {
                Err(other(MAPPED, JOURNALS))
            }
            Some(Durability::Process) if directory.has_journal() => Err(other(JOURNALS, MAPPED)),
            Some(Durability::None) => Err(OpenError::Setting {
                name: "durability",
                value: 0,
                bounds: "more than none for a database in a directory: use build".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn with_directory(self, directory: Option<Directory>) -> Result<Engine, OpenError> {
        check(
            "block_operations",
            self.block_operations,
            BLOCK_OPERATIONS_MAX,
        )?;
        check("lane_requests", self.lane_requests, LANE_REQUESTS_MAX)?;
        self.check_journal()?;
        if let Some(value) = self.arena_bytes.filter(|&bytes| bytes < ARENA_BYTES_MIN) {
            let bounds = format!("at least {ARENA_BYTES_MIN} bytes");
            return Err(OpenError::Setting {
                name: "arena_bytes",
                value,
                bounds,
            });
        }
        let machine = Machine::discover();
        let stored = directory.as_ref().and_then(Directory::shards);
        let policy = match (self.policy.clone(), stored) {
            (Some(policy), _) => policy,
            (None, Some(stored)) => Policy::count(stored),
            (None, None) => {
                Policy::from_env().map_err(|error| OpenError::Placement(error.to_string()))?
            }
        };
        match &policy.shards {
            Shards::Count(count) => check("shards", *count, SHARDS_MAX)?,
            Shards::Pus(pus) => check("pus", pus.len(), SHARDS_MAX)?,
            Shards::All | Shards::PhysicalCores => {}
        }
        let policy = Policy {
            arena_bytes: self.arena_bytes.or(policy.arena_bytes),
            ..policy
        };
        let place = |policy: &Policy| {
            Plan::new(&machine, policy).map_err(|error| OpenError::Placement(error.to_string()))
        };
        let mut plan = place(&policy)?;
        if plan.seats.len() > SHARDS_MAX {
            // A machine with more processors than that, and nobody said how many to use.
            let shards = Shards::Count(SHARDS_MAX);
            plan = place(&Policy { shards, ..policy })?;
        }
        let asked = plan.seats.len();
        if let Some(stored) = stored.filter(|&stored| stored != asked) {
            return Err(OpenError::ShardCount { stored, asked });
        }
        self.start(machine, plan, directory)
    }

    fn check_journal(&self) -> Result<(), OpenError> {
        let value = self.journal.sizes.segment_bytes;
        if is_segment_length(value) {
            return Ok(());
        }
        Err(OpenError::Setting {
            name: "journal_segment_bytes",
            value,
            bounds: format!(
                "a multiple of 4096 from {JOURNAL_SEGMENT_BYTES_MIN} to {JOURNAL_SEGMENT_BYTES_MAX} bytes"
            ),
        })
    }

    fn start(
        mut self,
        machine: Machine,
        plan: Plan,
        directory: Option<Directory>,
    ) -> Result<Engine, OpenError> {
        let creates = directory
            .as_ref()
            .is_some_and(|directory| directory.shards().is_none());
        if creates && let Some(directory) = &directory {
            directory.begin(plan.seats.len())?;
        }
        if let Some(Durability::Epoch(interval)) = self.durability {
            self.journal.rules.interval = interval;
        }
        let maps: Vec<MapOptions> = plan.seats.iter().map(|seat| self.map(seat)).collect();
        let recovered = match &directory {
            Some(directory) if !directory.has_journal() => (None, None),
            Some(directory) if self.is_read_only => {
                (Some(Recovered::look(directory, &maps)?), None)
            }
            Some(directory) => {
                let opened = Recovered::open(directory, &maps, creates, &self.journal)?;
                (Some(opened.0), Some(opened.1))
            }
            None => (None, None),
        };
        let (recovered, journals) = recovered;
        let recovered = recovered.map(Arc::new);
        let contents = Contents::of(directory.as_ref(), creates, recovered.clone())?;
        let peers = self.peers(plan.seats.len(), recovered.as_deref());
        let (patience, resident_patience) = patience(&machine, &plan);
        let mut engine = Engine {
            peers,
            threads: Vec::new(),
            writer: None,
            queue: recovered
                .as_ref()
                .and_then(|recovered| recovered.queue.clone()),
            interval: self.journal.rules.interval,
            registry: Registry::default(),
            directory,
            control: None,
            machine,
            plan,
            patience,
            turn: AtomicUsize::new(0),
        };
        let queue = recovered.and_then(|recovered| recovered.queue.clone());
        if let (Some(queue), Some(journals)) = (queue, journals) {
            let peers = &engine.peers;
            engine.writer = Some(WriterThread::start(
                journals,
                &peers.mailboxes,
                queue,
                self.journal.rules,
                Arc::clone(&peers.clock),
            )?);
        }
        let failure = self.raise(&mut engine, &contents, &maps, patience, resident_patience);
        // On a failure, dropping the engine ends the shards that did start.
        if let Some(error) = failure {
            return Err(error);
        }
        engine.registry = contents.registry;
        engine.finish_interrupted()?;
        if contents.creates
            && let Some(directory) = &engine.directory
        {
            directory.complete()?;
        }
        engine.control = engine.backup_source().ok().map(Control::start);
        Ok(engine)
    }
}

/// Whether the files of a journal may be so long.
pub(super) fn is_segment_length(bytes: u64) -> bool {
    (JOURNAL_SEGMENT_BYTES_MIN..=JOURNAL_SEGMENT_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(PAGE_BYTES as u64)
}

/// How patient shards are that serve, and those whose resident work waits.
fn patience(machine: &Machine, plan: &Plan) -> (Patience, Patience) {
    let has_spare = plan.seats.len() < machine.allowed_pus.len();
    let of = |is_alone: bool| match is_alone {
        true => Patience::ALONE,
        false => Patience::CROWDED,
    };
    (of(has_spare), of(!plan.oversubscribed))
}

impl EngineBuilder {
    /// The shards, as their clients will see them.
    fn peers(&self, shards: usize, recovered: Option<&Recovered>) -> Arc<Peers> {
        let opened = Instant::now();
        Arc::new(Peers {
            clock: Arc::new(move || opened.elapsed().as_micros() as u64),
            home: Home::here(),
            open: AtomicUsize::new(shards),
            mailboxes: (0..shards).map(|_| Arc::new(Mailbox::new())).collect(),
            block_operations: self.block_operations,
            lane_requests: self.lane_requests,
            epochs: recovered
                .and_then(|recovered| recovered.queue.as_ref())
                .map(|queue| Arc::clone(queue.clock())),
            acknowledge: match self.durability {
                Some(Durability::Epoch(_)) => Acknowledge::Executed,
                _ => Acknowledge::Durable,
            },
        })
    }

    /// What a shard reserves at its seat.
    fn map(&self, seat: &Seat) -> MapOptions {
        let bytes = if seat.arena_bytes == 0 {
            ARENA_BYTES_DEFAULT
        } else {
            seat.arena_bytes
        };
        MapOptions {
            bytes: bytes.max(ARENA_BYTES_MIN),
            node: seat.memory_node,
            huge_pages: self.huge_pages,
        }
    }

    /// Starts every shard's thread, and waits until each has its memory; the first failure, if any.
    fn raise(
        &self,
        engine: &mut Engine,
        contents: &Contents,
        maps: &[MapOptions],
        patience: Patience,
        resident_patience: Patience,
    ) -> Option<OpenError> {
        let mut rising: Vec<Rising> = Vec::new();
        let mut failure = None;
        for seat in &engine.plan.seats {
            let start = Start {
                peers: Arc::clone(&engine.peers),
                seat: seat.clone(),
                pin: self.pin,
                map: maps[seat.shard].clone(),
                memory: contents.memory(engine.directory.as_ref(), seat.shard),
                patience,
                resident_patience,
            };
            let memory = start.memory.clone();
            match ShardThread::start(start) {
                Ok(thread) => rising.push(thread),
                Err(error) => {
                    memory.give_up(seat.shard, &error);
                    failure = failure.or(Some(error));
                    engine.peers.retire();
                }
            }
        }
        for thread in rising {
            match thread.ready() {
                Ok(thread) => engine.threads.push(thread),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure
    }
}

/// The bound of an arena where the machine does not tell its memory.
const ARENA_BYTES_DEFAULT: u64 = 1 << 30;

fn check(name: &'static str, value: usize, max: usize) -> Result<(), OpenError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(OpenError::Setting {
        name,
        value: value as u64,
        bounds: format!("1 to {max}"),
    })
}
