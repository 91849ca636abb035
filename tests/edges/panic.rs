//! Panics of the program's code inside a shard, and calls that a shard cannot serve itself.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ancile::{
    Context, DirectId, Engine, Error, Resident, Result, Schema, SurrogateId, Table, TableError,
    Verbs,
};

use super::support::{Pair, engine, keyed, keys_of, unkeyed, watchdog};

/// Panics when it is dropped.
struct Grenade(&'static str);

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("{} went off", self.0);
        }
    }
}

/// Panics when it is dropped, and its panic's payload is another such.
struct Chain(u32);

impl Drop for Chain {
    fn drop(&mut self) {
        if self.0 > 0 && !std::thread::panicking() {
            panic_any(Self(self.0 - 1));
        }
    }
}

/// Ways of panicking, by number, and whether the message is text.
const WAYS: u32 = 6;

fn panic_somehow(way: u32) {
    match way {
        0 => panic!("plain"),
        1 => panic!("formatted {way}"),
        2 => panic_any(17_u64),
        3 => panic_any(Grenade("payload")),
        4 => panic_any(Chain(3)),
        _ => drop([1_u64; 2][std::hint::black_box(3)..].to_vec()),
    }
}

fn message_of(result: Result<()>) -> String {
    match result {
        Err(Error::Panicked { message }) => message,
        other => panic!("{other:?} is no panic"),
    }
}

fn check_message(way: u32, message: &str) {
    match way {
        0 => assert_eq!(message, "plain"),
        1 => assert_eq!(message, "formatted 1"),
        5 => assert!(message.contains("range"), "{message}"),
        _ => assert!(message.contains("not text"), "{message}"),
    }
}

/// Changes of every kind to the rows of one shard.
fn change_everything(context: &mut Context<'_>, table: &Table<Pair>, keys: &[SurrogateId]) {
    let mut rows = context.rows(table).unwrap();
    assert_eq!(rows.delete(keys[0]), Ok(true));
    assert_eq!(rows.update(keys[1], &[9, 9]), Ok(true));
    rows.insert_keyed(keys[0], &[8, 8]).unwrap();
    rows.insert_keyed(keys[9], &[7, 7]).unwrap();
    assert_eq!(rows.delete(keys[0]), Ok(true));
    assert_eq!(rows.update_columns(keys[2], &[(1, 5)]), Ok(true));
    assert_eq!(rows.delete_batch(&keys[3..5]), Ok(2));
    assert_eq!(rows.upsert(keys[3], &[6, 6]), Ok(false));
}

#[test]
fn closure_that_panics_is_undone_and_the_shard_lives() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.session().unwrap();
    for shard in 0..2 {
        let keys: Vec<_> = keys_of(&engine, &table, shard).take(10).collect();
        let rows: Vec<Pair> = (0..9).map(|n| [n, shard as u64]).collect();
        session
            .insert_keyed_batch(&table, &keys[..9], &rows)
            .unwrap();
        let before = session.select_batch(&table, &keys).unwrap();
        for way in 0..WAYS {
            let result = session.on(shard, |context| {
                change_everything(context, &table, &keys);
                panic_somehow(way);
                Ok::<_, Error>(())
            });
            check_message(way, &message_of(result));
            let after = session.select_batch(&table, &keys).unwrap();
            assert_eq!(after, before, "after a panic of kind {way}");
            assert_eq!(session.count(&table), Ok(9 * (shard as u64 + 1)));
        }
        // As after an error.
        let failed = session.on(shard, |context| {
            change_everything(context, &table, &keys);
            Err::<(), _>(Error::KeyNeeded)
        });
        assert_eq!(failed, Err(Error::KeyNeeded));
        assert_eq!(session.select_batch(&table, &keys).unwrap(), before);
    }
}

#[test]
fn captured_values_that_panic_when_dropped_undo_the_closure() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    for shard in 0..2 {
        let captured = Grenade("capture");
        let result = session.on(shard, |context| {
            let _here = captured;
            context.rows(&table)?.insert(&[1, 1])?;
            Ok::<_, Error>(())
        });
        assert_eq!(message_of(result), "capture went off");
        assert_eq!(session.count(&table), Ok(0));
    }
}

#[test]
fn results_that_panic_when_dropped_hurt_only_who_drops_them() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    for shard in 0..2 {
        let result = session.on(shard, |context| {
            context.rows(&table)?.insert(&[1, 1])?;
            Ok::<_, Error>(Grenade("result"))
        });
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(result)));
        assert!(dropped.is_err());
        // Of a task that nobody watches: in the shard, or here if it is done already.
        let task = engine.spawn(shard, |_| Grenade("unwatched")).unwrap();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
        let task = engine.spawn(shard, |_| Grenade("watched")).unwrap();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(task.join())));
        assert!(dropped.is_err());
        assert_eq!(session.count(&table), Ok(shard as u64 + 1));
    }
    engine.close().unwrap();
}

#[test]
fn resident_that_panics_is_told_to_who_joins_and_the_shard_lives() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    for way in 0..WAYS {
        for shard in 0..2 {
            let table = table.clone();
            let captured = Chain(2);
            let work = move |resident: &mut Resident<'_>| {
                let _here = &captured;
                let key = SurrogateId(u64::from(way) * 2 + shard as u64);
                resident.insert_keyed(&table, key, &[1, 1]).unwrap();
                panic_somehow(way);
            };
            let task = engine.spawn(shard, work).unwrap();
            let message = message_of(task.join());
            // What a captured value panics with comes on top, and is kept quiet by then.
            check_message(way, &message);
        }
    }
    let mut session = engine.session().unwrap();
    // Resident work is no transaction: what it did stays.
    assert_eq!(session.count(&table), Ok(u64::from(WAYS) * 2));
    let shards = engine.on_every_shard(|resident| resident.shard());
    assert_eq!(shards, Ok(vec![0, 1]));
}

/// Every call of the public API that would wait for a shard, made inside one.
fn nested_calls(engine: &Engine, table: &Table<Pair>) {
    let mut session = engine.session().unwrap();
    let id = DirectId::from_u64(1);
    let inside = Err(Error::InsideShard);
    assert_eq!(session.select(table, id).map(drop), inside);
    assert_eq!(session.insert(table, &[1, 1]).map(drop), inside);
    assert_eq!(session.update(table, id, &[1, 1]).map(drop), inside);
    assert_eq!(session.delete(table, id).map(drop), inside);
    assert_eq!(session.count(table).map(drop), inside);
    assert_eq!(session.on(0, |_| Ok::<_, Error>(())), inside);
    assert_eq!(session.on(1, |_| Ok::<_, Error>(())), inside);
    assert_eq!(
        session.update_columns(table, id, &[(0, 1)]).map(drop),
        inside
    );
    let mut pipeline = session.pipeline::<_, DirectId>(table);
    assert_eq!(pipeline.select(id).map(drop), inside);
    assert_eq!(pipeline.wait().map(drop), inside);
    drop(pipeline);
    let first = session.select_iter(table, [id]).next();
    assert_eq!(first, Some(Err(Error::InsideShard)));
    let made = engine.create_table::<Pair>("inside", Schema::cells(2));
    assert_eq!(made.unwrap_err(), TableError::InsideShard);
    assert_eq!(engine.drop_table("t"), Err(TableError::InsideShard));
    assert_eq!(engine.prefault(1), inside);
    assert_eq!(engine.used_bytes().map(drop), inside);
    assert_eq!(engine.report().map(drop), inside);
    let ran = Arc::new(AtomicU64::new(0));
    let runs = Arc::clone(&ran);
    let everywhere = engine.on_every_shard(move |_| runs.fetch_add(1, Ordering::Relaxed));
    assert_eq!(everywhere.map(drop), inside);
    assert_eq!(ran.load(Ordering::Relaxed), 0, "an error changes nothing");
    assert_eq!(Arc::strong_count(&ran), 1, "nothing is left behind");
    // These wait for nobody.
    assert_eq!(engine.open_table::<Pair>("t").unwrap().name(), "t");
    assert_eq!(engine.tables().len(), 1);
    for shard in 0..2 {
        let task = engine.spawn(shard, |_| ()).unwrap();
        assert_eq!(task.join(), inside);
    }
}

#[test]
fn calls_that_would_wait_are_refused_inside_a_shard() {
    let _watchdog = watchdog(60);
    let engine = Arc::new(engine(2));
    let table = unkeyed(&engine, "t");
    let mut session = engine.session().unwrap();
    for shard in 0..2 {
        session
            .on(shard, |_| {
                nested_calls(&engine, &table);
                Ok::<_, Error>(())
            })
            .unwrap();
        let (engine_inside, table) = (Arc::clone(&engine), table.clone());
        let task = engine.spawn(shard, move |resident| {
            nested_calls(&engine_inside, &table);
            let nested = resident.on(resident.shard(), |_| {
                nested_calls(&engine_inside, &table);
                Ok::<_, Error>(())
            });
            nested.unwrap();
        });
        task.unwrap().join().unwrap();
    }
    assert_eq!(session.count(&table), Ok(0));
}

#[test]
fn resident_may_spawn_for_any_shard_and_look_for_the_result() {
    let _watchdog = watchdog(60);
    let engine = Arc::new(engine(2));
    let inside = Arc::clone(&engine);
    let chain = engine.spawn(0, move |resident| {
        let other = inside.spawn(1, |resident| resident.shard()).unwrap();
        let own = inside.spawn(0, |resident| resident.shard() + 10).unwrap();
        let mut other = Err(other);
        while let Err(task) = other {
            resident.serve();
            other = task.try_join();
        }
        // Its own shard runs one at a time.
        assert!(own.try_join().is_err());
        other.unwrap_or(Err(Error::Closed))
    });
    assert_eq!(chain.unwrap().join(), Ok(Ok(1)));
}

#[test]
fn two_residents_that_call_each_other_both_go_on() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = unkeyed(&engine, "t");
    let is_started = Arc::new(AtomicBool::new(false));
    let sums = engine.on_every_shard(move |resident| {
        is_started.store(true, Ordering::Relaxed);
        let other = 1 - resident.shard();
        let mut calls = 0_u64;
        for n in 0..500 {
            let called = resident.on(other, |context| {
                context.rows(&table)?.insert(&[n, n])?;
                Ok::<_, Error>(1)
            });
            calls += called.unwrap();
        }
        calls
    });
    assert_eq!(sums, Ok(vec![500, 500]));
}
