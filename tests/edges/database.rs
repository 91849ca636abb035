//! Databases in files: what is there after a close, a crash of nobody, and with other openers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io};

use ancile::{
    DirectId, Durability, Engine, EngineBuilder, Error, OpenError, Schema, SurrogateId, Table,
    TableError, Verbs,
};

/// A directory that is gone with its value.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() {
            base.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = base.join(format!("ancile-{}-{name}-{number}", std::process::id()));
        // What a killed test of the same process number has left.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn settings() -> EngineBuilder {
    Engine::builder().shards(2).arena_bytes(64 << 20)
}

type Pair = [u64; 2];

fn rows(engine: &Engine, table: &Table<Pair>) -> Vec<(DirectId, Pair)> {
    let mut rows = Vec::new();
    let mut session = engine.session().unwrap();
    session
        .scan(table, |_, id, row| {
            rows.push((id, row));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    rows.sort_unstable();
    rows
}

#[test]
fn rows_of_all_verbs_are_there_after_a_close_and_grow_on() {
    let place = Place::new("rows");
    let mut kept: Vec<(DirectId, Pair)> = Vec::new();
    for round in 0..4_u64 {
        let engine = settings().open(place.path()).unwrap();
        assert_eq!(engine.durability(), Durability::Process);
        let (plain, keyed) = if round == 0 {
            (
                engine
                    .create_table::<Pair>("plain", Schema::cells(2))
                    .unwrap(),
                engine
                    .create_table::<Pair>("keyed", Schema::cells(2).keyed())
                    .unwrap(),
            )
        } else {
            (
                engine.open_table::<Pair>("plain").unwrap(),
                engine.open_table::<Pair>("keyed").unwrap(),
            )
        };
        assert_eq!(rows(&engine, &plain), kept);
        let mut session = engine.session().unwrap();
        for key in 0..round * 5_000 {
            let expected = (key % 7 != 0).then_some([key, round - 1]);
            let found = session.select(&keyed, SurrogateId(key)).unwrap();
            assert_eq!(found, expected, "key {key}");
        }
        let keys: Vec<SurrogateId> = (0..(round + 1) * 5_000).map(SurrogateId).collect();
        for &key in &keys {
            session.upsert(&keyed, key, &[key.0, round]).unwrap();
        }
        let gone: Vec<SurrogateId> = keys.iter().copied().filter(|key| key.0 % 7 == 0).collect();
        assert_eq!(session.delete_batch(&keyed, &gone).unwrap(), gone.len());
        let more: Vec<Pair> = (0..3_000).map(|at| [at, round]).collect();
        let mut ids = Vec::new();
        session.insert_batch(&plain, &more, &mut ids).unwrap();
        kept.extend(ids.into_iter().zip(more));
        let (gone, stay) = kept.split_at(700);
        for (id, _) in gone {
            assert!(session.delete(&plain, *id).unwrap());
        }
        kept = stay.to_vec();
        kept.sort_unstable();
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn second_opener_is_told_who_has_the_database_and_the_first_works_on() {
    let place = Place::new("lock");
    let engine = settings().open(place.path()).unwrap();
    let link = Place::new("link");
    std::os::unix::fs::symlink(place.path(), link.path()).unwrap();
    for path in [
        place.path().to_owned(),
        link.path().to_owned(),
        place.path().join("."),
    ] {
        for settings in [settings(), settings().read_only(true)] {
            let error = settings.open(&path).err().unwrap();
            let own = std::process::id();
            assert!(
                matches!(error, OpenError::InUse { process: Some(id), .. } if id == own),
                "{error}"
            );
            assert!(error.to_string().contains("in this process"), "{error}");
        }
    }
    let table = engine.create_table::<Pair>("t", Schema::cells(2)).unwrap();
    engine.session().unwrap().insert(&table, &[1, 2]).unwrap();
    let path = place.path().to_owned();
    let waits = std::thread::spawn(move || {
        let patience = Duration::from_secs(60);
        settings()
            .lock_patience(patience)
            .open(path)
            .map(Engine::close)
    });
    engine.close().unwrap();
    waits.join().unwrap().unwrap().unwrap();
    fs::remove_file(link.path()).unwrap();
}

#[test]
fn reading_only_changes_nothing_and_refuses_changes() {
    let place = Place::new("read-only");
    let engine = settings().open(place.path()).unwrap();
    let table = engine
        .create_table::<Pair>("t", Schema::cells(2).keyed())
        .unwrap();
    let key = SurrogateId(5);
    engine
        .session()
        .unwrap()
        .insert_keyed(&table, key, &[1, 2])
        .unwrap();
    engine.close().unwrap();
    let bytes = || -> Vec<Vec<u8>> {
        let files = ["MANIFEST", "shard-0000.arena", "shard-0001.arena"];
        files
            .iter()
            .map(|file| fs::read(place.path().join(file)).unwrap())
            .collect()
    };
    let before = bytes();
    let engine = settings().read_only(true).open(place.path()).unwrap();
    // Readers do not keep each other out.
    let other = settings().read_only(true).open(place.path()).unwrap();
    let table = engine.open_table::<Pair>("t").unwrap();
    let mut session = engine.session().unwrap();
    assert_eq!(session.select(&table, key).unwrap(), Some([1, 2]));
    let refused = Some(Error::DatabaseReadOnly);
    assert_eq!(session.update(&table, key, &[3, 4]).err(), refused);
    assert_eq!(session.delete(&table, key).err(), refused);
    assert_eq!(
        session.insert_keyed(&table, SurrogateId(6), &[3, 4]).err(),
        refused
    );
    assert_eq!(
        session.update_columns(&table, key, &[(0, 3)]).err(),
        refused
    );
    let changed = session.transaction(|tx| tx.update(&table, key, &[3, 4]).map(drop));
    assert_eq!(changed.err(), refused);
    let created = engine.create_table::<Pair>("u", Schema::cells(2)).err();
    assert_eq!(created, Some(TableError::ReadOnly));
    assert_eq!(engine.drop_table("t").err(), Some(TableError::ReadOnly));
    assert_eq!(session.select(&table, key).unwrap(), Some([1, 2]));
    drop(session);
    other.close().unwrap();
    engine.close().unwrap();
    assert_eq!(bytes(), before);
}

#[test]
fn dropped_tables_leave_their_space_and_their_names() {
    let place = Place::new("drop");
    for round in 0..6_u64 {
        let engine = settings().open(place.path()).unwrap();
        if round > 0 {
            engine.drop_table("t").unwrap();
        }
        assert_eq!(engine.tables(), []);
        let table = engine
            .create_table::<Pair>("t", Schema::cells(2).keyed())
            .unwrap();
        let mut session = engine.session().unwrap();
        let keys: Vec<SurrogateId> = (0..200_000).map(SurrogateId).collect();
        let rows = vec![[round; 2]; keys.len()];
        // Each round takes a third of the arenas.
        assert_eq!(
            session.insert_keyed_batch(&table, &keys, &rows).unwrap(),
            keys.len()
        );
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn another_number_of_shards_is_refused_with_the_number_to_use() {
    let place = Place::new("shards");
    settings().open(place.path()).unwrap().close().unwrap();
    let error = settings().shards(3).open(place.path()).err().unwrap();
    let numbers = OpenError::ShardCount {
        stored: 2,
        asked: 3,
    };
    assert_eq!(error.to_string(), numbers.to_string());
    let engine = Engine::builder()
        .arena_bytes(64 << 20)
        .open(place.path())
        .unwrap();
    assert_eq!(engine.shards(), 2);
}

#[test]
fn what_is_no_database_is_left_alone() {
    let place = Place::new("foreign");
    let error = settings()
        .must_exist(true)
        .open(place.path())
        .err()
        .unwrap();
    assert!(matches!(error, OpenError::Directory { .. }), "{error}");
    fs::create_dir(place.path()).unwrap();
    let letter = place.path().join("letter");
    fs::write(&letter, "dear reader").unwrap();
    let error = settings().open(place.path()).err().unwrap();
    assert!(matches!(error, OpenError::NoDatabase { .. }), "{error}");
    assert!(error.to_string().contains("letter"), "{error}");
    assert_eq!(fs::read(&letter).unwrap(), b"dear reader");
    let error = settings().open(&letter).err().unwrap();
    assert!(matches!(error, OpenError::Directory { .. }), "{error}");
}

#[test]
fn damaged_and_foreign_files_are_refused_by_name() {
    let place = Place::new("damaged");
    let engine = settings().open(place.path()).unwrap();
    engine.create_table::<Pair>("t", Schema::cells(2)).unwrap();
    engine.close().unwrap();
    let arena = place.path().join("shard-0001.arena");
    let whole = fs::read(&arena).unwrap();
    let open = || settings().open(place.path()).err().unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| -> io::Result<OpenError> {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(&arena, bytes)?;
        Ok(open())
    };
    let version = with(&|bytes| bytes[16] = 9).unwrap();
    assert!(
        matches!(
            version,
            OpenError::Version {
                found: 9,
                reads: 1,
                ..
            }
        ),
        "{version}"
    );
    for (at, value) in [(0, 7), (30, 9), (40, 255), (50, 1)] {
        let error = with(&|bytes| bytes[at] ^= value).unwrap();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "byte {at}: {error}"
        );
        assert!(error.to_string().contains("shard-0001.arena"), "{error}");
    }
    for length in [0, 100, 4096, (2 << 20) - 1, 2 << 20] {
        let error = with(&|bytes| bytes.truncate(length)).unwrap();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{length} bytes: {error}"
        );
    }
    fs::copy(place.path().join("shard-0000.arena"), &arena).unwrap();
    assert!(matches!(open(), OpenError::Damaged { .. }));
    fs::remove_file(&arena).unwrap();
    assert!(matches!(open(), OpenError::Directory { .. }));
    fs::write(&arena, &whole).unwrap();
    let manifest = place.path().join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    for (from, to) in [
        ("\"t\"", "\"\""),
        ("\"database\"", "\"data\""),
        ("\"serial\": 1", "\"serial\": 7"),
    ] {
        fs::write(&manifest, text.replace(from, to)).unwrap();
        let error = open();
        assert!(
            matches!(error, OpenError::NoDatabase { .. }),
            "{from}: {error}"
        );
    }
    fs::write(
        &manifest,
        text.replace("format_major\": 1", "format_major\": 2"),
    )
    .unwrap();
    assert!(matches!(open(), OpenError::Version { found: 2, .. }));
    fs::write(&manifest, text).unwrap();
    settings().open(place.path()).unwrap().close().unwrap();
}
