//! The index against a hash map, through growth, splits, removal and reuse.

use hashbrown::HashMap;

use super::{HashIndex, Keys, Probe};
use crate::arena::{Arena, MapOptions};
use crate::error::ArenaFull;

struct Rows(Vec<u64>);

impl Keys for Rows {
    fn is(&self, slot: u32, key: u64) -> bool {
        self.0.get(slot as usize) == Some(&key)
    }

    fn probe(&self, slot: u32) -> Option<Probe> {
        Some(Probe::new(*self.0.get(slot as usize)?))
    }
    fn prefetch(&self, _slot: u32) {}
}

fn arena(bytes: u64) -> Arena {
    Arena::new(&MapOptions {
        bytes,
        node: None,
        huge_pages: false,
    })
    .unwrap()
}

fn insert(
    index: &mut HashIndex,
    arena: &mut Arena,
    key: u64,
    slot: u32,
    rows: &Rows,
) -> Result<(), ArenaFull> {
    let probe = Probe::new(key);
    let Err(vacancy) = index.seek(probe, rows) else {
        panic!("key {key} is there")
    };
    index.insert(arena, probe, vacancy, slot, rows)
}

fn check(index: &HashIndex, rows: &Rows, model: &HashMap<u64, u32>) {
    assert_eq!(index.len(), model.len() as u64);
    for (&key, &slot) in model {
        assert_eq!(index.find(Probe::new(key), rows), Some(slot), "key {key}");
    }
}

#[test]
fn every_key_is_found_through_growth_and_absent_keys_are_not() {
    let mut arena = arena(64 << 20);
    let mut index = HashIndex::new(&mut arena, 1, 0).unwrap();
    let mut rows = Rows(Vec::new());
    let mut model = HashMap::new();
    for slot in 0..200_000_u32 {
        let key = u64::from(slot) * 3;
        rows.0.push(key);
        insert(&mut index, &mut arena, key, slot, &rows).unwrap();
        model.insert(key, slot);
        if slot.is_power_of_two() {
            check(&index, &rows, &model);
        }
    }
    check(&index, &rows, &model);
    for key in (0..200_000).map(|n| n * 3 + 1) {
        assert_eq!(index.find(Probe::new(key), &rows), None);
    }
    let bytes_per_key = index.bytes() as f64 / model.len() as f64;
    assert!(bytes_per_key <= 14.0, "{bytes_per_key} bytes a key");
    index.release(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn presized_index_does_not_grow_and_stays_small() {
    for keys in [1_u64, 10, 1_000, 12_000, 300_000] {
        let mut arena = arena(64 << 20);
        let mut index = HashIndex::new(&mut arena, 1, keys).unwrap();
        let used = arena.used_bytes();
        let rows = Rows((0..keys).map(|n| n * n).collect());
        for (slot, &key) in rows.0.iter().enumerate() {
            insert(&mut index, &mut arena, key, slot as u32, &rows).unwrap();
        }
        let grown = arena.used_bytes() as f64 / used as f64;
        assert!(grown <= 1.3, "{keys} keys: grew {grown} times");
        if keys >= 12_000 {
            assert!(index.bytes() as f64 / keys as f64 <= 12.5);
        }
    }
}

#[test]
fn churn_over_many_generations_keeps_the_index_exact() {
    let mut arena = arena(64 << 20);
    let mut index = HashIndex::new(&mut arena, 1, 1_000).unwrap();
    let mut rows = Rows(vec![0; 4_000]);
    let mut model: HashMap<u64, u32> = HashMap::new();
    let mut free: Vec<u32> = (0..4_000).collect();
    let mut random = 7_u64;
    for round in 0..400_000 {
        random = crate::id::hash(random);
        let key = random % 6_000;
        match model.remove(&key) {
            Some(slot) => {
                assert!(index.remove(&mut arena, Probe::new(key), slot));
                assert!(!index.remove(&mut arena, Probe::new(key), slot));
                free.push(slot);
            }
            None => {
                if let Some(slot) = free.pop() {
                    rows.0[slot as usize] = key;
                    insert(&mut index, &mut arena, key, slot, &rows).unwrap();
                    model.insert(key, slot);
                }
            }
        }
        if round % 50_000 == 0 {
            check(&index, &rows, &model);
        }
    }
    check(&index, &rows, &model);
}

#[test]
fn full_arena_refuses_one_insert_and_harms_nothing() {
    let mut arena = arena(4 << 20);
    let mut index = HashIndex::new(&mut arena, 1, 0).unwrap();
    let mut rows = Rows(Vec::new());
    let mut model = HashMap::new();
    let full = loop {
        let slot = rows.0.len() as u32;
        rows.0.push(u64::from(slot));
        match insert(&mut index, &mut arena, u64::from(slot), slot, &rows) {
            Ok(()) => model.insert(u64::from(slot), slot),
            Err(full) => break full,
        };
    };
    assert_eq!(full.bound_bytes, 4 << 20);
    assert!(model.len() > 200_000, "{}", model.len());
    check(&index, &rows, &model);
}
