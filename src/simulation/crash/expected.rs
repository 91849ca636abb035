//! What may be in the files at each moment of a history.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::Files;
use crate::arena::{Access, crash};
use crate::shard::panic_message;
use crate::simulation::{Setting, World};

/// What may be there at this moment: what was before the step under way, with the changes of some of its
/// groups.
#[derive(Default)]
pub(super) struct Expected<K, V> {
    pub(super) present: BTreeMap<K, V>,
    /// Changes of the step under way: of each group all or none.
    groups: Vec<Vec<(K, Option<V>)>>,
    step: String,
    points: u64,
    failure: Option<String>,
}

impl<K: Ord + Clone + Debug, V: Clone + PartialEq> Expected<K, V> {
    /// A step begins, which may change so much.
    pub(super) fn begin(&mut self, name: &str, groups: Vec<Vec<(K, Option<V>)>>) {
        self.step = format!("{name}, {} groups", groups.len());
        self.groups = groups;
    }

    /// The step has done all of it.
    pub(super) fn done(&mut self) {
        for (key, value) in std::mem::take(&mut self.groups).into_iter().flatten() {
            match value {
                Some(value) => self.present.insert(key, value),
                None => self.present.remove(&key),
            };
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether this may be there.
    fn check(&self, found: &BTreeMap<K, V>) -> Result<(), String> {
        let mut rest = found.clone();
        let mut others = self.present.clone();
        for group in &self.groups {
            let mut done = Vec::new();
            for (key, after) in group {
                let now = rest.remove(key);
                let before = others.remove(key);
                if now != before && now != *after {
                    return Err(format!("{key:?} is of no moment"));
                }
                if before != *after {
                    done.push(now == *after);
                }
            }
            if done.iter().any(|&is_done| is_done != done[0]) {
                return Err(format!("a part of a group has happened: {done:?}"));
            }
        }
        if rest == others {
            return Ok(());
        }
        Err(format!(
            "{} are there, expected {}",
            rest.len(),
            others.len()
        ))
    }
}

/// Lets a history happen, and looks at every moment of it: what the files hold then is opened in a copy,
/// and compared with what may be there. Gives how many moments there were, or what is wrong.
pub(super) fn every_moment<K, V>(
    files: &Rc<Files>,
    (world, setting): (&World, Setting),
    expected: &Rc<RefCell<Expected<K, V>>>,
    found: fn(&World) -> Result<BTreeMap<K, V>, String>,
    history: impl FnOnce(),
) -> Result<u64, String>
where
    K: Ord + Clone + Debug + 'static,
    V: Clone + PartialEq + 'static,
{
    let files = Rc::clone(files);
    let tables = world.tables.borrow().clone();
    let watched = Rc::clone(expected);
    crash::watch(move |moment| {
        let mut expected = watched.borrow_mut();
        if moment != crash::Moment::Between || expected.failure.is_some() {
            return;
        }
        expected.points += 1;
        let looked = AssertUnwindSafe(|| {
            let (world, _) = files.open(0, setting, &tables, Access::Copy)?;
            expected.check(&found(&world)?)
        });
        let looked = catch_unwind(looked).unwrap_or_else(|panic| Err(panic_message(panic)));
        if let Err(error) = looked {
            let (step, point) = (&expected.step, expected.points);
            expected.failure = Some(format!("{error}, at point {point}, in {step}"));
        }
    });
    let panicked = catch_unwind(AssertUnwindSafe(history));
    crash::unwatch();
    let panicked = panicked.err().map(panic_message);
    let expected = expected.borrow();
    match expected.failure.clone().or(panicked) {
        Some(failure) => Err(failure),
        None => Ok(expected.points),
    }
}
