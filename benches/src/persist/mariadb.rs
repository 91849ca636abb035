//! MariaDB through its socket: a server with statements prepared once, one a row.
//!
//! Each statement is a transaction of its own. The server is started by the bench script, for this
//! run only; how it writes its log is set when the book is made.

use std::path::Path;

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Statement};

use super::book::{Book, Record};
use crate::failure::Failure;

/// When the log of committed transactions is written and synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// With every transaction, as MariaDB comes.
    EveryCommit,
    /// About once a second.
    EverySecond,
}

/// A table of its own in the server.
pub struct Mariadb {
    connection: Conn,
    create: Statement,
    by_name: Statement,
    by_telephone: Statement,
    delete: Statement,
}

impl Mariadb {
    /// An empty table in the server behind `socket`.
    ///
    /// # Errors
    /// Those of the server and of the connection.
    pub fn new(socket: &Path, flush: Flush, indexes: u8) -> Result<Self, Failure> {
        let socket = socket.to_string_lossy().into_owned();
        let options = OptsBuilder::new().socket(Some(socket)).user(Some("root"));
        let mut connection = Conn::new(options)?;
        let setting = match flush {
            Flush::EveryCommit => 1,
            Flush::EverySecond => 0,
        };
        let by_telephone = match indexes {
            2 => ", UNIQUE KEY (telephone)",
            _ => "",
        };
        for sql in [
            &format!("SET GLOBAL innodb_flush_log_at_trx_commit = {setting}"),
            "CREATE DATABASE IF NOT EXISTS bench",
            "USE bench",
            "DROP TABLE IF EXISTS people",
            &format!(
                "CREATE TABLE people (name VARCHAR(20) NOT NULL PRIMARY KEY, \
                 address VARCHAR(30) NOT NULL, telephone VARCHAR(14) NOT NULL{by_telephone}) \
                 ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            ),
        ] {
            connection.query_drop(sql)?;
        }
        let select = "SELECT name, address, telephone FROM people WHERE";
        Ok(Self {
            create: connection.prep("INSERT IGNORE INTO people VALUES (?, ?, ?)")?,
            by_name: connection.prep(format!("{select} name = ?"))?,
            by_telephone: connection.prep(format!("{select} telephone = ?"))?,
            delete: connection.prep("DELETE FROM people WHERE name = ?")?,
            connection,
        })
    }
}

fn find(
    connection: &mut Conn,
    statement: &Statement,
    key: &str,
    found: impl FnOnce(Record<'_>),
) -> Result<(), Failure> {
    let row: Option<(String, String, String)> = connection.exec_first(statement, (key,))?;
    if let Some((name, address, telephone)) = row {
        found(Record {
            name: &name,
            address: &address,
            telephone: &telephone,
        });
    }
    Ok(())
}

impl Book for Mariadb {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        let values = (record.name, record.address, record.telephone);
        self.connection.exec_drop(&self.create, values)?;
        Ok(self.connection.affected_rows() == 1)
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        find(&mut self.connection, &self.by_name, name, found)
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        find(&mut self.connection, &self.by_telephone, telephone, found)
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        self.connection.exec_drop(&self.delete, (name,))?;
        Ok(self.connection.affected_rows() == 1)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        let count = self.connection.query_first("SELECT count(*) FROM people")?;
        Ok(count.into_iter().collect())
    }
}
