//! Trees in files: whatever a scope was doing when its process went, the tree is as the last whole scope
//! left it.

use std::path::PathBuf;

use super::keys::{FAMILIES, value};
use super::*;
use crate::arena::{Access, ArenaFile, Identity};

const OPTIONS: MapOptions = MapOptions {
    bytes: 256 << 20,
    node: None,
    huge_pages: false,
};

/// A file that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("ancile-tree-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn arena(&self) -> ArenaFile {
        ArenaFile {
            path: self.0.clone(),
            identity: Identity {
                database: [1; 16],
                shard: 0,
                shards: 1,
            },
            access: Access::Shared,
            is_salvage: false,
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_scope_that_was_interrupted_is_undone_when_the_file_is_opened() {
    for family in FAMILIES {
        let mut random = Random::new(&format!("files, {family:?}"));
        let file = File::new(&format!("{family:?}"));
        let mut arena = file.arena().create(&OPTIONS).unwrap().arena;
        let mut tree = Tree::new(&mut arena, NAME).unwrap();
        let mut model = Model::new();
        arena.end_scope();
        for round in 0..25 {
            let mut kept = model.clone();
            for _ in 0..random.below(8) {
                for _ in 0..random.below(30) {
                    change(
                        &mut tree,
                        &mut arena,
                        &mut model,
                        family,
                        round < 18,
                        &mut random,
                    );
                }
                if random.below(2) == 0 {
                    arena.end_scope();
                    kept = model.clone();
                }
            }
            // The process goes: its pages stay with the system, and the next one opens the file.
            let head = tree.head();
            drop(arena);
            let opened = file.arena().open(&OPTIONS).unwrap();
            arena = opened.arena;
            model = kept;
            tree = Tree::open(&arena, head).unwrap();
            let report = check(&tree, &arena, &model);
            let own = opened.entries.iter().filter(|entry| {
                (entry.use_.owner, entry.use_.kind) == (NAME.owner, ExtentKind::Tree)
            });
            assert_eq!(own.count() as u64, report.extents);
        }
        tree.release(&mut arena).unwrap();
        arena.end_scope();
        arena.close().unwrap();
    }
}

fn change(
    tree: &mut Tree,
    arena: &mut Arena,
    model: &mut Model,
    family: super::keys::Family,
    grows: bool,
    random: &mut Random,
) {
    let key = family.key(random);
    match random.below(40) {
        0 => {
            let end = family.key(random);
            tree.remove_range(arena, &key, Some(&end)).unwrap();
            model.retain(|other, _| key >= end || *other < key || *other >= end);
        }
        1 if model.is_empty() => {
            let entries: Model = (0..300)
                .map(|_| (family.key(random), value(random)))
                .collect();
            tree.load(arena, &entries).unwrap();
            *model = entries;
        }
        2 if grows => {
            let entries: Vec<_> = (0..40)
                .map(|_| (family.key(random), value(random)))
                .collect();
            let done = |_, result: Result<bool, _>| assert!(result.is_ok());
            tree.insert_each(arena, &entries, done).unwrap();
            model.extend(entries);
        }
        1..30 if grows => {
            let value = value(random);
            tree.insert(arena, &key, &value).unwrap();
            model.insert(key, value);
        }
        _ => {
            tree.remove(arena, &key).unwrap();
            model.remove(&key);
        }
    }
}
