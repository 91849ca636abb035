//! The process that is killed: workers outside and inside of shards, each with rows of its own, which
//! say what they are about to do before they do it, and afterwards that it is done.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ancile::{
    Batch, DirectId, Engine, EngineBuilder, Error, Isolation, Records, Schema, SurrogateId, Table,
    TransactionOptions, TransactionOutcome, Transactions, Verbs,
};

use super::model::{ACCOUNTS, Account, Change, Narrow, START, Wide, line_of, row_of, scan};
use super::people::{Note, Person};
use crate::edges::support::Random;

const SESSIONS: u64 = 3;

/// Keys of a worker that come and go singly.
const OWN_KEYS: u64 = 120;
/// Where a worker's ranges of keys begin.
const RANGE: u64 = 1 << 20;

/// Rows of a large transaction.
const LARGE_ROWS: u64 = 900;

/// Rows without keys of one worker, at most.
const PLACES_MAX: usize = 400;

pub(super) struct Tables {
    pub(super) engine: Engine,
    pub(super) people: Records<Person>,
    pub(super) notes: Records<Note>,
    pub(super) keys: Table<Narrow>,
    wide: Table<Wide>,
    transfers: Table<Narrow>,
    plain: Table<Narrow>,
    accounts: Table<Account>,
}

/// Works until the process is killed, or does nothing until then; half of those that work bring all
/// tables together again and again meanwhile.
pub(super) fn work(settings: EngineBuilder, directory: &Path, seed: u64, is_idle: bool) -> ! {
    let engine = settings.open(directory).unwrap();
    let tables = Arc::new(tables(engine));
    say("begun\n");
    let mut session = tables.engine.session().unwrap();
    let plain = scan(&mut session, &tables.plain).unwrap();
    let shards = tables.engine.shards();
    let workers = if is_idle { 0 } else { SESSIONS + shards as u64 };
    for number in 0..workers {
        let places = plain.iter().filter(|(_, row)| row[0] >> 40 == number);
        let mut worker = Worker {
            number,
            random: Random::of(seed).fork(number),
            places: places.map(|(id, row)| (row[0], *id)).collect(),
            tables: Arc::clone(&tables),
            shard: number.checked_sub(SESSIONS).map(|shard| shard as usize),
            own_notes: Vec::new(),
        };
        match worker.shard {
            None => drop(std::thread::spawn(move || {
                let mut session = worker.tables.engine.session().unwrap();
                worker.live(&mut session);
            })),
            Some(shard) => {
                let engine = &tables.engine;
                drop(engine.spawn(shard, move |resident| worker.live(resident)));
            }
        }
    }
    let mut random = Random::of(seed);
    let compacts = !is_idle && random.below(2) == 0;
    loop {
        if compacts {
            std::thread::sleep(Duration::from_micros(random.below(10_000)));
            tables.engine.compact().unwrap();
        } else {
            std::thread::park();
        }
    }
}

/// Opens what is there, and makes what is not.
fn tables(engine: Engine) -> Tables {
    fn table<const N: usize>(engine: &Engine, name: &str, is_keyed: bool) -> Table<[u64; N]> {
        let schema = Schema::cells(N);
        let schema = if is_keyed { schema.keyed() } else { schema };
        engine
            .open_table(name)
            .or_else(|_| engine.create_table(name, schema))
            .unwrap()
    }
    let keys = table(&engine, "keys", true);
    let wide = table(&engine, "wide", true);
    let transfers = table(&engine, "transfers", true);
    let plain = table(&engine, "plain", false);
    let accounts = table::<2>(&engine, "accounts", true);
    let people = engine.open_records("people");
    let people = people.or_else(|_| engine.create_records("people")).unwrap();
    let notes = engine.open_records("notes");
    let notes = notes.or_else(|_| engine.create_records("notes")).unwrap();
    let all: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
    let rows = vec![[START, 0]; all.len()];
    let mut session = engine.session().unwrap();
    session.insert_keyed_batch(&accounts, &all, &rows).unwrap();
    drop(session);
    Tables {
        engine,
        people,
        notes,
        keys,
        wide,
        transfers,
        plain,
        accounts,
    }
}

/// Says a line to the parent, in one piece.
fn say(line: &str) {
    assert!(
        line.len() < 4096,
        "{} bytes are not written in one piece",
        line.len()
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) random: Random,
    /// Its notes that belong to each shard.
    pub(super) own_notes: Vec<Vec<u64>>,
    /// Its rows without keys, by their values.
    places: BTreeMap<u64, DirectId>,
    pub(super) tables: Arc<Tables>,
    /// The shard that it lives in.
    shard: Option<usize>,
}

impl Worker {
    fn live(&mut self, client: &mut impl Verbs) {
        self.find_notes(client);
        loop {
            match self.random.below(34) {
                24..29 => self.person(client),
                29 | 30 => self.notes(client),
                31 | 32 => self.notes_in_shard(client),
                33 => self.people_and_keys(client),
                0..6 => self.single(client),
                6..10 => self.place(client),
                10 | 11 => self.batch(client),
                12 => self.places(client),
                13..16 => self.closure(client),
                16..19 => self.transfer(client),
                19 => self.declared_transfer(client),
                20 => self.transaction(client),
                21 => self.large(client),
                22 if self.number == 0 && self.random.below(10) == 0 => self.table(client),
                _ => self.single(client),
            }
        }
    }

    pub(super) fn begins(&self, groups: &[Vec<Change>]) {
        say(&line_of(self.number, groups));
    }

    pub(super) fn has_done(&self, ids: &[DirectId]) {
        let ids: Vec<String> = ids.iter().map(|id| id.to_u64().to_string()).collect();
        say(&format!("{}=yes {}\n", self.number, ids.join(" ")));
    }

    pub(super) fn has_not(&self) {
        say(&format!("{}=no\n", self.number));
    }

    /// A value that nobody else has.
    pub(super) fn value(&mut self) -> u64 {
        self.number << 40 | self.random.next() >> 24
    }

    pub(super) fn key(&mut self) -> u64 {
        self.number << 32 | self.random.below(OWN_KEYS)
    }

    fn single(&mut self, client: &mut impl Verbs) {
        let (key, value) = (self.key(), self.value());
        let table = &self.tables.keys;
        let (id, row) = (SurrogateId(key), row_of(key, value));
        match self.random.below(3) {
            0 => {
                self.begins(&[vec![Change::Keys(key, 1, None)]]);
                client.delete(table, id).unwrap();
            }
            1 => {
                self.begins(&[vec![Change::Keys(key, 1, Some(value))]]);
                match client.insert_keyed(table, id, &row) {
                    Ok(_) => {}
                    Err(Error::Duplicate { .. }) => return self.has_not(),
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                self.begins(&[vec![Change::Keys(key, 1, Some(value))]]);
                client.upsert(table, id, &row).unwrap();
            }
        }
        self.has_done(&[]);
    }

    fn any_place(&mut self) -> Option<(u64, DirectId)> {
        let at = self.random.below(self.places.len().max(1) as u64) as usize;
        self.places.iter().nth(at).map(|(&value, &id)| (value, id))
    }

    fn place(&mut self, client: &mut impl Verbs) {
        let value = self.value();
        let row = row_of(0, value);
        let choice = self.random.below(3);
        let place = self.any_place();
        let table = &self.tables.plain;
        match place {
            Some((old, id)) if choice == 0 || self.places.len() > PLACES_MAX => {
                self.begins(&[vec![Change::Plain(old, None)]]);
                assert!(client.delete(table, id).unwrap());
                self.places.remove(&old);
                self.has_done(&[]);
            }
            Some((old, id)) if choice == 1 => {
                self.begins(&[vec![Change::Plain(old, Some(value))]]);
                assert!(client.update(table, id, &row).unwrap());
                self.places.remove(&old);
                self.places.insert(value, id);
                self.has_done(&[]);
            }
            _ => {
                self.begins(&[vec![Change::New(value, 1)]]);
                let id = client.insert(table, &row).unwrap();
                self.places.insert(value, id);
                self.has_done(&[id]);
            }
        }
    }

    /// Operations on keys that differ, each for itself.
    fn batch(&mut self, client: &mut impl Verbs) {
        let mut batch = Batch::<Narrow, SurrogateId>::new(&self.tables.keys, 64);
        let mut groups = Vec::new();
        for at in 0..OWN_KEYS {
            let key = self.number << 32 | at;
            match self.random.below(6) {
                0 => {
                    let value = self.value();
                    let row = row_of(key, value);
                    batch.upsert(SurrogateId(key), &row).unwrap();
                    groups.push(vec![Change::Keys(key, 1, Some(value))]);
                }
                1 => {
                    batch.delete(SurrogateId(key)).unwrap();
                    groups.push(vec![Change::Keys(key, 1, None)]);
                }
                _ => {}
            }
        }
        self.begins(&groups);
        client.run(&mut batch).unwrap();
        self.has_done(&[]);
    }

    /// New rows without keys, each for itself.
    fn places(&mut self, client: &mut impl Verbs) {
        if self.places.len() > PLACES_MAX {
            return;
        }
        let first = self.value();
        let count = 1 + self.random.below(60);
        let rows: Vec<Narrow> = (first..first + count)
            .map(|value| row_of(0, value))
            .collect();
        let groups: Vec<_> = (first..first + count)
            .map(|value| vec![Change::New(value, 1)])
            .collect();
        self.begins(&groups);
        let mut ids = Vec::new();
        client
            .insert_batch(&self.tables.plain, &rows, &mut ids)
            .unwrap();
        self.places.extend((first..).zip(ids.iter().copied()));
        self.has_done(&ids);
    }

    /// Some changes in one shard, all or none: sometimes it returns an error or panics.
    fn closure(&mut self, client: &mut impl Verbs) {
        let tables = Arc::clone(&self.tables);
        let engine = &tables.engine;
        let shard = match self.shard {
            Some(own) if self.random.below(2) == 0 => own,
            _ => self.random.below(engine.shards() as u64) as usize,
        };
        let base = self.number << 32;
        let own = (base..base + OWN_KEYS)
            .filter(|&key| engine.shard_of(&tables.keys, SurrogateId(key)) == shard);
        let mut plan = Vec::new();
        for key in own {
            match self.random.below(4) {
                0 => plan.push((key, Some(self.value()))),
                1 => plan.push((key, None)),
                _ => {}
            }
        }
        let first = self.value();
        let count = self.random.below(8);
        let end = self.random.below(4);
        let group = plan.iter().map(|&(key, value)| Change::Keys(key, 1, value));
        let group: Vec<_> = group.chain([Change::New(first, count)]).collect();
        self.begins(&[group]);
        let result = client.on(shard, |context| {
            let mut keys = context.rows(&tables.keys)?;
            for &(key, value) in &plan {
                match value {
                    Some(value) => drop(keys.upsert(SurrogateId(key), &row_of(key, value))?),
                    None => drop(keys.delete(SurrogateId(key))?),
                }
            }
            let mut places = context.rows(&tables.plain)?;
            let new = (first..first + count).map(|value| places.insert(&row_of(0, value)));
            let ids = new.collect::<Result<Vec<_>, _>>()?;
            match end {
                0 => Err(Error::NotKeyed),
                1 => resume_unwind(Box::new("as planned")),
                _ => Ok(ids),
            }
        });
        match result {
            Ok(ids) => {
                self.places.extend((first..).zip(ids.iter().copied()));
                self.has_done(&ids);
            }
            Err(error) => {
                assert!(end < 2, "{error}");
                self.has_not();
            }
        }
    }

    fn two_accounts(&mut self) -> (SurrogateId, SurrogateId) {
        let from = self.random.below(ACCOUNTS);
        let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
        (SurrogateId(from), SurrogateId(to))
    }

    /// The number of the next transfer.
    fn next_transfer(&self, client: &mut impl Verbs) -> u64 {
        let id = SurrogateId(self.number);
        let last = client.select(&self.tables.transfers, id).unwrap();
        last.map_or(1, |row| row[0] + 1)
    }

    /// Money moved by a transaction with a handle, with rows of its own beside.
    fn transfer(&mut self, client: &mut impl Verbs) {
        let (from, to) = self.two_accounts();
        let amount = self.random.below(1_000);
        let number = self.next_transfer(client);
        let (key, value) = (self.key(), self.value());
        let first = self.value();
        let count = self.random.below(3);
        let is_given_up = self.random.below(8) == 0;
        self.begins(&[vec![
            Change::Transfer(self.number, number),
            Change::Keys(key, 1, Some(value)),
            Change::New(first, count),
        ]]);
        let tables = &self.tables;
        let options = TransactionOptions::new(Isolation::Serializable).tries(u32::MAX);
        let moved = client.transaction_with(options, |transaction| {
            let [have, sent] = transaction.select(&tables.accounts, from)?.unwrap();
            let [other, got] = transaction.select(&tables.accounts, to)?.unwrap();
            transaction.update(&tables.accounts, from, &[have - amount, sent + 1])?;
            transaction.update(&tables.accounts, to, &[other + amount, got + 1])?;
            let worker = self.number;
            let note = row_of(worker, number);
            transaction.upsert(&tables.transfers, SurrogateId(worker), &note)?;
            transaction.upsert(&tables.keys, SurrogateId(key), &row_of(key, value))?;
            let new = (first..first + count)
                .map(|value| transaction.insert(&tables.plain, &row_of(0, value)));
            let ids = new.collect::<Result<Vec<_>, _>>()?;
            if is_given_up {
                return Err(Error::NotKeyed);
            }
            Ok(ids)
        });
        match moved {
            Ok(ids) => {
                self.places.extend((first..).zip(ids.iter().copied()));
                self.has_done(&ids);
            }
            Err(error) => {
                assert!(is_given_up, "{error}");
                self.has_not();
            }
        }
    }

    /// Money moved by a declared transaction, if the balances are as they were seen.
    fn declared_transfer(&mut self, client: &mut impl Verbs) {
        let (from, to) = self.two_accounts();
        let amount = self.random.below(1_000);
        let number = self.next_transfer(client);
        let tables = &self.tables;
        let seen = client.select_batch(&tables.accounts, &[from, to]).unwrap();
        let mut transactions = Transactions::new();
        for (id, row, add) in [
            (from, seen[0].unwrap(), amount.wrapping_neg()),
            (to, seen[1].unwrap(), amount),
        ] {
            let before = [(0, row[0]), (1, row[1])];
            let after = [(0, row[0].wrapping_add(add)), (1, row[1] + 1)];
            transactions
                .update_if(&tables.accounts, id, &before, &after)
                .unwrap();
        }
        let note: Narrow = row_of(self.number, number);
        let worker = SurrogateId(self.number);
        transactions
            .upsert(&tables.transfers, worker, &note)
            .unwrap();
        self.begins(&[vec![Change::Transfer(self.number, number)]]);
        client.run_transactions(&mut transactions).unwrap();
        match &transactions.outcomes()[0] {
            TransactionOutcome::Committed => self.has_done(&[]),
            TransactionOutcome::Differs { .. } => self.has_not(),
            other => panic!("{other:?}"),
        }
    }

    /// Changes of keys and of rows without keys over all shards.
    fn transaction(&mut self, client: &mut impl Verbs) {
        let first = self.number << 32 | RANGE;
        let count = 10 + self.random.below(30);
        let value = (self.random.below(4) > 0).then(|| self.value());
        let place = self.any_place();
        let mut group = vec![Change::Keys(first, count, value)];
        group.extend(place.map(|(old, _)| Change::Plain(old, None)));
        self.begins(&[group]);
        let tables = &self.tables;
        let done = client.transaction(|transaction| {
            for key in first..first + count {
                let id = SurrogateId(key);
                match value {
                    Some(value) => {
                        transaction.upsert(&tables.keys, id, &row_of(key, value))?;
                    }
                    None => {
                        transaction.delete(&tables.keys, id)?;
                    }
                }
            }
            if let Some((_, id)) = place {
                assert!(transaction.delete(&tables.plain, id)?);
            }
            Ok::<_, Error>(())
        });
        done.unwrap();
        if let Some((old, _)) = place {
            self.places.remove(&old);
        }
        self.has_done(&[]);
    }

    /// More than a shard applies in one scope.
    fn large(&mut self, client: &mut impl Verbs) {
        let first = self.number << 32;
        let value = (self.random.below(3) > 0).then(|| self.value());
        let tables = &self.tables;
        let mut transactions = Transactions::new();
        for key in first..first + LARGE_ROWS {
            let id = SurrogateId(key);
            match value {
                Some(value) => transactions.upsert(&tables.wide, id, &row_of(key, value)),
                None => transactions.delete(&tables.wide, id),
            }
            .unwrap();
        }
        self.begins(&[vec![Change::WideKeys(first, LARGE_ROWS, value)]]);
        client.run_transactions(&mut transactions).unwrap();
        match &transactions.outcomes()[0] {
            TransactionOutcome::Committed => self.has_done(&[]),
            // There is nothing to delete.
            TransactionOutcome::NotFound { .. } if value.is_none() => self.has_not(),
            other => panic!("{other:?}"),
        }
    }

    /// A table comes or goes, with a row in it.
    fn table(&mut self, client: &mut impl Verbs) {
        let engine = &self.tables.engine;
        let there = engine.tables().into_iter().find_map(|table| {
            let number = table.name.strip_prefix("extra-")?;
            number.parse::<u64>().ok()
        });
        match there {
            Some(number) => {
                self.begins(&[vec![Change::Table(number, false)]]);
                engine.drop_table(&format!("extra-{number}")).unwrap();
                self.has_done(&[]);
            }
            None => {
                let number = self.random.next() >> 40;
                self.begins(&[vec![Change::Table(number, true)]]);
                let schema = Schema::cells(6).keyed();
                let name = format!("extra-{number}");
                let table = self.tables.engine.create_table::<Narrow>(&name, schema);
                self.has_done(&[]);
                let table = table.unwrap();
                let rows: Vec<Narrow> = (0..50).map(|key| row_of(key, number)).collect();
                let keys: Vec<_> = (0..50).map(SurrogateId).collect();
                client.insert_keyed_batch(&table, &keys, &rows).unwrap();
            }
        }
    }
}
