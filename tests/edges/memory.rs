//! Out of memory: an error that names the bound, nothing half done, and work again after deletes.

use ancile::{
    ArenaFull, Batch, DirectId, Engine, Error, Outcome, Result, Schema, SurrogateId, Table, Verbs,
};

use super::support::{builder, watchdog};

const BOUND: u64 = 4 << 20;
const COLUMNS: usize = 64;

type Wide = [u64; COLUMNS];

/// A shard with little memory, and a table in it.
fn small(is_keyed: bool) -> (Engine, Table<Wide>) {
    let engine = builder(1).arena_bytes(BOUND).build().unwrap();
    let schema = Schema::cells(COLUMNS);
    let schema = if is_keyed { schema.keyed() } else { schema };
    let table = engine.create_table("t", schema).unwrap();
    (engine, table)
}

fn row(n: u64) -> Wide {
    [n; COLUMNS]
}

fn check_full(full: &ArenaFull) {
    assert_eq!(full.bound_bytes, BOUND);
    assert!(full.asked_bytes > 0 && full.used_bytes <= BOUND);
    assert!(full.used_bytes + full.asked_bytes > BOUND / 2, "{full}");
    assert!(full.to_string().contains(&BOUND.to_string()), "{full}");
}

/// Inserts one by one until there is no room; how many there are.
fn fill(client: &mut impl Verbs, table: &Table<Wide>) -> u64 {
    for n in 0.. {
        let result = match table.schema().is_keyed() {
            true => client.insert_keyed(table, SurrogateId(n), &row(n)),
            false => client.insert(table, &row(n)),
        };
        match result {
            Ok(_) => {}
            Err(Error::ArenaFull(full)) => {
                check_full(&full);
                return n;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("memory has an end")
}

/// Every row in the table, the smallest first.
fn content(client: &mut impl Verbs, table: &Table<Wide>) -> Vec<u64> {
    let mut content = Vec::new();
    let scanned = client.scan(table, |_, _, row: Wide| {
        assert_eq!(row, [row[0]; COLUMNS], "half a row");
        content.push(row[0]);
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    content.sort_unstable();
    assert_eq!(client.count(table), Ok(content.len() as u64));
    content
}

#[test]
fn full_arena_refuses_single_inserts_and_takes_them_again_after_deletes() {
    let _watchdog = watchdog(60);
    for is_keyed in [false, true] {
        let (engine, table) = small(is_keyed);
        let mut session = engine.session().unwrap();
        let count = fill(&mut session, &table);
        assert!(count > 1000, "{count} rows in {BOUND} bytes");
        let all: Vec<u64> = (0..count).collect();
        for _ in 0..3 {
            assert_eq!(content(&mut session, &table), all);
            let used = engine.used_bytes().unwrap();
            for _ in 0..3 {
                let again = match is_keyed {
                    true => session.insert_keyed(&table, SurrogateId(count), &row(count)),
                    false => session.insert(&table, &row(count)),
                };
                assert!(matches!(again, Err(Error::ArenaFull(_))), "{again:?}");
            }
            assert_eq!(engine.used_bytes().unwrap(), used, "nothing is kept");
            assert_eq!(content(&mut session, &table), all);
            // What asks for no memory still works.
            let mut ids = Vec::new();
            let scanned = session.scan(&table, |session, id, row: Wide| {
                assert_eq!(session.update(&table, id, &row), Ok(true));
                ids.push((row[0], id));
                std::ops::ControlFlow::Continue(())
            });
            scanned.unwrap();
            let half: Vec<_> = ids.iter().filter(|(n, _)| n % 2 == 0).collect();
            let places: Vec<_> = half.iter().map(|(_, id)| *id).collect();
            assert_eq!(session.delete_batch(&table, &places), Ok(places.len()));
            for &&(n, _) in &half {
                match is_keyed {
                    true => session.insert_keyed(&table, SurrogateId(n), &row(n)),
                    false => session.insert(&table, &row(n)),
                }
                .unwrap();
            }
        }
        engine.drop_table("t").unwrap();
        assert_eq!(engine.used_bytes().unwrap(), [0]);
        let schema = Schema::cells(COLUMNS);
        let again = engine.create_table("t", schema).unwrap();
        assert!(fill(&mut session, &again) > 1000);
    }
}

#[test]
fn upsert_in_a_full_arena_replaces_and_does_not_add() {
    let _watchdog = watchdog(60);
    let (engine, table) = small(true);
    let mut session = engine.session().unwrap();
    let count = fill(&mut session, &table);
    let added = session.upsert(&table, SurrogateId(count), &row(count));
    assert!(matches!(added, Err(Error::ArenaFull(_))), "{added:?}");
    let replaced = session.upsert(&table, SurrogateId(7), &row(7));
    assert_eq!(replaced, Ok(true));
    let duplicate = session.insert_keyed(&table, SurrogateId(7), &row(8));
    assert_eq!(duplicate, Err(Error::Duplicate { key: 7 }));
    assert_eq!(
        content(&mut session, &table),
        (0..count).collect::<Vec<_>>()
    );
}

#[test]
fn batches_in_a_full_arena_tell_of_each_operation_what_became_of_it() {
    let _watchdog = watchdog(60);
    let (engine, table) = small(true);
    let mut session = engine.session().unwrap();
    let count = fill(&mut session, &table);
    let keys: Vec<_> = (0..count + 50).map(SurrogateId).collect();
    let rows: Vec<_> = (0..count + 50).map(row).collect();
    match session.insert_keyed_batch(&table, &keys, &rows) {
        Err(Error::ArenaFull(full)) => check_full(&full),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        content(&mut session, &table),
        (0..count).collect::<Vec<_>>()
    );
    // Room for five, asked for by ten, in one batch and in one pipeline.
    for is_piped in [false, true] {
        let five: Vec<_> = (0..5).map(SurrogateId).collect();
        assert_eq!(session.delete_batch(&table, &five), Ok(5));
        let first = count + 100;
        let outcomes = if is_piped {
            let mut pipeline = session.pipeline::<_, SurrogateId>(&table);
            for n in first..first + 10 {
                pipeline.insert(SurrogateId(n), &row(n)).unwrap();
                pipeline.select(SurrogateId(n)).unwrap();
            }
            let mut outcomes = Vec::new();
            while let Some((_, outcome)) = pipeline.wait().unwrap() {
                outcomes.push(outcome);
            }
            outcomes
        } else {
            let mut batch = Batch::<_, SurrogateId>::new(&table, 20);
            for n in first..first + 10 {
                batch.insert(SurrogateId(n), &row(n)).unwrap();
                batch.select(SurrogateId(n)).unwrap();
            }
            session.run(&mut batch).unwrap();
            batch.outcomes().to_vec()
        };
        let mut added = 0;
        for (number, pair) in outcomes.chunks(2).enumerate() {
            match pair {
                [Outcome::Inserted(_), Outcome::Selected(found)] => {
                    assert_eq!(*found, row(first + number as u64));
                    added += 1;
                }
                [Outcome::Failed(Error::ArenaFull(full)), Outcome::NotFound] => check_full(full),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(added, 5);
        let added: Vec<_> = (first..first + 5).map(SurrogateId).collect();
        assert_eq!(session.delete_batch(&table, &added), Ok(5));
        let rows: Vec<_> = (0..5).map(row).collect();
        assert_eq!(session.insert_keyed_batch(&table, &five, &rows), Ok(5));
    }
    assert_eq!(
        content(&mut session, &table),
        (0..count).collect::<Vec<_>>()
    );
}

#[test]
fn unkeyed_batch_that_does_not_fit_tells_the_ids_of_the_rows_that_do() {
    let _watchdog = watchdog(60);
    let (engine, table) = small(false);
    let mut session = engine.session().unwrap();
    let mut ids = vec![DirectId::from_u64(7)];
    let rows: Vec<_> = (0..100_000).map(row).collect();
    match session.insert_batch(&table, &rows, &mut ids) {
        Err(Error::ArenaFull(full)) => check_full(&full),
        other => panic!("{other:?}"),
    }
    assert_eq!(ids.remove(0), DirectId::from_u64(7));
    assert!(ids.len() > 1000);
    assert_eq!(session.count(&table), Ok(ids.len() as u64));
    let found = session.select_batch(&table, &ids).unwrap();
    assert!(
        found.iter().all(Option::is_some),
        "those that did fit are whole"
    );
}

#[test]
fn transaction_that_meets_a_full_arena_is_undone() {
    let _watchdog = watchdog(60);
    for is_keyed in [false, true] {
        let (engine, table) = small(is_keyed);
        let mut session = engine.session().unwrap();
        let count = 1000;
        for n in 0..count {
            match is_keyed {
                true => session.insert_keyed(&table, SurrogateId(n), &row(n)),
                false => session.insert(&table, &row(n)),
            }
            .unwrap();
        }
        let before = content(&mut session, &table);
        for _ in 0..3 {
            let result: Result<()> = session.on(0, |context| {
                let mut rows = context.rows(&table)?;
                let ids: Vec<_> = rows.scan().map(|(id, _)| id).collect();
                for id in ids.iter().step_by(3) {
                    rows.delete(*id)?;
                }
                for id in ids.iter().skip(1).step_by(3) {
                    rows.update(*id, &row(77))?;
                }
                for n in count.. {
                    match is_keyed {
                        true => rows.insert_keyed(SurrogateId(n), &row(n))?,
                        false => rows.insert(&row(n))?,
                    };
                }
                Ok(())
            });
            match result {
                Err(Error::ArenaFull(full)) => check_full(&full),
                other => panic!("{other:?}"),
            }
            assert_eq!(content(&mut session, &table), before);
        }
        // All that memory is there again: the rows that the transaction had added fit.
        for n in count..2 * count {
            match is_keyed {
                true => session.insert_keyed(&table, SurrogateId(n), &row(n)),
                false => session.insert(&table, &row(n)),
            }
            .unwrap();
        }
        let all: Vec<_> = (0..2 * count).collect();
        assert_eq!(content(&mut session, &table), all);
    }
}

#[test]
fn transaction_of_a_million_changes_works() {
    let _watchdog = watchdog(60);
    let engine = builder(1).build().unwrap();
    let table = engine
        .create_table::<[u64; 1]>("t", Schema::cells(1))
        .unwrap();
    let mut session = engine.session().unwrap();
    let add = |session: &mut ancile::Session, is_kept: bool| {
        session.on(0, |context| {
            let mut rows = context.rows(&table)?;
            for n in 0..500_000 {
                let id = rows.insert(&[n])?;
                rows.update(id, &[n + 1])?;
            }
            if is_kept {
                Ok(())
            } else {
                Err(Error::KeyNeeded)
            }
        })
    };
    assert_eq!(add(&mut session, false), Err(Error::KeyNeeded));
    assert_eq!(session.count(&table), Ok(0));
    assert_eq!(add(&mut session, true), Ok(()));
    assert_eq!(session.count(&table), Ok(500_000));
}

#[test]
fn transaction_beyond_the_undo_log_names_a_bound_and_is_undone() {
    let _watchdog = watchdog(60);
    let engine = builder(1).build().unwrap();
    let table: Table<Vec<u64>> = engine.create_table("t", Schema::cells(1024)).unwrap();
    let mut session = engine.session().unwrap();
    let id = session.insert(&table, &vec![1; 1024]).unwrap();
    let result: Result<()> = session.on(0, |context| {
        let mut rows = context.rows(&table)?;
        for n in 0.. {
            rows.update(id, &vec![n; 1024])?;
        }
        Ok(())
    });
    match result {
        Err(Error::ArenaFull(full)) => {
            assert!(full.used_bytes <= full.bound_bytes, "{full:?}");
            assert!(
                full.used_bytes + full.asked_bytes > full.bound_bytes,
                "{full:?}"
            );
            assert!(full.bound_bytes >= 32 << 20, "{full:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(session.select(&table, id), Ok(Some(vec![1; 1024])));
    let result = session.on(0, |context| {
        context.rows(&table)?.update(id, &vec![2; 1024])
    });
    assert_eq!(result, Ok(true));
}
