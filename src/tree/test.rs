//! The tree against an ordered map, and against everything that can go wrong.

mod damage;
mod file_test;
mod keys;
mod limits;
mod model;
mod order;
mod pack;
mod scopes;
mod space;

use std::collections::BTreeMap;

use super::{Direction, Tree, TreeName, TreeReport, trace};
use crate::arena::{Arena, ExtentKind, ExtentUse, MapOptions};
use std::ops::ControlFlow;

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const NAME: TreeName = TreeName { owner: 7, tree: 3 };

fn arena(bytes: u64) -> Arena {
    let options = MapOptions {
        bytes,
        node: None,
        huge_pages: false,
    };
    Arena::new(&options).unwrap()
}

/// Takes bytes of an arena for something else.
fn occupy(arena: &mut Arena, bytes: usize) {
    let other = ExtentUse::new(1, ExtentKind::Slab, 0);
    arena.allocate(bytes, other).unwrap();
}

/// A small generator of numbers, so that a seed tells the whole test.
struct Random(u64);

impl Random {
    /// A generator for a test: the same one each time, or with the seed in `ANCILE_TEST_SEED`, which is
    /// printed when the test fails.
    fn new(test: &str) -> Self {
        let given = std::env::var("ANCILE_TEST_SEED").ok();
        let seed = given.map_or(1, |seed| seed.parse().unwrap());
        println!("{test}: ANCILE_TEST_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        crate::id::hash(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The tree is sound and holds what the model holds.
fn check(tree: &Tree, arena: &Arena, model: &Model) -> TreeReport {
    let report = tree.check(arena).unwrap();
    assert_eq!(report.entries, model.len() as u64);
    assert_eq!(tree.len(arena).unwrap(), model.len() as u64);
    let mut expected = model.iter();
    let mut value = Vec::new();
    tree.scan(arena, &[], None, Direction::Forward, |key, found| {
        let (expected_key, expected_value) = expected.next().unwrap();
        assert_eq!(key, expected_key);
        value.clear();
        found.append_to(&mut value).unwrap();
        assert!(&value == expected_value && found.len() == value.len());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(expected.next().is_none());
    report
}
