//! What the workers of the killed process do with records.

use std::panic::resume_unwind;
use std::sync::Arc;

use ancile::{Error, SurrogateId, Verbs};

use super::child::Worker;
use super::model::{Change, row_of};
use super::people::{name_of, note, person};

/// People and notes of one worker.
const OWN: u64 = 24;

impl Worker {
    fn of_own(&mut self) -> u64 {
        self.number << 32 | self.random.below(OWN)
    }

    /// Finds out which notes belong to which shard, by what each shard takes; nothing of it stays.
    pub(super) fn find_notes(&mut self, client: &mut impl Verbs) {
        let first = self.number << 32;
        let tables = &self.tables;
        for shard in 0..tables.engine.shards() {
            let mut own = Vec::new();
            let nothing = client.on(shard, |context| {
                let mut notes = context.records(&tables.notes)?;
                own.extend(
                    (first..first + OWN).filter(|&number| notes.upsert(&note(number, 1)).is_ok()),
                );
                Err::<(), _>(Error::NotKeyed)
            });
            assert_eq!(nothing, Err(Error::NotKeyed));
            self.own_notes.push(own);
        }
        assert_eq!(self.own_notes.iter().flatten().count() as u64, OWN);
    }

    /// A person comes, changes or goes; its telephone is entered in another shard.
    pub(super) fn person(&mut self, client: &mut impl Verbs) {
        let (number, value) = (self.of_own(), self.value());
        let tables = Arc::clone(&self.tables);
        let mut people = client.records(&tables.people);
        match self.random.below(4) {
            0 => {
                self.begins(&[vec![Change::Person(number, None)]]);
                people.delete(name_of(number)).unwrap();
            }
            1 => {
                self.begins(&[vec![Change::Person(number, Some(value))]]);
                match people.insert(&person(number, value)) {
                    Ok(()) => {}
                    Err(Error::DuplicateKey) => return self.has_not(),
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                self.begins(&[vec![Change::Person(number, Some(value))]]);
                people.upsert(&person(number, value)).unwrap();
            }
        }
        self.has_done(&[]);
    }

    /// Notes that differ, each for itself.
    pub(super) fn notes(&mut self, client: &mut impl Verbs) {
        let tables = Arc::clone(&self.tables);
        let mut notes = client.records(&tables.notes);
        let first = self.number << 32;
        let some: Vec<u64> = (first..first + OWN)
            .filter(|_| self.random.below(3) == 0)
            .collect();
        if self.random.below(3) == 0 {
            let groups = some.iter().map(|&number| vec![Change::Note(number, None)]);
            self.begins(&groups.collect::<Vec<_>>());
            let titles: Vec<String> = some.iter().map(|&number| name_of(number)).collect();
            notes.delete_batch(&titles).unwrap();
        } else {
            let new: Vec<_> = some.iter().map(|&number| (number, self.value())).collect();
            let group = |&(number, value)| vec![Change::Note(number, Some(value))];
            self.begins(&new.iter().map(group).collect::<Vec<_>>());
            let new = new.iter().map(|&(number, value)| note(number, value));
            notes.upsert_batch(&new.collect::<Vec<_>>()).unwrap();
        }
        self.has_done(&[]);
    }

    /// Notes of one shard, all or none: sometimes it returns an error or panics.
    pub(super) fn notes_in_shard(&mut self, client: &mut impl Verbs) {
        let tables = Arc::clone(&self.tables);
        let shard = self.random.below(tables.engine.shards() as u64) as usize;
        let own = self.own_notes[shard].clone();
        let mut plan = Vec::new();
        for number in own {
            match self.random.below(4) {
                0 => plan.push((number, None)),
                1 | 2 => plan.push((number, Some(self.value()))),
                _ => {}
            }
        }
        let end = self.random.below(4);
        let group = plan
            .iter()
            .map(|&(number, value)| Change::Note(number, value));
        let group: Vec<_> = group.collect();
        if group.is_empty() {
            return;
        }
        self.begins(&[group]);
        let result = client.on(shard, |context| {
            let mut notes = context.records(&tables.notes)?;
            for &(number, value) in &plan {
                match value {
                    Some(value) => drop(notes.upsert(&note(number, value))?),
                    None => drop(notes.delete(name_of(number))?),
                }
            }
            match end {
                0 => Err(Error::NotKeyed),
                1 => resume_unwind(Box::new("as planned")),
                _ => Ok(()),
            }
        });
        match result {
            Ok(()) => self.has_done(&[]),
            Err(error) => {
                assert!(end < 2, "{error}");
                self.has_not();
            }
        }
    }

    /// People, notes and rows in one transaction, which may be given up.
    pub(super) fn people_and_keys(&mut self, client: &mut impl Verbs) {
        let tables = Arc::clone(&self.tables);
        let mut group = Vec::new();
        let first = self.number << 32;
        for number in first..first + OWN {
            match self.random.below(8) {
                0 => group.push(Change::Person(number, Some(self.value()))),
                1 => group.push(Change::Note(number, Some(self.value()))),
                2 => group.push(Change::Note(number, None)),
                3 => group.push(Change::Person(number, None)),
                _ => {}
            }
        }
        let (key, value) = (self.key(), self.value());
        group.push(Change::Keys(key, 1, Some(value)));
        let is_given_up = self.random.below(5) == 0;
        self.begins(&[group.clone()]);
        let done = client.transaction(|transaction| {
            for &change in &group {
                match change {
                    Change::Person(number, Some(value)) => {
                        let mut people = transaction.records(&tables.people);
                        people.upsert(&person(number, value))?;
                    }
                    Change::Person(number, None) => {
                        let mut people = transaction.records(&tables.people);
                        people.delete(name_of(number))?;
                    }
                    Change::Note(number, Some(value)) => {
                        let mut notes = transaction.records(&tables.notes);
                        notes.upsert(&note(number, value))?;
                    }
                    Change::Note(number, None) => {
                        let mut notes = transaction.records(&tables.notes);
                        notes.delete(name_of(number))?;
                    }
                    _ => {
                        let id = SurrogateId(key);
                        transaction.upsert(&tables.keys, id, &row_of(key, value))?;
                    }
                }
            }
            if is_given_up {
                return Err(Error::NotKeyed);
            }
            Ok(())
        });
        match done {
            Ok(()) => self.has_done(&[]),
            Err(error) => {
                assert!(is_given_up, "{error}");
                self.has_not();
            }
        }
    }
}
