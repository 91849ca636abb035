//! Space: pages are filled, prefixes stored once, what is freed is given back.

use super::keys::words;
use super::*;
use crate::limits::PAGE_BYTES;

/// Bytes of keys and values.
fn raw_bytes(model: &Model) -> u64 {
    model
        .iter()
        .map(|(key, value)| (key.len() + value.len()) as u64)
        .sum()
}

/// A tree of the entries in the order given.
fn tree_of(entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> (Arena, Tree, Model) {
    let mut arena = arena(512 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let mut model = Model::new();
    for (key, value) in entries {
        tree.insert(&mut arena, &key, &value).unwrap();
        model.insert(key, value);
    }
    (arena, tree, model)
}

#[test]
fn ascending_and_descending_insertions_fill_pages() {
    let entry = |number: u64| (words(number), vec![1; 18]);
    let mut sorted: Vec<_> = (0..60_000).map(entry).collect();
    sorted.sort();
    let ascending = tree_of(sorted.iter().cloned());
    let descending = tree_of(sorted.iter().rev().cloned());
    for (arena, tree, model) in [ascending, descending] {
        let report = check(&tree, &arena, &model);
        let fill = report.leaf_bytes as f64 / (report.leaves * PAGE_BYTES as u64) as f64;
        assert!(fill > 0.9, "pages are filled to {fill:.2}: {report:?}");
    }
    // Many runs at once, each within the tree.
    let run = |number: u64| (words(number % 50 + 10), (number / 50).to_be_bytes());
    let runs = (0..60_000)
        .map(run)
        .map(|(name, number)| ([&name[..], b" ", &number].concat(), vec![1; 18]));
    let (arena, tree, model) = tree_of(runs);
    let report = check(&tree, &arena, &model);
    let fill = report.leaf_bytes as f64 / (report.leaves * PAGE_BYTES as u64) as f64;
    assert!(fill > 0.85, "pages are filled to {fill:.2}: {report:?}");
}

#[test]
fn spelled_numbers_take_little_more_than_their_bytes() {
    let mut random = Random::new("bytes of an entry");
    // Keys and values as the paths of 3n+1 leave them: in no order.
    let entries = (0..200_000).map(|_| {
        (
            words(random.next() % 100_000_000),
            words(random.next() % 400),
        )
    });
    let (arena, tree, model) = tree_of(entries);
    check(&tree, &arena, &model);
    let bytes = tree.bytes(&arena).unwrap() as f64 / raw_bytes(&model) as f64;
    assert!(bytes < 1.6, "{bytes:.2} bytes a byte");
}

#[test]
fn pages_of_removed_entries_are_given_back() {
    let mut random = Random::new("space given back");
    let entries = (0..100_000).map(|_| (random.next().to_be_bytes().to_vec(), vec![5; 20]));
    let (mut arena, mut tree, mut model) = tree_of(entries);
    let full = tree.bytes(&arena).unwrap();
    // Nine of ten, in no order: neighbours merge.
    let keys: Vec<_> = model.keys().cloned().collect();
    for key in keys.iter().filter(|key| key[7] % 10 != 0) {
        tree.remove(&mut arena, key).unwrap();
        model.remove(key);
    }
    let report = check(&tree, &arena, &model);
    let fill = report.leaf_bytes as f64 / (report.leaves * PAGE_BYTES as u64) as f64;
    assert!(fill > 0.4, "pages are filled to {fill:.2}");
    let removed = tree.remove_range(&mut arena, &[], None).unwrap();
    assert_eq!(removed, model.len() as u64);
    check(&tree, &arena, &Model::new());
    assert!(tree.bytes(&arena).unwrap() <= full / 10);
    assert_eq!(arena.used_bytes(), tree.bytes(&arena).unwrap());
}

#[test]
fn a_range_is_removed_wherever_it_ends() {
    let mut random = Random::new("ranges");
    let entries = (0..30_000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![3; 30]));
    let (mut arena, mut tree, mut model) = tree_of(entries);
    while model.len() > 100 {
        let keys: Vec<_> = model.keys().cloned().collect();
        let start = random.below(keys.len());
        let length = [2, 50, 400, 9000][random.below(4)];
        let end = start + random.below(length);
        let end = keys.get(end).cloned();
        let removed = tree
            .remove_range(&mut arena, &keys[start], end.as_deref())
            .unwrap();
        let before = model.len();
        model.retain(|key, _| *key < keys[start] || end.as_ref().is_some_and(|end| key >= end));
        assert_eq!(removed, (before - model.len()) as u64);
        check(&tree, &arena, &model);
    }
}
