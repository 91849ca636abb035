//! fjall: a log-structured merge tree in pure Rust, one writing transaction at a time, never synced.
//!
//! Its journal is not flushed either; the files lie in shared memory where there is any.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx as WriteTransaction,
};
use tempfile::TempDir;

use super::{Answer, Peer};
use crate::failure::Failure;
use crate::workload::{Draw, row_of};

/// A fjall database in a temporary directory.
pub struct Fjall<const N: usize> {
    rows: SingleWriterTxKeyspace,
    database: SingleWriterTxDatabase,
    // Removed with the peer.
    _directory: TempDir,
}

impl<const N: usize> Fjall<N> {
    /// An empty store.
    ///
    /// # Errors
    /// Those of fjall.
    pub fn new() -> Result<Self, Failure> {
        let shared = Path::new("/dev/shm");
        let directory = match shared.is_dir() {
            true => TempDir::new_in(shared)?,
            false => TempDir::new()?,
        };
        let database = SingleWriterTxDatabase::builder(directory.path())
            .manual_journal_persist(true)
            .open()?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
        Ok(Self {
            rows,
            database,
            _directory: directory,
        })
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&mut WriteTransaction<'_>) -> fjall::Result<T>,
    ) -> fjall::Result<T> {
        let mut transaction = self.database.write_tx();
        let done = work(&mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    fn put(
        &self,
        transaction: &mut WriteTransaction<'_>,
        key: u64,
        row: &[u64; N],
        new: bool,
    ) -> fjall::Result<bool> {
        let key = key.to_be_bytes();
        if transaction.get(&self.rows, key)?.is_some() == new {
            return Ok(false);
        }
        transaction.insert(&self.rows, key, bytemuck::bytes_of(row));
        Ok(true)
    }

    fn remove(&self, transaction: &mut WriteTransaction<'_>, key: u64) -> fjall::Result<bool> {
        let key = key.to_be_bytes();
        let is_there = transaction.get(&self.rows, key)?.is_some();
        transaction.remove(&self.rows, key);
        Ok(is_there)
    }

    fn run(
        &self,
        transaction: &mut WriteTransaction<'_>,
        request: Draw<u64>,
    ) -> fjall::Result<Answer<N>> {
        let (done, id) = match request {
            Draw::Select(id) => {
                let row = transaction.get(&self.rows, id.to_be_bytes())?;
                return Ok(row.map_or(Answer::Refused, |bytes| {
                    Answer::Row(bytemuck::pod_read_unaligned(&bytes))
                }));
            }
            Draw::Update(id, seed) => (self.put(transaction, id, &row_of(seed), false)?, id),
            Draw::Insert(key) => (self.put(transaction, key, &row_of(key), true)?, key),
            Draw::Delete(id) => (self.remove(transaction, id)?, id),
        };
        Ok(if done {
            Answer::Done(id)
        } else {
            Answer::Refused
        })
    }
}

impl<const N: usize> Peer<N> for Fjall<N> {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn is_transactional(&self) -> bool {
        true
    }

    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        let done = self.write(|transaction| self.put(transaction, key, row, true));
        done.unwrap_or(false).then_some(key)
    }

    fn select(&self, id: u64) -> Option<[u64; N]> {
        let bytes = self.rows.get(id.to_be_bytes()).ok()??;
        Some(bytemuck::pod_read_unaligned(&bytes))
    }

    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.write(|transaction| self.put(transaction, id, row, false))
            .unwrap_or(false)
    }

    fn delete(&self, id: u64) -> bool {
        self.write(|transaction| self.remove(transaction, id))
            .unwrap_or(false)
    }

    fn count(&self) -> Option<usize> {
        self.database.read_tx().len(&self.rows).ok()
    }

    fn clear(&self) {
        // A failure shows in the row count after the cell.
        let _ = self.rows.inner().clear();
    }

    fn transaction(&self, requests: &[Draw<u64>], answers: &mut Vec<Answer<N>>) {
        let done = self.write(|transaction| {
            for request in requests {
                answers.push(self.run(transaction, *request)?);
            }
            Ok(())
        });
        if done.is_err() {
            answers.clear();
        }
        answers.resize(requests.len(), Answer::Refused);
    }
}
