//! Maps of the standard library, and hashbrown with its own hasher: what a program without a store has.
//!
//! name -> address and telephone; with a second index also telephone -> name, which makes two look-ups
//! of a search by telephone. Texts are owned `String`s. Nothing is presized and nothing survives.

use std::collections::{BTreeMap, HashMap, btree_map, hash_map};

use super::book::{Book, Record};
use crate::failure::Failure;

/// `HashMap`s of the standard library.
pub type HashPair = Pair<HashMap<String, Person>, HashMap<String, String>>;

/// `BTreeMap`s of the standard library.
pub type TreePair = Pair<BTreeMap<String, Person>, BTreeMap<String, String>>;

/// Maps of hashbrown.
pub type BrownPair = Pair<hashbrown::HashMap<String, Person>, hashbrown::HashMap<String, String>>;

/// What is stored under a name.
pub struct Person {
    address: String,
    telephone: String,
}

/// What the pairs need of a map.
pub trait Map<V>: Default + Send {
    /// Inserts unless there is such a key.
    fn enter(&mut self, key: &str, value: V) -> bool;
    /// The entry of a key.
    fn find(&self, key: &str) -> Option<(&str, &V)>;
    /// Removes the entry of a key.
    fn take(&mut self, key: &str) -> Option<V>;
    /// How many entries.
    fn count(&self) -> u64;
}

macro_rules! map {
    ($map:ty, $entry:path) => {
        impl<V: Send> Map<V> for $map {
            #[inline(always)]
            fn enter(&mut self, key: &str, value: V) -> bool {
                use $entry as Entry;
                match self.entry(key.to_owned()) {
                    Entry::Occupied(_) => false,
                    Entry::Vacant(place) => {
                        place.insert(value);
                        true
                    }
                }
            }

            #[inline(always)]
            fn find(&self, key: &str) -> Option<(&str, &V)> {
                let (key, value) = self.get_key_value(key)?;
                Some((key, value))
            }

            #[inline(always)]
            fn take(&mut self, key: &str) -> Option<V> {
                self.remove(key)
            }

            fn count(&self) -> u64 {
                self.len() as u64
            }
        }
    };
}

map!(HashMap<String, V>, hash_map::Entry);
map!(BTreeMap<String, V>, btree_map::Entry);
map!(hashbrown::HashMap<String, V>, hashbrown::hash_map::Entry);

/// A map by name, and one by telephone where there are two indexes.
pub struct Pair<N, T> {
    people: N,
    names: Option<T>,
}

impl<N: Map<Person>, T: Map<String>> Pair<N, T> {
    /// An empty book.
    pub fn new(indexes: u8) -> Self {
        Self {
            people: N::default(),
            names: (indexes == 2).then(T::default),
        }
    }

    #[inline(always)]
    fn find(&self, name: &str, found: impl FnOnce(Record<'_>)) {
        if let Some((name, person)) = self.people.find(name) {
            found(Record {
                name,
                address: &person.address,
                telephone: &person.telephone,
            });
        }
    }
}

impl<N: Map<Person>, T: Map<String>> Book for Pair<N, T> {
    #[inline(always)]
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        let person = Person {
            address: record.address.to_owned(),
            telephone: record.telephone.to_owned(),
        };
        if !self.people.enter(record.name, person) {
            return Ok(false);
        }
        Ok(match &mut self.names {
            Some(names) => names.enter(record.telephone, record.name.to_owned()),
            None => true,
        })
    }

    #[inline(always)]
    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        self.find(name, found);
        Ok(())
    }

    #[inline(always)]
    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        if let Some((_, name)) = self.names.as_ref().and_then(|names| names.find(telephone)) {
            self.find(name, found);
        }
        Ok(())
    }

    #[inline(always)]
    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        let Some(person) = self.people.take(name) else {
            return Ok(false);
        };
        Ok(match &mut self.names {
            Some(names) => names.take(&person.telephone).is_some(),
            None => true,
        })
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        let names = self.names.iter().map(Map::count);
        Ok([self.people.count()].into_iter().chain(names).collect())
    }
}
