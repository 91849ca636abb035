//! Opening, closing and dropping: nothing is left, nobody hangs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ancile::{Engine, Error, Outcome, Session, SurrogateId, TableError, Verbs};

use super::support::{
    Holdings, builder, engine, is_alone, keyed, resident_bytes, unkeyed, watchdog,
};

#[test]
fn a_thousand_engines_leave_no_thread_mapping_or_descriptor() {
    let _watchdog = watchdog(120);
    if !is_alone() {
        return;
    }
    let round = |number: u64| {
        let engine = builder(2).arena_bytes(8 << 20).build().unwrap();
        if number.is_multiple_of(2) {
            return;
        }
        let table = keyed(&engine, "k");
        let mut session = engine.session().unwrap();
        let keys: Vec<_> = (0..100).map(|n| SurrogateId(n * number)).collect();
        session
            .insert_keyed_batch(&table, &keys, &vec![[1, 2]; 100])
            .unwrap();
        let counted = engine.on_every_shard({
            let table = table.clone();
            move |resident| resident.rows(&table).unwrap().count()
        });
        assert_eq!(counted.unwrap().iter().sum::<u64>(), 100);
        match number % 8 {
            1 => engine.close().unwrap(),
            3 => drop(session),
            5 => {
                engine.drop_table("k").unwrap();
                let mut pipeline = session.pipeline(&table);
                pipeline.select(SurrogateId(1)).unwrap();
            }
            _ => {
                let mut pipeline = session.pipeline(&table);
                pipeline.select(SurrogateId(1)).unwrap();
                pipeline.flush().unwrap();
                std::mem::forget(pipeline);
            }
        }
    };
    // What is made once in a process is made by now.
    (0..50).for_each(round);
    // The harness's main thread, this one, and the watchdog.
    let before = settled(3);
    (0..1000).for_each(round);
    let after = settled(3);
    println!("{before:?} {after:?}");
    assert_eq!(after.descriptors, before.descriptors);
    // Neighbours may join or part; a mapping a round would be a thousand.
    assert!(after.mappings <= before.mappings + 10);
}

#[test]
fn memory_returns_after_drop_table_and_after_close() {
    let _watchdog = watchdog(60);
    if !is_alone() {
        return;
    }
    const BYTES: u64 = 64 << 20;
    let fill = |engine: &Engine| {
        let table = engine
            .create_table::<[u64; 64]>("t", ancile::Schema::cells(64))
            .unwrap();
        let mut session = engine.session().unwrap();
        let rows = vec![[1_u64; 64]; 4096];
        let mut ids = Vec::new();
        for _ in 0..BYTES / (512 * 4096) {
            session.insert_batch(&table, &rows, &mut ids).unwrap();
        }
    };
    let open = || builder(2).arena_bytes(256 << 20).build().unwrap();
    // The allocator has its buffers, the process its stacks.
    fill(&open());
    let empty = resident_bytes();
    let opened = open();
    for _ in 0..2 {
        fill(&opened);
        let full = resident_bytes();
        assert!(full >= empty + BYTES * 9 / 10, "{full} of {empty}");
        opened.drop_table("t").unwrap();
        let dropped = resident_bytes();
        assert!(dropped <= empty + BYTES / 10, "{dropped}, once {empty}");
    }
    fill(&opened);
    opened.close().unwrap();
    let closed = resident_bytes();
    assert!(closed <= empty + BYTES / 10, "{closed}, once {empty}");
}

#[test]
fn work_of_a_dropped_session_is_done() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut expected = 0;
    for round in 0..40 {
        let mut session = engine.session().unwrap();
        let mut pipeline = session.pipeline::<_, ancile::DirectId>(&table);
        for n in 0..round * 10 {
            pipeline.insert(&[n, n]).unwrap();
        }
        expected += round * 10;
        if round % 2 == 0 {
            // Waits for the answers.
            drop(pipeline);
        } else {
            pipeline.flush().unwrap();
            std::mem::forget(pipeline);
        }
        drop(session);
    }
    // A later request of another client is no proof that the lanes before it are empty.
    let mut session = engine.session().unwrap();
    while session.count(&table).unwrap() < expected {
        std::thread::yield_now();
    }
    assert_eq!(session.count(&table).unwrap(), expected);
}

#[test]
fn clients_of_an_engine_that_is_closed_under_them_are_all_answered() {
    let _watchdog = watchdog(60);
    for round in 0..150 {
        let engine = builder(3).lane_requests(1 + round % 3).build().unwrap();
        let table = keyed(&engine, "k");
        let started = Arc::new(AtomicU64::new(0));
        let residents: Vec<_> = (0..3)
            .map(|shard| {
                let (table, started) = (table.clone(), Arc::clone(&started));
                let work = move |resident: &mut ancile::Resident<'_>| {
                    started.fetch_add(1, Ordering::Relaxed);
                    let mut key = shard;
                    while !resident.is_closing() {
                        key += 3;
                        if resident.upsert(&table, SurrogateId(key), &[0, 0]).is_err() {
                            break;
                        }
                    }
                };
                engine.spawn(shard as usize, work).unwrap()
            })
            .collect();
        let clients: Vec<_> = (0..4_u64)
            .map(|number| {
                let mut session = engine.session().unwrap();
                let (table, started) = (table.clone(), Arc::clone(&started));
                std::thread::spawn(move || {
                    started.fetch_add(1, Ordering::Relaxed);
                    work_until_closed(&mut session, &table, number)
                })
            })
            .collect();
        while started.load(Ordering::Relaxed) < 7 {
            std::thread::yield_now();
        }
        engine.close().unwrap();
        for client in clients {
            assert_eq!(client.join().unwrap(), Error::Closed);
        }
        for task in residents {
            task.join().unwrap();
        }
    }
}

/// Works, each client in its own way, until there is an error.
fn work_until_closed(session: &mut Session, table: &ancile::Table<[u64; 2]>, number: u64) -> Error {
    let keys: Vec<_> = (0..200).map(SurrogateId).collect();
    loop {
        let result = match number {
            0 => session.select(table, SurrogateId(1)).map(drop),
            1 => session.update_batch(table, &keys, &[[1, 1]; 200]).map(drop),
            2 => session.on(1, |context| context.rows(table).map(drop)),
            _ => pipelined(session, table, &keys),
        };
        if let Err(error) = result {
            return error;
        }
    }
}

/// Submits all, and checks that all are answered; gives the first error.
fn pipelined(
    session: &mut Session,
    table: &ancile::Table<[u64; 2]>,
    keys: &[SurrogateId],
) -> ancile::Result<()> {
    let mut pipeline = session.pipeline(table);
    let (mut submitted, mut answered, mut first) = (0, 0, Ok(()));
    for &key in keys {
        match pipeline.upsert(key, &[2, 2]) {
            Ok(_) => submitted += 1,
            Err(error) => first = Err(error),
        }
    }
    loop {
        match pipeline.wait() {
            Ok(Some((_, Outcome::Failed(error)))) => first = Err(error),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                first = Err(error);
                break;
            }
        }
        answered += 1;
    }
    assert_eq!(answered, submitted, "each ticket is completed once");
    first
}

#[test]
fn resident_work_that_waits_is_done_before_the_engine_ends() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let done = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let done = Arc::clone(&done);
            let work = move |_: &mut ancile::Resident<'_>| done.fetch_add(1, Ordering::Relaxed);
            engine.spawn(number % 2, work).unwrap()
        })
        .collect();
    engine.close().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 200);
    for task in tasks {
        assert!(task.try_join().is_ok_and(|result| result.is_ok()));
    }
}

#[test]
fn ten_thousand_short_threads_leave_nothing() {
    let _watchdog = watchdog(120);
    if !is_alone() {
        return;
    }
    // Many shards, so that each lane is small.
    let engine = builder(8).arena_bytes(16 << 20).build().unwrap();
    let table = keyed(&engine, "k");
    let burst = |first: u64| {
        std::thread::scope(|scope| {
            for key in first..first + 10 {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    session
                        .insert_keyed(table, SurrogateId(key), &[key, 0])
                        .unwrap();
                });
            }
        });
    };
    (0..20).for_each(|number| burst(number * 10));
    let before = (settled(11), resident_bytes());
    (20..1020).for_each(|number| burst(number * 10));
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(10_200));
    let after = (settled(11), resident_bytes());
    println!("{before:?} {after:?}");
    assert_eq!(after.0.descriptors, before.0.descriptors);
    assert!(after.0.mappings <= before.0.mappings + 50);
    // A lane kept for each thread would be 1.3 GiB.
    assert!(after.1 <= before.1 + (128 << 20));
}

/// What this process holds once it has so many threads: one that was joined may be seen a little longer.
fn settled(threads: usize) -> Holdings {
    loop {
        let now = Holdings::now();
        if now.threads <= threads {
            return now;
        }
        std::thread::yield_now();
    }
}

#[test]
fn session_moves_between_threads() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    for number in 0..200 {
        let table = table.clone();
        let work = move || {
            let key = SurrogateId(number);
            session.insert_keyed(&table, key, &[number, 0]).unwrap();
            if number > 0 {
                let before = session.select(&table, SurrogateId(number - 1));
                assert_eq!(before, Ok(Some([number - 1, 0])));
            }
            session
        };
        session = std::thread::spawn(work).join().unwrap();
    }
    assert_eq!(session.count(&table), Ok(200));
    // One session, passed round by many threads.
    let session = Mutex::new(session);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in (0..200).map(SurrogateId) {
                    let mut session = session.lock().unwrap();
                    let row = session.select(&table, key).unwrap().unwrap();
                    session.update(&table, key, &[row[0], row[1] + 1]).unwrap();
                }
            });
        }
    });
    let mut session = session.into_inner().unwrap();
    for key in 0..200 {
        assert_eq!(session.select(&table, SurrogateId(key)), Ok(Some([key, 4])));
    }
}

#[test]
fn process_with_an_engine_in_a_static_ends_well() {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let _watchdog = watchdog(60);
    if !is_alone() {
        return;
    }
    let engine = ENGINE.get_or_init(|| engine(2));
    let table = unkeyed(engine, "t");
    for shard in 0..2 {
        let table = table.clone();
        let endless = move |resident: &mut ancile::Resident<'_>| {
            while !resident.is_closing() {
                resident.insert(&table, &[1, 1]).unwrap();
                resident.serve();
                let rows = resident.rows(&table).unwrap();
                if rows.count() > 1000 {
                    break;
                }
            }
        };
        engine.spawn(shard, endless).unwrap();
    }
    let mut session = engine.session().unwrap();
    let mut pipeline = session.pipeline::<_, ancile::DirectId>(&table);
    pipeline.insert(&[1, 1]).unwrap();
    pipeline.flush().unwrap();
    std::mem::forget(pipeline);
    std::mem::forget(session);
}

#[test]
fn engine_may_end_inside_its_own_shard() {
    let _watchdog = watchdog(60);
    for round in 0..20 {
        let engine = Arc::new(engine(2));
        let table = unkeyed(&engine, "t");
        let mut session = engine.session().unwrap();
        let mut idle = engine.session().unwrap();
        let own = Arc::clone(&engine);
        if round % 2 == 0 {
            let is_let_go = Arc::new(AtomicBool::new(false));
            let is_to_end = Arc::clone(&is_let_go);
            let work = move |resident: &mut ancile::Resident<'_>| {
                while !is_to_end.load(Ordering::Acquire) {
                    resident.serve();
                }
                drop(own);
                resident.shard()
            };
            let task = engine.spawn(1, work).unwrap();
            drop(engine);
            is_let_go.store(true, Ordering::Release);
            assert_eq!(task.join(), Ok(1));
        } else {
            let answer = session.on(0, move |_| {
                drop(engine);
                drop(own);
                Ok::<_, Error>(7)
            });
            assert_eq!(answer, Ok(7));
        }
        for session in [&mut session, &mut idle] {
            // The shards end one after the other.
            while session.insert(&table, &[1, 1]) != Err(Error::Closed) {}
            assert_eq!(session.count(&table), Err(Error::Closed));
        }
    }
}

#[test]
fn tables_may_be_made_opened_and_dropped_by_everybody_at_once() {
    let _watchdog = watchdog(60);
    let engine = Arc::new(engine(2));
    let busy = Arc::new(AtomicBool::new(true));
    let residents: Vec<_> = (0..2)
        .map(|shard| {
            let (engine, busy) = (Arc::clone(&engine), Arc::clone(&busy));
            let resident_engine = Arc::clone(&engine);
            let work = move |resident: &mut ancile::Resident<'_>| {
                while busy.load(Ordering::Relaxed) {
                    // Whatever the others do at this moment, a shard is not kept waiting.
                    let made = resident_engine
                        .create_table::<[u64; 2]>("inside", ancile::Schema::cells(2));
                    assert_eq!(made.unwrap_err(), TableError::InsideShard);
                    assert_eq!(
                        resident_engine.drop_table("a"),
                        Err(TableError::InsideShard)
                    );
                    if let Ok(table) = resident_engine.open_table::<[u64; 2]>("a")
                        && let Err(error) = resident.insert(&table, &[1, 1])
                    {
                        assert_eq!(error, Error::TableGone);
                    }
                    assert!(resident_engine.tables().len() <= 3);
                    resident.serve();
                }
            };
            engine.spawn(shard, work).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for name in ["a", "b", "a"] {
            let engine = &engine;
            scope.spawn(move || {
                for _ in 0..200 {
                    match engine.create_table::<[u64; 2]>(name, ancile::Schema::cells(2)) {
                        Ok(_) | Err(TableError::Exists(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    match engine.drop_table(name) {
                        Ok(()) | Err(TableError::Missing(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    busy.store(false, Ordering::Relaxed);
    residents.into_iter().for_each(|task| task.join().unwrap());
    assert!(engine.tables().is_empty());
    assert_eq!(engine.used_bytes().unwrap(), [0, 0]);
}
