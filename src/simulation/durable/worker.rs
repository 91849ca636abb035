//! A client of globals that tries all verbs: whatever they say is compared with its map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::globals::Life;
use super::model::{Book, Model, Name, Whole, chosen_value, level};
use crate::collation::{GlobalKey, KeyRange, Number};
use crate::error::{Error, Result};
use crate::session::{Acknowledge, Isolation, TransactionGlobals, TransactionOptions, Verbs};
use crate::simulation::{Choices, Client};
use crate::table::Data;

/// A client at work.
pub(super) struct Worker<'a, 'y> {
    pub(super) life: &'a Life,
    pub(super) number: usize,
    pub(super) choices: Choices,
    pub(super) client: Client<'y>,
}

impl Worker<'_, '_> {
    fn book<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.life.books.borrow_mut()[self.number])
    }

    fn model<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        self.book(|book| look(&book.model))
    }

    fn name(&self) -> Name {
        Name::chosen(&self.choices, self.number)
    }

    /// One random verb; what it says is compared.
    pub(super) fn step(&mut self) -> Result<()> {
        let waits = !self.life.is_relaxed || self.choices.below(8) == 0;
        self.client.set_acknowledge(match waits {
            true => Acknowledge::Durable,
            false => Acknowledge::Executed,
        });
        let steps = self.book(|book| book.steps());
        let name = self.name();
        match self.choices.below(17) {
            0..3 => self.set(name)?,
            3 => self.get(&name)?,
            4 => self.kill(&name)?,
            5 => self.increment(name)?,
            6 => self.batch()?,
            7 => self.batch_of_sums()?,
            8 => self.orders(&name)?,
            9 => self.queries(&name)?,
            10 => self.merge(&name)?,
            11 => self.scan(&name)?,
            12 => self.scan_range(&name)?,
            13..16 => self.transaction()?,
            _ => return self.flush(),
        }
        if waits && self.book(|book| book.steps()) > steps {
            self.book(Book::tell);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.client.flush()?;
        self.book(Book::tell);
        Ok(())
    }

    fn set(&mut self, name: Name) -> Result<()> {
        let (key, value) = (name.key(), chosen_value(&self.choices));
        let was_there = self.model(|model| model.contains_key(&name));
        let changes = BTreeMap::from([(name, Some(value.clone()))]);
        self.book(|book| book.begin(Whole::All, changes));
        let replaced = self.client.globals(&self.life.store).set(&key, value)?;
        assert_eq!(replaced, was_there);
        Ok(())
    }

    fn get(&mut self, name: &Name) -> Result<()> {
        let mut globals = self.client.globals(&self.life.store);
        let (value, data) = (globals.get(&name.key())?, globals.data(&name.key())?);
        let count = globals.count(&name.key())?;
        self.model(|model| {
            assert_eq!(value.as_ref(), model.get(name));
            assert_eq!(data, data_of(model, name));
            let below = model.keys().filter(|other| other.begins_with(name));
            assert_eq!(count, below.count() as u64);
        });
        Ok(())
    }

    fn kill(&mut self, name: &Name) -> Result<()> {
        let changes = self.model(|model| removed(model, name));
        let count = changes.len() as u64;
        self.book(|book| book.begin(Whole::Shard, changes));
        let mut globals = self.client.globals(&self.life.store);
        assert_eq!(globals.kill(&name.key())?, count);
        Ok(())
    }

    fn increment(&mut self, name: Name) -> Result<()> {
        let by = self.choices.below(20) as i64 - 10;
        let (key, sum) = (name.key(), self.model(|model| sum_of(model, &name, by)));
        let changes = BTreeMap::from([(name, Some(sum.to_string().into_bytes()))]);
        self.book(|book| book.begin(Whole::All, changes));
        let told = self.client.globals(&self.life.store).increment(&key, by)?;
        assert_eq!(told, sum);
        Ok(())
    }

    /// Different names, some of which are there.
    fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = (0..self.choices.below(30)).map(|_| self.name()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn batch(&mut self) -> Result<()> {
        let entries = self.names().into_iter();
        let entries: BTreeMap<Name, Vec<u8>> = entries
            .map(|name| (name, chosen_value(&self.choices)))
            .collect();
        let sent: Vec<(GlobalKey, Vec<u8>)> = entries
            .iter()
            .map(|(name, value)| (name.key(), value.clone()))
            .collect();
        let changes = entries.into_iter().map(|(name, value)| (name, Some(value)));
        self.book(|book| book.begin(Whole::Node, changes.collect()));
        self.client.globals(&self.life.store).set_batch(&sent)?;
        let asked = self.names();
        let keys: Vec<GlobalKey> = asked.iter().map(Name::key).collect();
        let values = self.client.globals(&self.life.store).get_batch(&keys)?;
        self.model(|model| {
            for (name, value) in asked.iter().zip(&values) {
                assert_eq!(value.as_ref(), model.get(name));
            }
        });
        Ok(())
    }

    fn batch_of_sums(&mut self) -> Result<()> {
        let (names, by) = (self.names(), self.choices.below(9) as i64);
        let sum = |name| self.model(|model| sum_of(model, name, by));
        let sums: Vec<Number> = names.iter().map(sum).collect();
        let keys: Vec<GlobalKey> = names.iter().map(Name::key).collect();
        let texts = sums.iter().map(|sum| Some(sum.to_string().into_bytes()));
        let changes = names.into_iter().zip(texts).collect();
        self.book(|book| book.begin(Whole::Node, changes));
        let mut told = 0;
        let mut globals = self.client.globals(&self.life.store);
        globals.increment_batch(&keys, by, |at, sum| {
            assert_eq!(sum, sums[at]);
            told += 1;
        })?;
        assert_eq!(told, keys.len());
        Ok(())
    }

    fn orders(&mut self, name: &Name) -> Result<()> {
        let (key, own) = (name.key(), self.number);
        let mut globals = self.client.globals(&self.life.store);
        let told = [
            globals.next(&key)?,
            globals.previous(&key)?,
            globals.first(&key)?,
            globals.last(&key)?,
        ];
        let wanted = self.model(|model| {
            let above = name.parts.split_last().map(|(_, parts)| Name {
                name: name.name.clone(),
                parts: parts.to_vec(),
            });
            let beside = level(model, above.as_ref());
            let below = level(model, Some(name));
            let (mut behind, mut before) = (beside.iter(), beside.iter().rev());
            [
                behind.find(|other| *other > name).cloned(),
                before.find(|other| *other < name).cloned(),
                below.first().cloned(),
                below.last().cloned(),
            ]
        });
        for (told, wanted) in told.into_iter().zip(wanted) {
            // Behind a client's names are those of another.
            let others = told.filter(|told| wanted.is_some() || told.name()[0] == b'0' + own as u8);
            assert_eq!(others, wanted.as_ref().map(Name::key));
        }
        Ok(())
    }

    fn queries(&mut self, name: &Name) -> Result<()> {
        let key = name.key();
        let mut globals = self.client.globals(&self.life.store);
        let told = (globals.query(&key)?, globals.query_back(&key)?);
        let node = |found: Option<(&Name, &Vec<u8>)>| {
            let (found, value) = found.filter(|(other, _)| other.name == name.name)?;
            Some((found.key(), value.clone()))
        };
        let wanted = self.model(|model| {
            let (mut behind, mut before) = (model.iter(), model.iter().rev());
            let behind = behind.find(|(other, _)| *other > name);
            let before = before.find(|(other, _)| *other < name);
            (node(behind), node(before))
        });
        assert_eq!(told, wanted);
        Ok(())
    }

    fn merge(&mut self, from: &Name) -> Result<()> {
        let to = self.name();
        let overlaps = from.begins_with(&to) || to.begins_with(from);
        let mut changes = BTreeMap::new();
        if !overlaps {
            self.model(|model| {
                let nodes = model.iter().filter(|(name, _)| name.begins_with(from));
                changes.extend(nodes.map(|(name, value)| {
                    let value = Some(value.clone());
                    (name.moved(from, &to), value)
                }));
            });
        }
        let count = changes.len() as u64;
        self.book(|book| book.begin(Whole::Node, changes));
        let mut globals = self.client.globals(&self.life.store);
        match globals.merge(&from.key(), &to.key()) {
            Err(Error::MergeOverlap) if overlaps && *from != to => Ok(()),
            merged => {
                assert_eq!(merged?, count);
                assert!(!overlaps || *from == to);
                Ok(())
            }
        }
    }

    fn scan(&mut self, name: &Name) -> Result<()> {
        let wanted: Vec<(GlobalKey, Vec<u8>)> = self.model(|model| {
            let nodes = model.iter().filter(|(other, _)| other.begins_with(name));
            nodes
                .map(|(name, value)| (name.key(), value.clone()))
                .collect()
        });
        let mut found = Vec::new();
        let mut globals = self.client.globals(&self.life.store);
        globals.scan(&name.key(), |key, value| {
            found.push((key.to_key().unwrap(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        assert_eq!(found, wanted);
        found.clear();
        globals.scan_back(&name.key(), |key, value| {
            found.push((key.to_key().unwrap(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        found.reverse();
        assert_eq!(found, wanted);
        Ok(())
    }

    fn scan_range(&mut self, name: &Name) -> Result<()> {
        let range = KeyRange {
            start: name.key().into_bytes(),
            end: self.name().key().into_bytes(),
        };
        let nodes_max = 1 + self.choices.below(20) as usize;
        let wanted: Vec<(GlobalKey, Vec<u8>)> = self.model(|model| {
            let nodes = model
                .iter()
                .map(|(name, value)| (name.key(), value.clone()));
            let nodes = nodes.filter(|(key, _)| range.contains(key.as_bytes()));
            nodes.take(nodes_max).collect()
        });
        let mut found = Vec::new();
        let mut globals = self.client.globals(&self.life.store);
        globals.scan_range(&range, |key, value| {
            found.push((key.to_key().unwrap(), value.to_vec()));
            match found.len() < nodes_max {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        assert_eq!(found, wanted);
        Ok(())
    }

    fn transaction(&mut self) -> Result<()> {
        let changes: Vec<(Name, u64, Vec<u8>)> = (0..1 + self.choices.below(8))
            .map(|_| {
                let what = self.choices.below(6);
                (self.name(), what, chosen_value(&self.choices))
            })
            .collect();
        let before = self.model(Model::clone);
        let mut after = before.clone();
        changes
            .iter()
            .for_each(|change| change_model(&mut after, change));
        let names = before.keys().chain(after.keys());
        let differing = names.filter(|name| before.get(*name) != after.get(*name));
        let steps = differing.map(|name| (name.clone(), after.get(name).cloned()));
        let steps = steps.collect();
        let rolls_back = self.choices.below(6) == 0;
        if !rolls_back {
            self.book(|book| book.begin(Whole::All, steps));
        }
        let isolation = match self.choices.below(2) {
            0 => Isolation::ReadCommitted,
            _ => Isolation::Serializable,
        };
        let options = TransactionOptions::new(isolation);
        let store = &self.life.store;
        let done = self.client.transaction_with(options, |transaction| {
            let mut model = before.clone();
            let mut globals = transaction.globals(store);
            for change in &changes {
                change_here(&mut globals, &model, change)?;
                change_model(&mut model, change);
            }
            match rolls_back {
                true => Err(Error::ReadOnly),
                false => Ok(()),
            }
        });
        match done {
            Err(Error::ReadOnly) if rolls_back => Ok(()),
            done => done,
        }
    }
}

fn data_of(model: &Model, name: &Name) -> Data {
    let mut below = model.keys().filter(|other| other.begins_with(name));
    Data {
        has_value: model.contains_key(name),
        has_descendants: below.any(|other| other != name),
    }
}

fn sum_of(model: &Model, name: &Name, by: i64) -> Number {
    let old = model.get(name).map_or(&[][..], |value| value);
    Number::of_value(old).unwrap().plus(by.into()).unwrap()
}

fn removed(model: &Model, name: &Name) -> BTreeMap<Name, Option<Vec<u8>>> {
    let gone = model.keys().filter(|other| other.begins_with(name));
    gone.map(|name| (name.clone(), None)).collect()
}

/// One change of a transaction in the model.
fn change_model(model: &mut Model, (name, what, value): &(Name, u64, Vec<u8>)) {
    match what {
        0 | 1 => {}
        2 => model.retain(|other, _| !other.begins_with(name)),
        3 => {
            let sum = sum_of(model, name, 5);
            model.insert(name.clone(), sum.to_string().into_bytes());
        }
        _ => drop(model.insert(name.clone(), value.clone())),
    }
}

/// One change of a transaction; what it sees is what the model has.
fn change_here<S: Verbs>(
    globals: &mut TransactionGlobals<'_, '_, S>,
    model: &Model,
    (name, what, value): &(Name, u64, Vec<u8>),
) -> Result<()> {
    let key = name.key();
    match what {
        0 => assert_eq!(globals.get(&key)?.as_ref(), model.get(name)),
        1 => assert_eq!(globals.data(&key)?, data_of(model, name)),
        2 => globals.kill(&key)?,
        3 => assert_eq!(globals.increment(&key, 5)?, sum_of(model, name, 5)),
        _ => globals.set(&key, value)?,
    }
    Ok(())
}
