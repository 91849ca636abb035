//! Judges of answers: one that compares with a model, one that costs nothing.
//!
//! The loops of every subject are compiled twice, once for each, so that the code that is checked at
//! smoke size is the code that is measured at full size.

use std::collections::BTreeMap;

use crate::workload::{Identity, row_of};

/// Judges every answer. `Trust` compiles to nothing but the count of rows not found.
pub trait Oracle<I, const N: usize> {
    /// A row was inserted.
    fn inserted(&mut self, id: I, seed: u64) -> bool;
    /// A row was read.
    fn selected(&mut self, id: I, row: &[u64; N]) -> bool;
    /// A row was written.
    fn updated(&mut self, id: I, seed: u64) -> bool;
    /// A row was deleted.
    fn deleted(&mut self, id: I) -> bool;
}

/// Believes every answer.
pub struct Trust;

impl<I, const N: usize> Oracle<I, N> for Trust {
    #[inline(always)]
    fn inserted(&mut self, _id: I, _seed: u64) -> bool {
        true
    }
    #[inline(always)]
    fn selected(&mut self, _id: I, _row: &[u64; N]) -> bool {
        true
    }
    #[inline(always)]
    fn updated(&mut self, _id: I, _seed: u64) -> bool {
        true
    }
    #[inline(always)]
    fn deleted(&mut self, _id: I) -> bool {
        true
    }
}

/// An ordered map of what every row must hold.
#[derive(Debug, Clone)]
pub struct Model<I> {
    seeds: BTreeMap<I, u64>,
}

impl<I: Identity> Model<I> {
    /// The model of an empty table.
    pub fn new() -> Self {
        Self {
            seeds: BTreeMap::new(),
        }
    }

    /// Rows there must be.
    pub fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Whether there must be none.
    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Takes over another model's rows.
    pub fn absorb(&mut self, mut other: Self) {
        self.seeds.append(&mut other.seeds);
    }

    /// Moves the rows of `ids` into a model of their own.
    pub fn split_off(&mut self, ids: &[I]) -> Self {
        let seeds = ids.iter().filter_map(|id| self.seeds.remove_entry(id));
        Self {
            seeds: seeds.collect(),
        }
    }

    /// All rows are gone.
    pub fn clear(&mut self) {
        self.seeds.clear();
    }
}

impl<I: Identity> Default for Model<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Identity, const N: usize> Oracle<I, N> for Model<I> {
    fn inserted(&mut self, id: I, seed: u64) -> bool {
        self.seeds.insert(id, seed).is_none()
    }

    fn selected(&mut self, id: I, row: &[u64; N]) -> bool {
        self.seeds
            .get(&id)
            .is_some_and(|seed| *row == row_of(*seed))
    }

    fn updated(&mut self, id: I, seed: u64) -> bool {
        self.seeds.insert(id, seed).is_some()
    }

    fn deleted(&mut self, id: I) -> bool {
        self.seeds.remove(&id).is_some()
    }
}
