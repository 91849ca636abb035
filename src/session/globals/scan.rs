//! Going over globals in order: blocks of nodes from each shard that has some of them, merged.
//!
//! # What it sees
//! A block is of one moment of its shard, and blocks of one shard come one after the other; others
//! write meanwhile. So a node that is there throughout is visited once, with a value of some moment
//! since the scan began; one that comes or goes may be visited or not. Keys come in ascending (or
//! descending) order, none twice. Blocks become larger as a scan goes on, so that a short scan
//! fetches little.

use std::ops::ControlFlow;

use super::GlobalVerbs;
use crate::collation::{GlobalKey, GlobalKeyRef, KeyRange};
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::limits::{SCAN_BYTES, SCAN_NODES_MAX, SCAN_NODES_MIN};
use crate::session::call::call_each;
use crate::session::verbs::Verbs;
use crate::shard::{Context, Reach};
use crate::table::{Direction, Span, Strings};

/// What a shard has still to give.
struct Branch {
    shard: ShardIndex,
    /// Keys and values in turn, and how many of these strings were visited.
    found: Strings,
    at: usize,
    /// Where the next block begins (or ends, backwards).
    from: Vec<u8>,
    is_last: bool,
}

impl Branch {
    fn new(shard: ShardIndex, from: &[u8]) -> Self {
        Self {
            shard,
            found: Strings::default(),
            at: 0,
            from: from.to_vec(),
            is_last: false,
        }
    }

    fn key(&self) -> Option<&[u8]> {
        (self.at < self.found.len()).then(|| self.found.get(self.at))
    }

    fn is_dry(&self) -> bool {
        self.at == self.found.len() && !self.is_last
    }

    /// Goes to the end of a block; false if that is not behind the one before, as in a damaged file.
    fn go_on(&mut self, direction: Direction) -> bool {
        let Some(last) = self.found.len().checked_sub(2) else {
            self.is_last = true;
            return true;
        };
        let last = self.found.get(last);
        let is_further = match direction {
            Direction::Forward => last >= self.from.as_slice(),
            Direction::Backward => last < self.from.as_slice(),
        };
        self.from.clear();
        self.from.extend_from_slice(last);
        if direction == Direction::Forward {
            self.from.push(0);
        }
        is_further
    }
}

impl<S: Verbs> GlobalVerbs<'_, S> {
    /// Visits the nodes that begin with a key, itself included, in order, until `visit` breaks. What
    /// is seen of others' changes is said at [`scan_range`](Self::scan_range).
    pub fn scan(
        &mut self,
        key: &GlobalKey,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let home = self.home(key.prefix());
        self.merge_shards(home, &key.subtree(), Direction::Forward, visit)
    }

    /// As [`scan`](Self::scan), from the last node to the first.
    pub fn scan_back(
        &mut self,
        key: &GlobalKey,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let home = self.home(key.prefix());
        self.merge_shards(home, &key.subtree(), Direction::Backward, visit)
    }

    /// Visits the nodes of a range in order, until `visit` breaks.
    ///
    /// Others work on meanwhile: a node that is there throughout is visited once, with a value of
    /// some moment since the scan began; one that comes or goes may be visited or not. No key comes
    /// twice, nor out of order.
    pub fn scan_range(
        &mut self,
        range: &KeyRange,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.scan_range_to(range, Direction::Forward, visit)
    }

    /// As [`scan_range`](Self::scan_range), from the last node to the first.
    pub fn scan_range_back(
        &mut self,
        range: &KeyRange,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.scan_range_to(range, Direction::Backward, visit)
    }

    fn scan_range_to(
        &mut self,
        range: &KeyRange,
        direction: Direction,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let home = self.home(common(&range.start, &range.end));
        self.merge_shards(home, range, direction, visit)
    }

    fn merge_shards(
        &mut self,
        home: Option<ShardIndex>,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let from = match direction {
            Direction::Forward => &range.start,
            Direction::Backward => &range.end,
        };
        let branch = |shard| Branch::new(shard, from);
        let mut branches: Vec<Branch> = match home {
            Some(shard) => vec![branch(shard)],
            None => (0..self.shards).map(branch).collect(),
        };
        let mut nodes_max = SCAN_NODES_MIN;
        loop {
            if branches.iter().any(Branch::is_dry) {
                self.fetch(&mut branches, range, direction, nodes_max)?;
                nodes_max = (2 * nodes_max).min(SCAN_NODES_MAX);
            }
            let Some(first) = nearest(&branches, direction) else {
                return Ok(());
            };
            let (head, rest) = branches.split_at_mut(first);
            let Some((branch, rest)) = rest.split_first_mut() else {
                return Ok(());
            };
            // What comes before all others' keys is visited in one go.
            let others = head.iter().chain(&*rest).filter_map(Branch::key);
            let bound = match direction {
                Direction::Forward => others.min(),
                Direction::Backward => others.max(),
            };
            while let Some(key) = branch.key() {
                let is_next = bound.is_none_or(|bound| match direction {
                    Direction::Forward => key < bound,
                    Direction::Backward => key > bound,
                });
                if !is_next {
                    break;
                }
                let shard = branch.shard;
                let stored = GlobalKeyRef::of_stored(key).ok_or(Error::Damaged { shard })?;
                if visit(stored, branch.found.get(branch.at + 1)).is_break() {
                    return Ok(());
                }
                branch.at += 2;
            }
        }
    }

    /// Fetches the next block of each shard whose last one is used up, at the same time.
    fn fetch(
        &mut self,
        branches: &mut [Branch],
        range: &KeyRange,
        direction: Direction,
        nodes_max: usize,
    ) -> Result<()> {
        let table = self.globals.key();
        let (link, mut host) = self.client.port()?;
        let dry = branches.iter_mut().filter(|branch| branch.is_dry());
        let calls = dry
            .map(|branch| {
                let shard = branch.shard;
                let closure = move |context: &mut Context<'_>| {
                    let Branch { from, found, .. } = &mut *branch;
                    found.clear();
                    let span = match direction {
                        Direction::Forward => Span {
                            start: from,
                            end: Some(&range.end),
                        },
                        Direction::Backward => Span {
                            start: &range.start,
                            end: Some(from),
                        },
                    };
                    let tree = context.tree(table)?;
                    let bounds = (nodes_max, SCAN_BYTES);
                    branch.is_last = tree.collect(span, direction, bounds, found)?;
                    branch.at = 0;
                    if branch.go_on(direction) {
                        return Ok(());
                    }
                    Err(Error::Damaged { shard })
                };
                (shard, closure)
            })
            .collect();
        call_each(link, &mut host, Reach::Reads, calls)
            .into_iter()
            .collect()
    }
}

/// The branch with the first key, or the last one.
fn nearest(branches: &[Branch], direction: Direction) -> Option<usize> {
    let keys = branches
        .iter()
        .enumerate()
        .filter_map(|(at, branch)| Some((branch.key()?, at)));
    let nearest = match direction {
        Direction::Forward => keys.min(),
        Direction::Backward => keys.max(),
    };
    nearest.map(|(_, at)| at)
}

/// The whole components that all keys of a range begin with.
fn common<'a>(start: &'a [u8], end: &[u8]) -> &'a [u8] {
    // What is behind a subtree is its components with another last byte.
    if let (Some((0, inner)), Some((1, other))) = (start.split_last(), end.split_last())
        && inner == other
    {
        return start;
    }
    let pairs = start.iter().zip(end);
    let same = pairs.take_while(|(one, other)| one == other).count();
    let whole = start[..same].iter().rposition(|&byte| byte == 0);
    &start[..whole.map_or(0, |at| at + 1)]
}
