//! 256 hashbrown maps, each behind a mutex: what an application writes by itself.

use std::hash::BuildHasher;

use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;

use super::Peer;

const SHARDS: usize = 256;

// Neighbouring locks on one cache line would make strangers wait for each other.
#[repr(align(128))]
struct Shard<const N: usize>(Mutex<HashMap<u64, [u64; N], DefaultHashBuilder>>);

/// Presized maps behind mutexes.
pub struct Mutexes<const N: usize> {
    shards: Vec<Shard<N>>,
    hasher: DefaultHashBuilder,
}

impl<const N: usize> Mutexes<N> {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        // Keys spread unevenly: an eighth more than the average keeps every shard from growing.
        let room = rows / SHARDS + rows / SHARDS / 8;
        let shard = || {
            Shard(Mutex::new(HashMap::with_capacity_and_hasher(
                room,
                hasher.clone(),
            )))
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: hasher.clone(),
        }
    }

    #[inline]
    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, [u64; N], DefaultHashBuilder>> {
        // The maps use the lowest and the highest bits of the same hash.
        let hash = self.hasher.hash_one(key);
        &self.shards[(hash >> 40) as usize % SHARDS].0
    }
}

impl<const N: usize> Peer<N> for Mutexes<N> {
    fn name(&self) -> &'static str {
        "256 x Mutex<hashbrown>"
    }

    #[inline]
    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        match self.shard(key).lock().entry(key) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(*row);
                Some(key)
            }
        }
    }

    #[inline]
    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.shard(id).lock().get(&id).copied()
    }

    #[inline]
    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        let mut shard = self.shard(id).lock();
        shard.get_mut(&id).map(|held| *held = *row).is_some()
    }

    #[inline]
    fn delete(&self, id: u64) -> bool {
        self.shard(id).lock().remove(&id).is_some()
    }

    fn count(&self) -> Option<usize> {
        Some(self.shards.iter().map(|shard| shard.0.lock().len()).sum())
    }

    fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.0.lock().clear());
    }
}
