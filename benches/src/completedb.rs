//! The bench `completedb`: the engine and the hardware limit, cell by cell, next to the published table.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::engine::{self, Placement};
use crate::failure::Failure;
use crate::limit::{Distances, Flat, Keyed, Limit};
use crate::machine::{self, Machine};
use crate::report::{Cell, Journal, Table, millions, progress, ratio};
use crate::rounds::{Measured, interleave};
use crate::setup::{Route, Setup, operations_in_order};
use crate::subject::{Budget, Subject};
use crate::workload::{Access, ID_DISTRIBUTION, Operation};
use crate::{line, reference, team, with_columns};

/// Two copies of a table must leave this share of the free memory alone.
const MEMORY_SHARE_MAX: f64 = 0.8;

/// Access methods to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AccessChoice {
    /// By physical place.
    Direct,
    /// By unique key.
    Surrogate,
    /// Both.
    Both,
}

impl AccessChoice {
    /// The access methods meant.
    pub fn list(self) -> &'static [Access] {
        match self {
            Self::Direct => &[Access::Direct],
            Self::Surrogate => &[Access::Surrogate],
            Self::Both => &[Access::Direct, Access::Surrogate],
        }
    }
}

/// Routes to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RouteChoice {
    /// Own rows only.
    Local,
    /// Rows of all shards, from inside the shards and from client threads.
    Routed,
    /// Rows of all shards, from client threads only.
    Session,
    /// All of them.
    Both,
}

impl RouteChoice {
    fn list(self) -> &'static [Route] {
        match self {
            Self::Local => &[Route::Local],
            Self::Routed => &[Route::Routed, Route::Session],
            Self::Session => &[Route::Session],
            Self::Both => &[Route::Local, Route::Routed, Route::Session],
        }
    }
}

/// Options of `completedb`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the full table.
    #[arg(long, value_delimiter = ',', default_value = "1000000,10000000")]
    pub rows: Vec<usize>,
    /// Columns of 8 bytes.
    #[arg(long, value_delimiter = ',', default_value = "10,25")]
    pub columns: Vec<usize>,
    /// How rows are found.
    #[arg(long, value_enum, default_value = "both")]
    pub access: AccessChoice,
    /// Where a thread's rows lie.
    #[arg(long, value_enum, default_value = "local")]
    pub route: RouteChoice,
    /// Per cent of a routed thread's rows in other shards; an even spread if not given.
    #[arg(long, value_delimiter = ',')]
    pub remote: Vec<f64>,
    /// Operations; all if not given.
    #[arg(long, value_delimiter = ',')]
    pub ops: Vec<Operation>,
    /// Shards; one a core if not given.
    #[arg(long)]
    pub shards: Option<usize>,
    /// Seconds of measuring per cell and subject, without loading.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Milliseconds of one slice.
    #[arg(long, default_value_t = 5.0)]
    pub slice_ms: f64,
    /// Operations a batch; 1 means single calls.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// Batches a call where rows are reached by routing; own rows are always reached batch by batch.
    #[arg(long, default_value_t = 16)]
    pub window: usize,
    /// File for one JSON line a cell.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Small tables, every answer compared with a model, no figures.
    #[arg(long)]
    pub smoke: bool,
    /// Measure the hardware limit alone.
    #[arg(long)]
    pub limit_only: bool,
}

impl Options {
    /// What `--smoke` means.
    pub fn smoke_preset(mut self) -> Self {
        self.rows = vec![4_000];
        self.columns = vec![10];
        self.route = RouteChoice::Both;
        self.seconds = 0.02;
        self.slice_ms = 2.0;
        self.smoke = true;
        self
    }

    fn rounds(&self) -> usize {
        ((self.seconds * 1_000.0 / self.slice_ms).ceil() as usize).max(3)
    }

    fn budget(&self) -> Budget {
        Budget {
            nanos: (self.slice_ms * 1e6) as u64,
            chunk: if self.smoke { 256 } else { 4_096 },
            checked: self.smoke,
        }
    }
}

/// Runs the bench.
///
/// # Errors
/// Wrong answers, or what keeps a table from being made.
pub fn run(options: &Options) -> Result<(), Failure> {
    let options = if options.smoke {
        options.clone().smoke_preset()
    } else {
        options.clone()
    };
    if !options.smoke {
        machine::refuse_debug()?;
    }
    let machine = Machine::observe();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(line::round_trip().as_ref()));
    let mut run = Run {
        journal: Journal::create(options.json.as_deref())?,
        machine,
        options,
        cells: Vec::new(),
    };
    for columns in run.options.columns.clone() {
        for rows in run.options.rows.clone() {
            for access in run.options.access.list() {
                with_columns!(columns, N => run.table::<N>(rows, *access))?;
            }
        }
    }
    if run.options.smoke {
        println!("{} cells agree with the model", run.cells.len());
    }
    Ok(())
}

struct Run {
    options: Options,
    machine: Machine,
    journal: Journal,
    cells: Vec<Cell>,
}

impl Run {
    /// All cells of one table.
    fn table<const N: usize>(&mut self, rows: usize, access: Access) -> Result<(), Failure> {
        let shards = self.options.shards.unwrap_or(self.machine.cores).max(1);
        let setup = Setup {
            access,
            route: Route::Local,
            remote_percent: None,
            rows: rows / shards * shards,
            shards,
            batch: self.options.batch,
            window: 1,
            checked: self.options.smoke,
        };
        let fits =
            setup.bytes(N) as f64 * 2.0 < machine::memory_available() as f64 * MEMORY_SHARE_MAX;
        let operations = operations_in_order(&self.options.ops);
        let mut limit = Some(limit_of::<N>(&setup)?);
        let mut limits = Vec::new();
        if self.options.limit_only || !fits {
            let (limit, _) = limit.as_mut().expect("was just made");
            limits = self.limit_alone(limit.as_mut(), &operations)?;
        }
        if self.options.limit_only {
            self.print_limits::<N>(&setup, &operations, &limits);
            return Ok(());
        }
        if !fits {
            limit = None;
        }
        for route in self.options.route.list() {
            let shares = match (route, self.options.remote.as_slice()) {
                (Route::Local, _) | (_, []) => vec![None],
                (_, percents) => percents.iter().copied().map(Some).collect(),
            };
            for remote_percent in shares {
                let window = match route {
                    Route::Local => 1,
                    _ if setup.batch == 1 => 1,
                    _ => self.options.window.max(1),
                };
                let setup = Setup {
                    route: *route,
                    remote_percent,
                    window,
                    ..setup
                };
                self.route::<N>(&setup, &operations, limit.as_mut(), &limits)?;
            }
        }
        Ok(())
    }

    fn limit_alone(
        &mut self,
        limit: &mut dyn Subject,
        operations: &[Operation],
    ) -> Result<Vec<Measured>, Failure> {
        let (rounds, budget) = (self.options.rounds(), self.options.budget());
        let mut limits = Vec::new();
        for operation in operations {
            limits.extend(interleave(&mut [&mut *limit], *operation, rounds, budget)?);
        }
        Ok(limits)
    }

    /// All cells of one table by one route.
    fn route<const N: usize>(
        &mut self,
        setup: &Setup,
        operations: &[Operation],
        mut limit: Option<&mut (Box<dyn Subject>, Distances)>,
        limits: &[Measured],
    ) -> Result<(), Failure> {
        let mut opened = engine::open::<N>(setup)?;
        let bar = progress(operations.len() as u64);
        let first = self.cells.len();
        for (index, operation) in operations.iter().enumerate() {
            bar.set_message(format!("{operation}, {} rows of {N}", setup.rows));
            let mut cell = self.cell::<N>(setup, *operation, &opened.placement);
            let (rounds, budget) = (self.options.rounds(), self.options.budget());
            let subject = opened.subject.as_mut();
            if let Some((limit, distances)) = limit.as_deref_mut() {
                let mut subjects: [&mut dyn Subject; 2] = [limit.as_mut(), subject];
                let measured = interleave(&mut subjects, *operation, rounds, budget)?;
                cell.enter(&measured[1]);
                cell.enter_limit(&measured[0]);
                cell.limit_interleaved = true;
                cell.limit_distances = Some((distances.row, distances.bucket));
            } else {
                let measured = interleave(&mut [subject], *operation, rounds, budget)?;
                cell.enter(&measured[0]);
                if let Some(limit) = limits.get(index) {
                    cell.enter_limit(limit);
                }
            }
            self.journal.write(&cell)?;
            self.cells.push(cell);
            bar.inc(1);
        }
        bar.finish_and_clear();
        if !self.options.smoke {
            self.print(setup, first);
            if let Some(counted) = opened.subject.counted()? {
                println!("shards since they began: {counted}");
            }
        }
        Ok(())
    }

    fn cell<const N: usize>(
        &self,
        setup: &Setup,
        operation: Operation,
        placement: &Placement,
    ) -> Cell {
        let threads = match setup.route {
            Route::Session => setup.shards * 2,
            _ => setup.shards,
        };
        Cell {
            bench: "completedb",
            subject: "ancile".to_owned(),
            op: operation.name(),
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
            reference_ops_per_second: reference::operations_per_second(operation, setup.access, N),
            limit_ops_per_second: None,
            limit_ops_per_second_min: None,
            limit_ops_per_second_max: None,
            limit_interleaved: false,
            limit_distances: None,
            checksum: 0,
            pinned: placement.pinned,
            node_bound: Some(placement.node_bound),
            huge_pages: Some(placement.huge_pages),
            arenas: placement.arenas.clone(),
            line_round_trip_ns: line::round_trip().map(|trip| trip.median),
            oversubscribed: threads > team::cores().len(),
            durability: "none",
            id_distribution: ID_DISTRIBUTION,
            checked: self.options.smoke,
            machine: self.machine.clone(),
        }
    }

    fn print(&self, setup: &Setup, first: usize) {
        let cells = &self.cells[first..];
        let Some(head) = cells.first() else { return };
        println!(
            "\n{} rows of {} columns by {}, {} shards, {} ({:.0} % remote), batch {} x {}{}; million operations a second",
            head.rows,
            head.columns,
            head.access,
            head.shards,
            head.route,
            setup.remote_share() * 100.0,
            head.batch,
            head.window,
            if head.oversubscribed {
                ", more threads than cores"
            } else {
                ""
            },
        );
        let mut table = Table::new(&[
            "",
            "ancile",
            "min",
            "max",
            "limit",
            "of limit",
            "reference",
            "times",
            "line ns",
        ]);
        for cell in cells {
            table.push(vec![
                cell.op.to_owned(),
                millions(cell.ops_per_second),
                millions(cell.ops_per_second_min),
                millions(cell.ops_per_second_max),
                cell.limit_ops_per_second
                    .map_or_else(|| "-".to_owned(), millions),
                ratio(cell.ops_per_second, cell.limit_ops_per_second),
                cell.reference_ops_per_second
                    .map_or_else(|| "-".to_owned(), millions),
                ratio(cell.ops_per_second, cell.reference_ops_per_second),
                cell.line_round_trip_ns
                    .map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
            ]);
        }
        print!("{}", table.render());
        println!(
            "reference: {} threads, {} rows, 2 x Xeon E5530, published",
            reference::THREADS,
            reference::ROWS
        );
    }

    fn print_limits<const N: usize>(
        &self,
        setup: &Setup,
        operations: &[Operation],
        limits: &[Measured],
    ) {
        println!(
            "\nlimit: {} rows of {N} columns by {}, {} cores",
            setup.rows,
            setup.access.name(),
            setup.shards
        );
        let mut table = Table::new(&["", "million/s", "min", "max", "ns a core"]);
        for (operation, limit) in operations.iter().zip(limits) {
            table.push(vec![
                operation.to_string(),
                millions(limit.rate.median),
                millions(limit.rate.min),
                millions(limit.rate.max),
                format!("{:.1}", setup.shards as f64 * 1e9 / limit.rate.median),
            ]);
        }
        print!("{}", table.render());
    }
}

/// The bare loops for the same rows and keys, tuned; and their prefetch distances.
pub fn limit_of<const N: usize>(setup: &Setup) -> Result<(Box<dyn Subject>, Distances), Failure> {
    let (rows, checked) = (setup.part_rows(), setup.checked);
    match setup.access {
        Access::Direct => {
            let parts = (0..setup.shards).map(|part| Flat::<N>::new(rows, part as u64, checked));
            let mut limit = Limit::new(parts.collect::<Result<Vec<_>, _>>()?);
            let distances = limit.tune()?;
            Ok((Box::new(limit), distances))
        }
        Access::Surrogate => {
            let keys = setup.keys(|key| engine::home(key, setup.shards));
            let parts = keys
                .into_iter()
                .enumerate()
                .map(|(part, keys)| Keyed::<N>::new(rows, keys, part as u64, checked));
            let mut limit = Limit::new(parts.collect::<Result<Vec<_>, _>>()?);
            let distances = limit.tune()?;
            Ok((Box::new(limit), distances))
        }
    }
}
