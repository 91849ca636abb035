//! Half of the load on one row: what the operations on other shards keep of their rate.
//!
//! One thread fights for the row with serializable transactions, and another for the same row; a
//! resident of another shard updates its own rows in batches meanwhile, and then without them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ancile::{DirectId, Isolation, Resident, TransactionOptions, Verbs};

use super::{Loaded, Options, Report, Row};
use crate::failure::Failure;
use crate::random::XorShift;
use crate::report::{Table, millions};
use crate::rounds::Summary;
use crate::workload::row_of;

const BATCH: usize = 64;

pub(super) fn run(options: &Options, loaded: &Loaded, report: &mut Report) -> Result<(), Failure> {
    let before = loaded.engine.stats()?;
    let slice = Duration::from_secs_f64(options.seconds / options.rounds as f64);
    let mut rates = [Vec::new(), Vec::new()];
    let mut fights = 0;
    for _ in 0..options.rounds {
        rates[0].push(bystander(loaded, slice)?);
        let (rate, fought) = besides_a_fight(loaded, slice)?;
        rates[1].push(rate);
        fights += fought;
    }
    let [alone, beside] = rates.map(|rates| Summary::of(&rates));
    let mut shown = Table::new(&[
        "updates of another shard",
        "million/s",
        "min",
        "max",
        "of alone",
    ]);
    for (case, summary) in [("alone", alone), ("beside a hot row", beside)] {
        let mut line = report.line("hot", case);
        line.transactions_per_second = summary.median;
        line.transactions_per_second_min = summary.min;
        line.transactions_per_second_max = summary.max;
        line.ratio = Some(summary.median / alone.median);
        shown.push(vec![
            case.to_owned(),
            millions(summary.median),
            millions(summary.min),
            millions(summary.max),
            format!("{:.2}", summary.median / alone.median),
        ]);
        report.journal.write(&line)?;
    }
    println!("\nhot row: {fights} transactions on it meanwhile");
    print!("{}", shown.render());
    let stats = loaded.engine.stats()?.since(&before);
    println!("shards meanwhile: {}", stats.summary());
    Ok(())
}

/// Updates a second of the last shard's resident.
fn bystander(loaded: &Loaded, slice: Duration) -> Result<f64, Failure> {
    let shard = loaded.engine.shards() - 1;
    let (table, ids) = (loaded.table.clone(), loaded.ids[shard].clone());
    let work = move |resident: &mut Resident<'_>| {
        let mut random = XorShift::new(3);
        let mut done = 0_u64;
        let start = Instant::now();
        while start.elapsed() < slice {
            let picked: [DirectId; BATCH] = std::array::from_fn(|_| ids[random.below(ids.len())]);
            let rows: [Row; BATCH] = std::array::from_fn(|at| row_of(done + at as u64));
            resident.update_batch(&table, &picked, &rows)?;
            done += BATCH as u64;
        }
        Ok::<_, ancile::Error>(done as f64 / start.elapsed().as_secs_f64())
    };
    Ok(loaded.engine.spawn(shard, work)?.join()??)
}

/// The same while two threads fight for a row of the first shard; and how often they got it.
fn besides_a_fight(loaded: &Loaded, slice: Duration) -> Result<(f64, u64), Failure> {
    let is_over = AtomicBool::new(false);
    let key = loaded.keys[0][0];
    let options = TransactionOptions::new(Isolation::Serializable).tries(u32::MAX);
    std::thread::scope(|scope| {
        let fighters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| -> ancile::Result<u64> {
                    let mut session = loaded.engine.session()?;
                    let mut fought = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        session.transaction_with(options, |transaction| {
                            let row = transaction.select(&loaded.table, key)?;
                            let next = row.map_or(0, |row| row[0] + 1);
                            transaction.update(&loaded.table, key, &row_of(next))
                        })?;
                        fought += 1;
                    }
                    Ok(fought)
                })
            })
            .collect();
        let rate = bystander(loaded, slice);
        is_over.store(true, Ordering::Relaxed);
        let mut fights = 0;
        for fighter in fighters {
            fights += fighter
                .join()
                .map_err(|_| Failure::new("a thread panicked"))??;
        }
        Ok((rate?, fights))
    })
}
