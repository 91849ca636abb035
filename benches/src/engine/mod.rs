//! The engine behind the same door as its limit and its peers.
//!
//! `local`: one resident task a shard works on the shard's own rows, in batches or by single calls.
//! `routed`: the same tasks reach rows of all shards through the mesh. `session`: client threads
//! reach them through sessions; they compete with the shards for the cores.
//!
//! Every slice is a task that is shipped to its shard and gives back its walk; the tasks start
//! together. The main thread sleeps meanwhile, so that no more threads run than there are cores.

mod door;
mod part;

use std::sync::Arc;

use ancile::topology::ShardVerification;
use ancile::{DirectId, Engine, Resident, RowId, Schema, Session, SurrogateId, Table, Verbs};

use crate::failure::Failure;
use crate::setup::{Route, Setup};
use crate::subject::{Budget, Share, Slice, Subject, drive};
use crate::team::{self, Gate};
use crate::workload::{Access, Identity, Operation, Part, Stream};
use door::Kind;
use part::{EnginePart, Working};

const TABLE: &str = "rows";

/// The engine's own bound of operations that travel together.
const BLOCK_OPERATIONS_MAX: usize = 1_024;

/// What is known of the engine's threads and memory.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Shard by shard, what was asked for and what was read back.
    pub arenas: Vec<ShardVerification>,
    /// Every shard's thread was pinned, and read back.
    pub pinned: bool,
    /// All pages of all arenas were read back on the nodes of their shards.
    pub node_bound: bool,
    /// Nine tenths of the arenas' memory in use are on huge pages.
    pub huge_pages: bool,
}

/// The engine, opened with one full table.
pub struct Opened {
    /// To be measured.
    pub subject: Box<dyn Subject>,
    /// Read back after loading.
    pub placement: Placement,
}

/// Opens an engine for one table and loads it.
///
/// # Errors
/// What the engine reports, or wrong answers.
pub fn open<const N: usize>(setup: &Setup) -> Result<Opened, Failure> {
    match setup.access {
        Access::Direct => {
            let streams = (0..setup.shards)
                .map(|part| Stream::direct(setup.part_rows(), part as u64))
                .collect();
            load(EngineSubject::<DirectId, N>::new(setup, streams)?)
        }
        Access::Surrogate => {
            let streams = setup
                .keys(|key| home(key, setup.shards))
                .into_iter()
                .enumerate()
                .map(|(part, keys)| Stream::keyed(setup.part_rows(), keys, part as u64))
                .collect();
            load(EngineSubject::<SurrogateId, N>::new(setup, streams)?)
        }
    }
}

fn load<I: Kind<N>, const N: usize>(mut subject: EngineSubject<I, N>) -> Result<Opened, Failure> {
    subject.prepare(Operation::Select)?;
    let placement = subject.placement()?;
    Ok(Opened {
        subject: Box::new(subject),
        placement,
    })
}

/// The shard of a key.
pub fn home(key: u64, shards: usize) -> usize {
    SurrogateId(key).shard_of(shards)
}

impl Identity for DirectId {
    fn key(self) -> u64 {
        0
    }
}

impl Identity for SurrogateId {
    fn key(self) -> u64 {
        self.0
    }
}

/// An engine with one table, and each thread's walk over its rows.
struct EngineSubject<I, const N: usize> {
    setup: Setup,
    parts: Vec<EnginePart<I, N>>,
    sessions: Vec<Session>,
    counter: Session,
    table: Table<[u64; N]>,
    // Dropped last: sessions may outlive it, but their calls would fail.
    engine: Engine,
}

impl<I: Kind<N>, const N: usize> EngineSubject<I, N> {
    fn new(setup: &Setup, streams: Vec<Stream<I>>) -> Result<Self, Failure> {
        let arena_bytes = setup.bytes(N) / setup.shards as u64 * 5 / 4 + (256 << 20);
        let engine = Engine::builder()
            .shards(setup.shards)
            .arena_bytes(arena_bytes.next_multiple_of(2 << 20))
            .block_operations(setup.batch.min(BLOCK_OPERATIONS_MAX))
            .build()?;
        let table = create::<N>(&engine, setup)?;
        let parts = streams
            .into_iter()
            .map(|stream| EnginePart::new(stream, setup, &table))
            .collect();
        let sessions = match setup.route {
            Route::Session => setup.shards,
            _ => 0,
        };
        Ok(Self {
            setup: *setup,
            parts,
            sessions: (0..sessions)
                .map(|_| engine.session())
                .collect::<Result<_, _>>()?,
            counter: engine.session()?,
            table,
            engine,
        })
    }

    /// Runs `work` for each part in its shard, and takes the parts back.
    fn in_shards<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Resident<'_>, &mut EnginePart<I, N>, &Gate) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, Failure> {
        let gate = Arc::new(Gate::new(self.parts.len()));
        let work = Arc::new(work);
        let mut tasks = Vec::new();
        for (shard, mut part) in self.parts.drain(..).enumerate() {
            let (gate, work) = (Arc::clone(&gate), Arc::clone(&work));
            tasks.push(self.engine.spawn(shard, move |resident| {
                let result = work(resident, &mut part, &gate);
                (part, result)
            })?);
        }
        let mut results = Vec::new();
        for task in tasks {
            let (part, result) = task.join()?;
            self.parts.push(part);
            results.push(result);
        }
        Ok(results)
    }

    /// An empty table with memory present.
    fn recreate(&mut self) -> Result<(), Failure> {
        self.engine.drop_table(TABLE)?;
        self.table = create::<N>(&self.engine, &self.setup)?;
        // Rows expected are spread by chance; a slab more than the mean is enough.
        let row_bytes = (N * 8 + 16) as u64;
        self.engine
            .prefault(self.setup.part_rows() as u64 * row_bytes * 33 / 32 + (4 << 20))?;
        for part in &mut self.parts {
            part.reset(&self.table);
        }
        Ok(())
    }

    /// Deals the rows of all shards out to all threads, for routes that cross shards.
    ///
    /// Rows known by key were dealt with their keys.
    fn deal(&mut self) {
        if I::KEYED || self.setup.route == Route::Local || self.parts.iter().all(|part| part.dealt)
        {
            return;
        }
        let mut by_shard = vec![Vec::new(); self.setup.shards];
        for part in &mut self.parts {
            for id in part.stream().ids() {
                by_shard[id.shard_of(self.setup.shards)].push(*id);
            }
        }
        let dealt = self.setup.deal(by_shard);
        part::deal(&mut self.parts, dealt);
    }

    fn placement(&self) -> Result<Placement, Failure> {
        let report = self.engine.report()?;
        let used = self.engine.used_bytes()?;
        let shards = report
            .verification
            .map(|read| read.shards)
            .unwrap_or_default();
        let huge = shards
            .iter()
            .zip(&used)
            .all(|(shard, used)| shard.huge_bytes >= used / 10 * 9);
        let bound = |shard: &ShardVerification| {
            !shard.pages_by_node.is_empty()
                && shard
                    .pages_by_node
                    .iter()
                    .all(|pages| Some(pages.node) == shard.node_asked)
        };
        Ok(Placement {
            pinned: !shards.is_empty() && shards.iter().all(|shard| shard.is_pinned()),
            node_bound: !shards.is_empty() && shards.iter().all(bound),
            huge_pages: !shards.is_empty() && huge,
            arenas: shards,
        })
    }
}

fn create<const N: usize>(engine: &Engine, setup: &Setup) -> Result<Table<[u64; N]>, Failure> {
    let schema = Schema::cells(N).expect_rows(setup.rows as u64 * 6 / 5);
    let schema = match setup.access {
        Access::Direct => schema,
        Access::Surrogate => schema.keyed(),
    };
    Ok(engine.create_table(TABLE, schema)?)
}

impl<I: Kind<N>, const N: usize> Subject for EngineSubject<I, N> {
    fn name(&self) -> &str {
        "ancile"
    }

    fn counted(&self) -> Result<Option<String>, Failure> {
        Ok(Some(self.engine.stats()?.summary()))
    }

    fn prepare(&mut self, operation: Operation) -> Result<(), Failure> {
        let prepared = self.in_shards(move |resident, part, _| {
            let mut working = Working::filling(part, resident);
            working.prepare_full(operation)
        })?;
        prepared.into_iter().collect::<Result<(), Failure>>()?;
        if operation == Operation::Insert {
            return self.recreate();
        }
        self.deal();
        Ok(())
    }

    fn slice(&mut self, operation: Operation, budget: Budget) -> Result<Slice, Failure> {
        let shares: Vec<Share> = if self.setup.route == Route::Session {
            let mut members: Vec<_> = self.parts.iter_mut().zip(&mut self.sessions).collect();
            team::run(&mut members, |_, (part, session), gate| {
                drive(gate, budget, |most| {
                    part.routed_chunk(*session, operation, most)
                })
            })
        } else {
            self.in_shards(move |resident, part, gate| {
                let mut working = Working::measuring(part, resident);
                drive(gate, budget, |most| working.timed_chunk(operation, most))
            })?
        };
        Slice::of("ancile", operation, shares)
    }

    fn settle(&mut self, operation: Operation) -> Result<(), Failure> {
        let live: usize = self.parts.iter_mut().map(|part| part.stream().live()).sum();
        let stored = self.counter.count(&self.table)? as usize;
        if stored == live {
            return Ok(());
        }
        Err(Failure::new(format!(
            "after {operation} the engine holds {stored} rows instead of {live}"
        )))
    }
}
