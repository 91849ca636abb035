//! What the shards have counted, for people and programs.

use std::fmt;
use std::time::Duration;

use super::registry::Registry;
use crate::id::{DirectId, ShardIndex, SurrogateId};
use crate::shard::{HotCount, OperationStats, Told, TransactionStats};

/// What an engine has done and has to do now, shard by shard: [`Engine::stats`](crate::Engine::stats).
///
/// Each shard answers between two requests, so its numbers belong together; those of two shards are
/// of slightly different moments. Counting costs the shards nothing that can be measured. Printed, it
/// is a table.
///
/// ```
/// use ancile::{Engine, Schema, SurrogateId, Verbs};
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let table = engine.create_table::<[u64; 1]>("t", Schema::cells(1).keyed())?;
/// let before = engine.stats()?;
/// let mut session = engine.session()?;
/// for key in 0..100 {
///     session.upsert(&table, SurrogateId(key), &[0])?;
/// }
/// let stats = engine.stats()?.since(&before);
/// assert_eq!(stats.shards.iter().map(|shard| shard.operations.upserts).sum::<u64>(), 100);
/// println!("{stats}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// One for each shard, in order.
    pub shards: Vec<ShardStats>,
}

/// What a shard has done since the engine was opened, and what is so now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStats {
    /// The shard.
    pub shard: ShardIndex,
    /// Operations executed.
    pub operations: OperationStats,
    /// Transactions whose way has ended here.
    pub transactions: TransactionStats,
    /// Leases given to transactions that failed too often, in the highest shard that takes part.
    pub leases: u64,
    /// How often a request, or code inside the shard, had to wait for transactions' intents.
    pub parked_requests: u64,
    /// How often a transaction had to wait for others' intents.
    pub parked_proposals: u64,
    /// Intents that stand now: transactions that take part here, and requests that wait for them.
    pub intents: u64,
    /// Proposals sent to other shards, on their way up or down.
    pub proposals_sent: u64,
    /// Proposals received from shards and sessions.
    pub proposals_received: u64,
    /// Requests that wait now in the rings of all clients.
    pub waiting_requests: u64,
    /// Of these, the most of one client.
    pub waiting_requests_max: u64,
    /// The rows that are wanted most, the hottest first; at most 16.
    pub hottest: Vec<HotRow>,
    /// How long there was nothing to do. Resident work counts as something to do, also while it waits.
    pub idle: Duration,
    /// For how long the shard has been open.
    pub open: Duration,
}

/// A row that is wanted often.
///
/// Looked at are one operation of about every sixteenth block that a shard serves, and every row that
/// made somebody wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotRow {
    /// Its table.
    pub table: String,
    /// The row.
    pub row: HotId,
    /// How often it was seen, at most.
    pub seen: u64,
    /// So many of these may have been other rows.
    pub seen_error: u64,
}

/// How a hot row is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HotId {
    /// By its key.
    Key(SurrogateId),
    /// In tables without keys, by its place: the id of the row that is there now.
    Place(DirectId),
}

impl ShardStats {
    pub(super) fn new(shard: ShardIndex, told: Told, tables: &Registry) -> Self {
        let hot_row = |hot: HotCount| {
            let row = if hot.is_key {
                HotId::Key(SurrogateId(hot.id))
            } else {
                HotId::Place(DirectId::from_u64(hot.id))
            };
            Some(HotRow {
                table: tables.name_of(hot.table)?,
                row,
                seen: hot.seen,
                seen_error: hot.seen_error,
            })
        };
        Self {
            shard,
            operations: told.operations,
            transactions: told.transactions,
            leases: told.leases,
            parked_requests: told.parked_requests,
            parked_proposals: told.parked_proposals,
            intents: told.intents,
            proposals_sent: told.proposals_sent,
            proposals_received: told.proposals_received,
            waiting_requests: told.waiting_requests,
            waiting_requests_max: told.waiting_requests_max,
            hottest: told.hottest.into_iter().filter_map(hot_row).collect(),
            idle: Duration::from_micros(told.idle_micros),
            open: Duration::from_micros(told.open_micros),
        }
    }

    /// The share of its time in which the shard had nothing to do: 0 to 1.
    pub fn idle_share(&self) -> f64 {
        if self.open.is_zero() {
            return 0.0;
        }
        self.idle.as_secs_f64() / self.open.as_secs_f64()
    }

    fn since(&self, earlier: &Self) -> Self {
        let (mut since, mut before) = (self.clone(), earlier.clone());
        for (counter, earlier) in since.counters().into_iter().zip(before.counters()) {
            *counter = counter.saturating_sub(*earlier);
        }
        since.idle = self.idle.saturating_sub(earlier.idle);
        since.open = self.open.saturating_sub(earlier.open);
        since
    }

    /// All that only grows.
    fn counters(&mut self) -> [&mut u64; 20] {
        let Self {
            operations,
            transactions,
            ..
        } = self;
        [
            &mut operations.selects,
            &mut operations.updates,
            &mut operations.inserts,
            &mut operations.deletes,
            &mut operations.upserts,
            &mut operations.mixed,
            &mut operations.closures,
            &mut transactions.committed,
            &mut transactions.validated,
            &mut transactions.changed,
            &mut transactions.neighbour,
            &mut transactions.lease,
            &mut transactions.refused,
            &mut transactions.timed_out,
            &mut transactions.failed,
            &mut self.leases,
            &mut self.parked_requests,
            &mut self.parked_proposals,
            &mut self.proposals_sent,
            &mut self.proposals_received,
        ]
    }
}

impl Stats {
    /// What has happened since earlier statistics of the same engine. What is so now, and which rows
    /// are hot, stays as it is.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.shards.iter().zip(&earlier.shards);
        Self {
            shards: pairs.map(|(now, earlier)| now.since(earlier)).collect(),
        }
    }

    /// All shards in one line, for logs: operations, transactions by their ends, what was parked
    /// (requests + proposals), what stands now, idle time from the busiest shard to the idlest, and
    /// the hottest row.
    ///
    /// ```
    /// let engine = ancile::Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
    /// assert!(engine.stats()?.summary().starts_with("0 operations, 0 committed, 0 aborted"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn summary(&self) -> String {
        let sum = |part: fn(&ShardStats) -> u64| self.shards.iter().map(part).sum::<u64>();
        let idle = || self.shards.iter().map(|shard| 100.0 * shard.idle_share());
        let hottest = self.shards.iter().flat_map(|shard| &shard.hottest);
        format!(
            "{} operations, {} committed, {} aborted ({} by changes, {} by leases), parked {} + {}, \
             {} intents, {} requests waiting, idle {:.0}..{:.0} %, hottest {}",
            sum(|shard| shard.operations.total()),
            sum(|shard| shard.transactions.committed + shard.transactions.validated),
            sum(|shard| shard.transactions.aborted()),
            sum(|shard| shard.transactions.changed),
            sum(|shard| shard.transactions.lease),
            sum(|shard| shard.parked_requests),
            sum(|shard| shard.parked_proposals),
            sum(|shard| shard.intents),
            sum(|shard| shard.waiting_requests),
            idle().fold(100.0, f64::min),
            idle().fold(0.0, f64::max),
            hottest
                .max_by_key(|row| row.seen)
                .map_or_else(|| "none".to_owned(), HotRow::to_string),
        )
    }
}

/// A line of the table: its name, and what it shows of a shard.
type Line = (&'static str, fn(&ShardStats) -> String);

const LINES: [Line; 19] = [
    ("operations", |shard| shard.operations.total().to_string()),
    ("  selects", |shard| shard.operations.selects.to_string()),
    ("  mixed", |shard| shard.operations.mixed.to_string()),
    ("  closures", |shard| shard.operations.closures.to_string()),
    ("committed", |shard| {
        (shard.transactions.committed + shard.transactions.validated).to_string()
    }),
    ("aborted", |shard| shard.transactions.aborted().to_string()),
    ("  by a change", |shard| {
        shard.transactions.changed.to_string()
    }),
    ("  neighbours", |shard| {
        shard.transactions.neighbour.to_string()
    }),
    ("  by a lease", |shard| shard.transactions.lease.to_string()),
    ("  refused", |shard| shard.transactions.refused.to_string()),
    ("  timed out", |shard| {
        shard.transactions.timed_out.to_string()
    }),
    ("  failed", |shard| shard.transactions.failed.to_string()),
    ("leases", |shard| shard.leases.to_string()),
    ("parked", |shard| {
        format!("{} + {}", shard.parked_requests, shard.parked_proposals)
    }),
    ("intents", |shard| shard.intents.to_string()),
    ("proposals", |shard| {
        format!("{} / {}", shard.proposals_sent, shard.proposals_received)
    }),
    ("waiting", |shard| {
        format!("{}, {}", shard.waiting_requests, shard.waiting_requests_max)
    }),
    ("idle", |shard| {
        format!("{:.1} %", 100.0 * shard.idle_share())
    }),
    ("hottest row", |shard| {
        shard
            .hottest
            .first()
            .map_or_else(|| "-".to_owned(), |hot| hot.to_string())
    }),
];

impl fmt::Display for Stats {
    /// A column for each shard. Parked: requests + proposals; proposals: sent / received; waiting:
    /// requests in all rings, in the fullest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<Vec<String>> = self
            .shards
            .iter()
            .map(|shard| {
                let head = format!("shard {}", shard.shard);
                let cells = LINES.iter().map(|(_, show)| show(shard));
                std::iter::once(head).chain(cells).collect()
            })
            .collect();
        let names = std::iter::once("").chain(LINES.iter().map(|(name, _)| *name));
        for (line, name) in names.enumerate() {
            write!(f, "{name:<14}")?;
            for column in &columns {
                let width = column.iter().map(|cell| cell.chars().count()).max();
                write!(f, "  {:>1$}", column[line], width.unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for HotRow {
    /// As `table[key]` or `table@id`, and how often it was seen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row {
            HotId::Key(key) => write!(f, "{}[{}]", self.table, key.0)?,
            HotId::Place(id) => write!(f, "{}@{}", self.table, id.to_u64())?,
        }
        write!(f, " x {}", self.seen)
    }
}
