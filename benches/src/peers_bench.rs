//! The bench `peers`: other stores and the engine in turns, on the same rows and ids.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::completedb::limit_of;
use crate::engine::{self, Placement};
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::peers::{
    Dash, Lmdb, Mutexes, Peer, PeerSubject, Redb, Scc, Slab, Sqlite, TRANSACTION_OPERATIONS,
};
use crate::report::{Cell, Journal, Table, millions, progress};
use crate::rounds::{Measured, interleave};
use crate::setup::{Route, Setup, operations_in_order};
use crate::subject::{Budget, Subject};
use crate::workload::{Access, ID_DISTRIBUTION, Operation};
use crate::{line, team, with_columns};

/// A store to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// dashmap.
    Dashmap,
    /// 256 x `Mutex<hashbrown>`.
    Mutexes,
    /// scc::HashMap.
    Scc,
    /// sharded-slab, by its own ids.
    Slab,
    /// LMDB through heed.
    Lmdb,
    /// redb in memory.
    Redb,
    /// SQLite in memory.
    Sqlite,
    /// The bare loops.
    Limit,
    /// The engine by place, by key, in batches, by single calls, and routed.
    Ancile,
}

/// Options of `peers`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the full table.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    pub rows: Vec<usize>,
    /// Columns of 8 bytes.
    #[arg(long, value_delimiter = ',', default_value = "10")]
    pub columns: Vec<usize>,
    /// Stores to compare; all if not given.
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<Choice>,
    /// Operations; all if not given.
    #[arg(long, value_delimiter = ',')]
    pub ops: Vec<Operation>,
    /// Threads; one a core if not given.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Transactional stores get at most this many rows: loading them takes long.
    #[arg(long, default_value_t = 1_000_000)]
    pub slow_rows: usize,
    /// Seconds of measuring per cell and subject, without loading.
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Milliseconds of one slice.
    #[arg(long, default_value_t = 10.0)]
    pub slice_ms: f64,
    /// Operations a batch of the engine.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// Batches a call where the engine routes.
    #[arg(long, default_value_t = 16)]
    pub window: usize,
    /// File for one JSON line a cell.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Small tables, every answer compared with a model, no figures.
    #[arg(long)]
    pub smoke: bool,
}

/// Runs the bench.
///
/// # Errors
/// Wrong answers, or what keeps a store from being made.
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut options = options.clone();
    if options.smoke {
        options.rows = vec![2_000];
        options.columns = vec![10];
        (options.seconds, options.slice_ms) = (0.02, 4.0);
    } else {
        machine::refuse_debug()?;
    }
    let machine = Machine::observe();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(line::round_trip().as_ref()));
    let mut journal = Journal::create(options.json.as_deref())?;
    for columns in options.columns.clone() {
        for rows in options.rows.clone() {
            with_columns!(columns, N => table::<N>(&options, &machine, &mut journal, rows))?;
        }
    }
    Ok(())
}

/// A subject and what its cells say of it.
struct Entry {
    subject: Box<dyn Subject>,
    cell: Cell,
}

/// All stores on one shape of table.
fn table<const N: usize>(
    options: &Options,
    machine: &Machine,
    journal: &mut Journal,
    rows: usize,
) -> Result<(), Failure> {
    let threads = options.threads.unwrap_or(machine.cores).max(1);
    let setup = Setup {
        access: Access::Surrogate,
        route: Route::Local,
        remote_percent: None,
        rows: rows / threads * threads,
        shards: threads,
        batch: 1,
        window: 1,
        checked: options.smoke,
    };
    let operations = operations_in_order(&options.ops);
    let mut entries = Fleet {
        options,
        machine,
        setup,
    }
    .entries::<N>()?;
    let rounds = ((options.seconds * 1_000.0 / options.slice_ms).ceil() as usize).max(3);
    let budget = Budget {
        nanos: (options.slice_ms * 1e6) as u64,
        chunk: if options.smoke { 256 } else { 4_096 },
        checked: options.smoke,
    };
    let mut head = vec![""];
    head.extend(operations.iter().map(|operation| operation.name()));
    head.extend(["rows", "batch"]);
    let mut rates: Vec<Vec<Measured>> = entries.iter().map(|_| Vec::new()).collect();
    let bar = progress(operations.len() as u64);
    for operation in &operations {
        bar.set_message(format!("{operation}, {rows} rows of {N}"));
        let trip = line::round_trip().map(|trip| trip.median);
        let mut subjects: Vec<&mut dyn Subject> = Vec::new();
        for entry in &mut entries {
            subjects.push(entry.subject.as_mut());
        }
        let measured = interleave(&mut subjects, *operation, rounds, budget)?;
        for ((entry, measured), rates) in entries.iter_mut().zip(measured).zip(&mut rates) {
            entry.cell.op = operation.name();
            entry.cell.line_round_trip_ns = trip;
            entry.cell.enter(&measured);
            journal.write(&entry.cell)?;
            rates.push(measured);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if options.smoke {
        println!("{} stores agree with the model", entries.len());
        return Ok(());
    }
    println!("\n{rows} rows of {N} columns, {threads} threads; million operations a second");
    let mut table = Table::new(&head);
    for (entry, rates) in entries.iter().zip(&rates) {
        let mut row = vec![entry.cell.subject.clone()];
        row.extend(rates.iter().map(|measured| millions(measured.rate.median)));
        row.extend([entry.cell.rows.to_string(), entry.cell.batch.to_string()]);
        table.push(row);
    }
    print!("{}", table.render());
    println!(
        "no store is durable here; LMDB never syncs; transactions hold one operation, or `batch`"
    );
    Ok(())
}

struct Fleet<'a> {
    options: &'a Options,
    machine: &'a Machine,
    setup: Setup,
}

impl Fleet<'_> {
    /// All wanted stores.
    fn entries<const N: usize>(&self) -> Result<Vec<Entry>, Failure> {
        let rows = self.setup.rows;
        let slow = rows.min(self.options.slow_rows);
        let mut entries = Vec::new();
        if self.wants(Choice::Limit) {
            for access in [Access::Direct, Access::Surrogate] {
                let setup = Setup {
                    access,
                    ..self.setup
                };
                let (subject, distances) = limit_of::<N>(&setup)?;
                let mut cell = self.cell::<N>(&format!("limit, {}", access.name()), &setup);
                cell.limit_distances = Some((distances.row, distances.bucket));
                entries.push(Entry { subject, cell });
            }
        }
        if self.wants(Choice::Ancile) {
            self.engine::<N>(&mut entries)?;
        }
        if self.wants(Choice::Dashmap) {
            entries.push(self.peer(Dash::<N>::new(rows), rows, 1));
        }
        if self.wants(Choice::Mutexes) {
            entries.push(self.peer(Mutexes::<N>::new(rows), rows, 1));
        }
        if self.wants(Choice::Scc) {
            entries.push(self.peer(Scc::<N>::new(rows), rows, 1));
        }
        if self.wants(Choice::Slab) {
            entries.push(self.peer(Slab::<N>::new(), rows, 1));
        }
        for batch in [1, TRANSACTION_OPERATIONS] {
            if self.wants(Choice::Lmdb) {
                entries.push(self.peer(Lmdb::<N>::new(slow)?, slow, batch));
            }
            if self.wants(Choice::Redb) {
                entries.push(self.peer(Redb::<N>::new()?, slow, batch));
            }
            if self.wants(Choice::Sqlite) {
                entries.push(self.peer(Sqlite::<N>::new()?, slow, batch));
            }
        }
        Ok(entries)
    }

    /// The engine in its ways of use.
    fn engine<const N: usize>(&self, entries: &mut Vec<Entry>) -> Result<(), Failure> {
        let batch = self.options.batch;
        let ways = [
            (Access::Direct, Route::Local, batch),
            (Access::Surrogate, Route::Local, batch),
            (Access::Direct, Route::Local, 1),
            (Access::Surrogate, Route::Local, 1),
            (Access::Direct, Route::Routed, batch),
            (Access::Surrogate, Route::Routed, batch),
        ];
        for (access, route, batch) in ways {
            let window = if route == Route::Routed {
                self.options.window
            } else {
                1
            };
            let setup = Setup {
                access,
                route,
                batch,
                window,
                ..self.setup
            };
            let opened = engine::open::<N>(&setup)?;
            let name = format!("ancile, {}, {}", access.name(), route.name());
            let mut cell = self.cell::<N>(&name, &setup);
            let Placement {
                pinned,
                node_bound,
                huge_pages,
                arenas,
            } = opened.placement;
            cell.pinned = pinned;
            cell.node_bound = Some(node_bound);
            cell.huge_pages = Some(huge_pages);
            cell.arenas = arenas;
            entries.push(Entry {
                subject: opened.subject,
                cell,
            });
        }
        Ok(())
    }

    fn peer<const N: usize>(
        &self,
        peer: impl Peer<N> + 'static,
        rows: usize,
        batch: usize,
    ) -> Entry {
        let setup = Setup {
            rows,
            batch,
            ..self.setup
        };
        let keys = setup.keys(|key| engine::home(key, setup.shards));
        let subject = PeerSubject::new(peer, setup.part_rows(), keys, batch, setup.checked);
        let cell = self.cell::<N>(subject.name(), &setup);
        Entry {
            subject: Box::new(subject),
            cell,
        }
    }

    fn wants(&self, choice: Choice) -> bool {
        self.options.peers.is_empty() || self.options.peers.contains(&choice)
    }

    fn cell<const N: usize>(&self, name: &str, setup: &Setup) -> Cell {
        Cell {
            bench: "peers",
            subject: name.to_owned(),
            op: "",
            access: setup.access.name(),
            columns: N,
            rows: setup.rows,
            shards: setup.shards,
            threads: setup.shards,
            route: setup.route.name(),
            remote_percent: Some(setup.remote_share() * 100.0),
            batch: setup.batch,
            window: setup.window,
            ops_per_second: 0.0,
            ops_per_second_min: 0.0,
            ops_per_second_max: 0.0,
            ops_per_second_mad: 0.0,
            slices: 0,
            operations: 0,
            reference_ops_per_second: None,
            limit_ops_per_second: None,
            limit_ops_per_second_min: None,
            limit_ops_per_second_max: None,
            limit_interleaved: true,
            limit_distances: None,
            checksum: 0,
            pinned: true,
            node_bound: None,
            huge_pages: None,
            arenas: Vec::new(),
            line_round_trip_ns: None,
            oversubscribed: setup.shards > team::cores().len(),
            durability: "none",
            id_distribution: ID_DISTRIBUTION,
            checked: setup.checked,
            machine: self.machine.clone(),
        }
    }
}
