//! Bringing a tree together: whatever was removed and is done meanwhile, nothing is lost, and memory goes back.

use super::keys::{FAMILIES, value};
use super::trace::Traced;
use super::*;
use crate::tree::Packing;

/// All steps.
fn pack(tree: &mut Tree, arena: &mut Arena) {
    let mut packing = Packing::new();
    while tree.pack(arena, &mut packing).unwrap().is_some() {}
}

/// Changes something in the tree and the model.
fn change(
    tree: &mut Tree,
    arena: &mut Arena,
    model: &mut Model,
    (key, grows): (Vec<u8>, bool),
    random: &mut Random,
) {
    if grows {
        let value = value(random);
        tree.insert(arena, &key, &value).unwrap();
        model.insert(key, value);
    } else {
        // The next key that there is.
        let next = model.range(key..).next().map(|(key, _)| key.clone());
        if let Some(key) = next {
            assert!(tree.remove(arena, &key).unwrap());
            model.remove(&key);
        }
    }
}

#[test]
fn trees_that_are_brought_together_have_all_they_had_in_fewer_pages() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("brought together, {family:?}"));
        let mut arena = arena(64 << 20);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        for round in 0..6 {
            for _ in 0..4_000 {
                let key = family.key(&mut random);
                change(&mut tree, &mut arena, &mut model, (key, true), &mut random);
            }
            let keys: Vec<_> = model.keys().cloned().collect();
            for key in keys.iter().filter(|_| random.below(10) >= round) {
                tree.remove(&mut arena, key).unwrap();
                model.remove(key);
            }
            let before = check(&tree, &arena, &model);
            pack(&mut tree, &mut arena);
            let after = check(&tree, &arena, &model);
            assert!(after.pages <= before.pages && after.leaves <= before.leaves);
            let in_use = after.leaves + after.branches + after.chain_pages;
            let most = in_use + in_use / 6 + after.extents + 24;
            assert!(after.pages <= most, "{after:?}, before: {before:?}");
            pack(&mut tree, &mut arena);
            assert!(check(&tree, &arena, &model).pages <= after.pages + 4);
        }
    }
}

#[test]
fn others_work_between_the_steps_and_scopes_are_taken_back() {
    const TRACED_BYTES: usize = 8 << 20;
    for family in FAMILIES {
        let mut random = Random::new(&format!("steps between, {family:?}"));
        let mut arena = arena(TRACED_BYTES as u64);
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        for round in 0..60 {
            for _ in 0..random.below(60) {
                let (key, grows) = (family.key(&mut random), random.below(8) < 5);
                change(
                    &mut tree,
                    &mut arena,
                    &mut model,
                    (key, grows && round % 20 < 12),
                    &mut random,
                );
            }
            let mut packing = Packing::new();
            let mut goes_on = true;
            while goes_on {
                let before = model.clone();
                let traced = Traced::begin(&arena, TRACED_BYTES);
                for _ in 0..1 + random.below(4) {
                    goes_on &= tree.pack(&mut arena, &mut packing).unwrap().is_some();
                }
                if random.below(3) == 0 {
                    let change_of = (family.key(&mut random), random.below(2) == 0);
                    change(&mut tree, &mut arena, &mut model, change_of, &mut random);
                }
                if random.below(6) == 0 {
                    traced.undo(&mut arena);
                    tree.undone();
                    model = before;
                    packing = Packing::new();
                    goes_on = random.below(2) == 0;
                } else {
                    traced.end(&mut arena);
                }
                check(&tree, &arena, &model);
            }
        }
    }
}

#[test]
fn a_tree_of_which_most_is_removed_and_put_again_stays_small() {
    let mut random = Random::new("removed and put again");
    let mut arena = arena(256 << 20);
    let mut tree = Tree::new(&mut arena, NAME).unwrap();
    let mut model = Model::new();
    let raw = |model: &Model| -> usize {
        let bytes = model.iter().map(|(key, value)| key.len() + value.len());
        bytes.sum()
    };
    for round in 0..10 {
        while model.len() < 40_000 {
            let key = random.next().to_be_bytes().to_vec();
            let value = vec![7; random.below(200)];
            tree.insert(&mut arena, &key, &value).unwrap();
            model.insert(key, value);
        }
        for stays in [10, 1] {
            let keys: Vec<_> = model.keys().cloned().collect();
            for key in keys.iter().filter(|_| random.below(10) >= stays) {
                assert!(tree.remove(&mut arena, key).unwrap());
                model.remove(key);
            }
            pack(&mut tree, &mut arena);
            let report = check(&tree, &arena, &model);
            let bytes = tree.bytes(&arena).unwrap();
            assert_eq!(bytes, arena.used_bytes());
            let times = bytes as f64 / raw(&model) as f64;
            assert!(times < 1.5, "round {round}: {times:.2} times: {report:?}");
        }
    }
}
