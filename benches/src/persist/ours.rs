//! The engine's own: records of one shard, asked by a session in batches or one by one, or by code
//! that runs in the shard.
//!
//! The shard has a processor to itself, the session's thread the other one.

use std::path::Path;
use std::sync::Arc;

use ancile::{Engine, LocalRecords, RecordVerbs, Records, Resident, Session, Verbs};

use super::book::{Book, Contestant, Record};
use super::job::{Done, Job, Phase};
use crate::failure::Failure;

ancile::record! {
    /// A row, found by name.
    pub struct Person {
        name: String,
        address: String,
        telephone: String,
    }
    key(name);
}

ancile::record! {
    /// A row, found by name and by telephone.
    pub struct Indexed {
        name: String,
        address: String,
        telephone: String,
    }
    key(name);
    hash_index telephone(telephone);
}

/// The two kinds of rows, as this bench sees them.
pub trait Line: ancile::Record {
    /// A row of its own.
    fn new(record: Record<'_>) -> Self;
    /// The row, lent.
    fn lend(&self) -> Record<'_>;
}

macro_rules! line {
    ($type:ident) => {
        impl Line for $type {
            fn new(record: Record<'_>) -> Self {
                Self {
                    name: record.name.to_owned(),
                    address: record.address.to_owned(),
                    telephone: record.telephone.to_owned(),
                }
            }

            fn lend(&self) -> Record<'_> {
                Record {
                    name: &self.name,
                    address: &self.address,
                    telephone: &self.telephone,
                }
            }
        }
    };
}

line!(Person);
line!(Indexed);

/// How the engine is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By a session, many rows a call.
    Batches,
    /// By a session, row by row.
    Calls,
    /// By code in the shard, row by row.
    Resident,
}

/// An engine with a table of records.
pub struct Ours<R: Line> {
    engine: Engine,
    records: Arc<Records<R>>,
    way: Way,
}

/// The engine, in memory or in the files of a directory.
pub fn make(place: Option<&Path>, way: Way, job: Job) -> Result<Box<dyn Contestant>, Failure> {
    Ok(if job.indexes == 2 {
        Box::new(Ours::<Indexed>::new(place, way)?)
    } else {
        Box::new(Ours::<Person>::new(place, way)?)
    })
}

impl<R: Line> Ours<R> {
    fn new(place: Option<&Path>, way: Way) -> Result<Self, Failure> {
        let settings = Engine::builder().pus(&[last_pu()]).arena_bytes(8 << 30);
        let engine = match place {
            None => settings.build(),
            Some(place) => settings.open(place),
        };
        let engine = engine?;
        let records = engine.create_records("book")?;
        Ok(Self {
            engine,
            records: Arc::new(records),
            way,
        })
    }
}

/// The last processor that the process may use: the benches run on the first one.
fn last_pu() -> u32 {
    let machine = ancile::topology::Machine::discover();
    machine.allowed_pus.iter().last().unwrap_or(0)
}

impl<R: Line> Contestant for Ours<R> {
    fn run(&mut self, job: Job, phase: Phase) -> Result<Done, Failure> {
        if self.way == Way::Resident {
            let records = Arc::clone(&self.records);
            let work = move |resident: &mut Resident<'_>| {
                let local = resident.own_records(&records)?;
                job.run(phase, &mut Local(local, usize::from(job.indexes)))
            };
            return self.engine.spawn(0, work)?.join()?;
        }
        let mut session = self.engine.session()?;
        let mut book = Remote {
            records: session.records(&self.records),
            is_batched: self.way == Way::Batches,
            indexes: usize::from(job.indexes),
        };
        job.run(phase, &mut book)
    }
}

/// Records from within their shard.
struct Local<'a, R: Line>(LocalRecords<'a, R>, usize);

impl<R: Line> Book for Local<'_, R> {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        created(self.0.insert(&R::new(record)))
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        if let Some(record) = self.0.get(name)? {
            found(record.lend());
        }
        Ok(())
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        let records = self.0.find("telephone", telephone)?;
        if let Some(record) = records.first() {
            found(record.lend());
        }
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.0.delete(name)?)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        Ok(vec![self.0.count(); self.1])
    }
}

/// Records through a session.
struct Remote<'a, R: Line> {
    records: RecordVerbs<'a, Session, R>,
    is_batched: bool,
    /// The one by name, and perhaps the one by telephone: the engine keeps them in step.
    indexes: usize,
}

impl<R: Line> Book for Remote<'_, R> {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        created(self.records.insert(&R::new(record)))
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        if let Some(record) = self.records.get(name)? {
            found(record.lend());
        }
        Ok(())
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        let records = self.records.find("telephone", telephone);
        if let Some(record) = records?.first() {
            found(record.lend());
        }
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.records.delete(name)?)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        Ok(vec![self.records.count()?; self.indexes])
    }

    fn create_batch(&mut self, records: &[Record<'_>]) -> Result<usize, Failure> {
        debug_assert!(self.is_batched);
        let records: Vec<R> = records.iter().map(|&record| R::new(record)).collect();
        Ok(self.records.insert_batch(&records)?)
    }

    fn by_name_batch(
        &mut self,
        names: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let visit = |at: usize, record: Option<R>| {
            if let Some(record) = record {
                found(at, record.lend());
            }
        };
        Ok(self.records.get_each(names, visit)?)
    }

    fn by_telephone_batch(
        &mut self,
        telephones: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let visit = |at: usize, record: R| found(at, record.lend());
        Ok(self.records.find_each("telephone", telephones, visit)?)
    }

    fn delete_batch(&mut self, names: &[&str]) -> Result<usize, Failure> {
        Ok(self.records.delete_batch(names)?)
    }
}

fn created(result: ancile::Result<()>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(ancile::Error::DuplicateKey) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
