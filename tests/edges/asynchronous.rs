//! Sessions whose calls are futures: what they do. When they are woken is told in `woken`, what
//! becomes of dropped ones in `cancelled`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ancile::{
    AsyncSession, Batch, Compared, DirectId, Error, Isolation, Outcome, SurrogateId, Table,
    TransactionOptions, Verbs,
};

use super::executor::block_on;
use super::support::{Pair, Random, builder, engine, keyed, keys_of, unkeyed, watchdog};

fn serializable() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

/// A session, and what it must find.
struct Case<'a> {
    session: AsyncSession,
    keyed: &'a Table<Pair>,
    unkeyed: &'a Table<Pair>,
    by_key: BTreeMap<u64, Pair>,
    by_place: Vec<(DirectId, Option<Pair>)>,
}

impl Case<'_> {
    async fn step(&mut self, random: &mut Random, step: u64) {
        let key = random.below(50);
        let (id, row) = (SurrogateId(key), [step, key]);
        let old = self.by_key.get(&key).copied();
        let session = &mut self.session;
        match random.below(8) {
            0 => match session.insert_keyed(self.keyed, id, &row).await {
                Ok(place) => {
                    assert_eq!(old, None);
                    assert_eq!(session.select(self.keyed, place).await, Ok(Some(row)));
                    self.by_key.insert(key, row);
                }
                Err(error) => {
                    assert_eq!(error, Error::Duplicate { key });
                    assert!(old.is_some());
                }
            },
            1 => {
                let was_there = session.upsert(self.keyed, id, &row).await.unwrap();
                assert_eq!(was_there, self.by_key.insert(key, row).is_some());
            }
            2 => {
                let was_there = session.delete(self.keyed, id).await.unwrap();
                assert_eq!(was_there, self.by_key.remove(&key).is_some());
            }
            3 => {
                let was_there = session.update(self.keyed, id, &row).await.unwrap();
                assert_eq!(was_there, old.is_some());
                self.by_key.entry(key).and_modify(|old| *old = row);
            }
            4 => {
                let place = session.insert(self.unkeyed, &row).await.unwrap();
                self.by_place.push((place, Some(row)));
            }
            5 => self.batches(random, step).await,
            6 => self.mixture(step).await,
            _ => assert_eq!(session.select(self.keyed, id).await, Ok(old)),
        }
    }

    /// Many places at once: added, changed, read, and removed again but for a few.
    async fn batches(&mut self, random: &mut Random, step: u64) {
        let (session, unkeyed) = (&mut self.session, self.unkeyed);
        let count = 1 + random.below(100) as usize;
        let rows: Vec<Pair> = (0..count as u64).map(|n| [step, n]).collect();
        let mut ids = Vec::new();
        session
            .insert_batch(unkeyed, &rows, &mut ids)
            .await
            .unwrap();
        let found = session.select_batch(unkeyed, &ids).await.unwrap();
        assert_eq!(found, rows.iter().copied().map(Some).collect::<Vec<_>>());
        let rows = vec![[7, step]; count];
        assert_eq!(session.update_batch(unkeyed, &ids, &rows).await, Ok(count));
        let kept = ids.split_off(count / 2);
        assert_eq!(session.delete_batch(unkeyed, &ids).await, Ok(count / 2));
        assert_eq!(session.delete_batch(unkeyed, &ids).await, Ok(0));
        let kept = kept.into_iter().map(|id| (id, Some([7, step])));
        self.by_place.extend(kept);
        self.by_place
            .extend(ids.into_iter().map(|id| (id, None)).take(3));
        let ids: Vec<_> = self.by_place.iter().map(|(id, _)| *id).collect();
        let found = session.select_batch(unkeyed, &ids).await.unwrap();
        let expected: Vec<_> = self.by_place.iter().map(|(_, row)| *row).collect();
        assert_eq!(found, expected);

        let keys: Vec<_> = (0..50).map(SurrogateId).collect();
        let absent = 50 - self.by_key.len();
        let rows = [[step, 0]; 50];
        let added = session.insert_keyed_batch(self.keyed, &keys, &rows).await;
        assert_eq!(added, Ok(absent));
        for key in 0..50 {
            self.by_key.entry(key).or_insert([step, 0]);
        }
    }

    async fn mixture(&mut self, step: u64) {
        let mut batch = Batch::<Pair, SurrogateId>::new(self.keyed, 20);
        let mut expected = Vec::new();
        for n in 0..40 {
            let (key, row) = (SurrogateId(n % 20), [step, n]);
            let old = self.by_key.get(&key.0).copied();
            let there = |outcome| old.map_or(Outcome::NotFound, |_| outcome);
            match n % 3 {
                0 => {
                    batch.update(key, &row).unwrap();
                    expected.push(there(Outcome::Updated));
                    self.by_key.entry(key.0).and_modify(|old| *old = row);
                }
                1 => {
                    batch.delete(key).unwrap();
                    expected.push(there(Outcome::Deleted));
                    self.by_key.remove(&key.0);
                }
                _ => {
                    batch.select(key).unwrap();
                    expected.push(old.map_or(Outcome::NotFound, Outcome::Selected));
                }
            }
        }
        self.session.run(&mut batch).await.unwrap();
        assert_eq!(batch.outcomes(), expected);
    }
}

#[test]
fn random_verbs_over_any_shards_and_rings_match_a_model() {
    let _watchdog = watchdog(120);
    let mut random = Random::seeded();
    for (shards, requests, operations) in [(1, 1, 1), (2, 2, 3), (3, 3, 2), (2, 64, 128)] {
        let engine = builder(shards)
            .lane_requests(requests)
            .block_operations(operations)
            .build()
            .unwrap();
        let (keyed, unkeyed) = (keyed(&engine, "k"), unkeyed(&engine, "u"));
        let mut case = Case {
            session: engine.async_session().unwrap(),
            keyed: &keyed,
            unkeyed: &unkeyed,
            by_key: BTreeMap::new(),
            by_place: Vec::new(),
        };
        for step in 0..300 {
            block_on(case.step(&mut random, step));
        }
        let live = case
            .by_place
            .iter()
            .filter(|(_, row)| row.is_some())
            .count();
        let counts = block_on(async {
            let keyed = case.session.count(&keyed).await;
            (keyed, case.session.count(&unkeyed).await)
        });
        assert_eq!(counts, (Ok(case.by_key.len() as u64), Ok(live as u64)));
    }
}

#[test]
fn closure_is_one_transaction_and_its_panic_an_error() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let keys: Vec<_> = keys_of(&engine, &table, 1).take(2).collect();
    let write = |fate: u64| {
        let (table, keys) = (table.clone(), keys.clone());
        move |context: &mut ancile::Context<'_>| {
            let mut rows = context.rows(&table)?;
            rows.upsert(keys[0], &[fate, 0])?;
            assert_ne!(fate, 1, "as planned");
            rows.insert_keyed(keys[1], &[fate, 0])?;
            Ok::<_, Error>(context.shard())
        }
    };
    assert_eq!(block_on(session.on(1, write(0))), Ok(1));
    let duplicate = Err(Error::Duplicate { key: keys[1].0 });
    assert_eq!(block_on(session.on(1, write(2))), duplicate);
    let panicked = block_on(session.on(1, write(1)));
    assert!(
        matches!(panicked, Err(Error::Panicked { .. })),
        "{panicked:?}"
    );
    let row = block_on(session.select(&table, keys[0]));
    assert_eq!(row, Ok(Some([0, 0])), "undone twice");
    let elsewhere = block_on(session.on(7, write(0)));
    assert_eq!(
        elsewhere,
        Err(Error::Shard {
            shard: 7,
            shards: 2
        })
    );
}

#[test]
fn transaction_sees_its_own_changes_and_takes_back_to_savepoints() {
    let _watchdog = watchdog(60);
    let engine = engine(3);
    let (keyed, unkeyed) = (keyed(&engine, "k"), unkeyed(&engine, "u"));
    let mut session = engine.async_session().unwrap();
    let [one, two, three] = [1, 2, 3].map(SurrogateId);
    let kept = block_on(
        session.transaction_with(serializable(), async |transaction| {
            transaction.insert_keyed(&keyed, one, &[1, 0]).await?;
            assert!(!transaction.upsert(&keyed, two, &[2, 0]).await?);
            assert!(transaction.update_columns(&keyed, two, &[(1, 7)]).await?);
            let savepoint = transaction.savepoint();
            assert!(transaction.delete(&keyed, one).await?);
            transaction.insert_keyed(&keyed, three, &[3, 3]).await?;
            transaction.roll_back_to(savepoint);
            let failed = transaction.nested(async |part| {
                part.delete(&keyed, two).await?;
                Err::<(), _>(Error::NotKeyed)
            });
            assert_eq!(failed.await, Err(Error::NotKeyed));
            let compared = transaction.update_if(&keyed, two, &[(1, 7)], &[(0, 9)]);
            assert_eq!(compared.await, Ok(Compared::Updated));
            let compared = transaction.update_if(&keyed, two, &[(1, 8)], &[(0, 1)]);
            assert_eq!(compared.await, Ok(Compared::Differs));
            let kept = transaction.insert(&unkeyed, &[4, 4]).await?;
            let gone = transaction.insert(&unkeyed, &[5, 5]).await?;
            assert!(transaction.delete(&unkeyed, gone).await?);
            let rows = transaction.select_batch(&keyed, &[one, two, three]).await?;
            assert_eq!(rows, [Some([1, 0]), Some([9, 7]), None]);
            let columns = transaction.select_columns(&keyed, two, &[1, 0]).await?;
            assert_eq!(columns, Some(vec![7, 9]));
            Ok::<_, Error>(kept)
        }),
    )
    .unwrap();
    let rows = block_on(session.select_batch(&keyed, &[one, two, three]));
    assert_eq!(rows, Ok(vec![Some([1, 0]), Some([9, 7]), None]));
    assert_eq!(block_on(session.select(&unkeyed, kept)), Ok(Some([4, 4])));
    assert_eq!(block_on(session.count(&unkeyed)), Ok(1));

    let refused: Result<(), Error> = block_on(session.transaction(async |transaction| {
        transaction.update(&keyed, one, &[0, 0]).await?;
        transaction.insert(&unkeyed, &[6, 6]).await?;
        Err(Error::NotKeyed)
    }));
    assert_eq!(refused, Err(Error::NotKeyed));
    let read_only = TransactionOptions::default().read_only();
    let refused = block_on(session.transaction_with(read_only, async |transaction| {
        transaction.delete(&keyed, one).await
    }));
    assert_eq!(refused, Err(Error::ReadOnly));
    let late = TransactionOptions::default().timeout(std::time::Duration::ZERO);
    let refused = block_on(session.transaction_with(late, async |transaction| {
        transaction.select(&keyed, one).await
    }));
    assert_eq!(refused, Err(Error::TimedOut));
    assert_eq!(block_on(session.select(&keyed, one)), Ok(Some([1, 0])));
    assert_eq!(block_on(session.count(&unkeyed)), Ok(1));
}

#[test]
fn transaction_that_fails_too_often_is_given_its_rows_to_itself() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let keys: Vec<_> = (0..8).map(SurrogateId).collect();
    let (mut session, mut other) = (engine.async_session().unwrap(), engine.session().unwrap());
    other
        .insert_keyed_batch(&table, &keys, &[[0, 0]; 8])
        .unwrap();
    let mut tries = 0;
    block_on(
        session.transaction_with(serializable(), async |transaction| {
            tries += 1;
            for &key in &keys {
                let [sum, n] = transaction.select(&table, key).await?.unwrap();
                transaction.update(&table, key, &[sum, n + 1]).await?;
            }
            if tries <= 8 {
                other.update_columns(&table, keys[tries - 1], &[(0, 1)])?;
            }
            Ok::<_, Error>(())
        }),
    )
    .unwrap();
    assert!(
        tries >= 9,
        "a try for each time that others came between, {tries}"
    );
    let rows = block_on(session.select_batch(&table, &keys));
    assert_eq!(rows, Ok(vec![Some([1, 1]); 8]));
    let never: Result<(), Error> = block_on(session.transaction_with(
        serializable().tries(3),
        async |transaction| {
            let [sum, n] = transaction.select(&table, keys[0]).await?.unwrap();
            other.update(&table, keys[0], &[sum + 1, 0])?;
            transaction.update(&table, keys[1], &[sum, n]).await?;
            Ok(())
        },
    ));
    assert_eq!(never, Err(Error::Conflict { tries: 3 }));
    assert_eq!(block_on(session.select(&table, keys[0])), Ok(Some([4, 0])));
}

#[test]
fn futures_may_move_between_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let _watchdog = watchdog(60);
    let engine = Arc::new(engine(2));
    let table = keyed(&engine, "k");
    let threads: Vec<_> = (0..2)
        .map(|who| {
            let (engine, table) = (Arc::clone(&engine), table.clone());
            let future = is_send(async move {
                let mut session = engine.async_session().unwrap();
                let key = SurrogateId(who);
                session.upsert(&table, key, &[who, 0]).await?;
                let inside = table.clone();
                let body = async move |transaction: &mut ancile::AsyncTransaction<'_>| {
                    transaction.update(&inside, key, &[who, 1]).await
                };
                session.transaction(body).await?;
                session.on(0, |_| Ok::<_, Error>(())).await?;
                session.select(&table, key).await
            });
            std::thread::spawn(move || block_on(future))
        })
        .collect();
    for (who, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), Ok(Some([who as u64, 1])));
    }
}
