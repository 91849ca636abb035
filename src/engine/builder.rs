//! Settings of an engine, and its opening.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use ancile_topology::{Machine, Plan, Policy, Shards};

use super::Engine;
use super::database::Contents;
use super::directory::{Directory, Opening};
use super::registry::Registry;
use super::thread::{Rising, ShardThread, Start};
use crate::arena::{Access, MapOptions};
use crate::error::OpenError;
use crate::fork::Home;
use crate::limits::{
    ARENA_BYTES_MIN, BLOCK_OPERATIONS, BLOCK_OPERATIONS_MAX, LANE_REQUESTS, LANE_REQUESTS_MAX,
    SHARDS_MAX,
};
use crate::session::{Patience, Peers};
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
            may_create: !self.must_exist,
            patience: self.lock_patience,
        };
        let directory = Directory::open(opening)?;
        self.with_directory(Some(directory))
    }

    fn with_directory(self, directory: Option<Directory>) -> Result<Engine, OpenError> {
        check(
            "block_operations",
            self.block_operations,
            BLOCK_OPERATIONS_MAX,
        )?;
        check("lane_requests", self.lane_requests, LANE_REQUESTS_MAX)?;
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

    fn start(
        self,
        machine: Machine,
        plan: Plan,
        directory: Option<Directory>,
    ) -> Result<Engine, OpenError> {
        let contents = Contents::of(directory.as_ref())?;
        if contents.creates
            && let Some(directory) = &directory
        {
            directory.begin(plan.seats.len())?;
        }
        let opened = Instant::now();
        let peers = Arc::new(Peers {
            clock: Arc::new(move || opened.elapsed().as_micros() as u64),
            home: Home::here(),
            open: AtomicUsize::new(plan.seats.len()),
            mailboxes: plan
                .seats
                .iter()
                .map(|_| Arc::new(Mailbox::new()))
                .collect(),
            block_operations: self.block_operations,
            lane_requests: self.lane_requests,
        });
        let has_spare = plan.seats.len() < machine.allowed_pus.len();
        let patience = if has_spare {
            Patience::ALONE
        } else {
            Patience::CROWDED
        };
        let resident_patience = if plan.oversubscribed {
            Patience::CROWDED
        } else {
            Patience::ALONE
        };
        let mut engine = Engine {
            peers,
            threads: Vec::new(),
            registry: Registry::default(),
            directory,
            machine,
            plan,
            patience,
            turn: AtomicUsize::new(0),
        };
        let failure = self.raise(&mut engine, &contents, patience, resident_patience);
        // On a failure, dropping the engine ends the shards that did start.
        if let Some(error) = failure {
            return Err(error);
        }
        engine.registry = contents.registry;
        engine.resolve()?;
        if contents.creates
            && let Some(directory) = &engine.directory
        {
            directory.complete()?;
        }
        Ok(engine)
    }
}

impl EngineBuilder {
    /// Starts every shard's thread, and waits until each has its memory; the first failure, if any.
    fn raise(
        &self,
        engine: &mut Engine,
        contents: &Contents,
        patience: Patience,
        resident_patience: Patience,
    ) -> Option<OpenError> {
        let mut rising: Vec<Rising> = Vec::new();
        let mut failure = None;
        for seat in &engine.plan.seats {
            let bytes = if seat.arena_bytes == 0 {
                ARENA_BYTES_DEFAULT
            } else {
                seat.arena_bytes
            };
            let start = Start {
                peers: Arc::clone(&engine.peers),
                seat: seat.clone(),
                pin: self.pin,
                map: MapOptions {
                    bytes: bytes.max(ARENA_BYTES_MIN),
                    node: seat.memory_node,
                    huge_pages: self.huge_pages,
                },
                memory: contents.memory(engine.directory.as_ref(), seat.shard),
                patience,
                resident_patience,
            };
            match ShardThread::start(start) {
                Ok(thread) => rising.push(thread),
                Err(error) => {
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
