//! What a shard counts about itself.
//!
//! Plain numbers that belong to the shard: who wants to know asks it, and it answers between two
//! requests. A block adds to one of them; a row is looked at now and then.
//!
//! # Hot rows
//! Which rows are wanted most is kept by Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a
//! few counters, of which the smallest is given to a row that has none, with what it had counted as
//! the possible error. A row seen more often than one time in [`HOT_ROWS`] is always among them. Seen
//! are one operation of about every sixteenth block, and every row that made somebody wait.

use super::{Inbox, Shard};
use crate::error::Error;
use crate::id::{DirectId, RowId, TableKey, hash};
use crate::limits::HOT_ROWS;
use crate::table::{TablePart, Verb};
use crate::transaction::{Cause, EntryId, Purpose, RowKey, Verdict};

/// Operations that a shard has executed, by verb, found or not.
///
/// Rows that code inside a shard works on directly ([`Rows`](crate::Rows)) are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStats {
    /// Selects.
    pub selects: u64,
    /// Updates.
    pub updates: u64,
    /// Inserts, with or without a key.
    pub inserts: u64,
    /// Deletes.
    pub deletes: u64,
    /// Upserts.
    pub upserts: u64,
    /// Operations of any kind that came in a mixture.
    pub mixed: u64,
    /// Closures, and what is shipped like one: verbs of single columns, counts, scans, and what
    /// transactions read.
    pub closures: u64,
}

impl OperationStats {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.selects
            + self.updates
            + self.inserts
            + self.deletes
            + self.upserts
            + self.mixed
            + self.closures
    }
}

/// What became of transactions. Every try counts, in the shard that tells its client: the lowest that
/// takes part, or, if it changes nothing, the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Their changes have happened.
    pub committed: u64,
    /// What they have read was still so, and they changed nothing.
    pub validated: u64,
    /// Aborted: a row was changed after they had read it.
    pub changed: u64,
    /// Aborted: another transaction that travelled with it wanted the same row.
    pub neighbour: u64,
    /// Aborted: they had rows to themselves, and not these, or not long enough.
    pub lease: u64,
    /// Aborted: an operation found no row, or one that it must not find, or other values.
    pub refused: u64,
    /// Aborted: their time was over.
    pub timed_out: u64,
    /// Aborted: they could not be done.
    pub failed: u64,
}

impl TransactionStats {
    /// Aborted, for whatever reason.
    pub fn aborted(&self) -> u64 {
        self.changed + self.neighbour + self.lease + self.refused + self.timed_out + self.failed
    }

    fn count(&mut self, verdict: &Verdict, purpose: Purpose) {
        let counter = match verdict {
            Verdict::Committed if purpose == Purpose::Commit => &mut self.committed,
            Verdict::Committed => &mut self.validated,
            Verdict::Conflict(Cause::Changed) => &mut self.changed,
            Verdict::Conflict(Cause::Neighbour) => &mut self.neighbour,
            Verdict::Conflict(Cause::Lease) => &mut self.lease,
            Verdict::Refused { .. } => &mut self.refused,
            Verdict::Failed(error) if **error == Error::TimedOut => &mut self.timed_out,
            Verdict::Failed(_) | Verdict::Open => &mut self.failed,
        };
        *counter += 1;
    }
}

/// Where operations of several kinds are counted, behind those of one.
const MIXED: usize = 5;

/// The counters of a shard.
#[derive(Default)]
pub(crate) struct Tally {
    by_verb: [u64; MIXED + 1],
    pub(super) closures: u64,
    transactions: TransactionStats,
    leases: u64,
    pub(super) parked_requests: u64,
    parked_proposals: u64,
    pub(super) proposals_received: u64,
    hot: Hot,
    /// Blocks until one is looked at.
    until_sample: u32,
    samples: u64,
    /// Reading of the clock when the shard was made, and since when it has nothing to do.
    born: u64,
    idle_since: Option<u64>,
    idle_micros: u64,
}

impl Tally {
    pub(super) fn new(now: u64) -> Self {
        Self {
            born: now,
            ..Self::default()
        }
    }

    /// Counts an operation.
    pub(crate) fn count_one(&mut self, verb: Verb) {
        self.by_verb[verb as usize] += 1;
    }

    /// Counts a block of operations, all of one kind or not; says whether to look at one of them
    /// ([`sample`](Self::sample)).
    #[inline(always)]
    pub(crate) fn count(&mut self, verb: Option<Verb>, operations: u64) -> bool {
        self.by_verb[verb.map_or(MIXED, |verb| verb as usize)] += operations;
        let is_time = self.until_sample == 0;
        self.until_sample = self.until_sample.wrapping_sub(1);
        is_time
    }

    /// Looks at one of the operations that a block asks for.
    #[cold]
    pub(crate) fn sample<I: RowId>(&mut self, table: TableKey, part: &TablePart, ids: &[u64]) {
        self.samples += 1;
        // Steps of other lengths, so that no regular pattern is seen in part.
        let chance = hash(self.samples);
        self.until_sample = chance as u32 % 32;
        let Some(&id) = ids.get((chance >> 32) as usize % ids.len().max(1)) else {
            return;
        };
        let row = match id {
            _ if I::KEYED => Some(id),
            // No direct id is 0: that is a row whose place is still to be found.
            0 => None,
            _ => part.row_number(DirectId::from_u64(id)),
        };
        if let Some(row) = row {
            let table = table.index;
            self.hot.see(RowKey { table, row });
        }
    }
}

/// A row that is wanted often.
pub(crate) struct HotCount {
    /// Place of its table in the catalog.
    pub(crate) table: u32,
    /// Its key, or its direct id.
    pub(crate) id: u64,
    pub(crate) is_key: bool,
    pub(crate) seen: u64,
    pub(crate) seen_error: u64,
}

/// All that a shard tells about itself.
pub(crate) struct Told {
    pub(crate) operations: OperationStats,
    pub(crate) transactions: TransactionStats,
    pub(crate) leases: u64,
    pub(crate) parked_requests: u64,
    pub(crate) parked_proposals: u64,
    pub(crate) intents: u64,
    pub(crate) proposals_sent: u64,
    pub(crate) proposals_received: u64,
    pub(crate) waiting_requests: u64,
    pub(crate) waiting_requests_max: u64,
    pub(crate) hottest: Vec<HotCount>,
    pub(crate) idle_micros: u64,
    pub(crate) open_micros: u64,
}

impl Shard {
    /// Tells what it has counted, and what is so now.
    pub(crate) fn tell(&mut self, inbox: &Inbox) -> Told {
        let now = self.now();
        let tally = &self.tally;
        let idle_now = tally
            .idle_since
            .map_or(0, |since| now.saturating_sub(since));
        let waiting: Vec<u64> = inbox.waiting().collect();
        let [selects, updates, inserts, deletes, upserts, mixed] = tally.by_verb;
        let mut told = Told {
            operations: OperationStats {
                selects,
                updates,
                inserts,
                deletes,
                upserts,
                mixed,
                closures: tally.closures,
            },
            transactions: tally.transactions,
            leases: tally.leases,
            parked_requests: tally.parked_requests,
            parked_proposals: tally.parked_proposals,
            intents: self.intents.standing() as u64,
            proposals_sent: self.outbox.sent(),
            proposals_received: tally.proposals_received,
            waiting_requests: waiting.iter().sum(),
            waiting_requests_max: waiting.iter().copied().max().unwrap_or(0),
            hottest: Vec::new(),
            idle_micros: tally.idle_micros + idle_now,
            open_micros: now.saturating_sub(tally.born),
        };
        for &Counter {
            row,
            seen,
            seen_error,
        } in self.tally.hot.counters()
        {
            let Some((is_key, id)) = self.catalog.id_of(row) else {
                continue;
            };
            told.hottest.push(HotCount {
                table: row.table,
                id,
                is_key,
                seen,
                seen_error,
            });
        }
        told.hottest.sort_by_key(|hot| std::cmp::Reverse(hot.seen));
        told
    }

    /// Counts a proposal that has to wait, and looks at the rows that it waits for.
    #[cold]
    pub(super) fn note_parked_proposal(&mut self, entry: EntryId) {
        self.tally.parked_proposals += 1;
        self.note_rows(entry);
    }

    /// Counts a request, or resident code, that has to wait.
    #[cold]
    pub(super) fn note_parked_request(&mut self, entry: EntryId) {
        self.tally.parked_requests += 1;
        self.note_rows(entry);
    }

    fn note_rows(&mut self, entry: EntryId) {
        for row in self.intents.waits_for(entry) {
            self.tally.hot.see(row);
        }
    }

    /// Counts what became of the transactions of a proposal.
    #[inline]
    pub(super) fn note_verdicts(&mut self, purpose: Purpose, verdicts: &[Verdict]) {
        let tally = &mut self.tally;
        for verdict in verdicts {
            match purpose {
                Purpose::Commit | Purpose::Validate => tally.transactions.count(verdict, purpose),
                Purpose::Lease => tally.leases += u64::from(verdict.is_committed()),
            }
        }
    }

    /// There is nothing to do, if that was not so before. Only now and at the end of such times is
    /// the clock read.
    #[inline]
    pub(crate) fn begin_idle(&mut self) {
        if self.tally.idle_since.is_none() {
            self.tally.idle_since = Some(self.now());
        }
    }

    /// There was something to do.
    #[inline]
    pub(crate) fn end_idle(&mut self) {
        if let Some(since) = self.tally.idle_since.take() {
            self.tally.idle_micros += self.now().saturating_sub(since);
        }
    }

    /// Drops a table, and forgets what was seen of it.
    pub(crate) fn drop_table(&mut self, key: TableKey) {
        if self.catalog.has(key) {
            self.tally.hot.forget(key.index);
        }
        self.catalog.drop_table(key);
    }
}

#[derive(Clone, Copy)]
struct Counter {
    row: RowKey,
    seen: u64,
    /// At most so many of them were of other rows.
    seen_error: u64,
}

/// Rows that were seen often.
struct Hot {
    counters: [Counter; HOT_ROWS],
    used: usize,
}

impl Default for Hot {
    fn default() -> Self {
        let none = Counter {
            row: RowKey { table: 0, row: 0 },
            seen: 0,
            seen_error: 0,
        };
        Self {
            counters: [none; HOT_ROWS],
            used: 0,
        }
    }
}

impl Hot {
    fn counters(&self) -> &[Counter] {
        &self.counters[..self.used]
    }

    fn see(&mut self, row: RowKey) {
        let used = &mut self.counters[..self.used];
        if let Some(counter) = used.iter_mut().find(|counter| counter.row == row) {
            counter.seen += 1;
            return;
        }
        let mut new = Counter {
            row,
            seen: 1,
            seen_error: 0,
        };
        if self.used < HOT_ROWS {
            self.counters[self.used] = new;
            self.used += 1;
        } else if let Some(least) = used.iter_mut().min_by_key(|counter| counter.seen) {
            new.seen_error = least.seen;
            new.seen += least.seen;
            *least = new;
        }
    }

    fn forget(&mut self, table: u32) {
        let mut kept = 0;
        for at in 0..self.used {
            if self.counters[at].row.table != table {
                self.counters[kept] = self.counters[at];
                kept += 1;
            }
        }
        self.used = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(row: u64) -> RowKey {
        RowKey { table: 1, row }
    }

    #[test]
    fn row_seen_more_often_than_one_time_in_sixteen_is_found_and_its_count_within_its_error() {
        let (mut hot, mut exact) = (Hot::default(), [0_u64; 4]);
        for n in 0..100_000_u64 {
            let which = match n % 32 {
                0..8 => 0,
                8..12 => 1,
                12..15 => 2,
                _ => 3 + hash(n) % 10_000,
            };
            hot.see(row(which));
            if which < 3 {
                exact[which as usize] += 1;
            }
        }
        assert_eq!(hot.counters().len(), HOT_ROWS);
        let total: u64 = hot.counters().iter().map(|counter| counter.seen).sum();
        assert_eq!(total, 100_000, "nothing is lost");
        for which in 0..3 {
            let found = hot
                .counters()
                .iter()
                .find(|counter| counter.row == row(which));
            let counter = found.unwrap();
            let seen = exact[which as usize];
            assert!((counter.seen - counter.seen_error..=counter.seen).contains(&seen));
        }
        hot.see(RowKey { table: 2, row: 0 });
        hot.forget(1);
        let left: Vec<_> = hot
            .counters()
            .iter()
            .map(|counter| counter.row.table)
            .collect();
        assert_eq!(left, [2]);
    }

    #[test]
    fn few_rows_are_counted_exactly() {
        let mut hot = Hot::default();
        for n in 0..HOT_ROWS as u64 {
            (0..=n).for_each(|_| hot.see(row(n)));
        }
        for (n, counter) in hot.counters().iter().enumerate() {
            assert_eq!((counter.seen, counter.seen_error), (n as u64 + 1, 0));
        }
    }
}
