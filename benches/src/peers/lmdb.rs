//! LMDB through heed: a memory-mapped B+tree, one writer at a time, never synced.
//!
//! The file lies in shared memory where there is any, so that no disk is measured.
#![expect(
    unsafe_code,
    reason = "opening a memory-mapped file is the caller's promise"
)]

use std::path::Path;

use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RwTxn};
use tempfile::TempDir;

use super::{Answer, Peer};
use crate::failure::Failure;
use crate::workload::{Draw, row_of};

type Rows = Database<U64<NativeEndian>, Bytes>;

/// An LMDB environment in a temporary directory.
pub struct Lmdb<const N: usize> {
    rows: Rows,
    env: Env,
    // Removed with the peer.
    _directory: TempDir,
}

impl<const N: usize> Lmdb<N> {
    /// Room for `rows` rows, several times over: pages are half full and are kept for readers.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn new(rows: usize) -> Result<Self, Failure> {
        let shared = Path::new("/dev/shm");
        let directory = match shared.is_dir() {
            true => TempDir::new_in(shared)?,
            false => TempDir::new()?,
        };
        let bytes = (rows * (N * 8 + 64) * 6).next_multiple_of(1 << 20) + (64 << 20);
        let mut options = EnvOpenOptions::new();
        options.map_size(bytes).max_readers(64);
        // SAFETY: the directory is new and nobody else's, so nothing changes the mapped file behind
        // LMDB; losing the file in a crash is what this peer is for.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC);
            options.open(directory.path())?
        };
        let mut transaction = env.write_txn()?;
        let rows = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self {
            rows,
            env,
            _directory: directory,
        })
    }

    fn write<T>(&self, work: impl FnOnce(&mut RwTxn) -> heed::Result<T>) -> heed::Result<T> {
        let mut transaction = self.env.write_txn()?;
        let done = work(&mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    fn put(
        &self,
        transaction: &mut RwTxn,
        key: u64,
        row: &[u64; N],
        new: bool,
    ) -> heed::Result<bool> {
        if self.rows.get(transaction, &key)?.is_some() == new {
            return Ok(false);
        }
        self.rows.put(transaction, &key, bytemuck::bytes_of(row))?;
        Ok(true)
    }

    fn run(&self, transaction: &mut RwTxn, request: Draw<u64>) -> heed::Result<Answer<N>> {
        let (done, id) = match request {
            Draw::Select(id) => {
                let row = self
                    .rows
                    .get(transaction, &id)?
                    .map(bytemuck::pod_read_unaligned);
                return Ok(row.map_or(Answer::Refused, Answer::Row));
            }
            Draw::Update(id, seed) => (self.put(transaction, id, &row_of(seed), false)?, id),
            Draw::Insert(key) => (self.put(transaction, key, &row_of(key), true)?, key),
            Draw::Delete(id) => (self.rows.delete(transaction, &id)?, id),
        };
        Ok(if done {
            Answer::Done(id)
        } else {
            Answer::Refused
        })
    }
}

impl<const N: usize> Peer<N> for Lmdb<N> {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn is_transactional(&self) -> bool {
        true
    }

    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        let done = self.write(|transaction| self.put(transaction, key, row, true));
        done.unwrap_or(false).then_some(key)
    }

    fn select(&self, id: u64) -> Option<[u64; N]> {
        let transaction = self.env.read_txn().ok()?;
        let bytes = self.rows.get(&transaction, &id).ok()??;
        Some(bytemuck::pod_read_unaligned(bytes))
    }

    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.write(|transaction| self.put(transaction, id, row, false))
            .unwrap_or(false)
    }

    fn delete(&self, id: u64) -> bool {
        self.write(|transaction| self.rows.delete(transaction, &id))
            .unwrap_or(false)
    }

    fn count(&self) -> Option<usize> {
        let transaction = self.env.read_txn().ok()?;
        Some(self.rows.len(&transaction).ok()? as usize)
    }

    fn clear(&self) {
        // A failure shows in the row count after the cell.
        let _ = self.write(|transaction| self.rows.clear(transaction));
    }

    fn transaction(&self, requests: &[Draw<u64>], answers: &mut Vec<Answer<N>>) {
        let reads_only = requests
            .iter()
            .all(|request| matches!(request, Draw::Select(_)));
        if reads_only && let Ok(transaction) = self.env.read_txn() {
            answers.extend(requests.iter().map(|request| match request {
                Draw::Select(id) => match self.rows.get(&transaction, id) {
                    Ok(Some(bytes)) => Answer::Row(bytemuck::pod_read_unaligned(bytes)),
                    _ => Answer::Refused,
                },
                _ => Answer::Refused,
            }));
            return;
        }
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
