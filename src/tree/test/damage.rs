//! Damaged pages give errors: no panic, no endless loop, no wrong access.

use super::keys::{FAMILIES, value};
use super::*;
use crate::limits::PAGE_BYTES;
use crate::tree::{Cursor, Packing, Seek, Value};

/// Does everything to a tree that may be damaged; what comes of it does not matter.
fn exercise(tree: &mut Tree, arena: &mut Arena, keys: &[Vec<u8>]) {
    let _ = tree.check(arena);
    let _ = tree.count_range(arena, &[], None);
    let mut visits = 0;
    for direction in [Direction::Forward, Direction::Backward] {
        let _ = tree.scan(arena, &[], None, direction, |_, value| {
            let _ = value.to_vec();
            visits += 1;
            ControlFlow::Continue(())
        });
    }
    let mut cursor = Cursor::new();
    for _ in 0..visits + 10 {
        if !matches!(cursor.next(tree, arena), Ok(true)) {
            break;
        }
        let _ = cursor.value(tree, arena);
    }
    let _ = tree.get_each(arena, keys, |_, _| {});
    for (number, key) in keys.iter().enumerate() {
        let mut found = Vec::new();
        let _ = tree.find(arena, Seek::Below(key), &mut found);
        let _ = tree.find(arena, Seek::Above(key), &mut found);
        match number % 4 {
            0 => drop(tree.remove(arena, key)),
            1 => drop(tree.insert(arena, key, &vec![1; number * 37 % 5000])),
            2 => drop(tree.insert(arena, &[&key[..key.len() / 2], b"+"].concat(), key)),
            _ => drop(tree.get(arena, key).map(|value| value.map(Value::to_vec))),
        }
    }
    let (mut packing, mut steps) = (Packing::new(), 0);
    while let Ok(Some(_)) = tree.pack(arena, &mut packing) {
        steps += 1;
        assert!(
            steps < 100_000,
            "a damaged tree is brought together without end"
        );
    }
    let _ = tree.space(arena);
    let middle = keys.len() / 2;
    let _ = tree.remove_range(arena, &keys[middle / 2], Some(&keys[middle]));
    let _ = tree.remove_range(arena, &[], None);
    let _ = tree.insert(arena, b"after", b"all");
    let _ = tree.check(arena);
}

#[test]
fn pages_with_any_bytes_give_errors_and_nothing_worse() {
    const BYTES: usize = 3 << 20;
    for family in FAMILIES {
        let mut random = Random::new(&format!("damage, {family:?}"));
        let mut arena = arena(4 << 20);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut keys: Vec<_> = (0..250).map(|_| family.key(&mut random)).collect();
        for key in &keys {
            let value = value(&mut random);
            tree.insert(&mut arena, key, &value).unwrap();
        }
        keys.sort();
        let pages = arena.used_bytes() as usize / PAGE_BYTES;
        // Extents that were given back leave holes, so what is in use is not all at the start.
        let sound = trace::image(&arena, BYTES);
        let head = tree.head();
        let mut noticed = 0;
        for _ in 0..150 {
            let mut damaged = super::arena(4 << 20);
            occupy(&mut damaged, BYTES);
            trace::put(&mut damaged, 0, &sound);
            for _ in 0..1 + random.below(6) {
                let page = random.below(pages);
                // Half of the damage to headers and slots, which say the most.
                let bound = [32, 200, PAGE_BYTES][random.below(3)];
                let within = random.below(bound);
                let byte = [
                    0,
                    0xff,
                    random.next() as u8,
                    sound[page * PAGE_BYTES + within] ^ 1,
                ];
                trace::put(
                    &mut damaged,
                    page * PAGE_BYTES + within,
                    &[byte[random.below(4)]],
                );
            }
            if let Ok(mut tree) = Tree::open(&damaged, head) {
                noticed += usize::from(tree.check(&damaged).is_err());
                exercise(&mut tree, &mut damaged, &keys);
            }
        }
        assert!(noticed > 10, "{noticed} damages of 150 were noticed");
    }
}

#[test]
fn branches_that_lead_back_to_themselves_are_noticed() {
    let mut arena = arena(4 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let keys: Vec<_> = (0..20_000_u64)
        .map(|key| key.to_be_bytes().to_vec())
        .collect();
    for key in &keys {
        tree.insert(&mut arena, key, key).unwrap();
    }
    let root = tree.check(&arena).map(|report| report.height).unwrap();
    assert!(root >= 2);
    // Every child of every branch becomes the first one of it.
    let bytes = arena.used_bytes() as usize;
    let image = trace::image(&arena, bytes);
    for (page, bytes) in image.chunks(PAGE_BYTES).enumerate() {
        let (is_branch, count) = (
            bytes[0] == 2,
            usize::from(bytes[8]) | usize::from(bytes[9]) << 8,
        );
        let slots = 24 + usize::from(bytes[2]).next_multiple_of(8);
        for slot in (0..count).filter(|_| is_branch) {
            trace::put(
                &mut arena,
                page * PAGE_BYTES + slots + slot * 16 + 4,
                &bytes[20..24],
            );
        }
    }
    assert!(tree.check(&arena).is_err());
    let visit = |_: &[u8], _: Value<'_>| ControlFlow::Continue(());
    for direction in [Direction::Forward, Direction::Backward] {
        assert!(tree.scan(&arena, &[], None, direction, visit).is_err());
    }
    exercise(&mut tree, &mut arena, &keys[..100]);
}

#[test]
fn leaves_that_changed_places_are_noticed_when_pages_are_brought_together() {
    let mut random = Random::new("leaves that changed places");
    let mut arena = arena(4 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    while tree.check(&arena).unwrap().leaves < 40 {
        let key = random.next().to_be_bytes();
        tree.insert(&mut arena, &key, &[7; 100]).unwrap();
    }
    let bytes = arena.used_bytes() as usize;
    let (sound, head) = (trace::image(&arena, bytes), tree.head());
    let mut noticed = 0;
    for (page, bytes) in sound.chunks(PAGE_BYTES).enumerate() {
        if bytes[0] != 2 {
            continue;
        }
        let slots = 24 + usize::from(bytes[2]).next_multiple_of(8);
        let child = |slot: usize| page * PAGE_BYTES + slots + slot * 16 + 4;
        for slot in 0..usize::from(bytes[8]) - 1 {
            let mut damaged = super::arena(4 << 20);
            occupy(&mut damaged, sound.len());
            trace::put(&mut damaged, 0, &sound);
            trace::put(&mut damaged, child(slot), &sound[child(slot + 1)..][..4]);
            trace::put(&mut damaged, child(slot + 1), &sound[child(slot)..][..4]);
            let mut tree = Tree::open(&damaged, head).unwrap();
            let mut packing = Packing::new();
            let step = loop {
                match tree.pack(&mut damaged, &mut packing) {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            // Before a separator is written that is not in order with its neighbours.
            let error = step.err().map(|error| error.to_string());
            noticed += usize::from(error.is_some_and(|error| error.contains("beyond its sep")));
        }
    }
    assert!(
        noticed > 5,
        "{noticed} of some 38 changed places were noticed"
    );
}
