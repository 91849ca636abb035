//! How the rate falls as more transactions take in a second shard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ancile::{DirectId, Resident, Transactions, Verbs};

use super::{Loaded, Options, Report, Row};
use crate::failure::Failure;
use crate::random::XorShift;
use crate::report::{Table, millions, progress};
use crate::rounds::Summary;
use crate::workload::row_of;

/// Transactions that resident work draws at a time.
const ROUND: usize = 6_400;

/// Updates of a batch on the own shard.
const BATCH: usize = 64;

pub(super) fn run(options: &Options, loaded: &Loaded, report: &mut Report) -> Result<(), Failure> {
    let budget = Duration::from_secs_f64(options.seconds / options.rounds as f64);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); options.shares.len()];
    let bar = progress(options.rounds as u64);
    for _ in 0..options.rounds {
        for (rates, share) in rates.iter_mut().zip(&options.shares) {
            rates.push(slice(loaded, share / 100.0, budget)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let summaries: Vec<Summary> = rates.iter().map(|rates| Summary::of(rates)).collect();
    let whole = options
        .shares
        .iter()
        .position(|share| *share == 0.0)
        .map(|at| summaries[at].median);
    let mut shown = Table::new(&["two shards", "million/s", "min", "max", "of 0 %", "line ns"]);
    for (share, summary) in options.shares.iter().zip(summaries) {
        let mut line = report.line("shares", format!("{share} %"));
        line.transactions_per_second = summary.median;
        line.transactions_per_second_min = summary.min;
        line.transactions_per_second_max = summary.max;
        line.ratio = whole.map(|whole| summary.median / whole);
        shown.push(vec![
            line.case.clone(),
            millions(summary.median),
            millions(summary.min),
            millions(summary.max),
            line.ratio
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            line.line_round_trip_ns
                .map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
        ]);
        report.journal.write(&line)?;
    }
    println!(
        "\n{} shards, {} rows of 10 columns; transactions of one update, or of one in each of two shards",
        report.shards, report.rows
    );
    print!("{}", shown.render());
    println!(
        "shards since they began: {}",
        loaded.engine.stats()?.summary()
    );
    Ok(())
}

/// Transactions a second, of all shards together.
fn slice(loaded: &Loaded, share: f64, budget: Duration) -> Result<f64, Failure> {
    let ids = Arc::new(loaded.ids.clone());
    let table = loaded.table.clone();
    let rates = loaded
        .engine
        .on_every_shard(move |resident| work(resident, &table, &ids, share, budget))?;
    Ok(rates
        .into_iter()
        .collect::<ancile::Result<Vec<f64>>>()?
        .iter()
        .sum())
}

fn work(
    resident: &mut Resident<'_>,
    table: &ancile::Table<Row>,
    ids: &[Vec<DirectId>],
    share: f64,
    budget: Duration,
) -> ancile::Result<f64> {
    let own = resident.shard();
    let mut random = XorShift::new(own as u64 + 1);
    let mut transactions = Transactions::new();
    let (mut done, mut due, mut seed) = (0_u64, 0.0, 0_u64);
    let start = Instant::now();
    while start.elapsed() < budget {
        due += share * ROUND as f64;
        let wide = (due as usize).min(ROUND);
        due -= wide as f64;
        transactions.clear();
        for number in 0..wide {
            if number.is_multiple_of(BATCH) {
                resident.serve();
            }
            let other = (own + 1 + random.below(ids.len().max(2) - 1)) % ids.len();
            let one = ids[own][random.below(ids[own].len())];
            let two = ids[other][random.below(ids[other].len())];
            seed += 1;
            transactions.begin();
            transactions.update(table, one, &row_of(seed))?;
            transactions.update(table, two, &row_of(seed))?;
        }
        resident.start_transactions(&mut transactions)?;
        let mut narrow = ROUND - wide;
        while narrow > 0 {
            let length = narrow.min(BATCH);
            let picked: [DirectId; BATCH] =
                std::array::from_fn(|_| ids[own][random.below(ids[own].len())]);
            seed += 1;
            let rows: [Row; BATCH] = std::array::from_fn(|at| row_of(seed + at as u64));
            resident.update_batch(table, &picked[..length], &rows[..length])?;
            narrow -= length;
        }
        resident.run_transactions(&mut transactions)?;
        done += ROUND as u64;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
