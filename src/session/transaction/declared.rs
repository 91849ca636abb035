//! Many transactions at once, each written down before it runs.
//!
//! A transaction that need not see rows before it changes them can be declared: what it changes, and
//! what must be true for it. Declared transactions with the same participants travel together, so a
//! hop is shared by up to [`PROPOSAL_MEMBERS`] of them, and many proposals are under way at once.

use std::collections::VecDeque;

use hashbrown::HashSet;

use super::check_columns;
use super::commit::Sent;
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId, TableKey};
use crate::limits::{PROPOSAL_MEMBERS, PROPOSALS_UNDER_WAY};
use crate::session::host::Host;
use crate::session::settle::settle;
use crate::session::verbs::Verbs;
use crate::table::{Row, Table, Width};
use crate::transaction::{
    Action, Expected, Found, NEVER, Operation, Phase, Proposal, Purpose, Target, Verdict,
};

/// Transactions to be run together, each all or nothing: [`Verbs::run_transactions`].
///
/// Each begins with [`begin`](Self::begin) and has the operations that follow, on any tables and
/// shards. They are independent: one that is refused does not touch the others, and which of two
/// comes first is not said. A transaction has at most one operation on a row ([`Error::RowTwice`]); an
/// operation that cannot be added fails its transaction. Transactions run once: to run them again,
/// or others in their place, [`clear`](Self::clear) and declare them anew.
///
/// ```
/// use ancile::{Engine, Schema, SurrogateId, TransactionOutcome, Transactions, Verbs};
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let accounts = engine.create_table::<[u64; 1]>("accounts", Schema::cells(1).keyed())?;
/// let mut session = engine.session()?;
/// let keys: Vec<_> = (0..100).map(SurrogateId).collect();
/// session.insert_keyed_batch(&accounts, &keys, &vec![[10]; 100])?;
///
/// let mut transactions = Transactions::new();
/// for pair in keys.chunks(2) {
///     transactions.begin();
///     transactions.update_if(&accounts, pair[0], &[(0, 10)], &[(0, 9)])?;
///     transactions.update_if(&accounts, pair[1], &[(0, 10)], &[(0, 11)])?;
/// }
/// assert_eq!(session.run_transactions(&mut transactions)?, 50);
/// assert_eq!(transactions.outcomes()[7], TransactionOutcome::Committed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Transactions {
    operations: Vec<Declared>,
    /// Rows, and lists of columns and values.
    cells: Vec<u64>,
    /// Where each transaction's operations begin.
    starts: Vec<u32>,
    outcomes: Vec<TransactionOutcome>,
    /// Rows of the transaction at hand, once there are too many to look through them.
    rows: HashSet<(TableKey, Target)>,
    plan: Plan,
}

/// Operations of a transaction that are looked through for one on the same row.
const LOOKED_THROUGH_MAX: usize = 8;

/// What became of a declared transaction. `operation` counts its operations from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionOutcome {
    /// It has not been run.
    Pending,
    /// All of its operations have happened.
    Committed,
    /// Nothing has happened: an operation found no row.
    NotFound {
        /// The operation.
        operation: usize,
    },
    /// Nothing has happened: an insert found a row with its key.
    Duplicate {
        /// The operation.
        operation: usize,
    },
    /// Nothing has happened: an [`update_if`](Transactions::update_if) found other values.
    Differs {
        /// The operation.
        operation: usize,
    },
    /// Nothing has happened, unless the error says otherwise.
    Failed(Error),
}

#[derive(Clone, Copy)]
struct Declared {
    table: TableKey,
    target: Target,
    expected: Expected,
    action: Action,
    /// Cells of what it brings.
    columns: u32,
}

impl Transactions {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all of them, and what is to become of those that were started; memory is kept.
    pub fn clear(&mut self) {
        self.plan.forget();
        self.plan.started = 0;
        self.operations.clear();
        self.cells.clear();
        self.starts.clear();
        self.outcomes.clear();
        self.rows.clear();
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Begins the next transaction; the first one begins by itself.
    pub fn begin(&mut self) {
        self.rows.clear();
        self.starts.push(self.operations.len() as u32);
        self.outcomes.push(TransactionOutcome::Pending);
    }

    /// What became of each, in the order in which they were begun.
    pub fn outcomes(&self) -> &[TransactionOutcome] {
        &self.outcomes
    }

    /// Adds a row to a table without keys, placed in a shard that takes part anyway.
    pub fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<()> {
        self.add(|this| {
            table.check_insert::<DirectId>()?;
            let start = this.bring(table, row)?;
            let action = Action::Insert { start };
            this.push(table, Target::New, Expected::Any, action)
        })
    }

    /// Adds a row with a key, which must not be there.
    pub fn insert_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<()> {
        self.add(|this| {
            table.check_insert::<SurrogateId>()?;
            let start = this.bring(table, row)?;
            let action = Action::Insert { start };
            this.push(table, Target::Key(key.0), Expected::Absent, action)
        })
    }

    /// Replaces the row of a key, or adds it.
    pub fn upsert<R: Row>(&mut self, table: &Table<R>, key: SurrogateId, row: &R) -> Result<()> {
        self.add(|this| {
            table.check_insert::<SurrogateId>()?;
            let start = this.bring(table, row)?;
            let action = Action::Upsert { start };
            this.push(table, Target::Key(key.0), Expected::Any, action)
        })
    }

    /// Replaces a row, which must be there.
    pub fn update<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I, row: &R) -> Result<()> {
        self.add(|this| {
            table.check_id::<I>()?;
            let start = this.bring(table, row)?;
            let action = Action::Update { start };
            this.push(table, target(id), Expected::Present, action)
        })
    }

    /// Sets some columns, by number, of a row, which must be there.
    pub fn update_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        values: &[(usize, u64)],
    ) -> Result<()> {
        self.add(|this| {
            table.check_id::<I>()?;
            check_columns(table, values.iter().map(|&(column, _)| column))?;
            let (start, count) = this.list(values);
            let action = Action::Set { start, count };
            this.push(table, target(id), Expected::Present, action)
        })
    }

    /// Sets some columns of a row, in which all of `expected` must have these values.
    pub fn update_if<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Result<()> {
        self.add(|this| {
            table.check_id::<I>()?;
            let columns = expected.iter().chain(values).map(|&(column, _)| column);
            check_columns(table, columns)?;
            let (start, count) = this.list(expected);
            let expected = Expected::Values { start, count };
            let (start, count) = this.list(values);
            this.push(table, target(id), expected, Action::Set { start, count })
        })
    }

    /// Removes a row, which must be there.
    pub fn delete<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<()> {
        self.add(|this| {
            table.check_id::<I>()?;
            this.push(table, target(id), Expected::Present, Action::Delete)
        })
    }

    /// Keeps a row's cells; where they begin.
    fn bring<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<u32> {
        table.check_row(row)?;
        let start = self.cells.len();
        self.cells.resize(start + table.width().cells(), 0);
        row.store(&mut self.cells[start..]);
        Ok(start as u32)
    }

    fn list(&mut self, values: &[(usize, u64)]) -> (u32, u32) {
        let start = self.cells.len() as u32;
        let pairs = values
            .iter()
            .flat_map(|&(column, value)| [column as u64, value]);
        self.cells.extend(pairs);
        (start, values.len() as u32)
    }

    fn push<R: Row>(
        &mut self,
        table: &Table<R>,
        target: Target,
        expected: Expected,
        action: Action,
    ) -> Result<()> {
        if self.starts.is_empty() {
            self.begin();
        }
        if self.plan.started == self.starts.len() {
            return Err(Error::AlreadyRun);
        }
        if target != Target::New && self.has_row(table.key(), target) {
            return Err(Error::RowTwice);
        }
        self.operations.push(Declared {
            table: table.key(),
            target,
            expected,
            action,
            columns: table.width().cells() as u32,
        });
        Ok(())
    }

    /// Whether the transaction at hand has an operation on a row; it has one from now on.
    fn has_row(&mut self, table: TableKey, target: Target) -> bool {
        let start = self.starts.last().map_or(0, |&start| start as usize);
        let operations = &self.operations[start..];
        if operations.len() < LOOKED_THROUGH_MAX {
            return operations
                .iter()
                .any(|declared| (declared.table, declared.target) == (table, target));
        }
        if self.rows.is_empty() {
            let named = operations
                .iter()
                .map(|declared| (declared.table, declared.target));
            self.rows.extend(named);
        }
        !self.rows.insert((table, target))
    }

    /// An operation that cannot be added fails its transaction: it would not be all of it.
    fn add(&mut self, add: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let result = add(self);
        if let Err(error) = &result
            && *error != Error::AlreadyRun
        {
            if self.starts.is_empty() {
                self.begin();
            }
            if self.plan.started < self.starts.len()
                && let Some(outcome) = self.outcomes.last_mut()
            {
                *outcome = TransactionOutcome::Failed(error.clone());
            }
        }
        result
    }

    fn operations_of(&self, transaction: usize) -> std::ops::Range<usize> {
        let end = self.starts.get(transaction + 1).copied();
        self.starts[transaction] as usize..end.map_or(self.operations.len(), |end| end as usize)
    }
}

fn target<I: RowId>(id: I) -> Target {
    if I::KEYED {
        Target::Key(id.raw())
    } else {
        Target::Direct(DirectId::from_u64(id.raw()))
    }
}

/// How transactions are grouped and sent.
#[derive(Default)]
struct Plan {
    /// Proposals that are being filled: their participants, and who is in them.
    open: Vec<Group>,
    /// Those under way, the oldest first.
    sent: VecDeque<(Sent, Vec<u32>)>,
    /// Proposals at rest, for their memory.
    spare: Vec<(Proposal, Vec<u32>)>,
    participants: Vec<ShardIndex>,
    /// Transactions to be sent again.
    again: Vec<u32>,
    /// Transactions that were sent, from the first one on.
    started: usize,
}

struct Group {
    participants: Vec<ShardIndex>,
    proposal: Proposal,
    members: Vec<u32>,
}

/// Sends transactions on their way, those that were not sent before.
pub(in crate::session) fn start_all(
    session: &mut impl Verbs,
    transactions: &mut Transactions,
) -> Result<()> {
    let count = transactions.len();
    let started = std::mem::replace(&mut transactions.plan.started, count);
    let mut runner = Runner {
        transactions,
        session,
    };
    let result = (started..count)
        .try_for_each(|transaction| runner.add(transaction))
        .and_then(|()| runner.send_all());
    if result.is_err() {
        runner.transactions.plan.open.clear();
    }
    result
}

/// Waits until each of the transactions is decided; says how many committed.
pub(in crate::session) fn finish_all(
    session: &mut impl Verbs,
    transactions: &mut Transactions,
) -> Result<usize> {
    start_all(session, transactions)?;
    let mut runner = Runner {
        transactions,
        session,
    };
    let result = runner.take_all();
    if result.is_err() {
        runner.transactions.plan.forget();
    }
    result?;
    let (link, mut host) = session.port()?;
    settle(link, &mut host)?;
    let committed = |outcome: &&TransactionOutcome| **outcome == TransactionOutcome::Committed;
    Ok(transactions.outcomes.iter().filter(committed).count())
}

struct Runner<'a, S> {
    transactions: &'a mut Transactions,
    session: &'a mut S,
}

impl<S: Verbs> Runner<'_, S> {
    /// Waits for everything under way, and sends again what has to be.
    fn take_all(&mut self) -> Result<()> {
        loop {
            while !self.transactions.plan.sent.is_empty() {
                self.take_oldest()?;
            }
            let again = std::mem::take(&mut self.transactions.plan.again);
            if again.is_empty() {
                return Ok(());
            }
            for transaction in again {
                self.add(transaction as usize)?;
            }
            self.send_all()?;
        }
    }

    /// Sends the proposals that are not full.
    fn send_all(&mut self) -> Result<()> {
        while let Some(group) = self.transactions.plan.open.pop() {
            self.send(group)?;
        }
        Ok(())
    }

    /// Adds a transaction to the proposal of its participants, and sends that when it is full.
    fn add(&mut self, transaction: usize) -> Result<()> {
        let range = self.transactions.operations_of(transaction);
        if let TransactionOutcome::Failed(_) = self.transactions.outcomes[transaction] {
            return Ok(());
        }
        if range.is_empty() {
            self.transactions.outcomes[transaction] = TransactionOutcome::Committed;
            return Ok(());
        }
        let anywhere = self.find_participants(range.clone())?;
        let Transactions {
            operations,
            cells,
            plan,
            ..
        } = &mut *self.transactions;
        let at = match plan
            .open
            .iter()
            .position(|group| group.participants.iter().eq(&plan.participants))
        {
            Some(at) => at,
            None => {
                let group = plan.new_group();
                plan.open.push(group);
                plan.open.len() - 1
            }
        };
        let group = &mut plan.open[at];
        let member = group.members.len() as u16;
        group.members.push(transaction as u32);
        group.proposal.verdicts.push(Verdict::Open);
        let shards = self.session.port()?.0.peers().shards();
        for (number, declared) in operations[range].iter().enumerate() {
            let shard = declared.shard(shards).unwrap_or(anywhere);
            declared.propose(&mut group.proposal, shard, (member, number as u32), cells);
        }
        if group.members.len() == PROPOSAL_MEMBERS {
            let group = plan.open.swap_remove(at);
            self.send(group)?;
        }
        Ok(())
    }

    /// Finds the shards that a transaction's rows are in; gives the one for rows that may be placed
    /// anywhere.
    fn find_participants(&mut self, range: std::ops::Range<usize>) -> Result<ShardIndex> {
        let Transactions {
            operations, plan, ..
        } = &mut *self.transactions;
        let (link, host) = self.session.port()?;
        let shards = link.peers().shards();
        plan.participants.clear();
        for operation in &operations[range] {
            if let Some(shard) = operation.shard(shards)
                && let Err(at) = plan.participants.binary_search(&shard)
            {
                plan.participants.insert(at, shard);
            }
        }
        let anywhere = match (host.own(), plan.participants.first()) {
            (Some(own), _) if plan.participants.contains(&own) => own,
            (_, Some(&first)) => first,
            (Some(own), None) => own,
            (None, None) => link.next_shard(),
        };
        if plan.participants.is_empty() {
            plan.participants.push(anywhere);
        }
        Ok(anywhere)
    }

    fn send(&mut self, group: Group) -> Result<()> {
        while self.transactions.plan.sent.len() >= PROPOSALS_UNDER_WAY {
            self.take_oldest()?;
        }
        let sent = Sent::new(self.session, group.proposal)?;
        let plan = &mut self.transactions.plan;
        plan.sent.push_back((sent, group.members));
        let (_, mut host) = self.session.port()?;
        host.serve();
        Ok(())
    }

    /// Waits for the oldest proposal under way.
    fn take_oldest(&mut self) -> Result<()> {
        let Some((sent, members)) = self.transactions.plan.sent.pop_front() else {
            return Ok(());
        };
        let mut proposal = sent.wait(self.session)?;
        let Transactions { outcomes, plan, .. } = &mut *self.transactions;
        for (&member, verdict) in members.iter().zip(&mut proposal.verdicts) {
            let verdict = std::mem::replace(verdict, Verdict::Open);
            match outcome_of(verdict) {
                Some(outcome) => outcomes[member as usize] = outcome,
                None => plan.again.push(member),
            }
        }
        plan.spare.push((proposal, members));
        Ok(())
    }
}

impl Plan {
    /// Forgets what is under way; that goes on to its end.
    fn forget(&mut self) {
        self.open.clear();
        self.sent.clear();
        self.again.clear();
    }

    /// An empty proposal for the participants at hand.
    fn new_group(&mut self) -> Group {
        let same = |(proposal, _): &(Proposal, Vec<u32>)| {
            let shards = proposal.parts.iter().map(|part| part.shard);
            shards.eq(self.participants.iter().copied())
        };
        let at = self.spare.iter().position(same);
        let (mut proposal, mut members) = match at {
            Some(at) => self.spare.swap_remove(at),
            None => (Proposal::new(Purpose::Commit), Vec::new()),
        };
        for part in &mut proposal.parts {
            part.clear();
        }
        (proposal.step, proposal.phase, proposal.deadline) = (0, Phase::Up, NEVER);
        proposal.verdicts.clear();
        members.clear();
        Group {
            participants: self.participants.clone(),
            proposal,
            members,
        }
    }
}

/// The outcome of a transaction; `None` if it has to be tried again.
fn outcome_of(verdict: Verdict) -> Option<TransactionOutcome> {
    Some(match verdict {
        Verdict::Committed => TransactionOutcome::Committed,
        Verdict::Conflict(_) => return None,
        Verdict::Refused { operation, found } => {
            let operation = operation as usize;
            match found {
                Found::Nothing => TransactionOutcome::NotFound { operation },
                Found::Row => TransactionOutcome::Duplicate { operation },
                Found::Other => TransactionOutcome::Differs { operation },
            }
        }
        Verdict::Failed(error) => TransactionOutcome::Failed(*error),
        Verdict::Open => unreachable!("a proposal ends decided"),
    })
}

impl Declared {
    /// The shard of its row; `None` if it may be placed anywhere.
    fn shard(&self, shards: usize) -> Option<ShardIndex> {
        match self.target {
            Target::Direct(id) => Some(id.shard_of(shards)),
            Target::Key(key) => Some(SurrogateId(key).shard_of(shards)),
            // Records and globals are not declared.
            Target::New
            | Target::Reserved(_)
            | Target::Record { .. }
            | Target::Node { .. }
            | Target::Subtree { .. } => None,
        }
    }

    /// Adds it to a proposal, with what it brings.
    fn propose(
        &self,
        proposal: &mut Proposal,
        shard: ShardIndex,
        (member, number): (u16, u32),
        cells: &[u64],
    ) {
        let part = proposal.part(shard);
        let mut carry = |start: u32, count: u32| {
            let at = part.cells.len() as u32;
            part.cells
                .extend_from_slice(&cells[start as usize..][..count as usize]);
            at
        };
        let expected = match self.expected {
            Expected::Values { start, count } => Expected::Values {
                start: carry(start, 2 * count),
                count,
            },
            other => other,
        };
        let columns = self.columns;
        let action = match self.action {
            Action::Update { start } => Action::Update {
                start: carry(start, columns),
            },
            Action::Insert { start } => Action::Insert {
                start: carry(start, columns),
            },
            Action::Upsert { start } => Action::Upsert {
                start: carry(start, columns),
            },
            Action::Set { start, count } => Action::Set {
                start: carry(start, 2 * count),
                count,
            },
            Action::Check | Action::Delete => self.action,
        };
        part.operations.push(Operation {
            member,
            number,
            table: self.table,
            target: self.target,
            expected,
            action,
            is_clients_slot: false,
        });
    }
}
