//! A session whose last use did not come to its end: a pipeline forgotten, a visitor that panicked.
//! What was left behind must not be taken for the answers of what comes next.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ancile::{DirectId, Outcome, Schema, SurrogateId, Table, Verbs};

use super::support::{Pair, engine, keyed, unkeyed, watchdog};

/// Leaves operations behind in every state: open, under way, answered.
fn forget(client: &mut impl Verbs, table: &Table<Pair>, operations: u64, is_flushed: bool) {
    let mut pipeline = client.pipeline(table);
    for n in 0..operations {
        pipeline.upsert(SurrogateId(1 << 40 | n), &[5, 5]).unwrap();
    }
    if is_flushed {
        pipeline.flush().unwrap();
    }
    std::mem::forget(pipeline);
}

/// Uses a client as if nothing had happened.
fn use_normally(client: &mut impl Verbs, keyed: &Table<Pair>, wide: &Table<[u64; 9]>) {
    let keys: Vec<_> = (0..300).map(SurrogateId).collect();
    let rows: Vec<Pair> = (0..300).map(|n| [n, n]).collect();
    assert_eq!(client.insert_keyed_batch(keyed, &keys, &rows), Ok(300));
    let found = client.select_batch(keyed, &keys).unwrap();
    assert!(
        found
            .iter()
            .zip(&rows)
            .all(|(found, row)| *found == Some(*row))
    );
    assert_eq!(client.count(wide), Ok(0));
    let mut ids = Vec::new();
    client.insert_batch(wide, &[[4; 9]; 200], &mut ids).unwrap();
    assert_eq!(client.count(wide), Ok(200));
    let mut pipeline = client.pipeline::<_, DirectId>(wide);
    for &id in &ids {
        pipeline.delete(id).unwrap();
    }
    let mut completed = 0;
    while let Some((_, outcome)) = pipeline.wait().unwrap() {
        assert_eq!(outcome, Outcome::Deleted);
        completed += 1;
    }
    assert_eq!(completed, 200);
    drop(pipeline);
    assert_eq!(client.delete_batch(keyed, &keys), Ok(300));
}

#[test]
fn forgotten_pipeline_does_not_disturb_what_comes_next() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let wide = engine
        .create_table::<[u64; 9]>("w", Schema::cells(9))
        .unwrap();
    for operations in [1, 3, 64, 200, 5000] {
        for is_flushed in [false, true] {
            let mut session = engine.session().unwrap();
            forget(&mut session, &table, operations, is_flushed);
            use_normally(&mut session, &table, &wide);
            forget(&mut session, &table, operations, is_flushed);
            let (table, wide) = (table.clone(), wide.clone());
            let task = engine.spawn(0, move |resident| {
                forget(resident, &table, operations, is_flushed);
                use_normally(resident, &table, &wide);
                forget(resident, &table, operations, is_flushed);
            });
            task.unwrap().join().unwrap();
        }
    }
}

#[test]
fn pipeline_dropped_inside_a_shard_does_not_disturb_what_comes_next() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let wide = engine
        .create_table::<[u64; 9]>("w", Schema::cells(9))
        .unwrap();
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let mut pipeline = session.pipeline(&table);
    for n in 0..100 {
        pipeline.upsert(SurrogateId(1 << 40 | n), &[5, 5]).unwrap();
    }
    let dropped = other.on(0, move |_| {
        drop(pipeline);
        Ok::<_, ancile::Error>(())
    });
    dropped.unwrap();
    use_normally(&mut session, &table, &wide);
}

#[test]
fn visitor_that_panics_does_not_disturb_what_comes_next() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let wide = engine
        .create_table::<[u64; 9]>("w", Schema::cells(9))
        .unwrap();
    let ids: Vec<_> = (0..1000).map(SurrogateId).collect();
    for last in [0, 1, 100, 999] {
        let visit = |client: &mut ancile::Session| {
            let mut visited = 0;
            catch_unwind(AssertUnwindSafe(|| {
                client.select_each(&table, &ids, |_, _| {
                    assert!(visited < last, "enough");
                    visited += 1;
                })
            }))
        };
        let mut session = engine.session().unwrap();
        assert!(visit(&mut session).is_err());
        use_normally(&mut session, &table, &wide);
        let inside = (table.clone(), wide.clone(), ids.clone());
        let task = engine.spawn(1, move |resident| {
            let (table, wide, ids) = inside;
            let mut visited = 0;
            let result = catch_unwind(AssertUnwindSafe(|| {
                resident.select_each(&table, &ids, |_, _| {
                    assert!(visited < last, "enough");
                    visited += 1;
                })
            }));
            assert!(result.is_err());
            use_normally(resident, &table, &wide);
        });
        task.unwrap().join().unwrap();
        // And what a task leaves behind is not the next task's.
        let leaving = (table.clone(), ids.clone());
        let task = engine.spawn(1, move |resident| {
            resident.select_each(&leaving.0, &leaving.1, |_, _| panic!("at once"))
        });
        assert!(task.unwrap().join().is_err());
        let inside = (table.clone(), wide.clone());
        let task = engine.spawn(1, move |resident| {
            use_normally(resident, &inside.0, &inside.1)
        });
        task.unwrap().join().unwrap();
    }
}

#[test]
fn session_that_is_forgotten_holds_nobody_up() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    for _ in 0..10 {
        let mut session = engine.session().unwrap();
        session.insert(&table, &[1, 1]).unwrap();
        std::mem::forget(session);
    }
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(10));
    engine.close().unwrap();
}
