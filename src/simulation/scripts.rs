//! What simulated clients do: transactions of any verbs, tried again after conflicts or put together
//! step by step; the rest is in [`singles`](super::singles).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use super::history::{Book, Cells, Draft, Fate, Kind, columns_of, row_of, value_of};
use super::singles::{block, closure, declared, forgotten, place, single};
use super::strand::{BrokenOff, Turns};
use super::{Choices, World};
use crate::error::Error;
use crate::id::{DirectId, RowId, SurrogateId};
use crate::limits::TRIES_BEFORE_LEASE;
use crate::session::{Isolation, Savepoint, Transaction, TransactionOptions, Verbs};
use crate::table::watch::{self, RowName};
use crate::table::{Compared, Table};

/// A table that scenarios use; keys of different tables differ.
pub(super) type Rows = Table<Cells>;

/// A row of a keyed table.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) table: Rows,
    pub(super) key: SurrogateId,
}

impl Key {
    pub(super) fn name(&self) -> RowName {
        RowName {
            is_keyed: true,
            number: self.key.0,
        }
    }
}

pub(super) fn name_of_key(key: SurrogateId) -> RowName {
    RowName {
        is_keyed: true,
        number: key.0,
    }
}

pub(super) fn name_of(place: DirectId) -> RowName {
    RowName {
        is_keyed: false,
        number: place.to_u64(),
    }
}

/// What happened in scenarios, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) conflicts: u64,
    pub(super) leases: u64,
    pub(super) failures: u64,
    pub(super) broken_off: u64,
    pub(super) stalls: u64,
    pub(super) others: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.leases += other.leases;
        self.failures += other.failures;
        self.broken_off += other.broken_off;
        self.stalls += other.stalls;
        self.others += other.others;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} transactions committed, {} conflicts, {} tries under a lease, {} transactions \
             failed or were rolled back; {} other operations; {} clients broke off, {} stood still",
            self.commits,
            self.conflicts,
            self.leases,
            self.failures,
            self.others,
            self.broken_off,
            self.stalls
        )
    }
}

/// Which isolations are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    Serializable,
    ReadCommitted,
    Both,
}

/// What there is most of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    /// Nothing.
    Any,
    /// Transactions that only read, and others, and single changes.
    Readers,
    /// Transactions that change the same few rows.
    Writers,
}

/// Everything that a scenario's clients share.
pub(super) struct Scene {
    pub(super) world: Rc<World>,
    pub(super) book: Book,
    pub(super) keys: Vec<Key>,
    pub(super) plain: Rows,
    /// Direct ids that somebody was given, whatever became of their rows.
    pub(super) places: RefCell<Vec<DirectId>>,
    /// The same of keyed tables, with their keys.
    pub(super) keyed_places: RefCell<Vec<(Key, DirectId)>>,
    pub(super) mix: Mix,
    pub(super) focus: Focus,
    pub(super) steps_max: u64,
    pub(super) counts: Cell<Counts>,
}

impl Scene {
    pub(super) fn choices(&self) -> &Choices {
        &self.world.choices
    }

    pub(super) fn one_in(&self, many: u64) -> bool {
        self.choices().below(many) == 0
    }

    pub(super) fn any_key(&self) -> &Key {
        &self.keys[self.choices().below(self.keys.len() as u64) as usize]
    }

    pub(super) fn any_place(&self) -> Option<DirectId> {
        let places = self.places.borrow();
        let count = places.len() as u64;
        (count > 0).then(|| places[self.choices().below(count) as usize])
    }

    fn any_keyed_place(&self) -> Option<(Key, DirectId)> {
        let places = self.keyed_places.borrow();
        let count = places.len() as u64;
        (count > 0).then(|| places[self.choices().below(count) as usize].clone())
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(super) fn options(&self) -> (TransactionOptions, Kind) {
        let is_serializable = match self.mix {
            Mix::Serializable => true,
            Mix::ReadCommitted => false,
            Mix::Both => self.one_in(2),
        };
        let (isolation, kind) = if is_serializable {
            (Isolation::Serializable, Kind::Serializable)
        } else {
            (Isolation::ReadCommitted, Kind::ReadCommitted)
        };
        let mut options = TransactionOptions::new(isolation);
        let is_reader = match self.focus {
            Focus::Any => self.one_in(4),
            Focus::Readers => self.one_in(2),
            Focus::Writers => false,
        };
        if is_reader {
            options = options.read_only();
        }
        if self.one_in(4) {
            options = options.tries(1 + self.choices().below(5) as u32);
        }
        if self.one_in(10) {
            options = options.timeout(Duration::from_micros(self.choices().below(2_000)));
        }
        (options, kind)
    }
}

/// What a body panics with on purpose.
struct Planned;

/// One thing that a client does; says whether it can go on.
pub(super) fn act(scene: &Scene, turns: &Turns<'_>, session: &mut impl Verbs) -> bool {
    let choice = scene.choices().below(14);
    match scene.focus {
        Focus::Any => {}
        Focus::Writers => return transact(scene, turns, session),
        Focus::Readers if choice < 8 => return transact(scene, turns, session),
        Focus::Readers => {
            single(scene, session);
            return true;
        }
    }
    match choice {
        0..6 => return transact(scene, turns, session),
        6 => step_by_step(scene, turns, session),
        7 | 8 => single(scene, session),
        9 => block(scene, session),
        10 => closure(scene, session),
        11 => place(scene, session),
        12 => declared(scene, session),
        _ if scene.one_in(4) => return forgotten(scene, session),
        _ => {}
    }
    true
}

/// A transaction that is tried again after conflicts.
fn transact(scene: &Scene, turns: &Turns<'_>, session: &mut impl Verbs) -> bool {
    let (options, kind) = scene.options();
    let mut node = None;
    let mut tries = 0_u32;
    if scene.one_in(12) {
        turns.break_off_in(scene.choices().below(12));
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        session.transaction_with(options, |transaction| {
            if let Some(node) = node {
                scene.book.end(node, Fate::Failed);
            }
            tries += 1;
            let number = scene.book.begin(kind);
            node = Some(number);
            let mut draft = Draft::new(kind);
            let result = body(scene, transaction, &mut draft);
            scene.book.send(number, &draft);
            result
        })
    }));
    turns.stay();
    let is_over = match &result {
        Err(payload) if payload.is::<BrokenOff>() => true,
        Err(payload) if payload.is::<Planned>() => false,
        Err(_) => resume_unwind(result.expect_err("as just seen")),
        Ok(_) => false,
    };
    if let Some(node) = node.filter(|_| !is_over) {
        let fate = if matches!(result, Ok(Ok(()))) {
            Fate::Committed
        } else {
            Fate::Failed
        };
        scene.book.end(node, fate);
    }
    scene.count(|counts| {
        counts.conflicts += u64::from(tries.saturating_sub(1));
        counts.leases += u64::from(tries.saturating_sub(TRIES_BEFORE_LEASE));
        counts.broken_off += u64::from(is_over);
        match result {
            Ok(Ok(())) => counts.commits += 1,
            _ => counts.failures += 1,
        }
    });
    if let Ok(Err(error)) = result {
        expect_failure(&error);
    }
    !is_over
}

/// Whether a transaction may fail in this way.
pub(super) fn expect_failure(error: &Error) {
    let is_usual = matches!(
        error,
        Error::Conflict { .. } | Error::TimedOut | Error::NotKeyed | Error::ReadOnly
    );
    assert!(is_usual, "{error:?}");
}

/// A transaction with a handle: committed, rolled back, or dropped.
fn step_by_step(scene: &Scene, turns: &Turns<'_>, session: &mut impl Verbs) {
    let (options, kind) = scene.options();
    let node = scene.book.begin(kind);
    let mut draft = Draft::new(kind);
    let begun = session.begin(options);
    let result = begun.and_then(|mut transaction| {
        for _ in 0..scene.choices().below(scene.steps_max) {
            step(scene, &mut transaction, &mut draft)?;
            if scene.one_in(4) {
                turns.pass();
            }
        }
        scene.book.send(node, &draft);
        match scene.choices().below(4) {
            0 => {
                transaction.roll_back();
                Err(Error::NotKeyed)
            }
            1 => Err(Error::NotKeyed),
            _ => transaction.commit(),
        }
    });
    match result {
        Ok(()) => {
            scene.book.end(node, Fate::Committed);
            scene.count(|counts| counts.commits += 1);
        }
        Err(error) => {
            expect_failure(&error);
            scene.book.end(node, Fate::Failed);
            scene.count(|counts| counts.failures += 1);
        }
    }
}

fn body<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    for _ in 0..1 + scene.choices().below(scene.steps_max) {
        step(scene, transaction, draft)?;
    }
    match scene.choices().below(24) {
        0 => Err(Error::NotKeyed),
        1 => resume_unwind(Box::new(Planned)),
        _ => Ok(()),
    }
}

/// One verb, or some around a savepoint.
fn step<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let done = match scene.choices().below(10) {
        0 => {
            let moment = savepoint(transaction, draft);
            verb(scene, transaction, draft)?;
            verb(scene, transaction, draft)?;
            roll_back_to(transaction, draft, moment);
            Ok(())
        }
        1 => select_many(scene, transaction, draft),
        2 | 3 => place_verb(scene, transaction, draft),
        4 => keyed_place_verb(scene, transaction, draft),
        _ => verb(scene, transaction, draft),
    };
    match done {
        Err(Error::ReadOnly) => Ok(()),
        done => done,
    }
}

fn savepoint<S: Verbs>(
    transaction: &Transaction<'_, S>,
    draft: &Draft,
) -> (Savepoint, Draft, usize) {
    (transaction.savepoint(), draft.clone(), draft.reads.len())
}

fn roll_back_to<S: Verbs>(
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
    (savepoint, before, reads): (Savepoint, Draft, usize),
) {
    transaction.roll_back_to(savepoint);
    draft.writes = before.writes;
    if draft.kind == Kind::ReadCommitted {
        // Nothing is made of what was relied on any more.
        draft.reads.truncate(reads);
    }
}

fn select_many<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let table = &scene.any_key().table;
    let keys: Vec<&Key> = scene
        .keys
        .iter()
        .filter(|key| key.table.key() == table.key() && !scene.one_in(3))
        .collect();
    let ids: Vec<_> = keys.iter().map(|key| key.key).collect();
    let from = watch::moment();
    let rows = transaction.select_batch(table, &ids)?;
    for (key, row) in keys.iter().zip(rows) {
        draft.saw(key.name(), row.map(value_of), from);
    }
    Ok(())
}

/// A verb on a row of a keyed table.
fn verb<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let key = scene.any_key();
    let (table, id, row) = (&key.table, key.key, key.name());
    if draft.kind == Kind::Serializable && !scene.one_in(4) {
        let from = watch::moment();
        let seen = transaction.select(table, id)?;
        draft.saw(row, seen.map(value_of), from);
    }
    let value = scene.book.new_value();
    match scene.choices().below(8) {
        0 => match transaction.insert_keyed(table, id, &row_of(value)) {
            Ok(()) => draft.made(row, false, Some(value), true),
            Err(Error::Duplicate { .. }) => draft.found(row, true),
            Err(error) => return Err(error),
        },
        1 => {
            let was_there = transaction.upsert(table, id, &row_of(value))?;
            draft.made(row, was_there, Some(value), true);
        }
        _ => {
            change(scene, transaction, draft, table, id, row)?;
        }
    }
    Ok(())
}

/// A verb on a row that may be there; says whether it changed the row.
fn change<S: Verbs, I: RowId>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
    table: &Rows,
    id: I,
    row: RowName,
) -> Result<bool, Error> {
    let value = scene.book.new_value();
    let from = watch::moment();
    match scene.choices().below(7) {
        0 => {
            let there = transaction.delete(table, id)?;
            if there {
                draft.made(row, true, None, false);
            }
            return Ok(there);
        }
        1 => {
            let there = transaction.update(table, id, &row_of(value))?;
            if there {
                draft.made(row, true, Some(value), true);
            }
            return Ok(there);
        }
        2 => {
            let there = transaction.update_columns(table, id, &columns_of(value))?;
            if there {
                draft.made(row, true, Some(value), false);
            }
            return Ok(there);
        }
        3 | 4 => {
            let seen = transaction.select(table, id)?.map(value_of);
            if let Some(expected) = seen {
                draft.saw(row, seen, from);
                return change_if(scene, transaction, draft, (table, id, row), expected);
            }
        }
        _ => {
            let seen = transaction.select(table, id)?.map(value_of);
            if seen.is_some() || !table.is_keyed() || I::KEYED {
                draft.saw(row, seen, from);
            }
        }
    }
    Ok(false)
}

/// A change on a condition, after another column was set without any, or not.
fn change_if<S: Verbs, I: RowId>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
    (table, id, row): (&Rows, I, RowName),
    expected: u64,
) -> Result<bool, Error> {
    let value = scene.book.new_value();
    let from = watch::moment();
    let moment = savepoint(transaction, draft);
    let own = draft.own(row);
    if scene.one_in(2) {
        transaction.update_columns(table, id, &columns_of(value)[1..])?;
    }
    let condition = [(0, expected)];
    let compared = transaction.update_if(table, id, &condition, &columns_of(value))?;
    if compared == Compared::Updated {
        if own.is_none() {
            draft.relies_on(row, expected, from);
        }
        draft.made(row, true, Some(value), false);
        return Ok(true);
    }
    assert!(own.is_none(), "{row:?}: a node does not see its own change");
    assert_ne!(
        draft.kind,
        Kind::Serializable,
        "{row:?}: a second read differs"
    );
    roll_back_to(transaction, draft, moment);
    Ok(false)
}

/// A verb on a row of the table without keys.
fn place_verb<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let value = scene.book.new_value();
    let place = scene.any_place().filter(|_| !scene.one_in(3));
    if let Some(id) = place {
        change(scene, transaction, draft, &scene.plain, id, name_of(id))?;
    } else {
        let id = transaction.insert(&scene.plain, &row_of(value))?;
        draft.made(name_of(id), false, Some(value), true);
        scene.places.borrow_mut().push(id);
    }
    Ok(())
}

/// A verb on a row of a keyed table by its direct id.
fn keyed_place_verb<S: Verbs>(
    scene: &Scene,
    transaction: &mut Transaction<'_, S>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let Some((key, place)) = scene.any_keyed_place() else {
        return Ok(());
    };
    let is_own = draft.own(key.name()).is_some();
    if change(scene, transaction, draft, &key.table, place, key.name())? && !is_own {
        draft.made_at(key.name(), place.to_u64());
    }
    Ok(())
}
