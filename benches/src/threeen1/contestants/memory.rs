//! The baseline: ordered maps of the standard library, in one mutex.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::failure::Failure;
use crate::threeen1::globals::{Globals, Name, Pairs, Stream};

/// Steps and names in ordered maps.
#[derive(Default)]
pub struct Memory {
    maps: Mutex<Maps>,
}

#[derive(Default)]
struct Maps {
    steps: BTreeMap<Box<[u8]>, Box<[u8]>>,
    names: BTreeMap<[u8; 9], u64>,
}

impl Globals for Memory {
    type Stream<'a> = &'a Memory;

    fn stream(&self) -> Result<&Self, Failure> {
        Ok(self)
    }

    fn nodes(&self) -> Result<u64, Failure> {
        Ok(self.maps.lock().steps.len() as u64)
    }

    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    fn clear(&mut self) -> Result<(), Failure> {
        *self.maps.get_mut() = Maps::default();
        Ok(())
    }
}

impl Stream for &Memory {
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.maps.lock().steps.contains_key(key))
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.maps.lock().steps.get(key).map(|value| value.to_vec()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let (key, value) = (Box::from(key), Box::from(value));
        self.maps.lock().steps.insert(key, value);
        Ok(())
    }

    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure> {
        let mut maps = self.maps.lock();
        let held = maps.names.entry(Name::Result.key()).or_default();
        *held = result.max(*held);
        for (key, value) in path.iter() {
            maps.steps.insert(Box::from(key), Box::from(value));
        }
        Ok(())
    }

    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure> {
        Ok(self.maps.lock().names.get(&name.key()).copied())
    }

    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        change: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        let mut maps = self.maps.lock();
        let keys = names.map(Name::key);
        let mut values = keys.map(|key| maps.names.get(&key).copied().unwrap_or(0));
        change(&mut values);
        maps.names.extend(keys.into_iter().zip(values));
        Ok(values)
    }
}
