//! Every moment of short histories: at each, what the files hold is opened beside the running world,
//! and must be the state before the step under way or the one after it, of every transaction whole.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::{Files, Parts};
use crate::arena::{Access, crash};
use crate::error::Error;
use crate::id::{DirectId, RowId, SurrogateId};
use crate::session::{TransactionOutcome, Transactions, Verbs};
use crate::shard::{TableShape, panic_message};
use crate::simulation::chain::setting;
use crate::simulation::history::{Cells, row_of};
use crate::simulation::{Choices, Client, Setting, World};
use crate::table::{Batch, Dynamic, Schema, Table};

/// Histories of one run of the test, unless the environment says otherwise.
const SEEDS: u64 = 20;

/// Steps of a history.
const STEPS: u64 = 14;

/// Keys that steps choose from.
const KEYS: u64 = 14;

/// What a step does to one row.
#[derive(Clone, Copy, Debug)]
enum Change {
    Key(u64, Option<Cells>),
    Place(u64, Option<Cells>),
    /// A row in the table without keys, with this unique value.
    New(Cells),
}

/// The rows that there are.
#[derive(Clone, Default)]
struct Rows {
    keyed: BTreeMap<u64, Cells>,
    plain: BTreeMap<u64, Cells>,
}

/// What may be there at this moment.
#[derive(Clone, Default)]
struct Expected {
    rows: Rows,
    /// Changes of the step under way: of each group all or none.
    groups: Vec<Vec<Change>>,
    step: String,
    points: u64,
    /// Moments while files were opened.
    openings: u64,
    failure: Option<String>,
}

impl Expected {
    /// Whether what was found may be there.
    fn check(&self, found: &Rows) -> Result<(), String> {
        let mut rest = found.clone();
        let mut touched = BTreeSet::new();
        for group in &self.groups {
            let mut done = Vec::new();
            for change in group {
                let (before, after, now) = match *change {
                    Change::Key(key, after) => {
                        touched.insert((true, key));
                        let now = rest.keyed.remove(&key);
                        (self.rows.keyed.get(&key).copied(), after, now)
                    }
                    Change::Place(id, after) => {
                        touched.insert((false, id));
                        let now = rest.plain.remove(&id);
                        (self.rows.plain.get(&id).copied(), after, now)
                    }
                    Change::New(cells) => {
                        let mut all = rest.plain.iter();
                        let id = all.find(|(_, row)| **row == cells).map(|(id, _)| *id);
                        (None, Some(cells), id.and_then(|id| rest.plain.remove(&id)))
                    }
                };
                if now != before && now != after {
                    return Err(format!("{change:?} found {now:?}, was {before:?}"));
                }
                if before != after {
                    done.push(now == after);
                }
            }
            if done.iter().any(|&is_done| is_done != done[0]) {
                return Err(format!("a part of {group:?} has happened: {done:?}"));
            }
        }
        let mut others = self.rows.clone();
        others
            .keyed
            .retain(|&key, _| !touched.contains(&(true, key)));
        others
            .plain
            .retain(|&id, _| !touched.contains(&(false, id)));
        if others.keyed == rest.keyed && others.plain == rest.plain {
            return Ok(());
        }
        let mut before: BTreeSet<_> = others.keyed.iter().chain(&others.plain).collect();
        let mut now: BTreeSet<_> = rest.keyed.iter().chain(&rest.plain).collect();
        let both: Vec<_> = before.intersection(&now).copied().collect();
        for row in both {
            before.remove(&row);
            now.remove(&row);
        }
        Err(format!("{before:?} have become {now:?}"))
    }
}

/// The rows of both tables of a world.
fn rows_of(world: &World) -> Rows {
    let mut rows = Rows::default();
    for shape in &*world.tables.borrow() {
        for seat in &world.shards {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            let (part, _) = catalog.table(shape.key).unwrap();
            for place in part.scan(0..u32::MAX) {
                let cells = Cells::try_from(part.cells(Dynamic(3), place)).unwrap();
                if part.is_keyed() {
                    rows.keyed.insert(part.number(place), cells);
                } else {
                    rows.plain.insert(part.id(place).to_u64(), cells);
                }
            }
        }
    }
    rows
}

/// Of so many moments with transactions under way, one is opened and left again at every moment of the
/// opening.
const OPENINGS: u64 = 40;

/// Opens a copy of what is in the files now, and compares it with what may be there.
fn look(
    files: &Files,
    setting: Setting,
    tables: &[TableShape],
    expected: &Expected,
) -> Result<Parts, String> {
    let (world, parts) = files.open(0, setting, tables, Access::Copy)?;
    world.audit()?;
    expected.check(&rows_of(&world))?;
    Ok(parts)
}

/// Opens what is in the files now, in a copy, and looks at every moment of the opening; how many there
/// were.
fn look_at_opening(
    files: &Files,
    setting: Setting,
    tables: &[TableShape],
    expected: &Rc<Expected>,
) -> Result<u64, String> {
    let copy = Rc::new(files.copy());
    let (seen, shapes) = (Rc::clone(&copy), tables.to_vec());
    let result = Rc::new(RefCell::new(Ok(0)));
    let (kept, expected) = (Rc::clone(&result), Rc::clone(expected));
    crash::watch(move |moment| {
        let mut kept = kept.borrow_mut();
        if let (crash::Moment::Between, Ok(count)) = (moment, &mut *kept) {
            *count += 1;
            let count = *count;
            let looked = AssertUnwindSafe(|| look(&seen, setting, &shapes, &expected));
            let looked = catch_unwind(looked).unwrap_or_else(|panic| Err(panic_message(panic)));
            if let Err(error) = looked {
                *kept = Err(format!("{error}, at moment {count} of the opening"));
            }
        }
    });
    let opened = copy.open(0, setting, tables, Access::Shared);
    crash::unwatch();
    let result = std::mem::replace(&mut *result.borrow_mut(), Ok(0));
    let count = result?;
    opened?;
    Ok(count)
}

/// A history under way.
struct History {
    world: Rc<World>,
    client: Client<'static>,
    keyed: Table<Cells>,
    plain: Table<Cells>,
    expected: Rc<RefCell<Expected>>,
    next_value: u64,
}

impl History {
    fn below(&self, bound: u64) -> u64 {
        self.world.choices.below(bound)
    }

    fn row(&mut self) -> Cells {
        self.next_value += 1;
        row_of(self.next_value)
    }

    fn key(&self) -> u64 {
        self.below(KEYS)
    }

    fn has(&self, key: u64) -> bool {
        self.expected.borrow().rows.keyed.contains_key(&key)
    }

    fn any_place(&self) -> Option<u64> {
        let expected = self.expected.borrow();
        let count = expected.rows.plain.len() as u64;
        let at = self.world.choices.below(count.max(1)) as usize;
        expected.rows.plain.keys().nth(at).copied()
    }

    /// Says what the step at hand may change.
    fn expect(&self, name: &str, groups: &[Vec<Change>]) {
        let mut expected = self.expected.borrow_mut();
        expected.groups = groups.to_vec();
        expected.step = format!("{name} {groups:?}");
    }

    /// The step has done all of it, at these places.
    fn done(&self, ids: &[DirectId]) {
        let mut expected = self.expected.borrow_mut();
        let mut ids = ids.iter();
        let groups = std::mem::take(&mut expected.groups);
        for change in groups.into_iter().flatten() {
            let (map, row, cells) = match change {
                Change::Key(key, cells) => (&mut expected.rows.keyed, key, cells),
                Change::Place(id, cells) => (&mut expected.rows.plain, id, cells),
                Change::New(cells) => {
                    let id = ids.next().expect("a place for each new row").to_u64();
                    (&mut expected.rows.plain, id, Some(cells))
                }
            };
            match cells {
                Some(cells) => map.insert(row, cells),
                None => map.remove(&row),
            };
        }
    }

    fn step(&mut self) {
        match self.below(10) {
            0 | 1 => self.single(),
            2 => self.single_of_place(),
            3 => self.batch(),
            4 => self.batch_of_places(),
            5 | 6 => self.closure(),
            7 | 8 => self.transaction(),
            _ => self.declared(),
        }
    }

    fn single(&mut self) {
        let (key, row) = (self.key(), self.row());
        let (id, table) = (SurrogateId(key), self.keyed.clone());
        let was_there = self.has(key);
        match self.below(4) {
            0 if !was_there => {
                self.expect("insert", &[vec![Change::Key(key, Some(row))]]);
                self.client.insert_keyed(&table, id, &row).unwrap();
            }
            1 if was_there => {
                self.expect("update", &[vec![Change::Key(key, Some(row))]]);
                assert!(self.client.update(&table, id, &row).unwrap());
            }
            2 if was_there => {
                self.expect("delete", &[vec![Change::Key(key, None)]]);
                assert!(self.client.delete(&table, id).unwrap());
            }
            _ => {
                self.expect("upsert", &[vec![Change::Key(key, Some(row))]]);
                assert_eq!(self.client.upsert(&table, id, &row).unwrap(), was_there);
            }
        }
        self.done(&[]);
    }

    fn single_of_place(&mut self) {
        let row = self.row();
        let table = self.plain.clone();
        match (self.any_place(), self.below(3)) {
            (Some(id), 0) => {
                self.expect("delete", &[vec![Change::Place(id, None)]]);
                let id = DirectId::from_u64(id);
                assert!(self.client.delete(&table, id).unwrap());
                self.done(&[]);
            }
            (Some(id), 1) => {
                self.expect("update", &[vec![Change::Place(id, Some(row))]]);
                let id = DirectId::from_u64(id);
                assert!(self.client.update(&table, id, &row).unwrap());
                self.done(&[]);
            }
            _ => {
                self.expect("insert", &[vec![Change::New(row)]]);
                let id = self.client.insert(&table, &row).unwrap();
                self.done(&[id]);
            }
        }
    }

    /// Operations on keys, each a transaction of its own; now and then so many new ones that the
    /// index grows.
    fn batch(&mut self) {
        let table = self.keyed.clone();
        if self.below(2) == 0 {
            let first = 1_000 + self.next_value * 100;
            let keys: Vec<u64> = (first..first + 30 + self.below(40)).collect();
            let rows: Vec<Cells> = keys.iter().map(|_| self.row()).collect();
            let groups = keys.iter().zip(&rows);
            let groups: Vec<_> = groups
                .map(|(&key, &row)| vec![Change::Key(key, Some(row))])
                .collect();
            self.expect("many keys", &groups);
            let keys: Vec<_> = keys.into_iter().map(SurrogateId).collect();
            let inserted = self.client.insert_keyed_batch(&table, &keys, &rows);
            assert_eq!(inserted.unwrap(), keys.len());
            return self.done(&[]);
        }
        let mut batch = Batch::<Cells, SurrogateId>::new(&table, 8);
        let mut groups = Vec::new();
        for key in 0..KEYS {
            let row = self.row();
            let id = SurrogateId(key);
            match self.below(6) {
                0 if self.has(key) => {
                    batch.delete(id).unwrap();
                    groups.push(vec![Change::Key(key, None)]);
                }
                1 => {
                    batch.upsert(id, &row).unwrap();
                    groups.push(vec![Change::Key(key, Some(row))]);
                }
                _ => {}
            }
        }
        self.expect("batch", &groups);
        self.client.run(&mut batch).unwrap();
        self.done(&[]);
    }

    /// New rows, each a transaction of its own, or as many deletes as there are rows.
    fn batch_of_places(&mut self) {
        let table = self.plain.clone();
        if self.below(3) == 0 {
            let ids: Vec<u64> = self.expected.borrow().rows.plain.keys().copied().collect();
            let groups: Vec<_> = ids
                .iter()
                .map(|&id| vec![Change::Place(id, None)])
                .collect();
            self.expect("delete all", &groups);
            let ids: Vec<_> = ids.into_iter().map(DirectId::from_u64).collect();
            assert_eq!(self.client.delete_batch(&table, &ids).unwrap(), ids.len());
            return self.done(&[]);
        }
        let rows: Vec<Cells> = (0..1 + self.below(6)).map(|_| self.row()).collect();
        let groups: Vec<_> = rows.iter().map(|&row| vec![Change::New(row)]).collect();
        self.expect("many places", &groups);
        let mut ids = Vec::new();
        self.client.insert_batch(&table, &rows, &mut ids).unwrap();
        self.done(&ids);
    }

    /// A closure in one shard: all of it, or nothing after an error or a panic; sometimes with more
    /// before-images than the first piece of the undo area holds.
    fn closure(&mut self) {
        let shards = self.world.peers.shards();
        let shard = self.below(shards as u64) as usize;
        let (keyed, plain) = (self.keyed.clone(), self.plain.clone());
        let own: Vec<u64> = (0..KEYS)
            .filter(|&key| SurrogateId(key).shard_of(shards) == shard)
            .collect();
        let many = [1, 2, 90][self.below(3) as usize];
        let mut plan = BTreeMap::new();
        for &key in &own {
            let row = self.row();
            match self.below(3) {
                0 => drop(plan.insert(key, Some(row))),
                1 if self.has(key) => drop(plan.insert(key, None)),
                _ => {}
            }
        }
        let rows: Vec<Cells> = (0..many).map(|_| self.row()).collect();
        let group = plan.iter().map(|(&key, &row)| Change::Key(key, row));
        let group: Vec<_> = group
            .chain(rows.iter().map(|&row| Change::New(row)))
            .collect();
        let end = self.below(4);
        let groups = if end < 2 { vec![group] } else { Vec::new() };
        self.expect("closure", &groups);
        let result = self.client.on(shard, |context| {
            let mut ids = Vec::new();
            for (&key, row) in &plan {
                let mut keys = context.rows(&keyed)?;
                match row {
                    Some(row) => drop(keys.upsert(SurrogateId(key), row)?),
                    None => assert!(keys.delete(SurrogateId(key))?),
                }
            }
            let mut places = context.rows(&plain)?;
            for row in &rows {
                ids.push(places.insert(&[0; 3])?);
                places.update(ids[ids.len() - 1], row)?;
            }
            match end {
                2 => Err(Error::NotKeyed),
                3 => std::panic::resume_unwind(Box::new("as planned")),
                _ => Ok(ids),
            }
        });
        match result {
            Ok(ids) => self.done(&ids),
            Err(_) => assert!(end >= 2),
        }
    }

    /// A transaction with a handle, over any shards.
    fn transaction(&mut self) {
        let mut group = Vec::new();
        let mut keys = BTreeSet::new();
        for _ in 0..1 + self.below(8) {
            keys.insert(self.key());
        }
        for key in keys {
            let row = self.row();
            let after = if self.has(key) && self.below(3) == 0 {
                None
            } else {
                Some(row)
            };
            group.push(Change::Key(key, after));
        }
        for _ in 0..self.below(4) {
            let row = self.row();
            group.push(Change::New(row));
        }
        if let Some(id) = self.any_place() {
            group.push(Change::Place(id, None));
        }
        let is_given_up = self.below(4) == 0;
        let groups = if is_given_up {
            Vec::new()
        } else {
            vec![group.clone()]
        };
        self.expect("transaction", &groups);
        let (keyed, plain) = (&self.keyed, &self.plain);
        let result = self.client.transaction(|transaction| {
            let mut ids = Vec::new();
            for change in &group {
                match *change {
                    Change::Key(key, Some(row)) => {
                        transaction.upsert(keyed, SurrogateId(key), &row)?;
                    }
                    Change::Key(key, None) => {
                        assert!(transaction.delete(keyed, SurrogateId(key))?);
                    }
                    Change::Place(id, _) => {
                        assert!(transaction.delete(plain, DirectId::from_u64(id))?);
                    }
                    Change::New(row) => ids.push(transaction.insert(plain, &row)?),
                }
            }
            if is_given_up {
                return Err(Error::NotKeyed);
            }
            Ok(ids)
        });
        match result {
            Ok(ids) => self.done(&ids),
            Err(_) => assert!(is_given_up),
        }
    }

    /// Some transactions that travel together; one or the other is refused.
    fn declared(&mut self) {
        let mut transactions = Transactions::new();
        let mut groups = Vec::new();
        let mut keys: Vec<u64> = (0..KEYS).collect();
        for _ in 0..1 + self.below(3) {
            let mut group = Vec::new();
            transactions.begin();
            let mut is_refused = false;
            for _ in 0..1 + self.below(3) {
                let key = keys.swap_remove(self.below(keys.len() as u64) as usize);
                let row = self.row();
                if self.below(5) == 0 {
                    // An insert of a key that is there is refused, and all else with it.
                    is_refused |= self.has(key);
                    let id = SurrogateId(key);
                    transactions.insert_keyed(&self.keyed, id, &row).unwrap();
                } else {
                    let id = SurrogateId(key);
                    transactions.upsert(&self.keyed, id, &row).unwrap();
                }
                group.push(Change::Key(key, Some(row)));
            }
            if !is_refused {
                groups.push(group);
            }
        }
        self.expect("declared", &groups);
        let committed = self.client.run_transactions(&mut transactions).unwrap();
        assert_eq!(committed, groups.len(), "{:?}", transactions.outcomes());
        let refused = |outcome: &TransactionOutcome| *outcome != TransactionOutcome::Committed;
        assert!(
            transactions
                .outcomes()
                .iter()
                .filter(|one| refused(one))
                .count()
                <= 3
        );
        self.done(&[]);
    }
}

/// Looks at every moment of one history, and at the opening of one in so many; how many moments there
/// were, or what is wrong.
pub(super) fn run_seed(seed: u64, openings: u64) -> Result<(u64, u64), String> {
    let choices = Choices::new(seed);
    let setting = Setting {
        shards: 1 + choices.below(3) as usize,
        lane_requests: 4,
        block_operations: [1, 3, 64][choices.below(3) as usize],
        delay_max: 0,
        relay_delay_max: 0,
    };
    let files = Rc::new(Files::new(setting.shards));
    let world = files.create(seed, setting);
    let mut history = History {
        client: world.client(),
        keyed: world.table("keyed", &Schema::cells(3).keyed()),
        plain: world.table("plain", &Schema::cells(3)),
        world: Rc::clone(&world),
        expected: Rc::default(),
        next_value: 0,
    };
    let tables = world.tables.borrow().clone();
    let expected = Rc::clone(&history.expected);
    crash::watch(move |moment| {
        let mut expected = expected.borrow_mut();
        if moment != crash::Moment::Between || expected.failure.is_some() {
            return;
        }
        expected.points += 1;
        let looked = AssertUnwindSafe(|| {
            let Parts {
                applied,
                taken_back,
            } = look(&files, setting, &tables, &expected)?;
            if applied + taken_back == 0 || !expected.points.is_multiple_of(openings) {
                return Ok(0);
            }
            let now = Rc::new(Expected::clone(&expected));
            look_at_opening(&files, setting, &tables, &now)
        });
        match catch_unwind(looked).unwrap_or_else(|panic| Err(panic_message(panic))) {
            Ok(more) => expected.openings += more,
            Err(error) => {
                let (step, point) = (&expected.step, expected.points);
                expected.failure = Some(format!("{error}, at point {point}, in {step}"));
            }
        }
    });
    let kept = Rc::clone(&history.expected);
    let steps = AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            history.step();
            if history.expected.borrow().failure.is_some() {
                break;
            }
        }
    });
    let panicked = catch_unwind(steps).err().map(panic_message);
    crash::unwatch();
    let expected = kept.borrow();
    match expected.failure.clone().or(panicked) {
        Some(failure) => Err(failure),
        None => Ok((expected.points, expected.openings)),
    }
}

#[test]
fn every_moment_of_short_histories_leaves_each_transaction_whole() {
    let seeds = setting("ANCILE_SEEDS", SEEDS);
    let from = setting("ANCILE_SEED_FROM", 0);
    let mut sum = (0, 0);
    for seed in from..from + seeds {
        match run_seed(seed, OPENINGS) {
            Ok((points, openings)) => sum = (sum.0 + points, sum.1 + openings),
            Err(failure) => panic!("seed {seed}: {failure}"),
        }
    }
    println!(
        "{seeds} histories from {from}: {} moments at work, {} while files were opened",
        sum.0, sum.1
    );
}
