//! SQLite, through rusqlite with the bundled library.
//!
//! One connection with the file to itself, shared through a mutex: that spares every transaction
//! the locks of the file, and with one writer at a time there is little to win by more connections.

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

use super::{Durability, Wanted, bytes_in};
use crate::failure::Failure;
use crate::threeen1::globals::{Globals, Name, Pairs, Stream};

/// Memory for pages, in KiB, as the pragma takes it.
const CACHE_KIB: i64 = 1 << 20;

/// Pages that the log of writes holds before they are copied into the database: 64 MiB.
const CHECKPOINT_PAGES: u32 = 16_384;

const EXISTS: &str = "SELECT 1 FROM steps WHERE number = ?1";
const GET: &str = "SELECT steps FROM steps WHERE number = ?1";
const SET: &str = "INSERT OR REPLACE INTO steps VALUES (?1, ?2)";
const READ: &str = "SELECT value FROM names WHERE name = ?1";
const WRITE: &str = "INSERT OR REPLACE INTO names VALUES (?1, ?2)";

/// A database in memory, or in a directory of its own.
pub(super) struct Sqlite {
    connection: Mutex<Connection>,
    directory: Option<TempDir>,
}

impl Sqlite {
    /// An empty store, and how it is set up.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn new(durability: Durability, wanted: &Wanted) -> Result<(Self, String), Failure> {
        let (journal, synchronous) = match durability {
            Durability::None => ("OFF", "OFF"),
            Durability::Process => ("WAL", "OFF"),
            Durability::Epoch => ("WAL", "NORMAL"),
            Durability::Commit => ("WAL", "FULL"),
        };
        let mut setting =
            format!("journal_mode {journal}, synchronous {synchronous}, one connection");
        let (connection, directory) = match durability {
            Durability::None => {
                setting += ", in memory";
                (Connection::open_in_memory()?, None)
            }
            _ => {
                if durability == Durability::Epoch {
                    setting += &format!(", synced at checkpoints of {CHECKPOINT_PAGES} pages");
                }
                let directory = wanted.directory(durability)?;
                let connection = Connection::open(directory.path().join("threeen1.sqlite"))?;
                (connection, Some(directory))
            }
        };
        connection.execute_batch(&format!(
            "PRAGMA page_size = 4096; PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA cache_size = -{CACHE_KIB};
             PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous};
             PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
             CREATE TABLE steps (number BLOB PRIMARY KEY, steps BLOB NOT NULL) WITHOUT ROWID;
             CREATE TABLE names (name BLOB PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
        ))?;
        let globals = Self {
            connection: Mutex::new(connection),
            directory,
        };
        Ok((globals, setting))
    }
}

impl Globals for Sqlite {
    type Stream<'a> = &'a Sqlite;

    fn stream(&self) -> Result<&Self, Failure> {
        Ok(self)
    }

    fn nodes(&self) -> Result<u64, Failure> {
        let count = "SELECT count(*) FROM steps";
        let nodes: i64 = self
            .connection
            .lock()
            .query_row(count, [], |row| row.get(0))?;
        Ok(nodes.cast_unsigned())
    }

    fn stored_bytes(&self) -> Option<u64> {
        bytes_in(self.directory.as_ref()?.path())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        let clear = "DELETE FROM steps; DELETE FROM names";
        Ok(self.connection.get_mut().execute_batch(clear)?)
    }
}

impl Sqlite {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }
}

impl Stream for &Sqlite {
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let connection = self.connection();
        Ok(connection.prepare_cached(EXISTS)?.exists([key])?)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let connection = self.connection();
        let mut get = connection.prepare_cached(GET)?;
        Ok(get.query_row([key], |row| row.get(0)).optional()?)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.connection()
            .prepare_cached(SET)?
            .execute([key, value])?;
        Ok(())
    }

    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        {
            let mut set = transaction.prepare_cached(SET)?;
            for (key, value) in path.iter() {
                set.execute([key, value])?;
            }
        }
        change(&transaction, [Name::Result], |[held]| {
            *held = result.max(*held)
        })?;
        Ok(transaction.commit()?)
    }

    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure> {
        Ok(number(&self.connection(), name)?)
    }

    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        work: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let values = change(&transaction, names, work)?;
        transaction.commit()?;
        Ok(values)
    }
}

fn change<const N: usize>(
    connection: &Connection,
    names: [Name; N],
    work: impl Fn(&mut [u64; N]),
) -> Result<[u64; N], Failure> {
    let mut held = [0; N];
    for (held, name) in held.iter_mut().zip(names) {
        *held = number(connection, name)?.unwrap_or(0);
    }
    let mut values = held;
    work(&mut values);
    for (place, name) in names.into_iter().enumerate() {
        if values[place] != held[place] {
            let mut write = connection.prepare_cached(WRITE)?;
            write.execute((name.key(), values[place].cast_signed()))?;
        }
    }
    Ok(values)
}

fn number(connection: &Connection, name: Name) -> rusqlite::Result<Option<u64>> {
    let mut read = connection.prepare_cached(READ)?;
    let value: Option<i64> = read.query_row([name.key()], |row| row.get(0)).optional()?;
    Ok(value.map(i64::cast_unsigned))
}
