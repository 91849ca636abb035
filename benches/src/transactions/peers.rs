//! Transactions of four random updates, on Ancile and on other transactional stores in turns.
//!
//! Two threads share a store, as its users would. Ancile's rows lie in all shards: most of its
//! transactions have several participants. Nothing is durable, and nothing syncs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ancile::{Isolation, SurrogateId, TransactionOptions, Transactions, Verbs};

use super::{COLUMNS, Loaded, Options, Report, Row};
use crate::failure::Failure;
use crate::peers::{Answer, Fjall, Lmdb, Peer, Redb, Sqlite};
use crate::random::XorShift;
use crate::report::{Table, progress};
use crate::rounds::Summary;
use crate::team;
use crate::workload::{Draw, row_of};

/// Updates of a transaction.
const UPDATES: usize = 4;

/// Declared transactions that are run together.
const TOGETHER: usize = 1_024;

/// Threads that share a store.
const THREADS: usize = 2;

/// One way of running transactions: how many were run in this time by all threads.
type Run<'a> = Box<dyn Fn(Duration) -> Result<f64, Failure> + 'a>;

pub(super) fn run(options: &Options, loaded: &Loaded, report: &mut Report) -> Result<(), Failure> {
    let rows = options.rows as u64;
    let mut ways: Vec<(&str, Run<'_>)> = vec![
        (
            "Ancile, declared, in the shards",
            Box::new(|time| declared(loaded, time)),
        ),
        (
            "Ancile, read first, from threads",
            Box::new(move |time| interactive(loaded, rows, time)),
        ),
    ];
    for peer in peers(rows)? {
        ways.push((
            peer.name(),
            Box::new(move |time| shared(&*peer, rows, time)),
        ));
    }
    let slice = Duration::from_secs_f64(options.seconds / options.rounds as f64);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    let bar = progress(options.rounds as u64);
    for _ in 0..options.rounds {
        for (rates, (_, run)) in rates.iter_mut().zip(&ways) {
            rates.push(run(slice)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let summaries: Vec<Summary> = rates.iter().map(|rates| Summary::of(rates)).collect();
    let others = summaries[2..].iter().map(|summary| summary.median);
    let best = others.fold(0.0, f64::max);
    let mut shown = Table::new(&[
        "four random updates",
        "thousand/s",
        "min",
        "max",
        "of the best other",
    ]);
    for ((name, _), summary) in ways.iter().zip(summaries) {
        let mut line = report.line("peers", *name);
        line.transactions_per_second = summary.median;
        line.transactions_per_second_min = summary.min;
        line.transactions_per_second_max = summary.max;
        line.ratio = Some(summary.median / best);
        let thousands = |rate: f64| format!("{:.1}", rate / 1e3);
        shown.push(vec![
            line.case.clone(),
            thousands(summary.median),
            thousands(summary.min),
            thousands(summary.max),
            format!("{:.2}", summary.median / best),
        ]);
        report.journal.write(&line)?;
    }
    println!("\n{rows} rows of {COLUMNS} columns, {THREADS} threads");
    print!("{}", shown.render());
    Ok(())
}

/// The other stores, each with all rows.
fn peers(rows: u64) -> Result<Vec<Arc<dyn Peer<COLUMNS>>>, Failure> {
    let peers: Vec<Arc<dyn Peer<COLUMNS>>> = vec![
        Arc::new(Sqlite::new()?),
        Arc::new(Redb::new()?),
        Arc::new(Lmdb::new(rows as usize)?),
        Arc::new(Fjall::new()?),
    ];
    for peer in &peers {
        let keys: Vec<u64> = (0..rows).collect();
        for keys in keys.chunks(1_000) {
            let requests: Vec<_> = keys.iter().map(|key| Draw::Insert(*key)).collect();
            let mut answers = Vec::new();
            peer.transaction(&requests, &mut answers);
            if answers.contains(&Answer::Refused) {
                return Err(Failure::new(format!("{} refused a row", peer.name())));
            }
        }
    }
    Ok(peers)
}

fn shared(peer: &dyn Peer<COLUMNS>, rows: u64, time: Duration) -> Result<f64, Failure> {
    let mut members: Vec<usize> = (0..THREADS).collect();
    let rates = team::run(&mut members, |_, thread, _| {
        let mut random = XorShift::new(*thread as u64 + 1);
        let (mut done, mut answers) = (0_u64, Vec::new());
        let start = Instant::now();
        while start.elapsed() < time {
            let requests: [Draw<u64>; UPDATES] =
                std::array::from_fn(|_| Draw::Update(random.below(rows as usize) as u64, done));
            answers.clear();
            peer.transaction(&requests, &mut answers);
            if answers.contains(&Answer::Refused) {
                return Err(Failure::new(format!("{} refused an update", peer.name())));
            }
            done += 1;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    });
    rates.into_iter().sum()
}

fn declared(loaded: &Loaded, time: Duration) -> Result<f64, Failure> {
    let (keys, table) = (Arc::new(loaded.keys.clone()), loaded.table.clone());
    let rates = loaded.engine.on_every_shard(move |resident| {
        let mut random = XorShift::new(resident.shard() as u64 + 1);
        let mut transactions = Transactions::new();
        let mut done = 0_u64;
        let start = Instant::now();
        while start.elapsed() < time {
            transactions.clear();
            for _ in 0..TOGETHER {
                transactions.begin();
                done += 1;
                let picked = distinct(|| {
                    let keys = &keys[random.below(keys.len())];
                    keys[random.below(keys.len())]
                });
                for key in picked {
                    transactions.update(&table, key, &row_of(done))?;
                }
            }
            resident.run_transactions(&mut transactions)?;
        }
        Ok::<_, ancile::Error>(done as f64 / start.elapsed().as_secs_f64())
    })?;
    Ok(rates
        .into_iter()
        .collect::<ancile::Result<Vec<f64>>>()?
        .iter()
        .sum())
}

fn interactive(loaded: &Loaded, rows: u64, time: Duration) -> Result<f64, Failure> {
    let options = TransactionOptions::new(Isolation::Serializable);
    let mut members: Vec<usize> = (0..THREADS).collect();
    let rates = team::run(&mut members, |_, thread, _| {
        let mut session = loaded.engine.session()?;
        let mut random = XorShift::new(*thread as u64 + 1);
        let mut done = 0_u64;
        let start = Instant::now();
        while start.elapsed() < time {
            done += 1;
            let picked = distinct(|| SurrogateId(random.below(rows as usize) as u64));
            session.transaction_with(options, |transaction| {
                transaction.select_batch(&loaded.table, &picked)?;
                for key in picked {
                    transaction.update::<Row, _>(&loaded.table, key, &row_of(done))?;
                }
                Ok::<_, ancile::Error>(())
            })?;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    });
    rates.into_iter().sum()
}

/// Keys that all differ.
fn distinct(mut draw: impl FnMut() -> SurrogateId) -> [SurrogateId; UPDATES] {
    let mut keys = [SurrogateId(0); UPDATES];
    for at in 0..UPDATES {
        keys[at] = draw();
        while keys[..at].contains(&keys[at]) {
            keys[at] = draw();
        }
    }
    keys
}
