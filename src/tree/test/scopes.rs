//! What the arena is told suffices to take a scope back, and is little.

use super::keys::{FAMILIES, value};
use super::trace::Traced;
use super::*;

const TRACED_BYTES: usize = 8 << 20;

#[test]
fn scopes_that_are_taken_back_leave_the_tree_as_it_was() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("scopes, {family:?}"));
        let mut arena = arena(TRACED_BYTES as u64);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        for round in 0..120 {
            let before = model.clone();
            let traced = Traced::begin(&arena, TRACED_BYTES);
            let grows = round % 40 < 28;
            for _ in 0..random.below(24) {
                let key = family.key(&mut random);
                match random.below(20) {
                    0 => {
                        let end = family.key(&mut random);
                        tree.remove_range(&mut arena, &key, Some(&end)).unwrap();
                        if key < end {
                            model.retain(|other, _| *other < key || *other >= end);
                        }
                    }
                    1..15 if grows => {
                        let value = value(&mut random);
                        tree.insert(&mut arena, &key, &value).unwrap();
                        model.insert(key, value);
                    }
                    _ => {
                        tree.remove(&mut arena, &key).unwrap();
                        model.remove(&key);
                    }
                }
            }
            if random.below(2) == 0 {
                traced.undo(&mut arena);
                tree.undone();
                model = before;
            } else {
                traced.end(&mut arena);
            }
            check(&tree, &arena, &model);
        }
    }
}

#[test]
fn an_insertion_into_a_page_with_room_tells_of_few_bytes() {
    let mut random = Random::new("bytes told");
    let mut arena = arena(TRACED_BYTES as u64);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let mut told = Vec::new();
    for _ in 0..400 {
        let traced = Traced::begin(&arena, TRACED_BYTES);
        tree.insert(&mut arena, &random.next().to_be_bytes(), &[7; 8])
            .unwrap();
        told.push(traced.end(&mut arena));
    }
    told.sort_by_key(|told| told.before_bytes + told.fresh_bytes);
    // Slots of eight bytes that move, a word of counts, the count of entries; the new slot and cell.
    let median = told[told.len() / 2];
    assert!(median.before_bytes < 100 * 8 + 16, "{median:?}");
    assert!(median.fresh_bytes <= 8 + 2 + 4 + 8, "{median:?}");
    let traced = Traced::begin(&arena, TRACED_BYTES);
    let mut key = Vec::new();
    tree.find(&arena, crate::tree::Seek::First, &mut key)
        .unwrap();
    tree.insert(&mut arena, &key, &[8; 8]).unwrap();
    assert_eq!(traced.end(&mut arena).before_bytes, 8);
    // The value that it has now is not written again.
    for value in [&[8; 8][..], &vec![9; 9_000], &vec![9; 9_000]] {
        let traced = Traced::begin(&arena, TRACED_BYTES);
        tree.insert(&mut arena, &key, value).unwrap();
        let told = traced.end(&mut arena);
        let is_same = value.len() == 8;
        assert_eq!(
            told.before_bytes + told.fresh_bytes == 0,
            is_same,
            "{told:?}"
        );
    }
}
