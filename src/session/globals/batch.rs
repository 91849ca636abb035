//! Batches of globals: what goes to each shard lies in one piece of memory, and so does what comes
//! back. It is kept from one batch to the next.

use super::{GlobalVerbs, check_value};
use crate::collation::{EntryList, KeyList, Number};
use crate::error::Result;
use crate::limits::{GLOBAL_BYTES_PER_CALL, GLOBALS_PER_CALL};
use crate::session::call::call_each;
use crate::session::verbs::Verbs;
use crate::shard::{Context, LocalTree, Reach};
use crate::table::Strings;

/// What goes to one shard, and what it says.
#[derive(Default)]
struct Load {
    keys: Strings,
    values: Strings,
    /// Which operations of the batch these are.
    numbers: Vec<usize>,
    found: Strings,
    sums: Vec<Number>,
}

/// One for each shard.
pub(super) struct Loads {
    loads: Vec<Load>,
}

impl Loads {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            loads: (0..shards).map(|_| Load::default()).collect(),
        }
    }

    fn clear(&mut self) {
        for load in &mut self.loads {
            load.keys.clear();
            load.values.clear();
            load.numbers.clear();
            load.found.clear();
            load.sums.clear();
        }
    }
}

impl<S: Verbs> GlobalVerbs<'_, S> {
    /// Adds a key to those of its shard.
    #[inline]
    fn route(&mut self, number: usize, key: &[u8]) -> &mut Load {
        let shard = self.globals.routing().shard_of(key, self.shards);
        let load = &mut self.loads.loads[shard];
        load.keys.push(key);
        load.numbers.push(number);
        load
    }

    /// Runs work in each shard that has a load, at the same time.
    fn at_each(
        &mut self,
        reach: Reach,
        work: impl Fn(&mut LocalTree<'_>, &mut Load) -> Result<()> + Sync,
    ) -> Result<()> {
        let key = self.globals.key();
        let (link, mut host) = self.client.port()?;
        let work = &work;
        let loads = self.loads.loads.iter_mut().enumerate();
        let calls = loads
            .filter(|(_, load)| load.keys.len() > 0)
            .map(|(shard, load)| {
                let closure = move |context: &mut Context<'_>| work(&mut context.tree(key)?, load);
                (shard, closure)
            })
            .collect();
        call_each(link, &mut host, reach, calls)
            .into_iter()
            .collect()
    }
}

pub(super) fn get_each<S: Verbs, K: KeyList + ?Sized>(
    verbs: &mut GlobalVerbs<'_, S>,
    keys: &K,
    mut visit: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    for first in (0..keys.len()).step_by(GLOBALS_PER_CALL) {
        verbs.loads.clear();
        for at in first..keys.len().min(first + GLOBALS_PER_CALL) {
            verbs.route(at, keys.key(at));
        }
        verbs.at_each(Reach::Reads, |tree, load| {
            let Load { keys, found, .. } = load;
            let get = |at| keys.get(at);
            tree.get_all(keys.len(), get, |_, value| found.push_maybe(value))
        })?;
        for load in &verbs.loads.loads {
            for (at, &number) in load.numbers.iter().enumerate() {
                visit(number, load.found.find(at));
            }
        }
    }
    Ok(())
}

pub(super) fn set_batch<S: Verbs, E: EntryList + ?Sized>(
    verbs: &mut GlobalVerbs<'_, S>,
    entries: &E,
) -> Result<()> {
    let count = entries.len();
    (0..count).try_for_each(|at| check_value(entries.value(at)))?;
    let mut at = 0;
    while at < count {
        verbs.loads.clear();
        let (first, mut bytes) = (at, 0);
        while at < count && at - first < GLOBALS_PER_CALL && bytes < GLOBAL_BYTES_PER_CALL {
            let value = entries.value(at);
            bytes += value.len();
            verbs.route(at, entries.key(at)).values.push(value);
            at += 1;
        }
        verbs.at_each(Reach::All, |tree, load| {
            let Load { keys, values, .. } = &*load;
            tree.set_all(keys.len(), |at| (keys.get(at), values.get(at)))
        })?;
    }
    Ok(())
}

pub(super) fn increment_batch<S: Verbs, K: KeyList + ?Sized>(
    verbs: &mut GlobalVerbs<'_, S>,
    keys: &K,
    by: Number,
    mut visit: impl FnMut(usize, Number),
) -> Result<()> {
    for first in (0..keys.len()).step_by(GLOBALS_PER_CALL) {
        verbs.loads.clear();
        for at in first..keys.len().min(first + GLOBALS_PER_CALL) {
            verbs.route(at, keys.key(at));
        }
        verbs.at_each(Reach::All, |tree, load| {
            let Load { keys, sums, .. } = load;
            let get = |at| keys.get(at);
            tree.increment_all(keys.len(), get, by, |_, sum| sums.push(sum))
        })?;
        for load in &verbs.loads.loads {
            for (&number, &sum) in load.numbers.iter().zip(&load.sums) {
                visit(number, sum);
            }
        }
    }
    Ok(())
}
