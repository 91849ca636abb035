//! Scans while the table changes, and what order of operations a reader can rely on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use ancile::{Batch, DirectId, Error, Outcome, SurrogateId, Verbs};

use super::support::{Pair, builder, engine, keyed, keys_of, unkeyed, watchdog};

#[test]
fn visitor_of_a_scan_may_update_and_delete_what_it_visits() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    let rows: Vec<_> = (0..20_000).map(|n| [n, 0]).collect();
    session
        .insert_batch(&table, &rows, &mut Vec::new())
        .unwrap();
    let mut visited = BTreeSet::new();
    let scanned = session.scan(&table, |session, id, row| {
        assert!(visited.insert(row[0]), "{} is visited twice", row[0]);
        match row[0] % 2 {
            0 => assert_eq!(session.update(&table, id, &[row[0], 1]), Ok(true)),
            _ => assert_eq!(session.delete(&table, id), Ok(true)),
        }
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(visited.len(), 20_000);
    assert_eq!(session.count(&table), Ok(10_000));
    let mut left = 0;
    let scanned = session.scan(&table, |_, _, row| {
        assert_eq!((row[0] % 2, row[1]), (0, 1));
        left += 1;
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(left, 10_000);
}

#[test]
fn scan_ends_although_its_visitor_inserts() {
    let _watchdog = watchdog(60);
    for is_keyed in [false, true] {
        let engine = engine(2);
        let table = if is_keyed { keyed } else { unkeyed }(&engine, "t");
        let mut session = engine.session().unwrap();
        let insert = |session: &mut ancile::Session, n: u64| match is_keyed {
            true => session
                .insert_keyed(&table, SurrogateId(n), &[n, 0])
                .unwrap(),
            false => session.insert(&table, &[n, 0]).unwrap(),
        };
        const ROWS: u64 = 5000;
        for n in 0..ROWS {
            insert(&mut session, n);
        }
        let mut visited = BTreeSet::new();
        let scanned = session.scan(&table, |session, _, row| {
            assert!(visited.insert(row[0]), "{} is visited twice", row[0]);
            assert!(visited.len() < 50_000, "a scan runs after its own inserts");
            insert(session, ROWS + visited.len() as u64);
            ControlFlow::Continue(())
        });
        scanned.unwrap();
        assert!((0..ROWS).all(|n| visited.contains(&n)));
    }
}

#[test]
fn scan_sees_all_that_stays_while_others_come_and_go() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    let stay: Vec<_> = (0..10_000).map(SurrogateId).collect();
    let rows: Vec<_> = (0..10_000).map(|n| [n, n]).collect();
    session.insert_keyed_batch(&table, &stay, &rows).unwrap();
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = engine.session().unwrap();
            let come_and_go: Vec<_> = (0..500).map(|n| SurrogateId(1 << 32 | n)).collect();
            while busy.load(Ordering::Relaxed) {
                let added = session.insert_keyed_batch(&table, &come_and_go, &[[1 << 32; 2]; 500]);
                assert_eq!(added, Ok(500));
                assert_eq!(session.delete_batch(&table, &come_and_go), Ok(500));
            }
        });
        scope.spawn(|| {
            let mut session = engine.session().unwrap();
            let mut n = 1;
            while busy.load(Ordering::Relaxed) {
                let key = n * 7919 % 10_000;
                assert_eq!(
                    session.update(&table, SurrogateId(key), &[key, n]),
                    Ok(true)
                );
                n += 1;
            }
        });
        for _ in 0..10 {
            let mut seen = BTreeSet::new();
            let scanned = session.scan(&table, |_, _, row| {
                if row[0] < 10_000 {
                    assert!(seen.insert(row[0]), "{} is visited twice", row[0]);
                }
                ControlFlow::Continue(())
            });
            scanned.unwrap();
            assert_eq!(seen.len(), 10_000);
        }
        busy.store(false, Ordering::Relaxed);
    });
}

#[test]
fn scan_breaks_when_told_and_its_session_goes_on() {
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    session
        .insert_batch(&table, &[[1, 1]; 100], &mut Vec::new())
        .unwrap();
    let mut visits = 0;
    let scanned = session.scan(&table, |session, _, _| {
        visits += 1;
        assert_eq!(session.count(&table), Ok(100));
        if visits == 7 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!((scanned, visits), (Ok(()), 7));
    engine.drop_table("t").unwrap();
    let scanned = session.scan(&table, |_, _, _| ControlFlow::Continue(()));
    assert_eq!(scanned, Err(Error::TableGone));
}

#[test]
fn table_dropped_by_the_visitor_ends_its_scan_with_an_error() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "t");
    let mut session = engine.session().unwrap();
    // Both shards have rows, so that after the first there is something left to ask for.
    for shard in 0..2 {
        let key = keys_of(&engine, &table, shard).next().unwrap();
        session.insert_keyed(&table, key, &[1, 1]).unwrap();
    }
    let scanned = session.scan(&table, |_, _, _| {
        let _ = engine.drop_table("t");
        ControlFlow::Continue(())
    });
    assert_eq!(scanned, Err(Error::TableGone));
}

#[test]
fn reader_that_asks_for_b_before_a_never_sees_b_ahead() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let zero: Vec<_> = keys_of(&engine, &table, 0).take(2).collect();
    let one = keys_of(&engine, &table, 1).next().unwrap();
    // In one shard the order within a batch is enough. Over two, each read has to wait for the one
    // before it: a batch promises no order between shards.
    for (a, b) in [(zero[0], zero[1]), (zero[0], one), (one, zero[1])] {
        let is_batch = engine.shard_of(&table, a) == engine.shard_of(&table, b);
        let mut session = engine.session().unwrap();
        session.upsert(&table, a, &[0, 0]).unwrap();
        session.upsert(&table, b, &[0, 0]).unwrap();
        let busy = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut session = engine.session().unwrap();
                for n in 1..3000 {
                    session.update(&table, a, &[n, 0]).unwrap();
                    session.update(&table, b, &[n, 0]).unwrap();
                }
                busy.store(false, Ordering::Relaxed);
            });
            while busy.load(Ordering::Relaxed) {
                let (seen_b, seen_a) = if is_batch {
                    let rows = session.select_batch(&table, &[b, a]).unwrap();
                    (rows[0].unwrap()[0], rows[1].unwrap()[0])
                } else {
                    let seen_b = session.select(&table, b).unwrap().unwrap()[0];
                    (seen_b, session.select(&table, a).unwrap().unwrap()[0])
                };
                assert!(seen_a >= seen_b, "B {seen_b} is ahead of A {seen_a}");
            }
        });
    }
}

#[test]
fn transfers_within_a_shard_keep_the_sum_at_every_moment() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let keys: Vec<_> = keys_of(&engine, &table, 1).take(4).collect();
    let mut session = engine.session().unwrap();
    session
        .insert_keyed_batch(&table, &keys, &[[100, 0]; 4])
        .unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (engine, table, keys) = (&engine, &table, &keys);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                for n in 0..1000 {
                    let (from, to) = (keys[(n + number) % 4], keys[(n * 3 + 1) % 4]);
                    let moved = session.on(1, |context| {
                        let mut rows = context.rows(table)?;
                        let sum: u64 = keys
                            .iter()
                            .flat_map(|&key| rows.select(key))
                            .map(|row| row[0])
                            .sum();
                        assert_eq!(sum, 400);
                        let have = rows.select(from).unwrap()[0];
                        rows.update(from, &[have.wrapping_sub(7), 0])?;
                        if have < 7 {
                            return Err(Error::KeyNeeded);
                        }
                        let have = rows.select(to).unwrap()[0];
                        rows.update(to, &[have + 7, 0])?;
                        Ok(())
                    });
                    assert!(matches!(moved, Ok(()) | Err(Error::KeyNeeded)), "{moved:?}");
                }
            });
        }
    });
    let rows = session.select_batch(&table, &keys).unwrap();
    assert_eq!(rows.iter().flatten().map(|row| row[0]).sum::<u64>(), 400);
}

/// How many of the rows lie in each of four shards.
fn spread(ids: impl IntoIterator<Item = DirectId>) -> [usize; 4] {
    let mut spread = [0; 4];
    ids.into_iter().for_each(|id| spread[id.shard()] += 1);
    spread
}

fn inserted(outcomes: impl Iterator<Item = Outcome<Pair>>) -> Vec<DirectId> {
    outcomes
        .map(|outcome| match outcome {
            Outcome::Inserted(id) => id,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn rows_without_a_place_of_their_own_are_spread_over_the_shards() {
    let _watchdog = watchdog(60);
    let engine = builder(4).block_operations(64).build().unwrap();
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    let single = (0..400).map(|_| session.insert(&table, &[1, 1]).unwrap());
    assert_eq!(spread(single.collect::<Vec<_>>()), [100; 4]);
    // Also when they are not the only thing that a session does.
    let mut ids = Vec::new();
    for _ in 0..400 {
        let id = session.insert(&table, &[1, 1]).unwrap();
        session.select(&table, id).unwrap();
        ids.push(id);
    }
    assert_eq!(spread(ids), [100; 4]);
    let mut ids = Vec::new();
    session
        .insert_batch(&table, &[[1, 1]; 1024], &mut ids)
        .unwrap();
    assert_eq!(spread(ids), [256; 4]);
    let mut batch = Batch::<_, DirectId>::new(&table, 1024);
    (0..1024).for_each(|_| batch.insert(&[1, 1]).unwrap());
    session.run(&mut batch).unwrap();
    assert_eq!(spread(inserted(batch.outcomes().iter().cloned())), [256; 4]);
    let task = engine.spawn(2, move |resident| {
        let mut batch = Batch::<_, DirectId>::new(&table, 10);
        (0..10).for_each(|_| batch.insert(&[1, 1]).unwrap());
        resident.run(&mut batch).unwrap();
        spread(inserted(batch.outcomes().iter().cloned()))
    });
    assert_eq!(
        task.unwrap().join(),
        Ok([0, 0, 10, 0]),
        "a resident's rows are its shard's"
    );
}
