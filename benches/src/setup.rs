//! What a cell is about, apart from its operation: shape, access, route, and who gets which key.

use clap::ValueEnum;

use crate::random::{XorShift, key_of};
use crate::workload::{Access, Operation, growth_max, key_count};

/// Where the rows of a thread lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Route {
    /// Resident work on rows of its own shard.
    Local,
    /// Resident work on rows of all shards.
    Routed,
    /// Client threads on rows of all shards.
    Session,
}

impl Route {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Routed => "routed",
            Self::Session => "session",
        }
    }
}

/// Shape of one table and of the work on it.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How rows are found.
    pub access: Access,
    /// Where they lie.
    pub route: Route,
    /// Per cent of a routed thread's rows that lie in other shards; `None` for an even spread.
    pub remote_percent: Option<f64>,
    /// Rows of the full table.
    pub rows: usize,
    /// Shards, and threads that issue operations.
    pub shards: usize,
    /// Operations a batch; 1 means single calls.
    pub batch: usize,
    /// Batches a call; more than one lets batches to other shards travel while others are awaited.
    pub window: usize,
    /// Whether every answer is compared with a model.
    pub checked: bool,
}

impl Setup {
    /// Rows of one thread.
    pub fn part_rows(&self) -> usize {
        self.rows / self.shards
    }

    /// The share of a thread's rows that lies in other shards, from 0 to 1.
    pub fn remote_share(&self) -> f64 {
        match (self.route, self.remote_percent) {
            (Route::Local, _) => 0.0,
            (_, Some(percent)) if self.shards > 1 => (percent / 100.0).clamp(0.0, 1.0),
            _ => (self.shards - 1) as f64 / self.shards as f64,
        }
    }

    /// Bytes that one copy of the table takes, its index and the walks over it included.
    pub fn bytes(&self, columns: usize) -> u64 {
        let row = columns * 8 + 16;
        let walk = match self.access {
            Access::Direct => 8,
            Access::Surrogate => 14 + 20,
        };
        let room = self.rows + self.shards * growth_max(self.part_rows());
        (room * (row + walk)) as u64
    }

    /// Keys of every thread, for a table whose key `key` belongs to shard `home(key)`.
    ///
    /// Every thread gets the wanted share of keys of other shards, which take turns.
    pub fn keys(&self, home: impl Fn(u64) -> usize) -> Vec<Vec<u64>> {
        let wanted = key_count(self.part_rows());
        let mut random = XorShift::new(self.rows as u64);
        let mut keys: Vec<Vec<u64>> = (0..self.shards)
            .map(|_| Vec::with_capacity(wanted))
            .collect();
        let mut pools: Vec<Vec<u64>> = vec![Vec::new(); self.shards];
        let mut ordinal = 0;
        let share = self.remote_share();
        for place in 0..wanted * self.shards {
            let thread = place % self.shards;
            let is_remote = (random.below(1 << 20) as f64) < share * f64::from(1 << 20);
            let turn = 1 + (place / self.shards) % (self.shards - 1).max(1);
            let shard = if is_remote {
                (thread + turn) % self.shards
            } else {
                thread
            };
            let key = loop {
                if let Some(key) = pools[shard].pop() {
                    break key;
                }
                let key = key_of(ordinal);
                ordinal += 1;
                // The upper half stays free for marks, and for stores whose keys are signed.
                if key >> 63 != 0 {
                    continue;
                }
                pools[home(key)].push(key);
            };
            keys[thread].push(key);
        }
        keys
    }

    /// Deals the rows of all shards out to as many threads, equally many to each, with the wanted
    /// share of other shards as far as there are as many.
    pub fn deal<I: Copy>(&self, mut by_shard: Vec<Vec<I>>) -> Vec<Vec<I>> {
        let shards = by_shard.len();
        let rows = by_shard.iter().map(Vec::len).sum::<usize>() / shards;
        let mut random = XorShift::new(rows as u64);
        by_shard.iter_mut().for_each(|ids| random.shuffle(ids));
        let remote_each = (self.remote_share() * rows as f64) as usize / (shards - 1).max(1);
        let home = rows - remote_each * (shards - 1);
        let mut dealt: Vec<Vec<I>> = (0..shards).map(|_| Vec::with_capacity(rows)).collect();
        // First the wanted shares, then whatever is left.
        for round in [home, rows] {
            for step in 0..shards {
                for (thread, mine) in dealt.iter_mut().enumerate() {
                    let ids = &mut by_shard[(thread + step) % shards];
                    let wanted = if round == rows {
                        rows - mine.len()
                    } else if step == 0 {
                        home
                    } else {
                        remote_each
                    };
                    let rest = ids.len() - wanted.min(ids.len());
                    mine.extend(ids.drain(rest..));
                }
            }
        }
        dealt
    }
}

/// The wanted operations, all if none are named, in the order in which they are run.
pub fn operations_in_order(wanted: &[Operation]) -> Vec<Operation> {
    Operation::ALL
        .into_iter()
        .filter(|operation| wanted.is_empty() || wanted.contains(operation))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(route: Route, remote_percent: Option<f64>) -> Setup {
        Setup {
            access: Access::Surrogate,
            route,
            remote_percent,
            rows: 3_000,
            shards: 3,
            batch: 1,
            window: 1,
            checked: true,
        }
    }

    #[test]
    fn local_threads_get_keys_of_their_own_shard_only() {
        let home = |key: u64| (key % 3) as usize;
        for (thread, keys) in setup(Route::Local, None).keys(home).iter().enumerate() {
            assert!(keys.iter().all(|key| home(*key) == thread));
        }
    }

    #[test]
    fn routed_threads_get_the_wanted_share_and_no_key_twice() {
        let home = |key: u64| (key % 3) as usize;
        let mut all = Vec::new();
        for (thread, keys) in setup(Route::Routed, Some(90.0))
            .keys(home)
            .iter()
            .enumerate()
        {
            let remote = keys.iter().filter(|key| home(**key) != thread).count();
            let share = remote as f64 / keys.len() as f64;
            assert!((0.85..0.95).contains(&share), "{share}");
            all.extend_from_slice(keys);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn dealt_rows_are_all_there_with_the_wanted_share() {
        let by_shard: Vec<Vec<usize>> = (0..3)
            .map(|shard| (0..300).map(|row| 3 * row + shard).collect())
            .collect();
        let dealt = setup(Route::Routed, Some(50.0)).deal(by_shard);
        for (thread, ids) in dealt.iter().enumerate() {
            assert_eq!(ids.len(), 300);
            assert_eq!(ids.iter().filter(|id| *id % 3 != thread).count(), 150);
        }
    }
}
