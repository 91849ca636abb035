//! scc: a concurrent map with bucket locks and growth in steps.

use hashbrown::DefaultHashBuilder;

use super::Peer;

/// A presized scc map.
pub struct Scc<const N: usize>(scc::HashMap<u64, [u64; N], DefaultHashBuilder>);

impl<const N: usize> Scc<N> {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self(scc::HashMap::with_capacity_and_hasher(rows, hasher))
    }
}

impl<const N: usize> Peer<N> for Scc<N> {
    fn name(&self) -> &'static str {
        "scc::HashMap"
    }

    #[inline]
    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64> {
        self.0.insert_sync(key, *row).ok().map(|()| key)
    }

    #[inline]
    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.0.read_sync(&id, |_, row| *row)
    }

    #[inline]
    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        self.0.update_sync(&id, |_, held| *held = *row).is_some()
    }

    #[inline]
    fn delete(&self, id: u64) -> bool {
        self.0.remove_sync(&id).is_some()
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn clear(&self) {
        self.0.clear_sync();
    }
}
