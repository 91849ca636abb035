//! Wrong tables, widths, columns, ids and lengths: typed errors, or nothing found, and never
//! another row.

use ancile::{
    Batch, Compared, DirectId, Error, Outcome, Result, Schema, SurrogateId, Table, TableError,
    Verbs,
};

use super::support::{Random, engine, keyed, keys_of, unkeyed, watchdog};

type Wide = Vec<u64>;

/// Every verb of a client, once, with a key or an id, and what it answered.
fn every_verb(
    client: &mut impl Verbs,
    table: &Table<[u64; 2]>,
    id: DirectId,
) -> Vec<(&'static str, Result<()>)> {
    let key = SurrogateId(1);
    let row = [1, 2];
    let mut found = Vec::new();
    let mut note = |verb, result: Result<()>| found.push((verb, result));
    note("select", client.select(table, id).map(drop));
    note("update", client.update(table, id, &row).map(drop));
    note("delete", client.delete(table, id).map(drop));
    note(
        "select_columns",
        client.select_columns(table, id, &[0]).map(drop),
    );
    note(
        "update_columns",
        client.update_columns(table, id, &[(0, 1)]).map(drop),
    );
    note(
        "update_if",
        client.update_if(table, id, &[], &[(0, 1)]).map(drop),
    );
    note("select_each", client.select_each(table, &[id], |_, _| ()));
    note("select_batch", client.select_batch(table, &[id]).map(drop));
    note(
        "update_batch",
        client.update_batch(table, &[id], &[row]).map(drop),
    );
    note("delete_batch", client.delete_batch(table, &[id]).map(drop));
    note(
        "select_iter",
        client
            .select_iter(table, [id])
            .collect::<Result<Vec<_>>>()
            .map(drop),
    );
    note("count", client.count(table).map(drop));
    note(
        "scan",
        client.scan(table, |_, _, _| std::ops::ControlFlow::Continue(())),
    );
    note("on", client.on(0, |context| context.rows(table).map(drop)));
    let is_keyed = table.schema().is_keyed();
    if is_keyed {
        note(
            "insert_keyed",
            client.insert_keyed(table, key, &row).map(drop),
        );
        note("upsert", client.upsert(table, key, &row).map(drop));
        note(
            "insert_keyed_batch",
            client.insert_keyed_batch(table, &[key], &[row]).map(drop),
        );
        let mut batch = Batch::<_, SurrogateId>::new(table, 1);
        batch.upsert(key, &row).unwrap();
        note("run", client.run(&mut batch));
    } else {
        note("insert", client.insert(table, &row).map(drop));
        note(
            "insert_batch",
            client.insert_batch(table, &[row], &mut Vec::new()),
        );
        let mut batch = Batch::<_, DirectId>::new(table, 1);
        batch.insert(&row).unwrap();
        note("run", client.run(&mut batch));
    }
    let mut pipeline = client.pipeline::<_, DirectId>(table);
    let piped = pipeline.select(id).and_then(|_| match pipeline.wait()? {
        Some((_, Outcome::Failed(error))) => Err(error),
        _ => Ok(()),
    });
    note("pipeline", piped);
    found
}

fn assert_all(answers: &[(&str, Result<()>)], expected: &Result<()>) {
    for (verb, answer) in answers {
        assert_eq!(answer, expected, "{verb}");
    }
}

#[test]
fn every_verb_on_a_dropped_or_foreign_table_says_table_gone() {
    let _watchdog = watchdog(60);
    let (ours, other) = (engine(2), engine(3));
    for is_keyed in [false, true] {
        let make = if is_keyed { keyed } else { unkeyed };
        let (dropped, foreign) = (make(&ours, "t"), make(&other, "t"));
        let mut session = ours.session().unwrap();
        let id = if is_keyed {
            session
                .insert_keyed(&dropped, SurrogateId(5), &[1, 1])
                .unwrap()
        } else {
            session.insert(&dropped, &[1, 1]).unwrap()
        };
        ours.drop_table("t").unwrap();
        // A table of the same name, in the same place, is another table.
        let again = make(&ours, "t");
        for table in [&dropped, &foreign] {
            assert_all(&every_verb(&mut session, table, id), &Err(Error::TableGone));
            let table = table.clone();
            let task = ours.spawn(0, move |resident| {
                assert_eq!(resident.rows(&table).err(), Some(Error::TableGone));
                every_verb(resident, &table, id)
            });
            let answers = task.unwrap().join().unwrap();
            assert_all(&answers, &Err(Error::TableGone));
        }
        assert_eq!(session.count(&again).unwrap(), 0);
        assert_all(&every_verb(&mut session, &again, id), &Ok(()));
        ours.drop_table("t").unwrap();
        other.drop_table("t").unwrap();
    }
}

#[test]
fn inserts_without_keys_into_a_dropped_keyed_table_say_table_gone() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "t");
    let mut session = engine.session().unwrap();
    for expected in [Error::KeyNeeded, Error::TableGone] {
        for rows in [&[][..], &[[1, 2]]] {
            let inserted = session.insert_batch(&table, rows, &mut Vec::new());
            assert_eq!(inserted, Err(expected.clone()));
        }
        let inserted = session.insert(&table, &[1, 2]);
        assert_eq!(inserted, Err(expected));
        // Gone for the second round.
        let _ = engine.drop_table("t");
    }
}

#[test]
fn every_verb_after_close_says_closed() {
    let _watchdog = watchdog(60);
    for is_keyed in [false, true] {
        for is_used_before in [false, true] {
            let engine = engine(2);
            let table = if is_keyed { keyed } else { unkeyed }(&engine, "t");
            let mut session = engine.session().unwrap();
            if is_used_before {
                let answers = every_verb(&mut session, &table, DirectId::from_u64(1));
                assert_all(&answers, &Ok(()));
            }
            engine.close().unwrap();
            for id in [DirectId::from_u64(1), DirectId::from_u64(u64::MAX)] {
                let answers = every_verb(&mut session, &table, id);
                assert_all(&answers, &Err(Error::Closed));
            }
        }
    }
}

#[test]
fn any_number_as_a_direct_id_is_harmless() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let keyed = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    let mut random = Random::seeded();
    let mut ids = vec![
        DirectId::from_u64(0),
        DirectId::from_u64(u64::MAX),
        DirectId::from_u64(2 << 54),
        DirectId::from_u64(1023 << 54 | 1),
        DirectId::from_u64(u64::MAX >> 10),
    ];
    ids.extend((0..500).map(|_| DirectId::from_u64(random.next() | 1 << 63)));
    let row = [3, 3];
    let mut known = Vec::new();
    session
        .insert_batch(&table, &[[7, 7]; 100], &mut known)
        .unwrap();
    session.insert_keyed(&keyed, SurrogateId(1), &row).unwrap();
    for table in [&table, &keyed] {
        let count = session.count(table).unwrap();
        for &id in &ids {
            assert_eq!(session.select(table, id), Ok(None), "{id:?}");
            assert_eq!(session.update(table, id, &row), Ok(false), "{id:?}");
            assert_eq!(session.delete(table, id), Ok(false), "{id:?}");
            assert_eq!(session.select_columns(table, id, &[1]), Ok(None), "{id:?}");
            assert_eq!(session.update_columns(table, id, &[(1, 1)]), Ok(false));
            assert_eq!(
                session.update_if(table, id, &[], &[]),
                Ok(Compared::NotFound)
            );
        }
        let rows = session.select_batch(table, &ids).unwrap();
        assert!(rows.iter().all(Option::is_none));
        assert_eq!(session.delete_batch(table, &ids), Ok(0));
        assert_eq!(session.count(table), Ok(count));
    }
    // Among good ids a bad one spoils nothing.
    let mut mixture = known.clone();
    mixture.insert(50, DirectId::from_u64(u64::MAX));
    let found = session.select_batch(&table, &mixture).unwrap();
    assert_eq!(found.iter().flatten().count(), 100);
    let mut batch = Batch::new(&table, 101);
    mixture.iter().for_each(|&id| batch.select(id).unwrap());
    session.run(&mut batch).unwrap();
    for (at, outcome) in batch.outcomes().iter().enumerate() {
        let expected = if at == 50 {
            Outcome::NotFound
        } else {
            Outcome::Selected([7, 7])
        };
        assert_eq!(*outcome, expected);
    }
    let task = engine.spawn(1, move |resident| {
        let rows = resident.rows(&table).unwrap().followed_by(&ids);
        assert!(ids.iter().all(|&id| rows.select(id).is_none()));
        ids.iter()
            .all(|&id| resident.select(&table, id) == Ok(None))
    });
    assert!(task.unwrap().join().unwrap());
}

#[test]
fn rows_of_another_shard_are_not_found_in_this_one() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mine = |shard: usize, table: Table<[u64; 2]>| {
        let task = engine.spawn(shard, move |resident| {
            let mut rows = resident.rows(&table).unwrap();
            let owner = resident_row(shard);
            (0..10)
                .map(|_| rows.insert(&owner).unwrap())
                .collect::<Vec<_>>()
        });
        task.unwrap().join().unwrap()
    };
    let (zero, one) = (mine(0, table.clone()), mine(1, table.clone()));
    let task = engine.spawn(1, move |resident| {
        let mut rows = resident.rows(&table).unwrap();
        for &id in &zero {
            assert_eq!(rows.select(id), None, "{id:?} is a row of shard 0");
            assert_eq!(rows.update(id, &[9, 9]), Ok(false));
            assert_eq!(rows.update_columns(id, &[(0, 9)]), Ok(false));
            assert_eq!(rows.delete(id), Ok(false));
        }
        rows.select_each(&zero, |_, row| assert_eq!(row, None));
        assert_eq!(rows.update_batch(&zero, &[[9, 9]; 10]), Ok(0));
        assert_eq!(rows.delete_batch(&zero), Ok(0));
        one.iter()
            .all(|&id| rows.select(id) == Some(resident_row(1)))
    });
    assert!(task.unwrap().join().unwrap());
}

#[test]
fn announcements_that_do_not_come_true_are_harmless() {
    let _watchdog = watchdog(60);
    let engine = engine(1);
    let (table, keyed) = (unkeyed(&engine, "t"), keyed(&engine, "k"));
    let task = engine.spawn(0, move |resident| {
        let mut ids = Vec::new();
        resident
            .insert_batch(&table, &[[1, 1]; 500], &mut ids)
            .unwrap();
        let keys: Vec<_> = (0..500).map(SurrogateId).collect();
        let mut random = Random::seeded();
        for round in 0..40 {
            let garbage: Vec<_> = (0..100).map(|_| SurrogateId(random.next())).collect();
            let places: Vec<_> = garbage
                .iter()
                .map(|key| DirectId::from_u64(key.0))
                .collect();
            let rows = vec![[round, round]; 500];
            // Announced and not come, come and not announced, ids of the other kind.
            let mut here = resident.rows(&keyed).unwrap().followed_by(&garbage);
            assert_eq!(here.insert_keyed_batch(&keys, &rows), Ok(500));
            let mut here = resident.rows(&keyed).unwrap().followed_by(&places);
            here.select_each(&keys, |_, row| assert_eq!(row, Some(&[round, round])));
            let mut here = resident.rows(&keyed).unwrap().followed_by(&keys);
            here.select_each(&garbage, |_, row| assert_eq!(row, None));
            let mut here = resident.rows(&keyed).unwrap();
            assert_eq!(here.delete_batch(&keys), Ok(500));
            let mut here = resident.rows(&table).unwrap().followed_by(&garbage);
            assert_eq!(here.update_batch(&ids, &rows), Ok(500));
            here = resident.rows(&table).unwrap().followed_by(&places);
            here.select_each(&ids, |_, row| assert_eq!(row, Some(&[round, round])));
        }
        resident.count(&keyed).unwrap() + resident.count(&table).unwrap()
    });
    assert_eq!(task.unwrap().join(), Ok(500));
}

fn resident_row(shard: usize) -> [u64; 2] {
    [shard as u64; 2]
}

#[test]
fn stale_direct_id_finds_nothing_when_its_place_is_used_again() {
    let _watchdog = watchdog(60);
    let engine = engine(1);
    for table in [unkeyed(&engine, "t"), keyed(&engine, "k")] {
        let mut session = engine.session().unwrap();
        let insert = |session: &mut ancile::Session, n: u64| {
            if table.schema().is_keyed() {
                session
                    .insert_keyed(&table, SurrogateId(n), &[n, n])
                    .unwrap()
            } else {
                session.insert(&table, &[n, n]).unwrap()
            }
        };
        let mut stale = Vec::new();
        for n in 0..300 {
            let id = insert(&mut session, n);
            assert!(!stale.contains(&id), "an id is given out twice");
            let found = session.select_batch(&table, &stale).unwrap();
            assert!(found.iter().all(Option::is_none), "a stale id finds {n}");
            assert_eq!(
                session.update_batch(&table, &stale, &vec![[0, 0]; stale.len()]),
                Ok(0)
            );
            assert_eq!(session.delete_batch(&table, &stale), Ok(0));
            assert_eq!(session.select(&table, id), Ok(Some([n, n])));
            assert_eq!(session.delete(&table, id), Ok(true));
            stale.push(id);
        }
    }
}

#[test]
fn duplicate_key_is_refused_alike_by_every_way_of_inserting() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    let keys: Vec<_> = (0..100).map(SurrogateId).collect();
    let old = vec![[1, 1]; 100];
    let new = vec![[2, 2]; 100];
    assert_eq!(session.insert_keyed_batch(&table, &keys, &old), Ok(100));
    for &key in &keys {
        let error = Error::Duplicate { key: key.0 };
        assert_eq!(session.insert_keyed(&table, key, &[2, 2]), Err(error));
    }
    assert_eq!(session.insert_keyed_batch(&table, &keys, &new), Ok(0));
    let mut batch = Batch::<_, SurrogateId>::new(&table, 200);
    let mut pipeline = session.pipeline::<_, SurrogateId>(&table);
    for &key in &keys {
        batch.insert(key, &[2, 2]).unwrap();
        batch.select(key).unwrap();
        pipeline.insert(key, &[2, 2]).unwrap();
    }
    let mut answers = 0;
    while let Some((ticket, outcome)) = pipeline.wait().unwrap() {
        let duplicate = Error::Duplicate { key: ticket.0 };
        assert_eq!(outcome, Outcome::Failed(duplicate));
        answers += 1;
    }
    assert_eq!(answers, 100);
    drop(pipeline);
    session.run(&mut batch).unwrap();
    for (at, outcome) in batch.outcomes().iter().enumerate() {
        let duplicate = Outcome::Failed(Error::Duplicate { key: at as u64 / 2 });
        let expected = [duplicate, Outcome::Selected([1, 1])];
        assert_eq!(*outcome, expected[at % 2]);
    }
    for shard in 0..2 {
        let key = keys_of(&engine, &table, shard).next().unwrap();
        let result = session.on(shard, |context| {
            context.rows(&table)?.insert_keyed(key, &[2, 2]).map(drop)
        });
        assert_eq!(result, Err(Error::Duplicate { key: key.0 }));
    }
    assert_eq!(session.count(&table), Ok(100));
    let rows = session.select_batch(&table, &keys).unwrap();
    assert!(rows.into_iter().all(|row| row == Some([1, 1])));
}

#[test]
fn key_that_comes_twice_in_one_batch_is_inserted_once_and_upserted_twice() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    // Near enough to be in one block, and far enough apart not to be.
    for distance in [1, 40, 200] {
        let keys: Vec<_> = (0..distance).chain(0..distance).map(SurrogateId).collect();
        let rows: Vec<_> = (0..2 * distance).map(|n| [n / distance, 0]).collect();
        let inserted = session.insert_keyed_batch(&table, &keys, &rows).unwrap();
        assert_eq!(inserted as u64, distance);
        let found = session.select_batch(&table, &keys).unwrap();
        assert!(found.iter().all(|&row| row == Some([0, 0])));

        let mut batch = Batch::<_, SurrogateId>::new(&table, 4);
        for &key in &keys[..distance as usize] {
            batch.delete(key).unwrap();
            batch.upsert(key, &[5, 0]).unwrap();
            batch.upsert(key, &[6, 0]).unwrap();
            batch.select(key).unwrap();
            batch.insert(key, &[7, 0]).unwrap();
            batch.delete(key).unwrap();
            batch.select(key).unwrap();
        }
        session.run(&mut batch).unwrap();
        let outcomes: Vec<_> = batch.outcomes().to_vec();
        for (number, outcomes) in outcomes.chunks(7).enumerate() {
            assert_eq!(outcomes[0], Outcome::Deleted);
            assert!(matches!(outcomes[1], Outcome::Inserted(_)));
            assert_eq!(outcomes[2], Outcome::Updated);
            assert_eq!(outcomes[3], Outcome::Selected([6, 0]));
            let duplicate = Error::Duplicate { key: number as u64 };
            assert_eq!(outcomes[4], Outcome::Failed(duplicate));
            assert_eq!(outcomes[5], Outcome::Deleted);
            assert_eq!(outcomes[6], Outcome::NotFound);
        }
        assert_eq!(session.count(&table), Ok(0));
    }
}

#[test]
fn rows_of_the_wrong_width_are_refused_by_every_verb() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table: Table<Wide> = engine.create_table("t", Schema::cells(3)).unwrap();
    let keyed: Table<Wide> = engine.create_table("k", Schema::cells(3).keyed()).unwrap();
    let mut session = engine.session().unwrap();
    let (good, key) = (vec![1, 2, 3], SurrogateId(1));
    let id = session.insert(&table, &good).unwrap();
    session.insert_keyed(&keyed, key, &good).unwrap();
    for given in [0, 1, 2, 4, 1025] {
        let bad = vec![9; given];
        let error = Error::Width { given, columns: 3 };
        let wrong = |result: Result<()>| assert_eq!(result, Err(error.clone()));
        let pair = [good.clone(), bad.clone()];
        wrong(session.insert(&table, &bad).map(drop));
        wrong(session.update(&table, id, &bad).map(drop));
        wrong(session.update_batch(&table, &[id, id], &pair).map(drop));
        wrong(session.insert_batch(&table, &pair, &mut Vec::new()));
        wrong(session.insert_keyed(&keyed, SurrogateId(2), &bad).map(drop));
        wrong(session.upsert(&keyed, key, &bad).map(drop));
        let keys = [SurrogateId(3), SurrogateId(4)];
        wrong(session.insert_keyed_batch(&keyed, &keys, &pair).map(drop));
        let mut batch = Batch::<_, DirectId>::new(&table, 1);
        wrong(batch.insert(&bad));
        wrong(batch.update(id, &bad));
        assert!(batch.is_empty());
        let mut batch = Batch::<_, SurrogateId>::new(&keyed, 1);
        wrong(batch.insert(key, &bad));
        wrong(batch.upsert(key, &bad));
        wrong(batch.update(key, &bad));
        assert!(batch.is_empty());
        let mut pipeline = session.pipeline::<_, DirectId>(&table);
        wrong(pipeline.insert(&bad).map(drop));
        wrong(pipeline.update(id, &bad).map(drop));
        assert_eq!(pipeline.outstanding(), 0);
        drop(pipeline);
        let mut pipeline = session.pipeline::<_, SurrogateId>(&keyed);
        wrong(pipeline.insert(key, &bad).map(drop));
        wrong(pipeline.upsert(key, &bad).map(drop));
        assert_eq!(pipeline.wait(), Ok(None));
        drop(pipeline);
        let owner = engine.spawn(id.shard(), {
            let (table, bad) = (table.clone(), bad.clone());
            move |resident| {
                let mut rows = resident.rows(&table).unwrap();
                let pair = [vec![4, 5, 6], bad.clone()];
                let batch = rows.update_batch(&[id, id], &pair);
                [
                    rows.insert(&bad).map(drop),
                    rows.update(id, &bad).map(drop),
                    batch.map(drop),
                ]
            }
        });
        owner.unwrap().join().unwrap().into_iter().for_each(wrong);
    }
    assert_eq!(session.count(&table), Ok(1));
    assert_eq!(session.count(&keyed), Ok(1));
    assert_eq!(session.select(&table, id), Ok(Some(good.clone())));
    assert_eq!(session.select(&keyed, key), Ok(Some(good)));
}

#[test]
fn column_that_is_not_there_is_refused_and_nothing_is_set() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    let id = session.insert(&table, &[1, 2]).unwrap();
    for column in [2, 3, usize::MAX] {
        let error = Error::Column { column, columns: 2 };
        let set = [(0, 9), (column, 9)];
        assert_eq!(
            session.select_columns(&table, id, &[0, column]),
            Err(error.clone())
        );
        assert_eq!(session.update_columns(&table, id, &set), Err(error.clone()));
        assert_eq!(
            session.update_if(&table, id, &[(column, 1)], &[(0, 9)]),
            Err(error.clone())
        );
        assert_eq!(
            session.update_if(&table, id, &[(0, 1)], &set),
            Err(error.clone())
        );
        let result = session.on(id.shard(), |context| {
            context.rows(&table)?.update_columns(id, &[(1, 9)])?;
            context.rows(&table)?.update_columns(id, &set)
        });
        assert_eq!(result, Err(error));
        assert_eq!(session.select(&table, id), Ok(Some([1, 2])));
    }
    assert_eq!(session.select_columns(&table, id, &[]), Ok(Some(vec![])));
    assert_eq!(
        session.select_columns(&table, id, &[1, 1, 0]),
        Ok(Some(vec![2, 2, 1]))
    );
    assert_eq!(session.update_columns(&table, id, &[]), Ok(true));
    assert_eq!(
        session.update_columns(&table, id, &[(0, 4), (0, 5)]),
        Ok(true)
    );
    assert_eq!(
        session.update_if(&table, id, &[], &[(1, 6)]),
        Ok(Compared::Updated)
    );
    assert_eq!(
        session.update_if(&table, id, &[(0, 4)], &[(1, 7)]),
        Ok(Compared::Differs)
    );
    assert_eq!(session.select(&table, id), Ok(Some([5, 6])));
}

#[test]
fn slices_of_different_lengths_are_refused_and_empty_ones_do_nothing() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keyed) = (unkeyed(&engine, "t"), keyed(&engine, "k"));
    let mut session = engine.session().unwrap();
    let id = session.insert(&table, &[1, 2]).unwrap();
    let keys = [SurrogateId(1), SurrogateId(2)];
    for (left, right) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let lengths = |what| Error::Lengths { what, left, right };
        let (ids, rows) = (vec![id; left], vec![[7, 7]; right]);
        let updated = session.update_batch(&table, &ids, &rows);
        assert_eq!(updated, Err(lengths("ids and rows")));
        let inserted = session.insert_keyed_batch(&keyed, &keys[..left], &rows);
        assert_eq!(inserted, Err(lengths("keys and rows")));
        let here = session.on(id.shard(), |context| {
            context.rows(&table)?.update_batch(&ids, &rows)
        });
        assert_eq!(here, Err(lengths("ids and rows")));
    }
    assert_eq!(session.update_batch::<_, DirectId>(&table, &[], &[]), Ok(0));
    assert_eq!(session.delete_batch::<_, DirectId>(&table, &[]), Ok(0));
    assert_eq!(session.select_batch::<_, DirectId>(&table, &[]), Ok(vec![]));
    assert_eq!(session.insert_keyed_batch(&keyed, &[], &[]), Ok(0));
    assert_eq!(session.insert_batch(&table, &[], &mut Vec::new()), Ok(()));
    assert_eq!(
        session.run(&mut Batch::<_, DirectId>::new(&table, 0)),
        Ok(())
    );
    assert_eq!(session.select_iter(&table, [] as [DirectId; 0]).count(), 0);
    assert_eq!(session.pipeline::<_, DirectId>(&table).wait(), Ok(None));
    assert_eq!(session.select(&table, id), Ok(Some([1, 2])));
    assert_eq!(
        (session.count(&table), session.count(&keyed)),
        (Ok(1), Ok(0))
    );
}

#[test]
fn keyed_verbs_on_unkeyed_tables_and_the_reverse_are_refused() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keyed) = (unkeyed(&engine, "t"), keyed(&engine, "k"));
    let mut session = engine.session().unwrap();
    let (key, row) = (SurrogateId(1), [1, 2]);
    let not_keyed = |result: Result<()>| assert_eq!(result, Err(Error::NotKeyed));
    let key_needed = |result: Result<()>| assert_eq!(result, Err(Error::KeyNeeded));
    not_keyed(session.insert_keyed(&table, key, &row).map(drop));
    not_keyed(session.upsert(&table, key, &row).map(drop));
    not_keyed(session.select(&table, key).map(drop));
    not_keyed(session.update(&table, key, &row).map(drop));
    not_keyed(session.delete(&table, key).map(drop));
    not_keyed(session.select_columns(&table, key, &[0]).map(drop));
    not_keyed(session.update_columns(&table, key, &[(0, 1)]).map(drop));
    not_keyed(session.update_if(&table, key, &[], &[(0, 1)]).map(drop));
    not_keyed(session.select_batch(&table, &[key]).map(drop));
    not_keyed(session.insert_keyed_batch(&table, &[key], &[row]).map(drop));
    not_keyed(Batch::new(&table, 1).select(key));
    not_keyed(Batch::<_, SurrogateId>::new(&table, 1).insert(key, &row));
    not_keyed(Batch::new(&table, 1).upsert(key, &row));
    not_keyed(session.pipeline(&table).select(key).map(drop));
    not_keyed(
        session
            .pipeline::<_, SurrogateId>(&table)
            .insert(key, &row)
            .map(drop),
    );
    key_needed(session.insert(&keyed, &row).map(drop));
    key_needed(session.insert_batch(&keyed, &[row], &mut Vec::new()));
    key_needed(Batch::<_, DirectId>::new(&keyed, 1).insert(&row));
    key_needed(
        session
            .pipeline::<_, DirectId>(&keyed)
            .insert(&row)
            .map(drop),
    );
    let owner = engine.shard_of(&table, key);
    session
        .on(owner, |context| {
            let mut rows = context.rows(&table)?;
            not_keyed(rows.insert_keyed(key, &row).map(drop));
            not_keyed(rows.upsert(key, &row).map(drop));
            not_keyed(rows.update(key, &row).map(drop));
            not_keyed(rows.delete(key).map(drop));
            not_keyed(rows.select_columns(key, &[0]).map(drop));
            not_keyed(rows.update_columns(key, &[(0, 1)]).map(drop));
            not_keyed(rows.update_if(key, &[], &[(0, 1)]).map(drop));
            not_keyed(rows.insert_keyed_batch(&[key], &[row]).map(drop));
            not_keyed(rows.update_batch(&[key], &[row]).map(drop));
            not_keyed(rows.delete_batch(&[key]).map(drop));
            key_needed(context.rows(&keyed)?.insert(&row).map(drop));
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(
        (session.count(&table), session.count(&keyed)),
        (Ok(0), Ok(0))
    );
    // A row of a keyed table has a place, too.
    let id = session.insert_keyed(&keyed, key, &row).unwrap();
    assert_eq!(session.select(&keyed, id), Ok(Some(row)));
    assert_eq!(session.delete(&keyed, id), Ok(true));
    assert_eq!(session.select(&keyed, key), Ok(None));
}

#[test]
fn shard_that_is_not_there_is_named() {
    let engine = engine(2);
    let mut session = engine.session().unwrap();
    for shard in [2, 1024, usize::MAX] {
        let error = Error::Shard { shard, shards: 2 };
        assert_eq!(
            session.on(shard, |_| Ok::<_, Error>(())),
            Err(error.clone())
        );
        assert_eq!(engine.spawn(shard, |_| ()).err(), Some(error));
    }
}

#[test]
fn tables_that_cannot_be_are_refused_and_leave_nothing() {
    let engine = engine(2);
    let long = "n".repeat(256);
    let create = |name: &str, schema| engine.create_table::<Wide>(name, schema).unwrap_err();
    assert!(matches!(create("", Schema::cells(1)), TableError::Name(_)));
    assert!(matches!(
        create(&long, Schema::cells(1)),
        TableError::Name(_)
    ));
    assert_eq!(create("t", Schema::cells(0)), TableError::Columns(0));
    assert_eq!(create("t", Schema::cells(1025)), TableError::Columns(1025));
    assert_eq!(
        create("t", Schema::cells(usize::MAX)),
        TableError::Columns(1025)
    );
    let twice = Schema::cells(1).column("c0", ancile::Kind::U64);
    assert_eq!(create("t", twice), TableError::ColumnTwice("c0".to_owned()));
    let narrow = engine.create_table::<[u64; 2]>("t", Schema::cells(3));
    assert!(matches!(narrow.unwrap_err(), TableError::Shape { .. }));
    assert!(engine.tables().is_empty());
    engine.create_table::<Wide>("t", Schema::cells(3)).unwrap();
    assert_eq!(
        create("t", Schema::cells(3)),
        TableError::Exists("t".to_owned())
    );
    let opened = engine.open_table::<[u64; 2]>("t");
    assert!(matches!(opened.unwrap_err(), TableError::Shape { .. }));
    let missing = TableError::Missing("u".to_owned());
    assert_eq!(engine.open_table::<Wide>("u").unwrap_err(), missing);
    assert_eq!(engine.drop_table("u").unwrap_err(), missing);
    assert_eq!(engine.tables().len(), 1);
    assert!(engine.used_bytes().unwrap().iter().all(|&bytes| bytes == 0));
}

#[test]
fn any_expectation_of_rows_makes_a_table_or_says_arena_full() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    for rows in [0, 1, 1000, 1 << 33, u64::MAX / 10, u64::MAX] {
        let schema = Schema::cells(1).keyed().expect_rows(rows);
        match engine.create_table::<[u64; 1]>("t", schema) {
            Ok(_) => {
                assert!(rows <= 1000, "{rows} rows do not fit 64 MiB");
                engine.drop_table("t").unwrap();
            }
            Err(TableError::ArenaFull { full, .. }) => {
                assert_eq!(full.bound_bytes, 64 << 20);
                assert!(rows > 1000, "{rows} rows fit 64 MiB");
            }
            Err(error) => panic!("{rows} rows: {error}"),
        }
        assert_eq!(engine.used_bytes().unwrap(), [0, 0], "after {rows} rows");
    }
}

#[test]
fn batch_that_is_run_again_does_the_same_operations() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "t");
    let mut session = engine.session().unwrap();
    let mut batch = Batch::<_, SurrogateId>::new(&table, 3);
    batch.upsert(SurrogateId(1), &[1, 0]).unwrap();
    batch.upsert(SurrogateId(2), &[2, 0]).unwrap();
    session.run(&mut batch).unwrap();
    assert!(matches!(
        batch.outcomes(),
        [Outcome::Inserted(_), Outcome::Inserted(_)]
    ));
    session.run(&mut batch).unwrap();
    assert_eq!(batch.outcomes(), [Outcome::Updated, Outcome::Updated]);
    assert_eq!(session.count(&table), Ok(2));
}

#[test]
fn thousands_of_tables_are_created_and_their_places_used_again() {
    let _watchdog = watchdog(120);
    let engine = engine(1);
    for round in 0..2 {
        for number in 0..3_000 {
            unkeyed(&engine, &format!("t{number}"));
        }
        assert_eq!(engine.tables().len(), 3_000, "round {round}");
        for number in 0..3_000 {
            engine.drop_table(&format!("t{number}")).unwrap();
        }
    }
    assert_eq!(engine.tables().len(), 0);
}
