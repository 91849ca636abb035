//! redb: copy-on-write B+trees in a file, in pure Rust.
//!
//! Two trees: name -> address and telephone, telephone -> name. A single call is a transaction of its
//! own, and so is every look-up. Without durability one commit in a thousand is durable all the same:
//! that is when freed pages come back, and the file would grow without end.

use std::path::Path;

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};

use super::book::{Book, Record};
use crate::failure::Failure;

const PEOPLE: TableDefinition<&str, (&str, &str)> = TableDefinition::new("people");
const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");

/// Without durability, every so many commits one is durable.
const COMMITS_PER_DURABLE: u64 = 1_000;

/// A database of one or two trees.
pub struct Redb {
    database: Database,
    durability: Durability,
    indexes: u8,
    commits: u64,
}

impl Redb {
    /// An empty book in a new file.
    ///
    /// # Errors
    /// Those of redb.
    pub fn new(directory: &Path, durability: Durability, indexes: u8) -> Result<Self, Failure> {
        let mut book = Self {
            database: Database::create(directory.join("people.redb"))?,
            durability,
            indexes,
            commits: 0,
        };
        // Makes the tables, which reading must find.
        book.create_batch(&[])?;
        Ok(book)
    }

    fn begin(&mut self) -> Result<WriteTransaction, Failure> {
        let mut transaction = self.database.begin_write()?;
        if !self.commits.is_multiple_of(COMMITS_PER_DURABLE) {
            transaction.set_durability(self.durability)?;
        }
        self.commits += 1;
        Ok(transaction)
    }
}

/// Tables open for reading.
struct Tables {
    people: ReadOnlyTable<&'static str, (&'static str, &'static str)>,
    names: Option<ReadOnlyTable<&'static str, &'static str>>,
}

impl Tables {
    /// The tables that are needed for the search, and no others.
    fn open(database: &Database, by_telephone: bool) -> Result<Self, Failure> {
        let transaction = database.begin_read()?;
        let names = by_telephone.then(|| transaction.open_table(NAMES));
        Ok(Self {
            people: transaction.open_table(PEOPLE)?,
            names: names.transpose()?,
        })
    }

    fn find(&self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        if let Some(value) = self.people.get(name)? {
            let (address, telephone) = value.value();
            found(Record {
                name,
                address,
                telephone,
            });
        }
        Ok(())
    }

    fn find_by_telephone(
        &self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        match names.get(telephone)? {
            Some(name) => self.find(name.value(), found),
            None => Ok(()),
        }
    }
}

impl Book for Redb {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        Ok(self.create_batch(&[record])? == 1)
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        Tables::open(&self.database, false)?.find(name, found)
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        Tables::open(&self.database, true)?.find_by_telephone(telephone, found)
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.delete_batch(&[name])? == 1)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        let transaction = self.database.begin_read()?;
        let mut counts = vec![transaction.open_table(PEOPLE)?.len()?];
        if self.indexes == 2 {
            counts.push(transaction.open_table(NAMES)?.len()?);
        }
        Ok(counts)
    }

    fn create_batch(&mut self, records: &[Record<'_>]) -> Result<usize, Failure> {
        let transaction = self.begin()?;
        let mut created = 0;
        {
            let mut people = transaction.open_table(PEOPLE)?;
            let mut names = match self.indexes {
                2 => Some(transaction.open_table(NAMES)?),
                _ => None,
            };
            for record in records {
                let value = (record.address, record.telephone);
                let mut is_new = people.insert(record.name, value)?.is_none();
                if let Some(names) = &mut names {
                    is_new &= names.insert(record.telephone, record.name)?.is_none();
                }
                created += usize::from(is_new);
            }
        }
        transaction.commit()?;
        Ok(created)
    }

    fn by_name_batch(
        &mut self,
        names: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let tables = Tables::open(&self.database, false)?;
        for (index, name) in names.iter().enumerate() {
            tables.find(name, |record| found(index, record))?;
        }
        Ok(())
    }

    fn by_telephone_batch(
        &mut self,
        telephones: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let tables = Tables::open(&self.database, true)?;
        for (index, telephone) in telephones.iter().enumerate() {
            tables.find_by_telephone(telephone, |record| found(index, record))?;
        }
        Ok(())
    }

    fn delete_batch(&mut self, names: &[&str]) -> Result<usize, Failure> {
        let transaction = self.begin()?;
        let mut deleted = 0;
        {
            let mut people = transaction.open_table(PEOPLE)?;
            let mut telephones = match self.indexes {
                2 => Some(transaction.open_table(NAMES)?),
                _ => None,
            };
            for name in names {
                let Some(value) = people.remove(name)? else {
                    continue;
                };
                let is_whole = match &mut telephones {
                    Some(telephones) => telephones.remove(value.value().1)?.is_some(),
                    None => true,
                };
                deleted += usize::from(is_whole);
            }
        }
        transaction.commit()?;
        Ok(deleted)
    }
}
