//! Many operations under way from one thread: submit now, complete later.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::Verbs;
use super::host::{Host, await_turn};
use super::link::Link;
use super::settle;
use super::verbs::begin;
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::journal::Durable;
use crate::shard::Request;
use crate::table::{Means, Outcome, Row, Single, Table, Verb, Width};

/// The number of a submitted operation: 0, 1, 2, ... in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Operations on one table that overlap: each is submitted, travels with others of its shard, and
/// is completed later.
///
/// Operations on the same shard happen in the order of submission; those on different shards in any
/// order. A block travels when it is full, or at [`flush`](Self::flush); every ticket is completed
/// exactly once, with `Failed` when its table or engine is gone. Dropping a pipeline sends what it
/// holds and waits for the answers, unread; one that is forgotten loses what it has not sent.
///
/// ```
/// use ancile::{Engine, Outcome, Schema, SurrogateId, Verbs};
/// let engine = Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
/// let table = engine.create_table::<[u64; 1]>("squares", Schema::cells(1).keyed())?;
/// let mut session = engine.session()?;
/// let mut pipeline = session.pipeline::<_, SurrogateId>(&table);
/// for n in 0..1000 {
///     pipeline.insert(SurrogateId(n), &[n * n])?;
/// }
/// let mut inserted = 0;
/// while let Some((_ticket, outcome)) = pipeline.wait()? {
///     assert!(matches!(outcome, Outcome::Inserted(_)));
///     inserted += 1;
/// }
/// assert_eq!(inserted, 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pipeline<'a, S: Verbs, R: Row, I: RowId> {
    session: &'a mut S,
    table: Table<R>,
    submitted: u64,
    completed: VecDeque<(Ticket, Outcome<R>)>,
    outstanding: u64,
    /// The epoch that has to be durable before what is completed is told.
    unsettled: Option<u64>,
    /// Whether the session's lanes are this pipeline's.
    has_begun: bool,
    ids: PhantomData<I>,
}

impl<'a, S: Verbs, R: Row, I: RowId> Pipeline<'a, S, R, I> {
    pub(super) fn new(session: &'a mut S, table: &Table<R>) -> Self {
        let (table, completed) = (table.clone(), VecDeque::new());
        Self {
            session,
            table,
            submitted: 0,
            completed,
            outstanding: 0,
            unsettled: None,
            has_begun: false,
            ids: PhantomData,
        }
    }

    /// Submits a select.
    pub fn select(&mut self, id: I) -> Result<Ticket> {
        self.table.check_id::<I>()?;
        self.submit(Verb::Select, id, None)
    }

    /// Submits an update.
    pub fn update(&mut self, id: I, row: &R) -> Result<Ticket> {
        self.table.check_id::<I>()?;
        self.submit(Verb::Update, id, Some(row))
    }

    /// Submits a delete.
    pub fn delete(&mut self, id: I) -> Result<Ticket> {
        self.table.check_id::<I>()?;
        self.submit(Verb::Delete, id, None)
    }

    /// Operations submitted and not completed.
    pub fn outstanding(&self) -> u64 {
        self.outstanding + self.completed.len() as u64
    }

    /// Sends the blocks that are not full.
    pub fn flush(&mut self) -> Result<()> {
        self.begin()?;
        let (link, _) = self.session.port()?;
        for shard in 0..link.peers().shards() {
            send::<R, I>(link, &self.table, shard)?;
        }
        Ok(())
    }

    /// A completed operation, if there is one. Does not wait.
    pub fn complete(&mut self) -> Result<Option<(Ticket, Outcome<R>)>> {
        if self.completed.is_empty() {
            self.take_answers()?;
        }
        if let Some(epoch) = self.unsettled {
            let (link, _) = self.session.port()?;
            match link.awaited().map(|clock| clock.ask(epoch)) {
                Some(Durable::NotYet) => return Ok(None),
                Some(Durable::Never(reason)) => self.fail_changes(&reason),
                Some(Durable::Yes) | None => {}
            }
            self.unsettled = None;
        }
        Ok(self.completed.pop_front())
    }

    /// Waits until what is completed is durable, if it has to be.
    fn settle(&mut self) -> Result<()> {
        let Some(epoch) = self.unsettled.take() else {
            return Ok(());
        };
        let settled = {
            let (link, mut host) = self.session.port()?;
            match link.awaited() {
                Some(clock) => settle::wait(clock, &mut host, epoch),
                None => Ok(()),
            }
        };
        match settled {
            Err(Error::NotDurable(reason)) => self.fail_changes(&reason),
            settled => settled?,
        }
        Ok(())
    }

    /// Changes that are completed are not known to be durable, and never will be.
    fn fail_changes(&mut self, reason: &str) {
        for (_, outcome) in &mut self.completed {
            let is_told = matches!(
                outcome,
                Outcome::Selected(_) | Outcome::NotFound | Outcome::Failed(_)
            );
            if !is_told {
                *outcome = Outcome::Failed(Error::NotDurable(reason.to_owned()));
            }
        }
    }

    /// The next completed operation: flushes and waits for it. `None` when nothing is outstanding.
    pub fn wait(&mut self) -> Result<Option<(Ticket, Outcome<R>)>> {
        if self.completed.is_empty() && !self.take_answers()? {
            self.flush()?;
        }
        let mut rounds = 0;
        while self.completed.is_empty() && self.outstanding > 0 {
            if !self.take_answers()? {
                let (link, mut host) = self.session.port()?;
                if let Some(lane) = link.pending_lane() {
                    host.pause(rounds, lane);
                }
                rounds += 1;
            }
        }
        self.settle()?;
        Ok(self.completed.pop_front())
    }

    /// Takes the session's lanes, if they are not this pipeline's yet.
    fn begin(&mut self) -> Result<()> {
        if !self.has_begun {
            begin(self.session)?;
            self.has_begun = true;
        }
        Ok(())
    }

    fn submit(&mut self, verb: Verb, id: I, row: Option<&R>) -> Result<Ticket> {
        if let Some(row) = row {
            self.table.check_row(row)?;
        }
        self.begin()?;
        let (shard, own) = self.route(verb, id)?;
        let ticket = Ticket(self.submitted);
        if own == Some(shard) {
            self.execute(ticket, verb, id, row)?;
        } else {
            self.open_block(shard)?;
            let (link, mut host) = self.session.port()?;
            if let Some(block) = link.block(shard) {
                // First what may panic: the row is the program's own code.
                if let Some(row) = row {
                    row.store(block.next_row());
                }
                block.push(verb, id.raw(), ticket.0 as u32);
                self.outstanding += 1;
                if block.is_full() {
                    send::<R, I>(link, &self.table, shard)?;
                    host.serve();
                }
            }
        }
        self.submitted += 1;
        Ok(ticket)
    }

    /// The shard of an operation, and the one that this code runs in.
    fn route(&mut self, verb: Verb, id: I) -> Result<(ShardIndex, Option<ShardIndex>)> {
        let (link, host) = self.session.port()?;
        let own = host.own();
        let shard = match (verb, own) {
            (Verb::Insert, Some(own)) if !I::KEYED => own,
            (Verb::Insert, None) if !I::KEYED => link.next_shard(),
            _ => id.shard_of(link.peers().shards()),
        };
        Ok((shard, own))
    }

    /// Executes an operation on the own shard.
    fn execute(&mut self, ticket: Ticket, verb: Verb, id: I, row: Option<&R>) -> Result<()> {
        let (link, mut host) = self.session.port()?;
        let (table, width) = (&self.table, self.table.width());
        if verb != Verb::Select {
            await_turn(&mut host, |shard| {
                shard.claim::<I>(table.key(), std::iter::once(id.raw()))
            });
        }
        let outcome = host.with_shard(|shard| {
            let (part, arena) = shard.catalog.table(table.key())?;
            if verb != Verb::Select
                && let Err(error) = arena.check_writable()
            {
                return Ok(Outcome::Failed(error));
            }
            shard.tally.count_one(verb);
            let place = part.find(id);
            let fill = |cells: &mut [u64]| row.into_iter().for_each(|row| row.store(cells));
            let done = part.one(
                Means {
                    arena,
                    width,
                    images: &mut Single,
                },
                verb,
                id,
                place,
                fill,
            );
            part.end_scope(arena);
            Ok(match (verb, place) {
                (Verb::Select, Some(place)) => Outcome::Selected(R::load(part.cells(width, place))),
                _ => Outcome::new(verb, done.code, done.id, &[done.detail]),
            })
        });
        if verb != Verb::Select {
            self.unsettled = link.awaited().map(|clock| clock.open()).or(self.unsettled);
        }
        self.completed
            .push_back((ticket, outcome.unwrap_or(Err(Error::Closed))?));
        Ok(())
    }

    fn open_block(&mut self, shard: ShardIndex) -> Result<()> {
        let cells = self.table.width().cells();
        let mut rounds = 0;
        loop {
            let (link, _) = self.session.port()?;
            if link.block(shard).is_some() {
                return Ok(());
            }
            let operations = link.peers().block_operations;
            if link.open(shard, cells, operations)? {
                return Ok(());
            }
            if !self.take_answers()? {
                let (link, mut host) = self.session.port()?;
                host.pause(rounds, link.lane(shard)?);
                rounds += 1;
            }
        }
    }

    /// Takes the answers that are there; says whether there was one.
    fn take_answers(&mut self) -> Result<bool> {
        self.begin()?;
        let Self {
            session,
            submitted,
            completed,
            outstanding,
            ..
        } = self;
        let (link, _) = session.port()?;
        let mut has_changed = false;
        let any = link.take_answers(|block, executed| {
            block.results(|tag, verb, code, id, cells| {
                has_changed |= verb != Verb::Select;
                // Fewer than 2^32 operations are outstanding, so the low half tells which one.
                let age = (*submitted as u32).wrapping_sub(tag);
                let ticket = Ticket(*submitted - u64::from(age));
                let outcome = match &executed {
                    Ok(()) => Outcome::new(verb, code, id, cells),
                    Err(error) => Outcome::Failed(error.clone()),
                };
                *outstanding -= 1;
                completed.push_back((ticket, outcome));
            });
        });
        if has_changed {
            self.unsettled = link.awaited().map(|clock| clock.open()).or(self.unsettled);
        }
        Ok(any)
    }
}

impl<S: Verbs, R: Row> Pipeline<'_, S, R, DirectId> {
    /// Submits an insert; its outcome tells the place of the row.
    pub fn insert(&mut self, row: &R) -> Result<Ticket> {
        self.table.check_insert::<DirectId>()?;
        self.submit(Verb::Insert, DirectId::from_u64(0), Some(row))
    }
}

impl<S: Verbs, R: Row> Pipeline<'_, S, R, SurrogateId> {
    /// Submits an insert with a key.
    pub fn insert(&mut self, key: SurrogateId, row: &R) -> Result<Ticket> {
        self.table.check_insert::<SurrogateId>()?;
        self.submit(Verb::Insert, key, Some(row))
    }

    /// Submits an upsert.
    pub fn upsert(&mut self, key: SurrogateId, row: &R) -> Result<Ticket> {
        self.table.check_insert::<SurrogateId>()?;
        self.submit(Verb::Upsert, key, Some(row))
    }
}

impl<S: Verbs, R: Row, I: RowId> Drop for Pipeline<'_, S, R, I> {
    fn drop(&mut self) {
        // An error here means that there is nothing to wait for any more.
        while self.outstanding > 0 && self.wait().is_ok() {
            self.completed.clear();
        }
        // What could not be waited for is left to whoever uses the session next.
        if self.has_begun
            && self.outstanding == 0
            && let Ok((link, _)) = self.session.port()
        {
            link.end();
        }
    }
}

fn send<R: Row, I: RowId>(link: &mut Link, table: &Table<R>, shard: ShardIndex) -> Result<()> {
    link.send(shard, |block| {
        Request::block::<R::Width, I>(table.key(), table.width(), block)
    })
}
