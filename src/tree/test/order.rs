//! Cursors among changes, batches, loads, handles opened again.

use super::keys::{FAMILIES, value, words};
use super::*;
use crate::limits::PAGE_BYTES;
use crate::tree::{Cursor, Seek, TreeError};

#[test]
fn a_cursor_goes_on_in_order_whatever_is_changed_around_it() {
    for forward in [true, false] {
        let mut random = Random::new("cursor among changes");
        let mut arena = arena(64 << 20);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        // Odd keys stay, even ones come and go.
        let key = |number: usize| (number as u32).to_be_bytes();
        for number in (1..4000).step_by(2) {
            tree.insert(&mut arena, &key(number), b"stays").unwrap();
        }
        let mut cursor = Cursor::new();
        let (mut seen, mut odd) = (Vec::new(), 0);
        loop {
            let went = if forward {
                cursor.next(&tree, &arena).unwrap()
            } else {
                cursor.previous(&tree, &arena).unwrap()
            };
            if !went {
                break;
            }
            let at = cursor.key().unwrap().to_vec();
            odd += usize::from(at[3] % 2 == 1);
            if at[3] % 2 == 1 {
                let value = cursor.value(&tree, &arena).unwrap().unwrap();
                assert_eq!(value.inline(), Some(&b"stays"[..]));
            }
            seen.push(at);
            for _ in 0..random.below(3) {
                let number = random.below(2000) * 2;
                if random.below(2) == 0 {
                    tree.insert(&mut arena, &key(number), &[0; 90]).unwrap();
                } else {
                    tree.remove(&mut arena, &key(number)).unwrap();
                }
            }
        }
        assert_eq!(odd, 2000);
        let in_order = |pair: &[Vec<u8>]| (pair[0] < pair[1]) == forward && pair[0] != pair[1];
        assert!(seen.windows(2).all(in_order));
        // At the end it waits for what comes.
        let beyond = if forward { vec![0xff; 5] } else { vec![] };
        assert!(tree.remove(&mut arena, seen.last().unwrap()).unwrap());
        assert_eq!(
            cursor
                .value(&tree, &arena)
                .unwrap()
                .map(|value| value.len()),
            None
        );
        tree.insert(&mut arena, &beyond, b"").unwrap();
        let went = if forward {
            cursor.next(&tree, &arena).unwrap()
        } else {
            cursor.previous(&tree, &arena).unwrap()
        };
        assert!(went && cursor.key() == Some(&beyond));
    }
}

#[test]
fn cursors_turn_round_and_seek() {
    let mut arena = arena(16 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let mut cursor = Cursor::new();
    assert!(!cursor.next(&tree, &arena).unwrap() && cursor.key().is_none());
    for number in 0..3000_u32 {
        tree.insert(&mut arena, &number.to_be_bytes(), &[]).unwrap();
    }
    for number in [0_u32, 1, 1499, 2998] {
        assert!(
            cursor
                .seek(&tree, &arena, Seek::Above(&number.to_be_bytes()))
                .unwrap()
        );
        assert_eq!(cursor.key(), Some(&(number + 1).to_be_bytes()[..]));
        assert!(cursor.previous(&tree, &arena).unwrap());
        assert_eq!(cursor.key(), Some(&number.to_be_bytes()[..]));
        assert!(cursor.next(&tree, &arena).unwrap());
    }
    assert!(!cursor.next(&tree, &arena).unwrap());
    assert_eq!(cursor.key(), Some(&2999_u32.to_be_bytes()[..]));
    assert!(!cursor.seek(&tree, &arena, Seek::Below(&[])).unwrap());
    assert!(cursor.value(&tree, &arena).unwrap().is_none());
}

#[test]
fn batches_find_and_insert_what_single_calls_do() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("batches, {family:?}"));
        let mut arena = arena(64 << 20);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        for count in [0, 1, 31, 32, 33, 1000] {
            let entry = |random: &mut Random| (family.key(random), value(random));
            let entries: Vec<_> = (0..count).map(|_| entry(&mut random)).collect();
            let mut results = Vec::new();
            let done = |at, result: Result<bool, TreeError>| results.push((at, result.unwrap()));
            tree.insert_each(&mut arena, &entries, done).unwrap();
            let expected = entries
                .into_iter()
                .map(|(key, value)| model.insert(key, value).is_some());
            assert_eq!(results, expected.enumerate().collect::<Vec<_>>());
            check(&tree, &arena, &model);
            let keys: Vec<_> = (0..count).map(|_| family.key(&mut random)).collect();
            let mut next = 0;
            tree.get_each(&arena, &keys, |at, value| {
                assert_eq!(at, next);
                next += 1;
                let value = value.map(|value| value.to_vec().unwrap());
                assert_eq!(value.as_ref(), model.get(&keys[at]));
            })
            .unwrap();
            assert_eq!(next, count);
        }
    }
}

#[test]
fn sorted_entries_are_loaded_into_full_pages() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("load, {family:?}"));
        for count in [1, 2, 30, 3000] {
            let mut arena = arena(64 << 20);
            let mut tree = Tree::new(&mut arena, NAME).unwrap();
            let entry = |random: &mut Random| (family.key(random), value(random));
            let mut model: Model = (0..count).map(|_| entry(&mut random)).collect();
            assert_eq!(tree.load(&mut arena, &model).unwrap(), model.len() as u64);
            check(&tree, &arena, &model);
            let entries: Vec<_> = (0..300).map(|_| entry(&mut random)).collect();
            let entries = entries.iter().map(|(key, value)| (key, value));
            tree.load(&mut arena, entries.clone()).unwrap();
            model.extend(entries.map(|(key, value)| (key.clone(), value.clone())));
            check(&tree, &arena, &model);
        }
    }
}

#[test]
fn a_load_that_fails_leaves_the_tree_empty() {
    let mut arena = arena(4 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    assert_eq!(tree.load(&mut arena, Model::new()).unwrap(), 0);
    let used = arena.used_bytes();
    let mut entries: Vec<_> = (0..9000_u32)
        .map(|key| (key.to_be_bytes(), [1; 20]))
        .collect();
    entries.swap(8000, 8001);
    let error = tree.load(&mut arena, entries).unwrap_err();
    assert_eq!(error, TreeError::Unsorted { index: 8001 });
    check(&tree, &arena, &Model::new());
    let entries = (0..9000_u32).map(|key| (key.to_be_bytes(), vec![1; 3000]));
    let error = tree.load(&mut arena, entries).unwrap_err();
    assert!(matches!(error, TreeError::ArenaFull(_)));
    check(&tree, &arena, &Model::new());
    assert!(arena.used_bytes() <= 2 * used);
    assert_eq!(tree.load(&mut arena, [(b"a", b"b")]).unwrap(), 1);
}

#[test]
fn a_tree_is_opened_again_wherever_the_arena_is() {
    let mut first = arena(16 << 20);
    // Not at the arena's start, so that numbers are not small by chance.
    occupy(&mut first, 3 * PAGE_BYTES);
    let mut tree = Tree::new(&mut first, NAME).unwrap();
    let mut model = Model::new();
    for number in 0..20_000 {
        let (key, value) = (words(number * 7), vec![1; (number % 50) as usize * 60]);
        tree.insert(&mut first, &key, &value).unwrap();
        model.insert(key, value);
        if first.used_bytes() > 12 << 20 {
            break;
        }
    }
    let mut second = arena(16 << 20);
    assert!(Tree::open(&second, tree.head()).is_err());
    occupy(&mut second, first.used_bytes() as usize);
    trace::put(
        &mut second,
        0,
        &trace::image(&first, first.used_bytes() as usize),
    );
    let mut opened = Tree::open(&second, tree.head()).unwrap();
    drop(first);
    assert_eq!(opened.name(), NAME);
    check(&opened, &second, &model);
    for key in std::mem::take(&mut model).into_keys() {
        opened.remove(&mut second, &key).unwrap();
    }
    check(&opened, &second, &model);
}
