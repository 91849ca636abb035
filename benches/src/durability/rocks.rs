//! RocksDB with a write-ahead log that is synced at each write.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rocksdb::{DB, Options, WriteOptions};

use super::Turn;
use crate::failure::Failure;
use crate::random::XorShift;

const ROW_BYTES: usize = 80;

pub(super) struct Store {
    database: DB,
}

impl Store {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let mut options = Options::default();
        options.create_if_missing(true);
        let database = DB::open(&options, path)?;
        Ok(Self { database })
    }

    /// Single puts from threads, each of which waits for its own.
    pub(super) fn turn(
        &self,
        rows: usize,
        threads: usize,
        time: Duration,
    ) -> Result<Turn, Failure> {
        let work = |number: usize| -> Result<(u64, Duration), Failure> {
            let mut random = XorShift::new(number as u64 + 1);
            let mut options = WriteOptions::default();
            options.set_sync(true);
            let (start, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
            while start.elapsed() < time {
                let begun = Instant::now();
                let key = random.below(rows).to_be_bytes();
                self.database.put_opt(key, [4; ROW_BYTES], &options)?;
                longest = longest.max(begun.elapsed());
                count += 1;
            }
            Ok((count, longest))
        };
        super::commits::on_threads(threads, work)
    }
}
