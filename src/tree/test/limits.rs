//! The longest keys and values, and arenas without room.

use super::keys::{FAMILIES, value};
use super::*;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::TreeError;

#[test]
fn longest_keys_and_values_are_kept_and_longer_ones_refused() {
    let mut arena = arena(64 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let (key, value) = (vec![7; KEY_BYTES_MAX], vec![9; VALUE_BYTES_MAX]);
    assert!(!tree.insert(&mut arena, &key, &value).unwrap());
    assert!(!tree.insert(&mut arena, &[], &[]).unwrap());
    let long = tree.insert(&mut arena, &[7; KEY_BYTES_MAX + 1], &[]);
    assert_eq!(
        long,
        Err(TreeError::KeyTooLong {
            bytes: KEY_BYTES_MAX + 1
        })
    );
    let large = tree.insert(&mut arena, &key, &vec![0; VALUE_BYTES_MAX + 1]);
    assert_eq!(
        large,
        Err(TreeError::ValueTooLong {
            bytes: VALUE_BYTES_MAX + 1
        })
    );
    let found = tree.get(&arena, &key).unwrap().unwrap();
    assert!(found.len() == VALUE_BYTES_MAX && found.inline().is_none());
    assert!(found.to_vec().unwrap() == value);
    assert_eq!(
        tree.get(&arena, &[]).unwrap().unwrap().inline(),
        Some(&[][..])
    );
    let chains = tree.check(&arena).unwrap().chain_pages;
    assert_eq!(chains, VALUE_BYTES_MAX.div_ceil(4072) as u64);
    // A longer and a shorter value in its place give the pages back.
    assert!(tree.insert(&mut arena, &key, &value[..5000]).unwrap());
    assert_eq!(tree.check(&arena).unwrap().chain_pages, 2);
    assert!(tree.insert(&mut arena, &key, b"short").unwrap());
    assert_eq!(tree.check(&arena).unwrap().chain_pages, 0);
    assert!(tree.bytes(&arena).unwrap() < 3 << 20);
}

#[test]
fn a_full_arena_refuses_changes_and_leaves_the_tree_as_it_was() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("full arena, {family:?}"));
        let mut arena = arena(2 << 20);
        // Little room, of an odd number of pages.
        occupy(&mut arena, (2 << 20) - (17 + random.below(60)) * 4096);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let (mut model, mut refusals) = (Model::new(), 0);
        for number in 0..4000 {
            // Keys of a family may be too few to fill the room; the number makes them more.
            let mut key = family.key(&mut random);
            key.truncate(KEY_BYTES_MAX - 4);
            key.extend_from_slice(&(random.next() as u32).to_be_bytes());
            let value = value(&mut random);
            let before = arena.used_bytes();
            match tree.insert(&mut arena, &key, &value) {
                Ok(replaced) => assert_eq!(replaced, model.insert(key, value).is_some()),
                Err(TreeError::ArenaFull(full)) => {
                    assert_eq!(arena.used_bytes(), before);
                    assert_eq!(full.bound_bytes, 2 << 20);
                    refusals += 1;
                    if refusals % 20 == 1 {
                        check(&tree, &arena, &model);
                    }
                    // Some room for the next ones.
                    if let Some(key) = model.keys().nth(number % model.len()).cloned() {
                        assert!(tree.remove(&mut arena, &key).unwrap());
                        model.remove(&key);
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refusals > 20, "{refusals} refusals");
        check(&tree, &arena, &model);
        tree.remove_range(&mut arena, &[], None).unwrap();
        check(&tree, &arena, &Model::new());
    }
}

#[test]
fn an_arena_without_room_for_a_tree_is_left_as_it_was() {
    let mut arena = arena(2 << 20);
    occupy(&mut arena, (2 << 20) - 3 * 4096);
    let used = arena.used_bytes();
    assert!(matches!(
        Tree::new(&mut arena, NAME),
        Err(TreeError::ArenaFull(_))
    ));
    assert_eq!(arena.used_bytes(), used);
}
