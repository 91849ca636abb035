//! Futures and functions that are told when changes are on the disk.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use ancile::{Acknowledge, Durability, Schema, SurrogateId, Table, Verbs};

use super::database::{Place, settings};
use super::executor::block_on;
use super::journals::{copy, journaled};
use super::support::watchdog;

type Pair = [u64; 2];

#[test]
fn what_was_told_to_be_on_the_disk_is_there_without_a_close() {
    let _watchdog = watchdog(120);
    let (place, copied) = (Place::new("flushed"), Place::new("flushed-copy"));
    // No epoch ends by itself within the test.
    let day = Durability::Epoch(Duration::from_secs(86_400));
    let engine = journaled().durability(day).open(place.path()).unwrap();
    let table: Table<Pair> = engine
        .create_table("table", Schema::cells(2).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    session.set_acknowledge(Acknowledge::Executed);
    for round in 0..6 {
        for key in 0..50 {
            session
                .upsert(&table, SurrogateId(key), &[key, round])
                .unwrap();
        }
        if round % 2 == 0 {
            block_on(engine.flushed()).unwrap();
        } else {
            let (tell, told) = mpsc::channel();
            engine
                .flushed()
                .then(move |result| tell.send(result).unwrap());
            told.recv().unwrap().unwrap();
        }
        copy(place.path(), copied.path());
        let found = journaled().open(copied.path()).unwrap();
        let table: Table<Pair> = found.open_table("table").unwrap();
        let mut reader = found.session().unwrap();
        for key in 0..50 {
            let row = reader.select(&table, SurrogateId(key));
            assert_eq!(row, Ok(Some([key, round])));
        }
        drop(reader);
        found.close().unwrap();
        fs::remove_dir_all(copied.path()).unwrap();
    }
    drop(session);
    engine.close().unwrap();
}

#[test]
fn who_waits_for_the_disk_is_told_though_the_engine_is_closed_or_has_no_journals() {
    let _watchdog = watchdog(120);
    for changes in [0, 1, 100] {
        let place = Place::new("flushed-closed");
        let engine = journaled().open(place.path()).unwrap();
        let table: Table<Pair> = engine.create_table("table", Schema::cells(2)).unwrap();
        let mut session = engine.session().unwrap();
        for change in 0..changes {
            session.insert(&table, &[change, 0]).unwrap();
        }
        let (future, callback) = (engine.flushed(), engine.flushed());
        drop(session);
        engine.close().unwrap();
        assert_eq!(block_on(future), Ok(()));
        let (tell, told) = mpsc::channel();
        callback.then(move |result| tell.send(result).unwrap());
        assert_eq!(told.recv().unwrap(), Ok(()));
    }
    let engine = settings().build().unwrap();
    assert_eq!(block_on(engine.flushed()), Ok(()));
    engine.close().unwrap();
}

#[test]
fn function_that_panics_when_it_is_told_harms_nobody() {
    /// What a panic leaves may panic in its turn.
    struct Brittle;
    impl Drop for Brittle {
        fn drop(&mut self) {
            panic!("whatever was left");
        }
    }
    let _watchdog = watchdog(120);
    let place = Place::new("flushed-panic");
    let engine = journaled().open(place.path()).unwrap();
    let table: Table<Pair> = engine.create_table("table", Schema::cells(2)).unwrap();
    let mut session = engine.session().unwrap();
    let (tell, told) = mpsc::channel();
    for change in 0..20 {
        session.insert(&table, &[change, 0]).unwrap();
        let tell = tell.clone();
        engine.flushed().then(move |result| {
            tell.send(result).unwrap();
            std::panic::panic_any(Brittle);
        });
    }
    for _ in 0..20 {
        assert_eq!(told.recv().unwrap(), Ok(()));
    }
    session.insert(&table, &[20, 0]).unwrap();
    assert_eq!(session.count(&table), Ok(21));
    drop(session);
    engine.close().unwrap();
    let engine = settings().build().unwrap();
    engine.flushed().then(|_| std::panic::panic_any(Brittle));
    engine.close().unwrap();
}
