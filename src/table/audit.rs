//! Whether a part of a table is whole, for tests: nothing lost, nothing named twice.

use std::collections::BTreeSet;

use super::{Place, TablePart};

impl TablePart {
    /// What is wrong with the part, while nobody has a place reserved.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let rows: Vec<Place> = self.scan(0..u32::MAX).collect();
        if rows.len() as u64 != self.len() {
            return Err(format!("{} rows, counted as {}", rows.len(), self.len()));
        }
        let free = self.slots.free_slots();
        let distinct: BTreeSet<u32> = free.iter().copied().collect();
        let is_dead = |&slot: &u32| slot < self.slots.next() && !self.is_live(self.place(slot));
        if distinct.len() != free.len() || !distinct.iter().all(is_dead) {
            return Err(format!("slots are free twice, or in use: {free:?}"));
        }
        let known = rows.len() + free.len();
        if known as u64 != u64::from(self.slots.next()) {
            let used = self.slots.next();
            return Err(format!("{known} slots are rows or free, of {used}"));
        }
        let Some(index) = &self.index else {
            return Ok(());
        };
        let named = index.slots();
        let distinct: BTreeSet<u32> = named.iter().copied().collect();
        if distinct.len() != named.len() || named.len() != rows.len() {
            return Err(format!("the index names {named:?} of {} rows", rows.len()));
        }
        for place in rows {
            let key = self.slots.key(place);
            if self.find_key(key).map(Place::slot) != Some(place.slot()) {
                return Err(format!("key {key} does not find its row"));
            }
        }
        Ok(())
    }
}
