//! Databases with journals: what is there after a close, and what a process leaves that ends without one.

use std::time::Duration;

use ancile::{
    Acknowledge, DirectId, Durability, Engine, EngineBuilder, Error, OpenError, Schema,
    SurrogateId, Table, Verbs,
};

use super::database::{Place, settings};
use super::support::watchdog;

type Pair = [u64; 2];
type Wide = [u64; 40];

fn journaled() -> EngineBuilder {
    settings()
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(1 << 20)
}

fn tables(engine: &Engine) -> (Table<Pair>, Table<Pair>) {
    let keyed = engine.create_table("keyed", Schema::cells(2).keyed());
    let rows = engine.create_table("rows", Schema::cells(2));
    (keyed.unwrap(), rows.unwrap())
}

fn opened(engine: &Engine) -> (Table<Pair>, Table<Pair>) {
    (
        engine.open_table("keyed").unwrap(),
        engine.open_table("rows").unwrap(),
    )
}

#[test]
fn closed_database_is_opened_with_its_tables_and_rows() {
    let _watchdog = watchdog(120);
    let place = Place::new("journaled");
    let engine = journaled().open(place.path()).unwrap();
    assert_eq!(engine.durability(), Durability::Commit);
    let lies_in_memory = place.path().starts_with("/dev/shm");
    assert_eq!(!engine.warnings().is_empty(), lies_in_memory);
    let (keyed, rows) = tables(&engine);
    let mut session = engine.session().unwrap();
    let mut ids = Vec::<DirectId>::new();
    for round in 0..20 {
        let keys: Vec<SurrogateId> = (0..1000).map(|n| SurrogateId(round * 1000 + n)).collect();
        let pairs: Vec<Pair> = keys.iter().map(|key| [key.0, !key.0]).collect();
        assert_eq!(session.insert_keyed_batch(&keyed, &keys, &pairs), Ok(1000));
        session.insert_batch(&rows, &pairs, &mut ids).unwrap();
        let gone: Vec<SurrogateId> = keys.iter().copied().step_by(3).collect();
        assert_eq!(session.delete_batch(&keyed, &gone), Ok(gone.len()));
    }
    drop(session);
    engine.close().unwrap();
    for _ in 0..2 {
        let engine = journaled().open(place.path()).unwrap();
        let (keyed, rows) = opened(&engine);
        let mut session = engine.session().unwrap();
        for key in 0..20_000 {
            let expected = (key % 1000 % 3 != 0).then_some([key, !key]);
            assert_eq!(session.select(&keyed, SurrogateId(key)), Ok(expected));
        }
        let found = session.select_batch(&rows, &ids).unwrap();
        for (key, row) in found.into_iter().enumerate() {
            assert_eq!(row, Some([key as u64, !(key as u64)]));
        }
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn database_with_journals_is_not_opened_as_one_with_mapped_files_nor_the_other_way_round() {
    let place = Place::new("other");
    journaled().open(place.path()).unwrap().close().unwrap();
    let mapped = settings().durability(Durability::Process);
    let refused = mapped.open(place.path()).map(drop);
    assert!(matches!(refused, Err(OpenError::OtherDurability { .. })));
    let engine = settings().open(place.path()).unwrap();
    assert_eq!(engine.durability(), Durability::Commit);
    engine.close().unwrap();
    let other = Place::new("mapped");
    settings().open(other.path()).unwrap().close().unwrap();
    let refused = journaled().open(other.path()).map(drop);
    assert!(matches!(refused, Err(OpenError::OtherDurability { .. })));
}

#[test]
fn relaxed_session_does_not_wait_and_a_flush_makes_its_changes_durable() {
    let _watchdog = watchdog(120);
    let place = Place::new("relaxed");
    let hour = Durability::Epoch(Duration::from_secs(3600));
    let engine = journaled().durability(hour).open(place.path()).unwrap();
    let (keyed, _) = tables(&engine);
    let before = engine.durable_epoch();
    let mut session = engine.session().unwrap();
    session
        .insert_keyed(&keyed, SurrogateId(1), &[1, 1])
        .unwrap();
    assert_eq!(engine.durable_epoch(), before);
    session.flush().unwrap();
    assert!(engine.durable_epoch() > before);
    let before = engine.durable_epoch();
    session.set_acknowledge(Acknowledge::Durable);
    session
        .insert_keyed(&keyed, SurrogateId(2), &[2, 2])
        .unwrap();
    assert!(engine.durable_epoch() > before);
}

#[test]
fn database_with_journals_is_read_and_checked_without_being_changed() {
    let _watchdog = watchdog(120);
    let place = Place::new("read");
    let engine = journaled().open(place.path()).unwrap();
    let (keyed, _) = tables(&engine);
    let mut session = engine.session().unwrap();
    for key in 0..3_000 {
        session
            .insert_keyed(&keyed, SurrogateId(key), &[key, 1])
            .unwrap();
    }
    assert!(ancile::check(place.path()).is_err(), "it is open");
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{:?}", report.findings);
    assert_eq!(report.tables.len(), 2);
    let readers: Vec<Engine> = (0..2)
        .map(|_| settings().read_only(true).open(place.path()).unwrap())
        .collect();
    for engine in &readers {
        let (keyed, _) = opened(engine);
        let mut session = engine.session().unwrap();
        assert_eq!(session.count(&keyed), Ok(3_000));
        let refused = session.delete(&keyed, SurrogateId(1));
        assert_eq!(refused, Err(Error::DatabaseReadOnly));
    }
}

#[test]
fn large_database_is_read_as_it_is_touched_and_loaded_behind_its_users_backs() {
    let _watchdog = watchdog(300);
    let place = Place::new("large");
    let settings = || {
        journaled()
            .shards(1)
            .arena_bytes(256 << 20)
            .checkpoint_bytes(16 << 20)
    };
    let engine = settings().open(place.path()).unwrap();
    let keyed: Table<Wide> = engine
        .create_table("wide", Schema::cells(40).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    session.set_acknowledge(Acknowledge::Executed);
    let keys: Vec<SurrogateId> = (0..120_000).map(SurrogateId).collect();
    let rows: Vec<Wide> = keys.iter().map(|key| [key.0; 40]).collect();
    session.insert_keyed_batch(&keyed, &keys, &rows).unwrap();
    drop(session);
    engine.close().unwrap();
    let mut expected = rows;
    for life in 2..4 {
        let engine = settings().open(place.path()).unwrap();
        assert!(
            engine.loaded_bytes().1 > 32 << 20,
            "{:?}",
            engine.loaded_bytes()
        );
        let keyed: Table<Wide> = engine.open_table("wide").unwrap();
        let mut session = engine.session().unwrap();
        session.set_acknowledge(Acknowledge::Executed);
        // Changes go on while pages are loaded, from the first moment to the last, and beyond it.
        let mut chunk = 0;
        let mut has_more = true;
        while has_more {
            has_more = engine.loaded_bytes().0 < engine.loaded_bytes().1;
            let from = (chunk * 7_919) % (keys.len() - 1_000);
            let rows = vec![[chunk as u64 + life; 40]; 1_000];
            let changed = session.update_batch(&keyed, &keys[from..from + 1_000], &rows);
            assert_eq!(changed, Ok(1_000));
            expected[from..from + 1_000].copy_from_slice(&rows);
            chunk += 1;
        }
        let check = |session: &mut ancile::Session| {
            let rows = session.select_batch(&keyed, &keys).unwrap();
            assert!(rows.into_iter().eq(expected.iter().copied().map(Some)));
        };
        check(&mut session);
        session.flush().unwrap();
        drop(session);
        engine.close().unwrap();
    }
    assert!(ancile::check(place.path()).unwrap().is_whole());
}
