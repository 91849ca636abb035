//! Going over records in the order of an index: blocks of records from each shard, merged.
//!
//! # What it sees
//! A block is of one moment of its shard, and blocks of one shard come one after the other, each from
//! the last key of the one before; others write meanwhile. So a record that is there throughout, with the
//! same values of the index's fields, is visited once, as it was at some moment since the scan began; one
//! that comes or goes may be visited or not, and one whose values change meanwhile may be visited with the
//! old ones, with the new ones, with both or with none. Values come in ascending (or descending) order.
//!
//! Blocks become larger as a scan goes on, so that a short scan fetches little. When a shard's block is
//! used up, those of other shards that are half used up are filled at the same time.

use std::ops::ControlFlow;

use super::RecordVerbs;
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::limits::{RANGE_RECORDS_MAX, RANGE_RECORDS_MIN, SCAN_WORDS_PER_REQUEST};
use crate::session::call::call_each;
use crate::session::verbs::Verbs;
use crate::shard::{Context, Ranked, Reach};
use crate::table::{Direction, Key, KeyBounds, KeySpan, Record};

/// What a shard has still to give.
struct Branch {
    shard: ShardIndex,
    found: Ranked,
    /// What is left of the range behind the block.
    rest: KeySpan,
    is_last: bool,
}

impl Branch {
    /// Goes to the end of a block; false if that is not behind the one before, as in a damaged file.
    fn go_on(&mut self, direction: Direction) -> bool {
        let Some(last) = self.found.last_key() else {
            return true;
        };
        let KeySpan { start, end } = &mut self.rest;
        let is_inside = last >= &start[..] && end.as_ref().is_none_or(|end| last < &end[..]);
        match direction {
            Direction::Forward if is_inside => {
                start.clear();
                start.extend_from_slice(last);
                start.push(0);
            }
            Direction::Backward => *end = Some(last.to_vec()),
            Direction::Forward => {}
        }
        is_inside
    }
}

impl<S: Verbs, R: Record> RecordVerbs<'_, S, R> {
    /// Visits the records whose values of an ordered index's fields lie in a range, in their order, until
    /// `visit` breaks. Records with the same values come in no order.
    ///
    /// The ends of the range are values of the index's first fields, or of all of them:
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// ancile::record! {
    ///     pub struct Person {
    ///         pub name: String,
    ///         pub town: String,
    ///         pub born: i64,
    ///     }
    ///     key(name);
    ///     ordered_index town_born(town, born);
    ///     ordered_index name(name);
    /// }
    ///
    /// # use ancile::{Engine, Verbs};
    /// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
    /// let people = engine.create_records::<Person>("people")?;
    /// let mut session = engine.session()?;
    /// let mut people = session.records(&people);
    /// for (name, town, born) in [("Ada", "London", 1815), ("Augustus", "London", 1806), ("Emmy", "Erlangen", 1882)] {
    ///     people.insert(&Person { name: name.to_owned(), town: town.to_owned(), born })?;
    /// }
    /// let mut names = Vec::new();
    /// people.range("town_born", ("London", 1800_i64)..("London", 1810_i64), |person| {
    ///     names.push(person.name);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(names, ["Augustus"]);
    ///
    /// assert_eq!(people.count_range("town_born", ..="Erlangen")?, 1);
    /// assert_eq!(people.count_range("town_born", ..)?, 3);
    /// assert_eq!(people.count_prefix("name", "A")?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Others work on meanwhile: a record that is there throughout, with the same values, is visited
    /// once, as it was at some moment since the scan began; one that comes or goes may be visited or not,
    /// and one whose values change may be visited with the old ones, the new ones, both or none.
    pub fn range(
        &mut self,
        index: &str,
        bounds: impl KeyBounds,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        let (index, span) = self.span_within(index, &bounds)?;
        self.merge_shards(index, &span, Direction::Forward, visit)
    }

    /// As [`range`](Self::range), from the last record to the first.
    pub fn range_rev(
        &mut self,
        index: &str,
        bounds: impl KeyBounds,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        let (index, span) = self.span_within(index, &bounds)?;
        self.merge_shards(index, &span, Direction::Backward, visit)
    }

    /// Visits the records that have these values of an ordered index's first fields, in the order of the
    /// index, until `visit` breaks. The last value, if it is a text or bytes, need only be what the
    /// record's value begins with. What is seen of others' changes is said at [`range`](Self::range).
    pub fn prefix(
        &mut self,
        index: &str,
        values: impl Key,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        let (index, span) = self.span_of(index, &values)?;
        self.merge_shards(index, &span, Direction::Forward, visit)
    }

    /// As [`prefix`](Self::prefix), from the last record to the first.
    pub fn prefix_rev(
        &mut self,
        index: &str,
        values: impl Key,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        let (index, span) = self.span_of(index, &values)?;
        self.merge_shards(index, &span, Direction::Backward, visit)
    }

    /// How many records have values of an ordered index's fields in a range, over all shards. Those that
    /// others add, remove or change meanwhile may be counted or not.
    pub fn count_range(&mut self, index: &str, bounds: impl KeyBounds) -> Result<u64> {
        let (index, span) = self.span_within(index, &bounds)?;
        self.count_span(index, &span)
    }

    /// How many records [`prefix`](Self::prefix) visits.
    pub fn count_prefix(&mut self, index: &str, values: impl Key) -> Result<u64> {
        let (index, span) = self.span_of(index, &values)?;
        self.count_span(index, &span)
    }

    fn span_within(&self, index: &str, bounds: &impl KeyBounds) -> Result<(usize, KeySpan)> {
        let index = self.records.ordered(index)?;
        Ok((index, KeySpan::of(self.records.shape(), index, bounds)?))
    }

    fn span_of(&self, index: &str, values: &impl Key) -> Result<(usize, KeySpan)> {
        let index = self.records.ordered(index)?;
        let span = KeySpan::beginning(self.records.shape(), index, values)?;
        Ok((index, span))
    }

    fn count_span(&mut self, index: usize, span: &KeySpan) -> Result<u64> {
        (0..self.shards)
            .map(|shard| self.at(shard, Reach::Reads, |local| local.count_range(index, span)))
            .sum()
    }

    fn merge_shards(
        &mut self,
        index: usize,
        span: &KeySpan,
        direction: Direction,
        mut visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        let branch = |shard| Branch {
            shard,
            found: Ranked::default(),
            rest: span.clone(),
            is_last: false,
        };
        let mut branches: Vec<Branch> = (0..self.shards).map(branch).collect();
        let mut records_max = RANGE_RECORDS_MIN;
        loop {
            let is_dry = |branch: &Branch| branch.found.left() == 0 && !branch.is_last;
            if branches.iter().any(is_dry) {
                self.fetch(&mut branches, index, direction, records_max)?;
                records_max = (2 * records_max).min(RANGE_RECORDS_MAX);
            }
            let Some(branch) = nearest(&mut branches, direction) else {
                return Ok(());
            };
            let shard = branch.shard;
            let image = branch.found.take().ok_or(Error::Damaged { shard })?;
            if visit(self.records.codec().read(image)?).is_break() {
                return Ok(());
            }
        }
    }

    /// Fetches the next block of each shard whose last one is used up or half used up, at the same time.
    fn fetch(
        &mut self,
        branches: &mut [Branch],
        index: usize,
        direction: Direction,
        records_max: usize,
    ) -> Result<()> {
        let table = self.records.key();
        let (link, mut host) = self.client.port()?;
        let low = branches
            .iter_mut()
            .filter(|branch| !branch.is_last && branch.found.left() <= records_max / 4);
        let calls = low
            .map(|branch| {
                let shard = branch.shard;
                let closure = move |context: &mut Context<'_>| {
                    let Branch { found, rest, .. } = &mut *branch;
                    found.forget_taken();
                    let span = (&rest.start[..], rest.end.as_deref());
                    let bounds = (records_max, SCAN_WORDS_PER_REQUEST);
                    let local = context.local(table)?;
                    branch.is_last = local.range(index, span, direction, bounds, found)?;
                    if branch.is_last || branch.go_on(direction) {
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
fn nearest(branches: &mut [Branch], direction: Direction) -> Option<&mut Branch> {
    let keys = branches
        .iter()
        .enumerate()
        .filter_map(|(at, branch)| Some((branch.found.key()?, at)));
    let nearest = match direction {
        Direction::Forward => keys.min(),
        Direction::Backward => keys.max(),
    };
    let (_, at) = nearest?;
    Some(&mut branches[at])
}
