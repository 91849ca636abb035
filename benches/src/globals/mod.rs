//! The bench `globals`: rates of the ordered store's verbs beside an ordered map and ordered stores.
//!
//! Keys are short, `n(i / 1000, i mod 1000)`, encoded alike for everybody; values are ten digits. They
//! are set and looked up by chance, gone over by `order` and by a scan, and removed subtree by subtree.
//! Stores take turns, phase by phase on the same data; nothing is to survive, and whoever promises
//! more is told not to keep it. Stores with transactions have one for [`BATCH`] operations.

mod ours;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use ancile::{GlobalKey, key};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::XorShift;

/// Operations of one batch, or transaction.
pub const BATCH: usize = 1024;

/// Nodes of a subtree.
const SUBTREE: u64 = 1000;

/// Options of `globals`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Nodes; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    pub rows: Vec<u64>,
    /// How often everybody does everything.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Who takes part; everybody if not given.
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<Choice>,
    /// Few nodes, no figures.
    #[arg(long)]
    pub smoke: bool,
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The engine, in the own shard, in batches.
    Own,
    /// The engine, in the own shard, call by call.
    OwnSingle,
    /// The engine from a session, in batches, over its shards.
    Session,
    /// `std` BTreeMap.
    Map,
    /// LMDB.
    Lmdb,
    /// redb.
    Redb,
    /// SQLite.
    Sqlite,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// Set every node, by chance.
    Set,
    /// Look up every node, by chance.
    Get,
    /// Set every node once more, by chance.
    Replace,
    /// Go from each node to the next one of its level.
    Order,
    /// Go over all nodes and values.
    Scan,
    /// Remove all subtrees.
    Kill,
}

impl Phase {
    const ALL: [Self; 6] = [
        Self::Set,
        Self::Get,
        Self::Replace,
        Self::Order,
        Self::Scan,
        Self::Kill,
    ];
}

/// What everybody works on.
pub struct Data {
    /// In order.
    pub keys: Vec<GlobalKey>,
    /// The same nodes by chance, with their values.
    pub entries: Vec<(GlobalKey, Vec<u8>)>,
    /// The same once more, otherwise.
    pub lookups: Vec<GlobalKey>,
    /// Roots of the subtrees.
    pub subtrees: Vec<GlobalKey>,
}

/// What a phase took, and what it found: a sum by which everybody must agree.
pub struct Measured {
    /// From its begin to its end.
    pub time: Duration,
    /// Found values and keys.
    pub sum: u64,
}

/// Who can be measured.
pub trait Store {
    /// Name and form.
    fn name(&self) -> &'static str;

    /// Does a phase.
    ///
    /// # Errors
    /// Those of the store.
    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure>;
}

impl Data {
    fn new(rows: u64) -> Result<Self, Failure> {
        let mut keys = Vec::new();
        for n in 0..rows {
            keys.push(key!["n", n / SUBTREE, n % SUBTREE]?);
        }
        let mut random = XorShift::new(11);
        let mut shuffled: Vec<u64> = (0..rows).collect();
        random.shuffle(&mut shuffled);
        let entry = |&n: &u64| (keys[n as usize].clone(), format!("{n:010}").into_bytes());
        let entries = shuffled.iter().map(entry).collect();
        random.shuffle(&mut shuffled);
        let lookups = shuffled.iter().map(|&n| keys[n as usize].clone()).collect();
        let mut subtrees = Vec::new();
        for n in 0..rows.div_ceil(SUBTREE) {
            subtrees.push(key!["n", n]?);
        }
        Ok(Self {
            keys,
            entries,
            lookups,
            subtrees,
        })
    }
}

/// The sum of what was found.
pub fn sum_of(value: &[u8]) -> u64 {
    let last = value.last_chunk::<8>().copied();
    last.map_or(value.len() as u64, u64::from_le_bytes)
}

/// Runs the bench.
///
/// # Errors
/// A store that fails, or differs from another.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.smoke {
        return measure(options, 3_000, 1).map(drop);
    }
    machine::refuse_debug()?;
    println!("{}", Machine::observe().describe());
    for &rows in &options.rows {
        let table = measure(options, rows, options.rounds.max(1))?;
        println!("\n{rows} nodes, millions of operations a second: median of the rounds");
        print!("{:<28}", "");
        for phase in Phase::ALL {
            print!("{:>9}", format!("{phase:?}").to_lowercase());
        }
        println!();
        for (name, phases) in table {
            print!("{name:<28}");
            for mut times in phases {
                times.sort_unstable();
                let median = times[times.len() / 2].as_secs_f64();
                print!("{:>9.2}", rows as f64 / median / 1e6);
            }
            println!();
        }
    }
    Ok(())
}

type Row = (&'static str, Vec<Vec<Duration>>);

fn measure(options: &Options, rows: u64, rounds: usize) -> Result<Vec<Row>, Failure> {
    let data = Arc::new(Data::new(rows)?);
    let all = Choice::value_variants();
    let choices = if options.peers.is_empty() {
        all
    } else {
        &options.peers
    };
    let mut table: Vec<Row> = Vec::new();
    for _ in 0..rounds {
        let mut stores = Vec::new();
        for &choice in choices {
            stores.push(open(choice)?);
        }
        for (at, phase) in Phase::ALL.into_iter().enumerate() {
            let mut sum = None;
            for (number, store) in stores.iter_mut().enumerate() {
                let measured = store.run(phase, &data)?;
                if *sum.get_or_insert(measured.sum) != measured.sum {
                    let name = store.name();
                    return Err(Failure::new(format!("{name} differs in {phase:?}")));
                }
                if number == table.len() {
                    table.push((store.name(), vec![Vec::new(); Phase::ALL.len()]));
                }
                table[number].1[at].push(measured.time);
            }
        }
    }
    Ok(table)
}

fn open(choice: Choice) -> Result<Box<dyn Store>, Failure> {
    Ok(match choice {
        Choice::Own => Box::new(ours::Own::new(true)?),
        Choice::OwnSingle => Box::new(ours::Own::new(false)?),
        Choice::Session => Box::new(ours::FromSession::new()?),
        Choice::Map => Box::new(peers::Map::default()),
        Choice::Lmdb => Box::new(peers::Lmdb::new()?),
        Choice::Redb => Box::new(peers::Redb::new()?),
        Choice::Sqlite => Box::new(peers::Sqlite::new()?),
    })
}
