//! What a contestant has to be able to do.
//!
//! The loops of [`Job`] are compiled for each [`Book`], so that a map's look-up can be inlined. Which
//! thread runs them is the [`Contestant`]'s affair: most run them where they are called; one that
//! works elsewhere, or borrows for the time of a phase, makes its book there and calls [`Job::run`].

use super::job::{Done, Job, Phase};
use crate::failure::Failure;

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unique.
    pub name: &'a str,
    /// Not indexed.
    pub address: &'a str,
    /// Unique; looked for where there are two indexes.
    pub telephone: &'a str,
}

/// An indexed table of records. After a refusal nothing more is asked of it.
///
/// What was found is lent to a closure and compared there, so that no contestant copies for nothing.
/// Batches are what one call may hold: a transaction, a message. Without any they are single calls.
pub trait Book {
    /// Before the first call of a phase; under the clock.
    ///
    /// # Errors
    /// The store's own.
    fn begin(&mut self, _phase: Phase) -> Result<(), Failure> {
        Ok(())
    }

    /// After the last call of a phase; under the clock.
    ///
    /// # Errors
    /// The store's own.
    fn end(&mut self, _phase: Phase) -> Result<(), Failure> {
        Ok(())
    }

    /// Enters a record; false if there is one of that name or telephone.
    ///
    /// # Errors
    /// The store's own.
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure>;

    /// Calls `found` with the record of this name, if there is one.
    ///
    /// # Errors
    /// The store's own.
    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure>;

    /// Calls `found` with the record of this telephone, if there is one.
    ///
    /// # Errors
    /// The store's own.
    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure>;

    /// Deletes the record of this name from all indexes; false if there is none.
    ///
    /// # Errors
    /// The store's own.
    fn delete(&mut self, name: &str) -> Result<bool, Failure>;

    /// Entries of each index; never under the clock.
    ///
    /// # Errors
    /// The store's own.
    fn counts(&mut self) -> Result<Vec<u64>, Failure>;

    /// Enters records; how many.
    ///
    /// # Errors
    /// The store's own.
    fn create_batch(&mut self, records: &[Record<'_>]) -> Result<usize, Failure> {
        let mut created = 0;
        for record in records {
            created += usize::from(self.create(*record)?);
        }
        Ok(created)
    }

    /// Calls `found` with each record found and the index of its name.
    ///
    /// # Errors
    /// The store's own.
    fn by_name_batch(
        &mut self,
        names: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        for (index, name) in names.iter().enumerate() {
            self.by_name(name, |record| found(index, record))?;
        }
        Ok(())
    }

    /// Calls `found` with each record found and the index of its telephone.
    ///
    /// # Errors
    /// The store's own.
    fn by_telephone_batch(
        &mut self,
        telephones: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        for (index, telephone) in telephones.iter().enumerate() {
            self.by_telephone(telephone, |record| found(index, record))?;
        }
        Ok(())
    }

    /// Deletes the records of these names; how many.
    ///
    /// # Errors
    /// The store's own.
    fn delete_batch(&mut self, names: &[&str]) -> Result<usize, Failure> {
        let mut deleted = 0;
        for name in names {
            deleted += usize::from(self.delete(name)?);
        }
        Ok(deleted)
    }
}

/// Something that does the four phases, in order, once.
pub trait Contestant: Send {
    /// Does one phase.
    ///
    /// # Errors
    /// A wrong answer, or the store's own.
    fn run(&mut self, job: Job, phase: Phase) -> Result<Done, Failure>;
}

impl<B: Book + Send> Contestant for B {
    fn run(&mut self, job: Job, phase: Phase) -> Result<Done, Failure> {
        job.run(phase, self)
    }
}
