//! Changes that count only when they are on the disk.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ancile::{Durability, Engine, Schema, SurrogateId, Table, Verbs};

use super::{COLUMNS, Options, Row, Turn, Turns};
use crate::failure::Failure;
use crate::random::XorShift;

/// Threads that make single calls.
const THREADS: usize = 8;
/// Bytes of a record of the plain file: a row, and what tells which.
const RECORD: usize = 96;

/// What makes durable changes for so long.
type Subject<'a> = (
    String,
    Box<dyn FnMut(Duration) -> Result<Turn, Failure> + 'a>,
);

/// Runs all subjects in turns.
pub(super) fn run(place: &Path, options: &Options, time: Duration) -> Result<Vec<Turns>, Failure> {
    let engine = options
        .builder()
        .arena_bytes(1 << 30)
        .durability(Durability::Commit)
        .open(place.join("commit"))?;
    let rows = options.rows.min(100_000);
    let table: Table<Row> = engine.create_table("rows", Schema::cells(COLUMNS).keyed())?;
    let keys: Vec<SurrogateId> = (0..rows as u64).map(SurrogateId).collect();
    let all = vec![[1; COLUMNS]; keys.len()];
    engine.session()?.insert_keyed_batch(&table, &keys, &all)?;
    let (engine, table) = (&engine, &table);
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    let mut plain = Plain::new(&place.join("plain"))?;
    subjects.push((
        "append and sync each record".to_owned(),
        Box::new(move |time| plain.turn(time)),
    ));
    for under_way in [1, 8, 1_000] {
        let name = format!("ancile, {under_way} under way");
        let turn = move |time| pipelined(engine, table, rows, under_way, time);
        subjects.push((name, Box::new(turn)));
    }
    subjects.push((
        format!("ancile, {THREADS} threads, single calls"),
        Box::new(move |time| threaded(engine, table, rows, time)),
    ));
    #[cfg(feature = "rocksdb")]
    if options.rocksdb {
        let store = super::rocks::Store::open(&place.join("rocksdb"))?;
        let turn = move |time| store.turn(rows, THREADS, time);
        subjects.push((format!("rocksdb, {THREADS} threads"), Box::new(turn)));
    }
    #[cfg(not(feature = "rocksdb"))]
    if options.rocksdb {
        return Err(Failure::new(
            "this build has no RocksDB: use scripts/bench durability --rocksdb",
        ));
    }
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); subjects.len()];
    for _ in 0..options.rounds {
        for ((_, turn), turns) in subjects.iter_mut().zip(&mut turns) {
            turns.push(turn(time)?);
        }
    }
    let names = subjects.into_iter().map(|(name, _)| name);
    Ok(names
        .zip(turns)
        .map(|(subject, turns)| Turns { subject, turns })
        .collect())
}

/// A file to which records are appended, each synced, over blocks that are written already.
struct Plain {
    file: File,
}

impl Plain {
    const BYTES: usize = 64 << 20;

    fn new(path: &Path) -> Result<Self, Failure> {
        let mut file = File::create(path)?;
        let block = vec![0; 1 << 20];
        for _ in 0..Self::BYTES >> 20 {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        Ok(Self { file })
    }

    fn turn(&mut self, time: Duration) -> Result<Turn, Failure> {
        let record = [5; RECORD];
        self.file.seek(SeekFrom::Start(0))?;
        let (start, mut count, mut longest) = (Instant::now(), 0_u64, 0);
        while start.elapsed() < time && (count as usize + 1) * RECORD < Self::BYTES {
            let begun = Instant::now();
            self.file.write_all(&record)?;
            self.file.sync_data()?;
            longest = longest.max(begun.elapsed().as_micros() as u64);
            count += 1;
        }
        Ok(Turn {
            per_second: count as f64 / start.elapsed().as_secs_f64(),
            longest_micros: longest,
        })
    }
}

/// Updates through a pipeline that always has so many under way.
fn pipelined(
    engine: &Engine,
    table: &Table<Row>,
    rows: usize,
    under_way: u64,
    time: Duration,
) -> Result<Turn, Failure> {
    let mut session = engine.session()?;
    let mut random = XorShift::new(under_way);
    let mut pipeline = session.pipeline::<Row, SurrogateId>(table);
    let (start, mut count, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    let mut last = start;
    while start.elapsed() < time {
        while pipeline.outstanding() < under_way {
            let key = SurrogateId(random.below(rows) as u64);
            pipeline.update(key, &[3; COLUMNS])?;
        }
        // All that come back with the first one are counted before the next go out.
        if pipeline.wait()?.is_some() {
            count += 1;
        }
        while pipeline.complete()?.is_some() {
            count += 1;
        }
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    Ok(Turn {
        per_second: count as f64 / start.elapsed().as_secs_f64(),
        longest_micros: longest.as_micros() as u64,
    })
}

/// Single updates from threads, each of which waits for its own.
fn threaded(
    engine: &Engine,
    table: &Table<Row>,
    rows: usize,
    time: Duration,
) -> Result<Turn, Failure> {
    let work = |number: usize| -> Result<(u64, Duration), Failure> {
        let mut session = engine.session()?;
        let mut random = XorShift::new(number as u64 + 1);
        let (start, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
        while start.elapsed() < time {
            let begun = Instant::now();
            session.update(table, SurrogateId(random.below(rows) as u64), &[4; COLUMNS])?;
            longest = longest.max(begun.elapsed());
            count += 1;
        }
        Ok((count, longest))
    };
    on_threads(THREADS, work)
}

/// Runs work on threads, each of which counts what it has done; what they have done together.
pub(super) fn on_threads(
    threads: usize,
    work: impl Fn(usize) -> Result<(u64, Duration), Failure> + Sync,
) -> Result<Turn, Failure> {
    let work = &work;
    thread::scope(|scope| {
        let start = Instant::now();
        let threads: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut turn = Turn::default();
        let mut count = 0;
        for thread in threads {
            let done = thread.join();
            let (own, longest) = done.map_err(|_| Failure::new("a thread has panicked"))??;
            count += own;
            turn.longest_micros = turn.longest_micros.max(longest.as_micros() as u64);
        }
        turn.per_second = count as f64 / start.elapsed().as_secs_f64();
        Ok(turn)
    })
}
