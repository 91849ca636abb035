//! SQLite in memory, through rusqlite with the bundled library.
//!
//! A database in memory belongs to one connection, so the threads share it through a mutex.
//! Statements are prepared once; outside a transaction SQLite commits each by itself.

use parking_lot::Mutex;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params_from_iter};

use super::{Answer, Peer};
use crate::failure::Failure;
use crate::workload::{Draw, row_of};

/// One table of N integer columns.
pub struct Sqlite<const N: usize> {
    connection: Mutex<Connection>,
    insert: String,
    select: String,
    update: String,
}

const DELETE: &str = "DELETE FROM rows WHERE id = ?1";

impl<const N: usize> Sqlite<N> {
    /// An empty store.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn new() -> Result<Self, Failure> {
        let connection = Connection::open_in_memory()?;
        let list = |make: &dyn Fn(usize) -> String| (0..N).map(make).collect::<Vec<_>>().join(", ");
        let columns = list(&|column| format!("c{column} INTEGER NOT NULL"));
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; \
             CREATE TABLE rows (id INTEGER PRIMARY KEY, {columns})"
        ))?;
        Ok(Self {
            connection: Mutex::new(connection),
            insert: format!(
                "INSERT OR IGNORE INTO rows VALUES (?1, {})",
                list(&|column| format!("?{}", column + 2))
            ),
            select: format!(
                "SELECT {} FROM rows WHERE id = ?1",
                list(&|column| format!("c{column}"))
            ),
            update: format!(
                "UPDATE rows SET {} WHERE id = ?1",
                list(&|column| format!("c{column} = ?{}", column + 2))
            ),
        })
    }

    fn write(
        &self,
        connection: &Connection,
        sql: &str,
        id: u64,
        row: &[u64],
    ) -> rusqlite::Result<bool> {
        let mut statement: CachedStatement = connection.prepare_cached(sql)?;
        let values = std::iter::once(id).chain(row.iter().copied());
        let changed = statement.execute(params_from_iter(values.map(u64::cast_signed)))?;
        Ok(changed == 1)
    }

    fn read(&self, connection: &Connection, id: u64) -> rusqlite::Result<Option<[u64; N]>> {
        let mut statement = connection.prepare_cached(&self.select)?;
        statement
            .query_row([id.cast_signed()], |held| {
                let mut row = [0; N];
                for (column, cell) in row.iter_mut().enumerate() {
                    *cell = held.get::<_, i64>(column)?.cast_unsigned();
                }
                Ok(row)
            })
            .optional()
    }

    fn run(&self, connection: &Connection, request: Draw<u64>) -> rusqlite::Result<Answer<N>> {
        let (done, id) = match request {
            Draw::Select(id) => {
                let row = self.read(connection, id)?;
                return Ok(row.map_or(Answer::Refused, Answer::Row));
            }
            Draw::Update(id, seed) => {
                let row = row_of::<N>(seed);
                (self.write(connection, &self.update, id, &row)?, id)
            }
            Draw::Insert(key) => {
                let row = row_of::<N>(key);
                (self.write(connection, &self.insert, key, &row)?, key)
            }
            Draw::Delete(id) => (self.write(connection, DELETE, id, &[])?, id),
        };
        Ok(if done {
            Answer::Done(id)
        } else {
            Answer::Refused
        })
    }
}

impl<const N: usize> Peer<N> for Sqlite<N> {
    fn name(&self) -> &'static str {
        "SQLite :memory:"
    }

    fn is_transactional(&self) -> bool {
        true
    }

    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        let done = self.write(&self.connection.lock(), &self.insert, key, row);
        done.unwrap_or(false).then_some(key)
    }

    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.read(&self.connection.lock(), id).ok()?
    }

    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.write(&self.connection.lock(), &self.update, id, row)
            .unwrap_or(false)
    }

    fn delete(&self, id: u64) -> bool {
        self.write(&self.connection.lock(), DELETE, id, &[])
            .unwrap_or(false)
    }

    fn count(&self) -> Option<usize> {
        let connection = self.connection.lock();
        let rows: i64 = connection
            .query_row("SELECT count(*) FROM rows", [], |row| row.get(0))
            .ok()?;
        usize::try_from(rows).ok()
    }

    fn clear(&self) {
        // A failure shows in the row count after the cell.
        let _ = self.connection.lock().execute("DELETE FROM rows", []);
    }

    fn transaction(&self, requests: &[Draw<u64>], answers: &mut Vec<Answer<N>>) {
        let mut connection = self.connection.lock();
        let done = connection.transaction().and_then(|transaction| {
            for request in requests {
                answers.push(self.run(&transaction, *request)?);
            }
            transaction.commit()
        });
        if done.is_err() {
            answers.clear();
        }
        answers.resize(requests.len(), Answer::Refused);
    }
}
