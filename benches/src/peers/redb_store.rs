//! redb: a copy-on-write B+tree in pure Rust, in memory, without durability.
//!
//! Pages freed by commits without durability come back only with a durable commit; one in a
//! thousand is (in memory that costs a little), or the store would grow without end.

use std::sync::atomic::{AtomicU32, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use redb::{Table, TableDefinition};

use super::{Answer, Peer};
use crate::failure::Failure;
use crate::workload::{Draw, row_of};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");

/// Every so many commits, one gives freed pages back.
const COMMITS_PER_DURABLE: u32 = 1_000;

/// A redb database in memory.
pub struct Redb<const N: usize> {
    database: Database,
    commits: AtomicU32,
}

impl<const N: usize> Redb<N> {
    /// An empty store.
    ///
    /// # Errors
    /// Those of redb.
    pub fn new() -> Result<Self, Failure> {
        let database = Database::builder().create_with_backend(InMemoryBackend::new())?;
        let peer = Self {
            database,
            commits: AtomicU32::new(0),
        };
        peer.write(|_| Ok(()))?;
        Ok(peer)
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&mut Table<u64, &'static [u8]>) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let mut transaction = self.database.begin_write()?;
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        if !commits.is_multiple_of(COMMITS_PER_DURABLE) {
            transaction.set_durability(Durability::None)?;
        }
        let done = work(&mut transaction.open_table(ROWS)?)?;
        transaction.commit()?;
        Ok(done)
    }

    fn read(&self, id: u64) -> Result<Option<[u64; N]>, redb::Error> {
        let rows = self.database.begin_read()?.open_table(ROWS)?;
        let row = rows.get(id)?;
        Ok(row.map(|row| bytemuck::pod_read_unaligned(row.value())))
    }
}

fn put<const N: usize>(
    rows: &mut Table<u64, &'static [u8]>,
    key: u64,
    row: &[u64; N],
    new: bool,
) -> Result<bool, redb::Error> {
    if rows.get(key)?.is_some() == new {
        return Ok(false);
    }
    rows.insert(key, bytemuck::bytes_of(row))?;
    Ok(true)
}

fn run<const N: usize>(
    rows: &mut Table<u64, &'static [u8]>,
    request: Draw<u64>,
) -> Result<Answer<N>, redb::Error> {
    let (done, id) = match request {
        Draw::Select(id) => {
            let row = rows.get(id)?;
            return Ok(row.map_or(Answer::Refused, |row| {
                Answer::Row(bytemuck::pod_read_unaligned(row.value()))
            }));
        }
        Draw::Update(id, seed) => (put::<N>(rows, id, &row_of(seed), false)?, id),
        Draw::Insert(key) => (put::<N>(rows, key, &row_of(key), true)?, key),
        Draw::Delete(id) => (rows.remove(id)?.is_some(), id),
    };
    Ok(if done {
        Answer::Done(id)
    } else {
        Answer::Refused
    })
}

impl<const N: usize> Peer<N> for Redb<N> {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn is_transactional(&self) -> bool {
        true
    }

    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        let done = self.write(|rows| put(rows, key, row, true));
        done.unwrap_or(false).then_some(key)
    }

    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.read(id).ok()?
    }

    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.write(|rows| put(rows, id, row, false))
            .unwrap_or(false)
    }

    fn delete(&self, id: u64) -> bool {
        self.write(|rows| Ok(rows.remove(id)?.is_some()))
            .unwrap_or(false)
    }

    fn count(&self) -> Option<usize> {
        let transaction = self.database.begin_read().ok()?;
        let rows = transaction.open_table(ROWS).ok()?;
        Some(rows.len().ok()? as usize)
    }

    fn clear(&self) {
        // A failure shows in the row count after the cell.
        let _ = self.write(|rows| Ok(rows.retain(|_, _| false)?));
    }

    fn transaction(&self, requests: &[Draw<u64>], answers: &mut Vec<Answer<N>>) {
        let reads_only = requests
            .iter()
            .all(|request| matches!(request, Draw::Select(_)));
        if reads_only && let Ok(transaction) = self.database.begin_read() {
            if let Ok(rows) = transaction.open_table(ROWS) {
                answers.extend(requests.iter().map(|request| match request {
                    Draw::Select(id) => match rows.get(*id) {
                        Ok(Some(row)) => Answer::Row(bytemuck::pod_read_unaligned(row.value())),
                        _ => Answer::Refused,
                    },
                    _ => Answer::Refused,
                }));
            }
        } else {
            let done = self.write(|rows| {
                for request in requests {
                    answers.push(run(rows, *request)?);
                }
                Ok(())
            });
            if done.is_err() {
                answers.clear();
            }
        }
        answers.resize(requests.len(), Answer::Refused);
    }
}
