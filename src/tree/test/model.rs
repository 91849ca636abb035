//! Random operations, each compared with the ordered map.

use std::ops::Bound;

use super::keys::{FAMILIES, Family, value};
use super::*;
use crate::tree::Seek;

/// One operation on both.
fn step(
    tree: &mut Tree,
    arena: &mut Arena,
    model: &mut Model,
    family: Family,
    grows: bool,
    random: &mut Random,
) {
    let key = family.key(random);
    match random.below(100) {
        ..55 if grows => put(tree, arena, model, key, random),
        ..55 => assert_eq!(
            tree.remove(arena, &key).unwrap(),
            model.remove(&key).is_some()
        ),
        55..65 => put(tree, arena, model, key, random),
        65..75 => assert_eq!(
            tree.remove(arena, &key).unwrap(),
            model.remove(&key).is_some()
        ),
        75..80 => {
            let found = tree.get(arena, &key).unwrap();
            let found = found.map(|value| value.to_vec().unwrap());
            assert_eq!(found.as_ref(), model.get(&key));
            assert_eq!(
                tree.contains(arena, &key).unwrap(),
                model.contains_key(&key)
            );
        }
        80..95 => seek(tree, arena, model, &key, random),
        95..99 => count(tree, arena, model, &key, &family.key(random)),
        _ => remove_range(tree, arena, model, key, family, random),
    }
}

fn put(tree: &mut Tree, arena: &mut Arena, model: &mut Model, key: Vec<u8>, random: &mut Random) {
    let value = value(random);
    let replaced = tree.insert(arena, &key, &value).unwrap();
    assert_eq!(replaced, model.insert(key, value).is_some());
}

fn seek(tree: &Tree, arena: &Arena, model: &Model, key: &[u8], random: &mut Random) {
    let from = |start: Bound<&[u8]>| model.range::<[u8], _>((start, Bound::Unbounded)).next();
    let to = |end: Bound<&[u8]>| model.range::<[u8], _>((Bound::Unbounded, end)).next_back();
    let (seek, expected) = match random.below(6) {
        0 => (Seek::First, model.first_key_value()),
        1 => (Seek::Last, model.last_key_value()),
        2 => (Seek::AtLeast(key), from(Bound::Included(key))),
        3 => (Seek::Above(key), from(Bound::Excluded(key))),
        4 => (Seek::AtMost(key), to(Bound::Included(key))),
        _ => (Seek::Below(key), to(Bound::Excluded(key))),
    };
    let mut found_key = Vec::new();
    let found = tree.find(arena, seek, &mut found_key).unwrap();
    let found = found.map(|value| value.to_vec().unwrap());
    let found = found.as_ref().map(|value| (&found_key, value));
    assert_eq!(found, expected, "{seek:?}");
}

fn count(tree: &Tree, arena: &Arena, model: &Model, low: &[u8], high: &[u8]) {
    let (low, high) = (low.min(high), low.max(high));
    let expected = model.range::<[u8], _>((Bound::Included(low), Bound::Excluded(high)));
    let expected: Vec<_> = expected.map(|(key, _)| key.clone()).collect();
    assert_eq!(
        tree.count_range(arena, low, Some(high)).unwrap(),
        expected.len() as u64
    );
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = Vec::new();
        let visit = |key: &[u8], _: crate::tree::Value<'_>| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        };
        tree.scan(arena, low, Some(high), direction, visit).unwrap();
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found, expected);
    }
}

fn remove_range(
    tree: &mut Tree,
    arena: &mut Arena,
    model: &mut Model,
    start: Vec<u8>,
    family: Family,
    random: &mut Random,
) {
    // Mostly to a key nearby, so that the tree is not always empty.
    let end = if random.below(4) == 0 {
        Some(family.key(random)).filter(|_| random.below(8) > 0)
    } else {
        let (above, far) = (Bound::Excluded(&start), random.below(300));
        let range = model.range::<Vec<u8>, _>((above, Bound::Unbounded));
        range.map(|(key, _)| key.clone()).nth(far)
    };
    let bounds = match &end {
        Some(end) if *end <= start => return,
        Some(end) => (Bound::Included(start.clone()), Bound::Excluded(end.clone())),
        None => (Bound::Included(start.clone()), Bound::Unbounded),
    };
    let keys: Vec<_> = model.range(bounds).map(|(key, _)| key.clone()).collect();
    let removed = tree.remove_range(arena, &start, end.as_deref()).unwrap();
    assert_eq!(removed, keys.len() as u64);
    for key in keys {
        model.remove(&key);
    }
}

#[test]
fn random_operations_do_what_an_ordered_map_does() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("random operations, {family:?}"));
        let mut arena = arena(64 << 20);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        for round in 0..6 {
            for number in 0..1500 {
                step(
                    &mut tree,
                    &mut arena,
                    &mut model,
                    family,
                    round % 2 == 0,
                    &mut random,
                );
                if number % 100 == 0 {
                    tree.check(&arena).unwrap();
                }
            }
            check(&tree, &arena, &model);
        }
        for key in std::mem::take(&mut model).into_keys() {
            assert!(tree.remove(&mut arena, &key).unwrap());
        }
        let report = check(&tree, &arena, &model);
        assert_eq!((report.height, report.leaves), (1, 1));
        // The head is in one extent, the last leaf may be in another.
        assert!(report.extents <= 3, "{report:?}");
        tree.release(&mut arena).unwrap();
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn a_large_tree_does_what_an_ordered_map_does() {
    let mut random = Random::new("a large tree");
    let mut arena = arena(256 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let mut model = Model::new();
    for _ in 0..120_000 {
        let key = keys::words(random.next() % 1_000_000);
        let value = random.next().to_be_bytes().to_vec();
        let replaced = tree.insert(&mut arena, &key, &value).unwrap();
        assert_eq!(replaced, model.insert(key, value).is_some());
    }
    assert!(check(&tree, &arena, &model).height >= 3);
    let removed: Vec<_> = model.keys().step_by(3).cloned().collect();
    for key in removed {
        assert!(tree.remove(&mut arena, &key).unwrap());
        model.remove(&key);
    }
    check(&tree, &arena, &model);
}
