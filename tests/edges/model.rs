//! Random verbs by several clients at once, each on keys of its own, against a map.

use std::collections::BTreeMap;

use ancile::{
    Batch, Compared, DirectId, Error, Outcome, Resident, Result, SurrogateId, Table, Verbs,
};

use super::support::{Pair, Random, builder, keyed, watchdog};

const KEYS: u64 = 60;

/// A client's rows as they should be, and the ids that it was told.
struct Model {
    client: u64,
    rows: BTreeMap<u64, Pair>,
    ids: BTreeMap<u64, DirectId>,
    stale: Vec<DirectId>,
    random: Random,
    shards: usize,
}

impl Model {
    fn new(client: u64, random: Random, shards: usize) -> Self {
        Self {
            client,
            rows: BTreeMap::new(),
            ids: BTreeMap::new(),
            stale: Vec::new(),
            random,
            shards,
        }
    }

    fn key(&mut self) -> u64 {
        self.client << 32 | self.random.below(KEYS)
    }

    fn row(&mut self) -> Pair {
        [self.random.below(4), self.random.next()]
    }

    /// One verb, checked.
    fn step(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        match self.random.below(12) {
            0 => self.insert(client, table),
            1 => self.upsert(client, table),
            2 => self.delete(client, table),
            3 => self.update_some(client, table),
            4 => self.select_all(client, table),
            5 => self.by_direct_id(client, table),
            6 => self.key_batches(client, table),
            7 => self.mixed_batch(client, table),
            8 => self.pipeline(client, table),
            9 | 10 => self.transaction(client, table),
            _ => {
                let (key, row) = (self.key(), self.row());
                let was_there = client.update(table, SurrogateId(key), &row);
                assert_eq!(was_there, Ok(self.rows.contains_key(&key)));
                self.rows.entry(key).and_modify(|old| *old = row);
            }
        }
    }

    fn added(&mut self, key: u64, row: Pair, id: DirectId) {
        assert!(!self.stale.contains(&id), "{id:?} is given out twice");
        self.rows.insert(key, row);
        self.ids.insert(key, id);
    }

    fn removed(&mut self, key: u64) {
        self.rows.remove(&key);
        self.stale.extend(self.ids.remove(&key));
    }

    fn insert(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let (key, row) = (self.key(), self.row());
        match client.insert_keyed(table, SurrogateId(key), &row) {
            Ok(id) => {
                assert!(!self.rows.contains_key(&key));
                self.added(key, row, id);
            }
            Err(error) => {
                assert_eq!(error, Error::Duplicate { key });
                assert!(self.rows.contains_key(&key));
            }
        }
    }

    fn upsert(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let (key, row) = (self.key(), self.row());
        let was_there = client.upsert(table, SurrogateId(key), &row);
        assert_eq!(was_there, Ok(self.rows.insert(key, row).is_some()));
    }

    fn delete(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let key = self.key();
        let was_there = client.delete(table, SurrogateId(key));
        assert_eq!(was_there, Ok(self.rows.contains_key(&key)));
        self.removed(key);
    }

    fn update_some(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let (key, [expected, value]) = (self.key(), self.row());
        let id = SurrogateId(key);
        let compared = client.update_if(table, id, &[(0, expected)], &[(1, value)]);
        let model = match self.rows.get_mut(&key) {
            None => Compared::NotFound,
            Some(row) if row[0] != expected => Compared::Differs,
            Some(row) => {
                row[1] = value;
                Compared::Updated
            }
        };
        assert_eq!(compared, Ok(model));
        let was_there = client.update_columns(table, id, &[(0, 3)]);
        assert_eq!(was_there, Ok(self.rows.contains_key(&key)));
        self.rows.entry(key).and_modify(|row| row[0] = 3);
        let columns = client.select_columns(table, id, &[1, 0]).unwrap();
        assert_eq!(columns, self.rows.get(&key).map(|row| vec![row[1], row[0]]));
    }

    fn select_all(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let keys = (0..KEYS).map(|n| SurrogateId(self.client << 32 | n));
        let keys: Vec<_> = keys.collect();
        let expected: Vec<_> = keys
            .iter()
            .map(|key| self.rows.get(&key.0).copied())
            .collect();
        assert_eq!(client.select_batch(table, &keys), Ok(expected.clone()));
        let streamed: Result<Vec<_>> = client.select_iter(table, keys).collect();
        assert_eq!(streamed, Ok(expected));
    }

    fn by_direct_id(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        for id in &self.stale {
            assert_eq!(client.select(table, *id), Ok(None), "{id:?} is stale");
        }
        self.stale.truncate(20);
        let Some((&key, &id)) = self.ids.iter().next() else {
            return;
        };
        let row = self.row();
        assert_eq!(client.select(table, id), Ok(self.rows.get(&key).copied()));
        assert_eq!(client.update(table, id, &row), Ok(true));
        self.rows.insert(key, row);
        if row[0] == 0 {
            assert_eq!(client.delete(table, id), Ok(true));
            self.removed(key);
        }
    }

    fn key_batches(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let keys: Vec<_> = (0..100).map(|_| SurrogateId(self.key())).collect();
        let rows: Vec<_> = (0..100).map(|_| self.row()).collect();
        let before = self.rows.len();
        for (key, row) in keys.iter().zip(&rows) {
            self.rows.entry(key.0).or_insert(*row);
        }
        let added = self.rows.len() - before;
        assert_eq!(client.insert_keyed_batch(table, &keys, &rows), Ok(added));
        let half = &keys[..50];
        let before = self.rows.len();
        half.iter().for_each(|key| self.removed(key.0));
        let removed = before - self.rows.len();
        assert_eq!(client.delete_batch(table, half), Ok(removed));
        let mut updated = 0;
        for (key, row) in keys.iter().zip(&rows) {
            if let Some(old) = self.rows.get_mut(&key.0) {
                *old = *row;
                updated += 1;
            }
        }
        assert_eq!(client.update_batch(table, &keys, &rows), Ok(updated));
    }

    /// Chooses an operation and says what it should answer; an insert's id is not known.
    fn choose(&mut self) -> (u64, u64, Pair, Outcome<Pair>) {
        let (key, row, choice) = (self.key(), self.row(), self.random.below(5));
        let unknown = Outcome::Inserted(DirectId::from_u64(0));
        let outcome = match (choice, self.rows.get(&key).copied()) {
            (0, Some(found)) => Outcome::Selected(found),
            (0 | 1 | 3, None) => Outcome::NotFound,
            (1 | 4, Some(_)) => {
                self.rows.insert(key, row);
                Outcome::Updated
            }
            (2, Some(_)) => Outcome::Failed(Error::Duplicate { key }),
            (3, Some(_)) => {
                self.removed(key);
                Outcome::Deleted
            }
            _ => {
                self.rows.insert(key, row);
                unknown
            }
        };
        (choice, key, row, outcome)
    }

    fn check(&mut self, key: u64, outcome: &Outcome<Pair>, expected: &Outcome<Pair>) {
        match (outcome, expected) {
            (Outcome::Inserted(_), Outcome::Inserted(_)) => {
                // Its row may be gone again by now, so the id is not kept.
            }
            _ => assert_eq!(outcome, expected, "key {key}"),
        }
    }

    fn mixed_batch(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let mut batch = Batch::<_, SurrogateId>::new(table, 10);
        let mut expected = Vec::new();
        for _ in 0..self.random.below(200) {
            let (choice, key, row, outcome) = self.choose();
            let id = SurrogateId(key);
            match choice {
                0 => batch.select(id),
                1 => batch.update(id, &row),
                2 => batch.insert(id, &row),
                3 => batch.delete(id),
                _ => batch.upsert(id, &row),
            }
            .unwrap();
            expected.push((key, outcome));
        }
        client.run(&mut batch).unwrap();
        assert_eq!(batch.outcomes().len(), expected.len());
        for (outcome, (key, expected)) in batch.outcomes().iter().zip(&expected) {
            self.check(*key, outcome, expected);
        }
    }

    fn pipeline(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let mut pipeline = client.pipeline(table);
        let mut expected = BTreeMap::new();
        for _ in 0..self.random.below(200) {
            let (choice, key, row, outcome) = self.choose();
            let id = SurrogateId(key);
            let ticket = match choice {
                0 => pipeline.select(id),
                1 => pipeline.update(id, &row),
                2 => pipeline.insert(id, &row),
                3 => pipeline.delete(id),
                _ => pipeline.upsert(id, &row),
            };
            expected.insert(ticket.unwrap(), (key, outcome));
            if self.random.below(3) == 0
                && let Some((ticket, outcome)) = pipeline.complete().unwrap()
            {
                let (key, expected) = expected.remove(&ticket).unwrap();
                self.check(key, &outcome, &expected);
            }
        }
        if self.random.below(4) > 0 {
            while let Some((ticket, outcome)) = pipeline.wait().unwrap() {
                let (key, expected) = expected.remove(&ticket).unwrap();
                self.check(key, &outcome, &expected);
            }
            assert!(expected.is_empty());
        }
    }

    /// Many changes in one shard: kept, given up, or ended by a panic.
    fn transaction(&mut self, client: &mut impl Verbs, table: &Table<Pair>) {
        let shard = self.random.below(self.shards as u64) as usize;
        let end = self.random.below(3);
        let (rows_before, ids_before) = (self.rows.clone(), self.ids.clone());
        let stale_before = self.stale.len();
        let result = client.on(shard, |context| {
            let mut rows = context.rows(table)?;
            for _ in 0..40 {
                let (key, row) = (self.key(), self.row());
                let id = SurrogateId(key);
                let had = self.rows.get(&key).copied();
                if rows.insert_keyed(id, &row).is_err_and(is_elsewhere) {
                    continue;
                }
                // From here on the key is of this shard, and there.
                if had.is_none() {
                    self.rows.insert(key, row);
                }
                assert_eq!(rows.select(id), Some(had.unwrap_or(row)));
                match self.random.below(4) {
                    0 => {
                        assert_eq!(rows.delete(id), Ok(true));
                        self.removed(key);
                    }
                    1 => {
                        assert_eq!(rows.update(id, &row), Ok(true));
                        self.rows.insert(key, row);
                    }
                    2 => {
                        assert_eq!(rows.delete(id), Ok(true));
                        self.removed(key);
                        assert_eq!(rows.upsert(id, &row), Ok(false));
                        self.rows.insert(key, row);
                    }
                    _ => {}
                }
            }
            match end {
                0 => Ok(()),
                1 => Err(Error::KeyNeeded),
                _ => std::panic::resume_unwind(Box::new("as chosen")),
            }
        });
        match end {
            0 => assert_eq!(result, Ok(())),
            1 => assert_eq!(result, Err(Error::KeyNeeded)),
            _ => assert!(matches!(result, Err(Error::Panicked { .. }))),
        }
        if end > 0 {
            (self.rows, self.ids) = (rows_before, ids_before);
            self.stale.truncate(stale_before);
        }
    }

    /// Ids of rows that are there again under another place are not known: what the index says.
    fn finish(&mut self, client: &mut impl Verbs, table: &Table<Pair>) -> u64 {
        self.select_all(client, table);
        self.rows.len() as u64
    }
}

fn is_elsewhere(error: Error) -> bool {
    match error {
        Error::OtherShard { .. } => true,
        Error::Duplicate { .. } => false,
        other => panic!("{other}"),
    }
}

#[test]
fn random_verbs_of_many_clients_match_their_models() {
    let _watchdog = watchdog(120);
    let random = Random::seeded();
    for (round, (shards, lanes, block)) in [(1, 64, 64), (2, 1, 3), (3, 2, 1), (5, 3, 64)]
        .into_iter()
        .enumerate()
    {
        let engine = builder(shards).lane_requests(lanes).block_operations(block);
        let engine = engine.build().unwrap();
        let table = keyed(&engine, "k");
        let base = random.fork(round as u64);
        let mut expected = 0;
        std::thread::scope(|scope| {
            let sessions: Vec<_> = (0..4)
                .map(|number| {
                    let (engine, table, base) = (&engine, &table, &base);
                    scope.spawn(move || {
                        let mut session = engine.session().unwrap();
                        let mut model = Model::new(number, base.fork(number), shards);
                        (0..150).for_each(|_| model.step(&mut session, table));
                        model.finish(&mut session, table)
                    })
                })
                .collect();
            let (inside, base) = (table.clone(), base.fork(99));
            let residents = engine.on_every_shard(move |resident: &mut Resident<'_>| {
                let number = 100 + resident.shard() as u64;
                let mut model = Model::new(number, base.fork(number), shards);
                (0..150).for_each(|_| model.step(resident, &inside));
                model.finish(resident, &inside)
            });
            expected += residents.unwrap().iter().sum::<u64>();
            for session in sessions {
                expected += session.join().unwrap();
            }
        });
        let mut session = engine.session().unwrap();
        assert_eq!(session.count(&table), Ok(expected));
    }
}
