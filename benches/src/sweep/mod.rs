//! The bench `sweep`: MIXED on 1, 2, 3 .. shards, own-shard work.
//!
//! The number of rows stays, the shards share them. A rate is that of all shards together, from the
//! first start to the last end ([`Slice::rate_together`]), so that it also holds where more shards
//! than cores take turns; such points are marked, they say nothing of scaling. What does is counted
//! beside: instructions an operation ([`count`]), and hops and cache lines an operation of routed work
//! ([`messages`]).
//!
//! [`Slice::rate_together`]: crate::subject::Slice::rate_together

mod chart;
pub mod count;
pub mod messages;
mod picture;
mod point;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::completedb::AccessChoice;
use crate::engine;
use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::report::{Journal, Table, millions, progress};
use crate::rounds::Summary;
use crate::setup::{Route, Setup};
use crate::subject::{Budget, Subject};
use crate::workload::{Access, Operation};
use crate::{reference, team, with_columns};
use messages::Shape;
use point::{Point, csv};

/// Instructions an operation may grow by this share from the fewest to the most shards.
const GROWTH_MAX: f64 = 0.10;

/// Operations of an own-shard batch, and of a routed block.
const BATCH: usize = 64;

/// Routed batches of a call, which travel at the same time.
const WINDOW: usize = 16;

/// Lets what was prepared come to rest.
const SETTLE: Duration = Duration::from_micros(200);

/// Options of `sweep`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Numbers of shards.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8,9,10,11,12,13,14",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Vec<u16>,
    /// Columns of 8 bytes.
    #[arg(long, value_delimiter = ',', default_value = "10,25")]
    pub columns: Vec<usize>,
    /// How rows are found.
    #[arg(long, value_enum, default_value = "both")]
    pub access: AccessChoice,
    /// Rows of the full table, shared by the shards.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// Seconds of measuring a point, without loading.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Milliseconds of one slice.
    #[arg(long, default_value_t = 20.0)]
    pub slice_ms: f64,
    /// Leave out what needs valgrind.
    #[arg(long)]
    pub skip_instructions: bool,
    /// Folder for sweep.jsonl, sweep.csv and sweep.svg.
    #[arg(long, default_value = "target/sweep")]
    pub out: PathBuf,
}

/// Runs the bench.
///
/// # Errors
/// Wrong answers, what keeps a point from being measured or a file from being written, and
/// instructions that grow too much with the number of shards.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let counter = match options.skip_instructions {
        true => None,
        false => Some(count::counter()?),
    };
    fs::create_dir_all(&options.out).map_err(|error| unwritable(&options.out, &error))?;
    let file = |name: &str| options.out.join(name);
    let machine = Machine::observe();
    println!("{}", machine.describe());
    let mut sweep = Sweep {
        journal: Journal::create(Some(&file("sweep.jsonl")))?,
        options: options.clone(),
        counter,
        machine,
        points: Vec::new(),
    };
    sweep.options.shards.sort_unstable();
    sweep.options.shards.dedup();
    sweep.measure()?;
    sweep.print();
    write(&file("sweep.csv"), &csv(&sweep.points))?;
    write(&file("sweep.svg"), &picture::draw(&sweep.points))?;
    for name in ["sweep.jsonl", "sweep.csv", "sweep.svg"] {
        println!("{}", file(name).display());
    }
    sweep.judge()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

struct Sweep {
    options: Options,
    counter: Option<String>,
    machine: Machine,
    journal: Journal,
    points: Vec<Point>,
}

impl Sweep {
    fn measure(&mut self) -> Result<(), Failure> {
        let options = self.options.clone();
        let accesses = options.access.list();
        let curves = options.columns.len() * accesses.len();
        let bar = progress((curves * options.shards.len()) as u64);
        for columns in &options.columns {
            for access in accesses {
                let first = self.points.len();
                for shards in &options.shards {
                    let shards = usize::from(*shards);
                    bar.set_message(format!(
                        "{columns} columns by {}, {shards} shards",
                        access.name()
                    ));
                    let mut point = with_columns!(*columns, N => self.point::<N>(*access, shards))?;
                    point.compare_with(self.points.get(first));
                    self.journal.write(&point)?;
                    self.points.push(point);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn point<const N: usize>(&self, access: Access, shards: usize) -> Result<Point, Failure> {
        let setup = Setup {
            access,
            route: Route::Local,
            remote_percent: None,
            rows: self.options.rows / shards * shards,
            shards,
            batch: BATCH,
            window: 1,
            checked: false,
        };
        let mut opened = engine::open::<N>(&setup)?;
        let measured = self.rates(opened.subject.as_mut())?;
        let placement = opened.placement;
        drop(opened.subject);
        let instructions = match &self.counter {
            None => None,
            Some(_) => {
                let program = std::env::current_exe()
                    .map_err(|error| Failure::new(format!("this program has no path: {error}")))?;
                let counted = count::instructions(&program, &self.options.out, N, access, shards);
                Some(counted?)
            }
        };
        let traffic = messages::of_mixed(&Shape {
            columns: N,
            access,
            shards,
            block: BATCH,
            call: BATCH * WINDOW,
        });
        let cores = team::cores().len();
        Ok(Point {
            bench: "sweep",
            op: Operation::Mixed.name(),
            route: setup.route.name(),
            access: access.name(),
            columns: N,
            rows: setup.rows,
            shards,
            batch: BATCH,
            ops_per_second: measured.rate.median,
            ops_per_second_min: measured.rate.min,
            ops_per_second_max: measured.rate.max,
            ops_per_second_mad: measured.rate.mad,
            slices: measured.rate.count,
            operations: measured.operations,
            checksum: measured.checksum,
            efficiency_per_shard: 1.0,
            efficiency_per_core: 1.0,
            oversubscribed: shards > cores,
            reference_threads: reference::THREADS,
            reference_ops_per_second: reference::operations_per_second(Operation::Mixed, access, N),
            instructions_per_operation: instructions,
            instructions_growth: None,
            instructions_counter: self.counter.clone(),
            routed_hops_per_operation: traffic.hops,
            routed_lines_per_operation: traffic.lines,
            routed_call: BATCH * WINDOW,
            pinned: placement.pinned,
            node_bound: placement.node_bound,
            huge_pages: placement.huge_pages,
            machine: self.machine.clone(),
        })
    }

    fn rates(&self, subject: &mut dyn Subject) -> Result<Rates, Failure> {
        let budget = Budget {
            nanos: (self.options.slice_ms * 1e6) as u64,
            chunk: 4_096,
            checked: false,
        };
        let rounds = (self.options.seconds * 1e3 / self.options.slice_ms).ceil() as usize;
        let (mut rates, mut operations, mut checksum) = (Vec::new(), 0, 0_u64);
        for _ in 0..rounds.max(3) {
            subject.prepare(Operation::Mixed)?;
            thread::sleep(SETTLE);
            let slice = subject.slice(Operation::Mixed, budget)?;
            rates.push(slice.rate_together());
            operations += slice.operations();
            checksum = checksum.wrapping_add(slice.checksum());
        }
        subject.settle(Operation::Mixed)?;
        Ok(Rates {
            rate: Summary::of(&rates),
            operations,
            checksum,
        })
    }

    fn print(&self) {
        let mut table = Table::new(&[
            "columns, access",
            "shards",
            "million/s",
            "min",
            "max",
            "per shard",
            "per core",
            "instructions",
            "growth",
            "hops",
            "lines",
            "",
        ]);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        for point in &self.points {
            table.push(vec![
                point.curve(),
                point.shards.to_string(),
                millions(point.ops_per_second),
                millions(point.ops_per_second_min),
                millions(point.ops_per_second_max),
                format!("{:.0} %", point.efficiency_per_shard * 100.0),
                format!("{:.0} %", point.efficiency_per_core * 100.0),
                or_dash(
                    point
                        .instructions_per_operation
                        .map(|count| format!("{count:.1}")),
                ),
                or_dash(
                    point
                        .instructions_growth
                        .map(|growth| format!("{:+.2} %", growth * 100.0)),
                ),
                format!("{:.3}", point.routed_hops_per_operation),
                format!("{:.2}", point.routed_lines_per_operation),
                if point.oversubscribed {
                    "oversubscribed"
                } else {
                    ""
                }
                .to_owned(),
            ]);
        }
        print!(
            "\nMIXED, own-shard work, {} rows; hops and lines: routed work\n{}",
            self.options.rows,
            table.render()
        );
    }

    /// Whether an operation costs as many instructions on many shards as on few.
    fn judge(&self) -> Result<(), Failure> {
        let grown = |point: &&Point| {
            point
                .instructions_growth
                .is_some_and(|growth| growth >= GROWTH_MAX)
        };
        match self.points.iter().find(grown) {
            None => Ok(()),
            Some(point) => Err(Failure::new(format!(
                "{}: instructions an operation grow by {:.1} % to {} shards; {:.0} % are allowed",
                point.curve(),
                point.instructions_growth.unwrap_or(0.0) * 100.0,
                point.shards,
                GROWTH_MAX * 100.0
            ))),
        }
    }
}

struct Rates {
    rate: Summary,
    operations: u64,
    checksum: u64,
}
