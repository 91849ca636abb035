//! How long one transaction takes that somebody waits for.

use std::time::Instant;

use ancile::{Isolation, SurrogateId, TransactionOptions, Transactions, Verbs};

use super::{Loaded, Options, Report};
use crate::failure::Failure;
use crate::random::XorShift;
use crate::report::Table;
use crate::workload::row_of;

const CALLS: usize = 20_000;

pub(super) fn run(_: &Options, loaded: &Loaded, report: &mut Report) -> Result<(), Failure> {
    let mut shown = Table::new(&["one at a time, from a thread", "p50 ns", "p99", "max"]);
    let mut session = loaded.engine.session()?;
    let table = &loaded.table;
    let serializable = TransactionOptions::new(Isolation::Serializable);
    let shards = loaded.keys.len();
    for (case, spread) in [("one shard", 1), ("two shards", 2)] {
        if spread > shards {
            continue;
        }
        let mut random = XorShift::new(7);
        let mut draw = || -> [SurrogateId; 2] {
            std::array::from_fn(|at| {
                let keys = &loaded.keys[at % spread];
                keys[random.below(keys.len())]
            })
        };
        let mut transactions = Transactions::new();
        let declared = time(|seed| {
            let keys = draw();
            transactions.clear();
            transactions.begin();
            for key in keys {
                transactions.update_columns(table, key, &[(0, seed)])?;
            }
            session.run_transactions(&mut transactions).map(drop)
        })?;
        let read_and_written = time(|seed| {
            let [one, two] = draw();
            session.transaction_with(serializable, |transaction| {
                transaction.select_batch(table, &[one, two])?;
                transaction.update(table, one, &row_of(seed))?;
                transaction.update(table, two, &row_of(seed)).map(drop)
            })
        })?;
        for (way, nanos) in [
            ("declared", declared),
            ("read, changed, serializable", read_and_written),
        ] {
            let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize];
            let mut line = report.line("latency", format!("{case}, {way}"));
            line.nanos_p50 = Some(at(0.5));
            line.nanos_p99 = Some(at(0.99));
            report.journal.write(&line)?;
            shown.push(vec![
                line.case,
                at(0.5).to_string(),
                at(0.99).to_string(),
                at(1.0).to_string(),
            ]);
        }
    }
    println!();
    print!("{}", shown.render());
    Ok(())
}

/// Sorted times of single transactions.
fn time(mut transact: impl FnMut(u64) -> ancile::Result<()>) -> ancile::Result<Vec<u64>> {
    let mut nanos = Vec::with_capacity(CALLS);
    for seed in 0..CALLS as u64 {
        let start = Instant::now();
        transact(seed)?;
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    nanos.sort_unstable();
    Ok(nanos)
}
