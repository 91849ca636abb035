//! dashmap: a map cut into lock-guarded shards, four a core by default.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use hashbrown::DefaultHashBuilder;

use super::Peer;

/// A presized dashmap.
pub struct Dash<const N: usize>(DashMap<u64, [u64; N], DefaultHashBuilder>);

impl<const N: usize> Dash<N> {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Self {
        Self(DashMap::with_capacity_and_hasher(
            rows,
            DefaultHashBuilder::default(),
        ))
    }
}

impl<const N: usize> Peer<N> for Dash<N> {
    fn name(&self) -> &'static str {
        "dashmap"
    }

    #[inline]
    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        match self.0.entry(key) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(*row);
                Some(key)
            }
        }
    }

    #[inline]
    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.0.get(&id).map(|row| *row)
    }

    #[inline]
    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.0.get_mut(&id).map(|mut held| *held = *row).is_some()
    }

    #[inline]
    fn delete(&self, id: u64) -> bool {
        self.0.remove(&id).is_some()
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn clear(&self) {
        self.0.clear();
    }
}
