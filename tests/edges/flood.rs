//! Everybody floods everybody, through rings and blocks of any size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ancile::{DirectId, Engine, Outcome, Resident, SurrogateId, Table, Verbs};

use super::support::{Pair, builder, keyed, keys_of, watchdog};

/// Keys of one client: nobody else uses them.
fn own_keys(client: u64, count: u64) -> Vec<SurrogateId> {
    (0..count).map(|n| SurrogateId(client << 32 | n)).collect()
}

/// What one client does: every way of sending, each answer counted and checked.
fn flood(client: &mut impl Verbs, table: &Table<Pair>, number: u64, count: u64) {
    let keys = own_keys(number, count);
    let rows: Vec<Pair> = keys.iter().map(|key| [key.0, 0]).collect();
    assert_eq!(
        client.insert_keyed_batch(table, &keys, &rows),
        Ok(keys.len())
    );
    let mut seen = vec![0_u8; keys.len()];
    let selected = client.select_each(table, &keys, |at, row| {
        assert_eq!(row, Some(&rows[at]));
        seen[at] += 1;
    });
    selected.unwrap();
    assert!(seen.iter().all(|&times| times == 1), "each answered once");
    let changed: Vec<Pair> = keys.iter().map(|key| [key.0, 1]).collect();
    assert_eq!(client.update_batch(table, &keys, &changed), Ok(keys.len()));

    let mut pipeline = client.pipeline(table);
    let mut answered = vec![0_u8; 2 * keys.len()];
    let mut take = |ticket: ancile::Ticket, outcome| {
        let expected = match ticket.0 % 2 {
            0 => Outcome::Updated,
            _ => Outcome::Selected([keys[ticket.0 as usize / 2].0, 2]),
        };
        assert_eq!(outcome, expected);
        answered[ticket.0 as usize] += 1;
    };
    for &key in &keys {
        pipeline.update(key, &[key.0, 2]).unwrap();
        pipeline.select(key).unwrap();
        if let Some((ticket, outcome)) = pipeline.complete().unwrap() {
            take(ticket, outcome);
        }
    }
    while let Some((ticket, outcome)) = pipeline.wait().unwrap() {
        take(ticket, outcome);
    }
    assert_eq!(pipeline.outstanding(), 0);
    drop(pipeline);
    assert!(
        answered.iter().all(|&times| times == 1),
        "each answered once"
    );

    for &key in keys.iter().step_by(10) {
        let row = client.select(table, key).unwrap().unwrap();
        let shard = key_shard(client, table, key);
        let sum = client.on(shard, |context| {
            let mut rows = context.rows(table)?;
            rows.update(key, &[row[0], row[1] + 1])?;
            Ok::<_, ancile::Error>(rows.select(key).map_or(0, |row| row[1]))
        });
        assert_eq!(sum, Ok(3));
    }
    let odd: Vec<_> = keys.iter().copied().skip(1).step_by(2).collect();
    assert_eq!(client.delete_batch(table, &odd), Ok(odd.len()));
}

/// The shard of a row, as its direct id tells.
fn key_shard(client: &mut impl Verbs, table: &Table<Pair>, key: SurrogateId) -> usize {
    // Replacing a row by itself under a new place tells the place.
    let row = client.select(table, key).unwrap().unwrap();
    assert_eq!(client.delete(table, key), Ok(true));
    let id: DirectId = client.insert_keyed(table, key, &row).unwrap();
    id.shard()
}

/// All shards and eight threads at once.
fn flood_all(engine: &Arc<Engine>, count: u64) {
    let table = keyed(engine, "k");
    let shards = engine.shards() as u64;
    let mut expected = 0;
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (engine, table) = (engine, &table);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                flood(&mut session, table, 1000 + number, count);
            });
        }
        let inside = table.clone();
        let work = move |resident: &mut Resident<'_>| {
            let number = resident.shard() as u64;
            flood(resident, &inside, number, count);
        };
        engine.on_every_shard(work).unwrap();
    });
    expected += (8 + shards) * count.div_ceil(2);
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(expected));
    let mut versions = 0;
    let scanned = session.scan(&table, |_, _, row| {
        versions += row[1];
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    // Every tenth row of a client, all of them kept, was changed once more.
    let more = (8 + shards) * count.div_ceil(10);
    assert_eq!(versions, 2 * expected + more);
    engine.drop_table("k").unwrap();
}

#[test]
fn every_operation_is_answered_once_whatever_the_sizes_of_lanes_and_blocks() {
    let _watchdog = watchdog(120);
    for lane_requests in [1, 2, 3] {
        for block_operations in [1, 2, 3, 64] {
            let engine = builder(3)
                .lane_requests(lane_requests)
                .block_operations(block_operations);
            flood_all(&Arc::new(engine.build().unwrap()), 150);
        }
    }
}

#[test]
fn fourteen_shards_on_any_number_of_processors_answer_every_operation_once() {
    let _watchdog = watchdog(120);
    for lane_requests in [1, 64] {
        let engine = builder(14).lane_requests(lane_requests).build().unwrap();
        flood_all(&Arc::new(engine), 100);
    }
}

#[test]
fn client_that_takes_no_answers_holds_nobody_up() {
    let _watchdog = watchdog(60);
    let engine = builder(2).lane_requests(1).block_operations(2);
    let engine = engine.build().unwrap();
    let table = keyed(&engine, "k");
    let mut slow = engine.session().unwrap();
    let mut pipeline = slow.pipeline(&table);
    for shard in 0..2 {
        let keys = keys_of(&engine, &table, shard);
        for key in keys.take(2) {
            pipeline.upsert(key, &[0, 0]).unwrap();
        }
    }
    let mut quick = engine.session().unwrap();
    flood(&mut quick, &table, 7, 200);
    let worker = table.clone();
    let work = move |resident: &mut Resident<'_>| {
        let number = resident.shard() as u64;
        flood(resident, &worker, number + 100, 200);
    };
    engine.on_every_shard(work).unwrap();
    let mut completed = 0;
    while pipeline.wait().unwrap().is_some() {
        completed += 1;
    }
    assert_eq!(completed, 4);
}

/// More than the control queue of a shard would hold if it had a bound of this size.
const FULL: usize = 1024;

#[test]
fn residents_go_on_however_many_clients_wait_for_their_shards() {
    let _watchdog = watchdog(60);
    // Many shards, so that each lane is small.
    let engine = builder(16).arena_bytes(8 << 20).build().unwrap();
    let table = keyed(&engine, "k");
    let both: Vec<_> = (0..2)
        .map(|shard| keys_of(&engine, &table, shard).next().unwrap())
        .collect();
    let is_ready = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..2)
        .map(|shard| {
            let (table, is_ready) = (table.clone(), Arc::clone(&is_ready));
            let running = Arc::clone(&running);
            let other = both[1 - shard];
            let work = move |resident: &mut Resident<'_>| {
                running.fetch_add(1, Ordering::Release);
                while !is_ready.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let called = resident.on(1 - shard, |_| Ok::<_, ancile::Error>(()));
                called.and_then(|()| resident.upsert(&table, other, &[9, 9]).map(drop))
            };
            engine.spawn(shard, work).unwrap()
        })
        .collect();
    // From here on the two shards serve nobody before they are told to.
    while running.load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
    let (table, both, engine) = (&table, &both, &engine);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sessions: Vec<_> = (0..FULL + 50)
                .map(|number| {
                    if number == FULL {
                        is_ready.store(true, Ordering::Release);
                    }
                    let mut session = engine.session().unwrap();
                    let mut pipeline = session.pipeline(table);
                    for &key in both {
                        pipeline.upsert(key, &[1, 1]).unwrap();
                    }
                    pipeline.flush().unwrap();
                    std::mem::forget(pipeline);
                    session
                })
                .collect();
            for session in &mut sessions {
                let rows = session.select_batch(table, both).unwrap();
                assert_eq!(rows.iter().flatten().count(), 2);
            }
        });
    });
    for task in tasks {
        assert_eq!(task.join(), Ok(Ok(())));
    }
}
