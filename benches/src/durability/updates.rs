//! Updates of rows in the own shard, in batches, with each durability.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ancile::{DirectId, Durability, Engine, Resident, Schema, Table};

use super::{COLUMNS, Options, Row, Turn, Turns};
use crate::failure::Failure;
use crate::random::XorShift;

const BATCH: usize = 64;

struct Subject {
    name: String,
    engine: Engine,
    table: Table<Row>,
    ids: Arc<Vec<Vec<DirectId>>>,
}

impl Subject {
    fn new(name: &str, engine: Engine, rows: usize) -> Result<Self, Failure> {
        let schema = Schema::cells(COLUMNS).expect_rows((rows * engine.shards()) as u64);
        let table: Table<Row> = engine.create_table("rows", schema)?;
        let own = table.clone();
        let ids = engine.on_every_shard(move |resident: &mut Resident<'_>| {
            let mut ids = Vec::with_capacity(rows);
            let row = [[1; COLUMNS]; BATCH];
            while ids.len() < rows {
                let mut own = resident.rows(&own)?;
                own.insert_batch(&row, &mut ids)?;
            }
            XorShift::new(resident.shard() as u64 + 1).shuffle(&mut ids);
            Ok::<_, ancile::Error>(ids)
        })?;
        engine.flush()?;
        Ok(Self {
            name: name.to_owned(),
            engine,
            table,
            ids: Arc::new(ids.into_iter().collect::<Result<_, _>>()?),
        })
    }

    /// Updates for so long in every shard.
    fn turn(&self, time: Duration) -> Result<Turn, Failure> {
        let (table, ids) = (self.table.clone(), Arc::clone(&self.ids));
        let done = self.engine.on_every_shard(move |resident| {
            let ids = &ids[resident.shard()];
            let rows = [[2; COLUMNS]; BATCH];
            let (start, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
            let mut last = start;
            'time: loop {
                for ids in ids.chunks_exact(BATCH) {
                    resident.rows(&table)?.update_batch(ids, &rows)?;
                    count += BATCH;
                    let now = Instant::now();
                    longest = longest.max(now - last);
                    last = now;
                    if now - start > time {
                        break 'time;
                    }
                }
            }
            let per_second = count as f64 / start.elapsed().as_secs_f64();
            Ok::<_, ancile::Error>((per_second, longest))
        })?;
        let mut turn = Turn::default();
        for done in done {
            let (per_second, longest) = done?;
            turn.per_second += per_second;
            turn.longest_micros = turn.longest_micros.max(longest.as_micros() as u64);
        }
        Ok(turn)
    }
}

/// Runs all durabilities in turns.
pub(super) fn run(place: &Path, options: &Options, time: Duration) -> Result<Vec<Turns>, Failure> {
    let builder = || {
        options
            .builder()
            .arena_bytes((options.rows as u64 * 120 + (64 << 20)) * 2)
    };
    let epoch = Durability::Epoch(Duration::from_millis(100));
    let subjects = [
        Subject::new("none", builder().build()?, options.rows)?,
        Subject::new(
            "process",
            builder().open(place.join("process"))?,
            options.rows,
        )?,
        Subject::new(
            "epoch, 100 ms",
            builder().durability(epoch).open(place.join("epoch"))?,
            options.rows,
        )?,
    ];
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); subjects.len()];
    for _ in 0..options.rounds {
        for (subject, turns) in subjects.iter().zip(&mut turns) {
            turns.push(subject.turn(time)?);
            // Nothing of its work is left to the next one's time.
            subject.engine.flush()?;
        }
    }
    let turns = subjects.iter().zip(turns).map(|(subject, turns)| Turns {
        subject: subject.name.clone(),
        turns,
    });
    let turns = turns.collect();
    for subject in subjects {
        subject.engine.close()?;
    }
    Ok(turns)
}
