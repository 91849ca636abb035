//! SQLite in memory and in a file, through rusqlite with the bundled library.
//!
//! A table without row ids, so that the name's tree is the table; the telephone has a unique index.
//! Statements are prepared at the start of each phase. A single call is a transaction of its own.

use std::path::Path;

use rusqlite::{Connection, Statement};

use super::book::{Book, Contestant, Record};
use super::job::{Done, Job, Phase};
use crate::failure::Failure;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// As SQLite comes: a rollback journal, synced with every transaction.
    Default,
    /// No journal, no syncs: a process killed in a transaction leaves a damaged file.
    Off,
    /// A write-ahead log, no syncs: what was committed survives the process.
    Log,
}

impl Setting {
    /// Opens its file for one process, with a page cache that holds all of it, as the maps do.
    fn pragmas(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Off => {
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; \
                 PRAGMA synchronous = OFF; PRAGMA cache_size = -4000000;"
            }
            Self::Log => {
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; \
                 PRAGMA synchronous = OFF; PRAGMA cache_size = -4000000;"
            }
        }
    }
}

/// A database of one table.
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// An empty book in memory.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn in_memory(indexes: u8) -> Result<Self, Failure> {
        Self::new(Connection::open_in_memory()?, "", indexes)
    }

    /// An empty book in a new file.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn in_file(directory: &Path, setting: Setting, indexes: u8) -> Result<Self, Failure> {
        let connection = Connection::open(directory.join("people.sqlite"))?;
        Self::new(connection, setting.pragmas(), indexes)
    }

    fn new(connection: Connection, pragmas: &str, indexes: u8) -> Result<Self, Failure> {
        let by_telephone = match indexes {
            2 => "CREATE UNIQUE INDEX by_telephone ON people (telephone);",
            _ => "",
        };
        connection.execute_batch(&format!(
            "{pragmas} CREATE TABLE people (name TEXT NOT NULL PRIMARY KEY, \
             address TEXT NOT NULL, telephone TEXT NOT NULL) WITHOUT ROWID; {by_telephone}"
        ))?;
        Ok(Self { connection })
    }
}

impl Contestant for Sqlite {
    fn run(&mut self, job: Job, phase: Phase) -> Result<Done, Failure> {
        job.run(phase, &mut Prepared::new(&self.connection)?)
    }
}

/// The statements, which borrow the connection.
struct Prepared<'c> {
    connection: &'c Connection,
    create: Statement<'c>,
    by_name: Statement<'c>,
    by_telephone: Statement<'c>,
    delete: Statement<'c>,
}

impl<'c> Prepared<'c> {
    fn new(connection: &'c Connection) -> Result<Self, Failure> {
        let select = "SELECT name, address, telephone FROM people WHERE";
        Ok(Self {
            connection,
            create: connection.prepare("INSERT OR IGNORE INTO people VALUES (?1, ?2, ?3)")?,
            by_name: connection.prepare(&format!("{select} name = ?1"))?,
            by_telephone: connection.prepare(&format!("{select} telephone = ?1"))?,
            delete: connection.prepare("DELETE FROM people WHERE name = ?1")?,
        })
    }
}

fn find(
    statement: &mut Statement<'_>,
    key: &str,
    found: impl FnOnce(Record<'_>),
) -> Result<(), Failure> {
    let mut rows = statement.query([key])?;
    if let Some(row) = rows.next()? {
        found(Record {
            name: row.get_ref(0)?.as_str()?,
            address: row.get_ref(1)?.as_str()?,
            telephone: row.get_ref(2)?.as_str()?,
        });
    }
    Ok(())
}

impl Book for Prepared<'_> {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        let values = [record.name, record.address, record.telephone];
        Ok(self.create.execute(values)? == 1)
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        find(&mut self.by_name, name, found)
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        find(&mut self.by_telephone, telephone, found)
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.delete.execute([name])? == 1)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        let count = |sql: &str| {
            let count = self.connection.query_row(sql, [], |row| row.get(0));
            count.map(i64::cast_unsigned)
        };
        // The second one is answered from the second index, where there is one.
        Ok(vec![
            count("SELECT count(*) FROM people WHERE name >= ''")?,
            count("SELECT count(*) FROM people WHERE telephone >= ''")?,
        ])
    }

    fn create_batch(&mut self, records: &[Record<'_>]) -> Result<usize, Failure> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut created = 0;
        for record in records {
            created += usize::from(self.create(*record)?);
        }
        transaction.commit()?;
        Ok(created)
    }

    fn by_name_batch(
        &mut self,
        names: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let transaction = self.connection.unchecked_transaction()?;
        for (index, name) in names.iter().enumerate() {
            self.by_name(name, |record| found(index, record))?;
        }
        Ok(transaction.commit()?)
    }

    fn by_telephone_batch(
        &mut self,
        telephones: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let transaction = self.connection.unchecked_transaction()?;
        for (index, telephone) in telephones.iter().enumerate() {
            self.by_telephone(telephone, |record| found(index, record))?;
        }
        Ok(transaction.commit()?)
    }

    fn delete_batch(&mut self, names: &[&str]) -> Result<usize, Failure> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut deleted = 0;
        for name in names {
            deleted += usize::from(self.delete(name)?);
        }
        transaction.commit()?;
        Ok(deleted)
    }
}
